"""Null campaigns of real runs on the emulated machine: baselines against counters in code that never runs.

    python experiments/false_alarms/real_runs.py [--campaigns 10] [--workers 1]

For each of five programs on each of two machines so many campaigns, each of 10 pairs of runs of its own (no run serves
in two campaigns): the plain program, and a program with counters in code that never runs, linked in the same order of
functions. They are judged as `measure run` judges the variant of a campaign, within and across runs together. A verdict
of *perturbed* is a false alarm, and so is *changed* in more than 5% of the campaigns. Writes real_runs.csv beside
itself, the campaigns of a program and machine as soon as they are done; those that are there already are kept.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from common.atomic_files import filling
from experiments.false_alarms.simulate import clopper_pearson
from measure.judging.comparison import VariantComparison
from measure.perturbation.analysis_types import gravest
from measure.run_types import BASELINE, NULL_CONTROL, Run
from measure.runs.campaign_file import load_campaign
from measure.runs.executor import execute_plan
from measure.runs.plan import make_plan
from measure.runs.store import Store

HERE = Path(__file__).parent
PAIRS = 10
MACHINES = ("desktop", "strongarm")
EVERY = {"netsimplex": 10_000, "bwtzip": 25_000, "chess": 40_000, "nbody": 50_000, "ooosim": 60_000}
"""Length of an interval in cycles, by program: about 200 records a run."""
SIZE = "tiny"
CAMPAIGN = """\
name: null-runs
program: {{source: {source}, args: [{size}]}}
machine: {machine}
sampling: {{every: {every} cycles}}
hardware_metrics: [PAPI_TOT_INS, PAPI_LD_INS, PAPI_SR_INS, PAPI_BR_CN, PAPI_BR_MSP, PAPI_L1_DCM, PAPI_L1_ICM]
software_metrics:
  starts: {{event: entry, function: main}}
baselines: {runs}
replicates: {runs}
seed: 11
noise: {{interrupts: 200k}}
"""
COLUMNS = (
    "program",
    "machine",
    "campaign",
    "records",
    "inner",
    "p_inner",
    "outer",
    "p_outer",
    "verdict",
    "significant",
)


def null_campaigns(program: str, machine: str, campaigns: int, workers: int, folder: Path) -> list[list[object]]:
    """The rows of so many campaigns of ``program`` on ``machine``, whose runs are made in ``folder``."""
    root = HERE.parents[1]
    path = folder / "null.yaml"
    text = CAMPAIGN.format(
        source=root / "experiments" / "workloads" / f"{program}.c", size=SIZE,
        machine=root / "configs" / "machines" / f"{machine}.yaml", every=EVERY[program], runs=campaigns * PAIRS,
    )  # fmt: skip
    path.write_text(text)
    plan = make_plan(*load_campaign(path), lambda text: None)
    made = zip(plan.specs, plan.keys, strict=True)
    wanted = {spec: key for spec, key in made if spec.variant in (BASELINE, NULL_CONTROL)}
    with Store(folder / "out") as store:
        outcome = execute_plan(tuple(wanted), store, keys=tuple(wanted.values()), workers=workers)
    if outcome.failures:
        raise SystemExit(outcome.failures[0].reason)
    campaign = plan.campaign.model_copy(update={"baselines": PAIRS, "replicates": PAIRS})
    rows: list[list[object]] = []
    for number in range(campaigns):
        baselines, runs = (of_campaign(outcome.runs, variant, number) for variant in (BASELINE, NULL_CONTROL))
        comparison = VariantComparison(campaign, baselines, {NULL_CONTROL: runs})
        found = comparison.within_runs(NULL_CONTROL), comparison.across_runs(NULL_CONTROL)
        verdict = gravest([one.verdict for one in found])
        significant = any(one.p_value <= one.level for one in found)
        told = [value for one in found for value in (one.verdict, f"{one.p_value:.4f}")]
        records = min(run.trace.n_records for run in (*baselines, *runs))
        rows.append([program, machine, number, records, *told, verdict, int(significant)])
    return rows


def of_campaign(runs: Sequence[Run], variant: str, number: int) -> list[Run]:
    """The runs of a variant that belong to campaign ``number``, numbered from 0."""
    first = number * PAIRS
    chosen = [run for run in runs if run.spec.variant == variant and 0 <= run.spec.replicate - first < PAIRS]
    chosen.sort(key=lambda run: run.spec.replicate)
    return [replace(run, spec=replace(run.spec, replicate=run.spec.replicate - first)) for run in chosen]


def main() -> None:
    """Run, judge, record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--campaigns", type=int, default=10, help="of a program on a machine")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, default=HERE / "real_runs.csv")
    arguments = parser.parse_args()
    rows: list[list[object]] = []
    if arguments.out.exists():
        with arguments.out.open(newline="") as file:
            rows = [list(one) for one in list(csv.reader(file))[1:]]
    for program in EVERY:
        for machine in MACHINES:
            if sum(one[:2] == [program, machine] for one in rows) == arguments.campaigns:
                continue
            rows = [one for one in rows if one[:2] != [program, machine]]
            started = time.monotonic()
            with tempfile.TemporaryDirectory() as folder:
                rows += null_campaigns(program, machine, arguments.campaigns, arguments.workers, Path(folder))
            with filling(arguments.out) as made, made.open("w", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])
            print(program, machine, f"{time.monotonic() - started:.0f} s", flush=True)
    for what, count in tally(rows).items():
        low, high = clopper_pearson(count, len(rows))
        print(f"{what}: {count} of {len(rows)}, {count / len(rows):.1%} ({low:.1%} to {high:.1%})")


def tally(rows: Sequence[Sequence[object]]) -> dict[str, int]:
    """How many campaigns had each verdict, and how many a significant change."""
    verdicts = [str(row[COLUMNS.index("verdict")]) for row in rows]
    counts = {verdict: verdicts.count(verdict) for verdict in dict.fromkeys(["perturbed", "changed", *verdicts])}
    return counts | {"significant": sum(str(row[-1]) == "1" for row in rows)}


if __name__ == "__main__":
    main()
