"""How alike runs of one code layout are, what that does to null campaigns, and how much pairing reduces the variance.

    python experiments/campaign_design/real_runs.py [--layouts 60] [--repeats 4] [--workers 2]

For each program a pool of runs: every code layout is run several times with other noise, by the program itself
(baseline), with counters in code that never runs (null control), and with counters (variant). Run i of all three shares
layout and noise. Null campaigns are drawn from the pool: their "instrumented" runs are of the null control, and
layouts are drawn anew for both sides, as a campaign draws them. Writes real_runs.csv (a row a program and pair of
metrics) and null_campaigns.csv (a row a program and design) beside itself.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[2]))

from common.atomic_files import filling
from measure.run_types import BASELINE, NULL_CONTROL
from measure.runs.campaign_file import load_campaign
from measure.runs.executor import execute_plan
from measure.runs.plan import content_keys, make_plan
from measure.runs.store import Store
from measure.stats.correlation import fisher_z, spearman

HERE = Path(__file__).parent
METRICS = (
    "PAPI_TOT_INS", "PAPI_LD_INS", "PAPI_SR_INS", "PAPI_BR_CN", "PAPI_BR_MSP", "PAPI_L1_DCM", "PAPI_L1_ICM",
    "PAPI_L2_TCM",
)  # fmt: skip
COUNTERS = {"ooosim": "load_latency", "chess": "make_move", "netsimplex": "pivot"}
CAMPAIGN = """\
name: pool
program: {{source: {root}/experiments/workloads/{program}.c, args: [tiny]}}
machine: {root}/configs/machines/desktop.yaml
sampling: {{every: 20000 cycles}}
hardware_metrics: [{metrics}]
software_metrics: {{calls: {{event: entry, function: {function}}}}}
baselines: {runs}
replicates: {runs}
seed: 5
"""
CAMPAIGNS = 1000
PERMUTATIONS = 199
DESIGNS = ("20 + 5, five layouts", "20 + 5, a layout for each run", "10 pairs, a layout for each pair")


def pool(program: str, layouts: int, repeats: int, workers: int) -> dict[str, NDArray[np.float64]]:
    """z of each pair of metrics, by variant: (layouts, repeats, pairs)."""
    runs = layouts * repeats
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "pool.yaml"
        path.write_text(
            CAMPAIGN.format(
                root=HERE.parents[1], program=program, metrics=", ".join(METRICS), function=COUNTERS[program], runs=runs
            )
        )
        plan = make_plan(*load_campaign(path), print)
        specs = [replace(spec, layout_seed=spec.replicate // repeats) for spec in plan.specs]
        with Store(Path(directory) / "out") as store:
            outcome = execute_plan(specs, store, keys=content_keys(specs), workers=workers)
    if outcome.failures:
        raise SystemExit(outcome.failures[0].reason)
    first, second = np.triu_indices(len(METRICS), 1)
    found: dict[str, NDArray[np.float64]] = {}
    for run in outcome.runs:
        table = found.setdefault(run.spec.variant, np.zeros((layouts, repeats, len(first))))
        rho = spearman(run.trace.columns(METRICS), METRICS).rho[first, second]
        table[divmod(run.spec.replicate, repeats)] = fisher_z(rho)
    return found


def intraclass(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Share of the variance between layouts, (pairs,), by one-way analysis of variance; at least 0."""
    repeats = z.shape[1]
    within = z.var(axis=1, ddof=1).mean(axis=0)
    between = z.mean(axis=1).var(axis=0, ddof=1) - within / repeats
    return np.maximum(between, 0) / np.maximum(between + within, 1e-300)


def variance_ratio(z: dict[str, NDArray[np.float64]], variant: str) -> NDArray[np.float64]:
    """Variance of an unpaired difference over that of a paired one, (pairs,)."""
    before, after = (z[name].reshape(-1, z[name].shape[2]) for name in (BASELINE, variant))
    unpaired = before.var(axis=0, ddof=1) + after.var(axis=0, ddof=1)
    return unpaired / np.maximum((after - before).var(axis=0, ddof=1), 1e-300)


