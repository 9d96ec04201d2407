"""How far dynamic time warping is off, in records, per channel set and algorithm: the quickstart campaign.

    python experiments/ground_truth/alignment.py [--results results/quickstart] [--runs 5]

Runs nothing: `measure run configs/campaigns/quickstart.yaml` comes first. Writes alignment.csv beside itself.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from measure.errors import MeasureError
from measure.merge.command import load_results
from measure.merge.truth import alignment_error
from measure.store import write_atomically

HERE = Path(__file__).parent


def main() -> int:
    """Compare, record, print the means."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=Path("results/quickstart"))
    parser.add_argument("--runs", type=int, default=5, help="of each group; default: 5")
    parser.add_argument("--baseline", type=int)
    parser.add_argument("--out", type=Path, default=HERE / "alignment.csv")
    arguments = parser.parse_args()
    try:
        results = load_results(arguments.results)
        baseline = results.baseline(arguments.baseline)
        # A further baseline: what alignment is off by where nothing was added.
        others = [run for run in results.baselines if run is not baseline][: arguments.runs]
        runs = [run for run in results.runs if run.spec.replicate < arguments.runs]
        table = alignment_error(baseline, [*others, *runs])
        write_atomically(arguments.out, lambda to: table.to_csv(to, index=False, float_format="%.4g"))
    except MeasureError as error:
        print(f"alignment: {error}", file=sys.stderr)
        return error.exit_status
    errors = ["mean_records", "median_records", "p95_records", "largest_records"]
    print(table.groupby(["group", "algorithm", "channels"])[errors].mean().round(2).to_string())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
