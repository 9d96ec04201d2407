"""How often the method errs, by simulation: false alarms, missed changes, false claims of equivalence.

    python experiments/false_alarms/simulate.py [--inner CAMPAIGNS] [--outer CAMPAIGNS] [--out results.csv]

Each campaign is a fresh made-up program (`measure.stats.synthetic`): phases, shared drivers, autocorrelated and
multiplicative noise, tied counts, runs of different pace and length. Rows of the result:

``null``: instrumented runs are baselines with other seeds; any alarm is false.
``effect``: instrumentation adds noise to one metric; an alarm is right.
``boundary``: one program, whose true change of z (from thousands of runs) is taken as delta; a claim of
equivalence is false.

Columns: ``significant`` is the share of campaigns with max-T p <= 0.05, ``perturbed`` and ``equivalent`` the shares
of verdicts, ``low`` and ``high`` the 95% Clopper-Pearson interval of the rate that is judged, named by ``judged``.
``range_rule`` is the share of inner campaigns in which some pair of some run lies outside the range of the
baselines, the rule of thumb that the max-T test replaces.
"""

from __future__ import annotations

import argparse
import csv
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from scipy.special import betaincinv

from measure.perturbation.perturbation import Perturbation, inner_perturbation, outer_perturbation, outer_z
from measure.stats.correlation import Correlations, fisher_z, spearman
from measure.stats.synthetic import UNDISTURBED, Disturbance, SyntheticProgram, synthetic_program

SIZES = ((20, 5), (20, 1), (26, 1), (8, 3))
EFFECT = Disturbance(noise=1.0)
PERMUTATIONS = 999
VERDICTS = ("perturbed", "equivalent", "inconclusive")


@dataclass(frozen=True)
class Outcome:
    """What one campaign ended with."""

    significant: bool
    verdict: str
    out_of_range: bool | None


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    kind: str
    name: str
    sizes: tuple[int, int]
    n_metrics: int
    n_records: int
    disturbance: Disturbance = UNDISTURBED
    delta: float = 0.2
    program_seed: int | None = None  # None: another program in each campaign


def campaign(case: Case, seed: int) -> Outcome:
    """Simulate and analyse one campaign."""
    program = _program(case, seed)
    rng = np.random.default_rng((case.sizes[0], case.sizes[1], seed))
    baseline = [program.run(rng) for _ in range(case.sizes[0])]
    runs = [program.run(rng, case.disturbance) for _ in range(case.sizes[1])]
    if case.kind == "inner":
        found = [[spearman(table, program.metrics) for table in tables] for tables in (baseline, runs)]
        result = inner_perturbation(found[0], found[1], delta=case.delta, n_permutations=PERMUTATIONS, seed=seed)
        return _outcome(result, _out_of_range(*found))
    result = outer_perturbation(
        baseline,
        runs,
        program.metrics,
        held_out=case.kind == "outer-held-out",
        delta=case.delta,
        n_permutations=PERMUTATIONS,
        seed=seed,
    )
    return _outcome(result, None)


def _program(case: Case, seed: int) -> SyntheticProgram:
    program_seed = 10_000 + seed if case.program_seed is None else case.program_seed
    return synthetic_program(program_seed, n_records=case.n_records, n_metrics=case.n_metrics)


def _outcome(result: Perturbation, out_of_range: bool | None) -> Outcome:
    return Outcome(bool(result.p_value <= result.alpha), result.verdict, out_of_range)


def _out_of_range(baseline: Sequence[Correlations], runs: Sequence[Correlations]) -> bool:
    usual, seen = (np.array([one.rho for one in group]) for group in (baseline, runs))
    return bool(((seen < usual.min(axis=0)) | (seen > usual.max(axis=0))).any())


