"""Null campaigns of real runs: "instrumented" runs that are further baselines, on the emulated machine.

    python experiments/false_alarms/real_runs.py [--campaigns 6] [--workers 2]

Every campaign has 20 + 5 runs of its own, of the same program, differing in their seeds only. A verdict of
*perturbed* is a false alarm. Writes real_runs.csv beside itself.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from pathlib import Path

from common.atomic_files import filling

sys.path.insert(0, str(Path(__file__).parents[2]))

from measure.campaign.campaign_file import load_campaign
from measure.campaign.executor import execute_plan
from measure.campaign.plan import make_plan
from measure.campaign.store import Store
from measure.perturbation.perturbation import inner_perturbation, outer_perturbation
from measure.stats.correlation import spearman

HERE = Path(__file__).parent
BASELINES, RUNS = 20, 5
CAMPAIGN = """\
name: null-runs
program: {{source: {source}, args: [{size}]}}
machine: {machine}
sampling: {{every: 20000 cycles}}
hardware_metrics:
  [PAPI_TOT_INS, PAPI_LD_INS, PAPI_SR_INS, PAPI_BR_CN, PAPI_BR_MSP, PAPI_L1_DCM, PAPI_L1_ICM, PAPI_L2_TCM]
baselines: {baselines}
seed: {seed}
noise: {{interrupts: 200k}}
"""


def main() -> None:
    """Run, judge, record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--campaigns", type=int, default=6)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--program", default="chess")
    parser.add_argument("--size", default="tiny")
    arguments = parser.parse_args()
    root = HERE.parents[1]
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "null.yaml"
        path.write_text(
            CAMPAIGN.format(
                source=root / "experiments" / "workloads" / f"{arguments.program}.c",
                size=arguments.size,
                machine=root / "configs" / "machines" / "desktop.yaml",
                baselines=arguments.campaigns * (BASELINES + RUNS),
                seed=11,
            )
        )
        plan = make_plan(*load_campaign(path), print)
        with Store(Path(directory) / "out") as store:
            outcome = execute_plan(plan.specs, store, keys=plan.keys, workers=arguments.workers)
        if outcome.failures:
            raise SystemExit(outcome.failures[0].reason)
        metrics = plan.campaign.hardware_metrics
        runs = [run.trace.columns(metrics) for run in outcome.runs]
        for number in range(arguments.campaigns):
            part = runs[number * (BASELINES + RUNS) :][: BASELINES + RUNS]
            baseline, further = part[:BASELINES], part[BASELINES:]
            inner = inner_perturbation(
                [spearman(one, metrics) for one in baseline],
                [spearman(one, metrics) for one in further],
                seed=1,
            )
            results = [inner]
            results += [
                outer_perturbation(baseline, further, metrics, held_out=held_out, seed=1) for held_out in (False, True)
            ]
            for result in results:
                significant = result.p_value <= result.alpha
                rows.append([number, result.kind, result.verdict, f"{result.p_value:.4f}", int(significant)])
                print(*rows[-1], flush=True)
    with filling(HERE / "real_runs.csv") as made, made.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["campaign", "kind", "verdict", "p", "significant"])
        writer.writerows(rows)


if __name__ == "__main__":
    main()