def max_t(baseline: NDArray[np.float64], runs: NDArray[np.float64], rng: np.random.Generator) -> float:
    """p of the largest difference of means, by permutation of the labels."""
    everything = np.concatenate([baseline, runs])
    everything = (everything - everything.mean(axis=0)) / np.maximum(everything.std(axis=0), 1e-12)
    labels = np.zeros((PERMUTATIONS + 1, len(everything)))
    labels[:, len(baseline) :] = 1
    labels[1:] = rng.permuted(labels[1:], axis=1)
    largest = np.abs(labels @ everything).max(axis=1)
    return float(np.mean(largest >= largest[0] * (1 - 1e-9)))


def sign_flips(differences: NDArray[np.float64], rng: np.random.Generator) -> float:
    """p of the largest mean difference, by flips of the pairs' signs."""
    scaled = differences / np.maximum(np.sqrt((differences**2).mean(axis=0)), 1e-12)
    signs = rng.choice([-1.0, 1.0], (PERMUTATIONS + 1, len(scaled)))
    signs[0] = 1
    largest = np.abs(signs @ scaled).max(axis=1)
    return float(np.mean(largest >= largest[0] * (1 - 1e-9)))


def null_campaigns(z: dict[str, NDArray[np.float64]], seed: int) -> dict[str, int]:
    """Of `CAMPAIGNS` null campaigns of each design, those with p <= 5%."""
    rng = np.random.default_rng(seed)
    before, after = z[BASELINE], z[NULL_CONTROL]
    layouts, repeats, _ = before.shape
    significant = dict.fromkeys(DESIGNS, 0)
    for _ in range(CAMPAIGNS):
        order = rng.permutation(layouts)
        few = before[order[:5]].reshape(-1, before.shape[2]), after[order[5:10]].reshape(-1, before.shape[2])
        one = rng.integers(np.full(layouts, repeats))  # a repeat of each layout
        p = {
            DESIGNS[0]: max_t(rng.permutation(few[0])[:20], few[1][rng.permutation(5 * repeats)[:5]], rng),
            DESIGNS[1]: max_t(before[order[:20], one[:20]], after[order[20:25], one[20:25]], rng),
            DESIGNS[2]: sign_flips((after - before)[order[:10], one[:10]], rng),
        }
        for design in DESIGNS:
            significant[design] += p[design] <= 0.05
    return significant


def main() -> None:
    """Run, draw campaigns, record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layouts", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--programs", nargs="+", choices=COUNTERS, default=list(COUNTERS))
    arguments = parser.parse_args()
    first, second = np.triu_indices(len(METRICS), 1)
    rows: list[list[str]] = []
    campaigns: list[list[str]] = []
    for program in arguments.programs:
        z = pool(program, arguments.layouts, arguments.repeats, arguments.workers)
        alike = intraclass(z[BASELINE])
        ratios = {variant: variance_ratio(z, variant) for variant in (NULL_CONTROL, "all")}
        for n in range(len(first)):
            spread = z[BASELINE][:, :, n].std(ddof=1)
            columns = [f"{value:.3f}" for value in (spread, alike[n], ratios[NULL_CONTROL][n], ratios["all"][n])]
            rows.append([program, METRICS[int(first[n])], METRICS[int(second[n])], *columns])
        for design, count in null_campaigns(z, 1).items():
            campaigns.append([program, design, str(CAMPAIGNS), str(count)])
            print(*campaigns[-1], flush=True)
        medians = [f"{np.median(values):.2f}" for values in (alike, *ratios.values())]
        print(program, "medians of layout share, ratio of null control, ratio of variant:", *medians, flush=True)
    tables = {
        "real_runs.csv": [["program", "a", "b", "sd", "layout_share", "ratio_null", "ratio_variant"], *rows],
        "null_campaigns.csv": [["program", "design", "campaigns", "significant"], *campaigns],
    }
    for name, table in tables.items():
        with filling(HERE / name) as made, made.open("w", newline="") as file:
            csv.writer(file).writerows(table)


if __name__ == "__main__":
    main()