def true_change(case: Case, repetitions: int) -> float:
    """True change of z of metric pair 0-1 (inner) or metric 0 (outer) of the case's program."""
    program = _program(case, 0)
    rng = np.random.default_rng(1)
    if case.kind == "inner":
        z = [
            np.mean([fisher_z(_first_rho(program, rng, how)) for _ in range(repetitions)])
            for how in (UNDISTURBED, case.disturbance)
        ]
        return float(z[1] - z[0])
    changes = []
    for _ in range(repetitions // 2):
        first, second, third = (program.run(rng, how) for how in (UNDISTURBED, UNDISTURBED, case.disturbance))
        within, cross = (
            outer_z(first, other, program.metrics, held_out=case.kind == "outer-held-out")[0]
            for other in (second, third)
        )
        changes.append(cross - within)
    return float(np.mean(changes))


def _first_rho(program: SyntheticProgram, rng: np.random.Generator, how: Disturbance) -> float:
    return float(spearman(program.run(rng, how), program.metrics).rho[0, 1])


def cases() -> list[Case]:
    """All rows but the boundary ones."""
    rows = []
    for name, disturbance in (("null", UNDISTURBED), ("effect", EFFECT)):
        for sizes in SIZES:
            rows += [Case("inner", name, sizes, metrics, 300, disturbance) for metrics in (3, 8)]
            rows += [Case(kind, name, sizes, 4, 150, disturbance) for kind in ("outer-joint", "outer-held-out")]
    return rows


def boundary_cases(repetitions: int) -> list[Case]:
    """Cases with few pairs, where a false claim of equivalence is likeliest, and their true change as delta."""
    rows = []
    for kind, records in (("inner", 300), ("outer-joint", 150), ("outer-held-out", 150)):
        for sizes in ((20, 5), (8, 3)):
            # Both metrics are disturbed: no pair is far from the limit and makes equivalence harder to claim.
            plain = Case(kind, "boundary", sizes, 2, records, Disturbance(0.6, 2), program_seed=5)
            rows.append(Case(**{**vars(plain), "delta": abs(true_change(plain, repetitions))}))
    return rows


def clopper_pearson(hits: int, trials: int) -> tuple[float, float]:
    """Exact 95% interval for a proportion (Clopper and Pearson 1934)."""
    low = float(betaincinv(hits, trials - hits + 1, 0.025)) if hits else 0.0
    high = float(betaincinv(hits + 1, trials - hits, 0.975)) if hits < trials else 1.0
    return low, high


def row(case: Case, outcomes: Sequence[Outcome]) -> dict[str, object]:
    """One row of the table from the outcomes of its campaigns."""
    count = len(outcomes)

    def share(holds: Callable[[Outcome], object]) -> float:
        return sum(bool(holds(one)) for one in outcomes) / count

    rates = {"significant": share(lambda one: one.significant)}
    for verdict in VERDICTS:
        rates[verdict] = sum(one.verdict == verdict for one in outcomes) / count
    judged = {"null": "significant", "effect": "perturbed", "boundary": "equivalent"}[case.name]
    low, high = clopper_pearson(round(rates[judged] * count), count)
    ranged = "" if case.kind != "inner" else f"{share(lambda one: one.out_of_range):.3f}"
    name = case.name if case.name != "boundary" else f"boundary (delta = true change = {case.delta:.3f})"
    return {
        "kind": case.kind,
        "case": name,
        "baselines": case.sizes[0],
        "runs": case.sizes[1],
        "metrics": case.n_metrics,
        "records": case.n_records,
        "campaigns": count,
        **{key: f"{value:.3f}" for key, value in rates.items()},
        "range_rule": ranged,
        "judged": judged,
        "low": f"{low:.3f}",
        "high": f"{high:.3f}",
    }


def main() -> None:
    """Run the table and write it, row by row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inner", type=int, default=2000, help="campaigns a row, inner")
    parser.add_argument("--outer", type=int, default=1000, help="campaigns a row, outer")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("results.csv"))
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    table = [*cases(), *boundary_cases(4000)]
    with arguments.out.open("w", newline="") as file, ProcessPoolExecutor(arguments.workers) as pool:
        writer: csv.DictWriter[str] | None = None
        for case in table:
            count = arguments.inner if case.kind == "inner" else arguments.outer
            if case.name == "effect":
                count = max(1, count // 4)  # power needs no such precision
            told = row(case, list(pool.map(partial(campaign, case), range(count), chunksize=5)))
            if writer is None:
                writer = csv.DictWriter(file, list(told), lineterminator="\n")
                writer.writeheader()
            writer.writerow(told)
            file.flush()


if __name__ == "__main__":
    main()
