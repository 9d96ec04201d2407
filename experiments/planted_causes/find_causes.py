"""Runs the planted programs and looks whether `measure explain` finds their causes: a row of results.csv each.

Started again, it makes only the rows that are missing. An instance whose counters do not perturb is skipped, and
counted as skipped.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from experiments.planted_causes.programs import CAUSES, KEPT_ASIDE, Instance, instance
from measure.explanation.mechanisms import find_mechanisms
from measure.explanation.paired_runs import PLAIN, PairedRuns, ProgramChoice
from measure.explanation.relations import Relations, broken_relations
from measure.perturbation.perturbation import inner_perturbation
from measure.runs.campaign_file import load_campaign
from measure.runs.executor import Workers
from measure.runs.plan import make_plan
from measure.runs.store import Store

HERE = Path(__file__).parent
COLUMNS = (
    "cause", "number", "machine", "verdict", "mechanism", "first", "share", "low", "high", "second", "second_share",
    "relations", "largest_change", "seconds",
)  # fmt: skip
N_PAIRS = 6
N_EXPLAINED_PAIRS = 3
"""Pairs for the verdict, and those of them whose counterfactual runs are made."""
MOST_NUMBERS = 6
"""Instances that are examined at most, for each that is wanted."""
Row = dict[str, object]


def examine(one: Instance, directory: Path, workers: Workers) -> Row:
    """Run an instance's program in pairs, judge it as a campaign does, and find the mechanism if it is perturbed."""
    started = time.monotonic()
    campaign, document = load_campaign(one.write(directory))
    plan = make_plan(campaign, document, lambda text: None)
    with Store(directory / "explain") as store:
        paired = PairedRuns(plan, document, store, workers, N_PAIRS)
        choice = ProgramChoice(tuple(one.metrics))
        made = paired.runs([PLAIN, choice])
        judged = inner_perturbation(
            paired.correlations(made[PLAIN]), paired.correlations(made[choice]), paired=True,
            delta=campaign.delta, alpha=campaign.alpha, seed=campaign.seed,
        )  # fmt: skip
        row: Row = dict.fromkeys(COLUMNS, "")
        row |= {"cause": one.cause, "number": one.number, "machine": one.machine, "verdict": judged.verdict}
        if judged.verdict == "perturbed":
            broken = broken_relations(judged)
            relations = Relations(broken, paired.hardware, campaign.alignment_setting)
            paired = PairedRuns(plan, document, store, workers, N_EXPLAINED_PAIRS)
            change = find_mechanisms(paired, choice, relations, with_cuts=False).change
            shares = [change.share(part) for part in change.parts]
            row |= {
                "mechanism": one.mechanism, "first": change.parts[0].name, "share": f"{shares[0].mean:.3f}",
                "low": f"{shares[0].low:.3f}", "high": f"{shares[0].high:.3f}",
                "second": change.parts[1].name, "second_share": f"{shares[1].mean:.3f}",
                "relations": len(broken), "largest_change": f"{max(abs(p.delta_z) for p in judged.pairs):.3f}",
            }  # fmt: skip
    row["seconds"] = f"{time.monotonic() - started:.1f}"
    return row


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a file of results; none without one."""
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def add_row(path: Path, row: Row) -> None:
    """Append a row, after the header if the file is new."""
    new = not path.is_file()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if new:
            writer.writeheader()
        writer.writerow(row)


def table(rows: Sequence[dict[str, str]]) -> str:
    """The numbers of the README, by cause and machine, with exact intervals."""
    from scipy.stats import binomtest

    lines = ["| cause | machine | instances | skipped | right cause first |", "|---|---|---|---|---|"]
    groups = [(c, m) for c in CAUSES for m in ("desktop", "strongarm")] + [("all", "both")]
    for cause, machine in groups:
        group = [row for row in rows if cause in (row["cause"], "all") and machine in (row["machine"], "both")]
        found = [row for row in group if row["first"]]
        if not found:
            continue
        right = sum(row["first"] == row["mechanism"] for row in found)
        interval = binomtest(right, len(found)).proportion_ci()
        shown = f"{right} of {len(found)} ({100 * interval.low:.0f}% to {100 * interval.high:.0f}%)"
        lines.append(f"| {cause} | {machine} | {len(group)} | {len(group) - len(found)} | {shown} |")
    return "\n".join(lines)


def main() -> None:
    """Make the missing rows, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=26, help="of each cause that are not skipped")
    parser.add_argument("--first", type=int, default=KEPT_ASIDE, help="number of the first")
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--out", type=Path, default=HERE / "results.csv")
    given = parser.parse_args()
    with Workers(given.workers) as workers:
        for number in range(given.first, given.first + MOST_NUMBERS * given.instances):
            for cause in CAUSES:
                rows = [row for row in read_rows(given.out) if row["cause"] == cause]
                there = number in (int(row["number"]) for row in rows)
                if there or sum(row["first"] != "" for row in rows) >= given.instances:
                    continue
                with tempfile.TemporaryDirectory() as directory:
                    row = examine(instance(cause, number), Path(directory), workers)
                add_row(given.out, row)
                print(*row.values(), flush=True)
    print(table(read_rows(given.out)))


if __name__ == "__main__":
    main()
