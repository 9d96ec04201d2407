"""How often verdicts err, by simulation.

False alarms, changes called larger than they are, false claims of equivalence, and the power at the change that a
campaign says it can find.

    python experiments/false_alarms/simulate.py [--campaigns 1000] [--outer 200] [--workers 2]

Writes results.csv beside itself, a row as soon as it is done; rows of as many campaigns that are there already are
kept. `experiments.false_alarms.generators` has the made-up campaigns. Columns: shares of campaigns with a significant
change (familywise p at most 5%) and with each verdict; ``judged``: the share that the row is about, with its exact
95% interval (Clopper and Pearson 1934) ``low`` to ``high``; ``bar``: what it should be; ``met``: whether the interval
contains or keeps it.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

sys.path.insert(0, str(Path(__file__).parents[2]))

from experiments.false_alarms import generators
from experiments.false_alarms.generators import Design, Draw
from measure.perturbation.analysis_types import DEFAULT_DELTA, VERDICTS, Perturbation, gravest
from measure.perturbation.outer import Memo, compared_similarities, outer_evidence, outer_perturbation
from measure.perturbation.perturbation import inner_evidence, inner_perturbation
from measure.perturbation.verdict import Evidence, Family
from measure.stats.correlation import Correlations, spearman
from measure.stats.permutation import labellings, sign_flips

PERMUTATIONS = 999
METRICS = 5
"""10 pairs."""
DESIGNS = (Design(20, 5), Design(10, 3), Design(5, 2), Design(10, 10, paired=True))
FAMILIES: dict[str, Draw] = {
    "normal": generators.normal,
    "regimes": generators.regimes,
    "autocorrelated records": generators.autocorrelated,
    "heavy tails": generators.heavy_tails,
    "run effects": generators.run_effects,
    "ties": generators.ties,
}
PILOTS = 200
"""Campaigns whose median says which change is detectable: with 25, the median's own noise moves the power by 7%."""
OTHER_NOISE: dict[str, Draw] = {
    "Laplace": generators.laplace,
    "Student's t, 5 degrees of freedom": generators.lighter_tails,
    "lognormal": generators.lognormal,
    "exponential": generators.exponential,
    "one run in twenty lies apart": generators.outliers,
}
"""Generators on which the estimate of the detectable change was not chosen, but for lognormal."""
VARIANTS = 4
Bar = tuple[float, float]
Judged = tuple[str, str, Bar]
"""A table, which outcome it judges, and what its rate should be."""
ALIGNMENTS = (0.12, 0.0)
"""Standard deviations of the noise of each alignment, and of the effect of a run on all of its alignments."""
DESIGNS_ACROSS = (
    *(Design(n, n, paired=True) for n in (6, 8, 10, 20)),
    *(Design(b, r) for b, r in ((20, 5), (20, 10), (20, 20), (6, 20), (10, 10))),
)
LOSSES_OF_DELTA: tuple[Judged, ...] = (
    ("across runs, all metrics lose delta", "perturbed", (0.0, 0.05)),
    ("across runs, a metric loses delta", "first pair equivalent", (0.0, 0.05)),
    ("across runs, the interval of 90% misses the loss", "interval misses", (0.0, 0.1)),
)
NO_LOSS: tuple[Judged, ...] = (("across runs, nothing changed", "significant", (0.0, 0.05)),)


@dataclass(frozen=True)
class Case:
    """One row of the table. ``change``: in units of delta; nan: the detectable change that pilots say."""

    table: str
    name: str
    draw: Draw
    design: Design
    judged: str
    bar: Bar
    change: float = 0.0
    spread: float = 1.0
    metrics: int = METRICS
    baselines_first: bool = False
    separate: bool = False


def cases() -> list[Case]:
    """All rows on comparisons within a run."""
    never_more = (0.0, 0.05)
    rows = [
        Case("null", name, draw, design, "significant", never_more)
        for name, draw in FAMILIES.items()
        for design in DESIGNS
    ]
    unpaired = DESIGNS[:3]
    rows += [
        Case("not exchangeable", "run spread x2", generators.normal, design, "perturbed", never_more, spread=2.0)
        for design in DESIGNS
    ]
    interleaved: dict[str, Draw] = {
        "drift, interleaved": generators.drift,
        "a layout a run, ICC 0.8": generators.layout_a_run,
    }
    for name, draw in interleaved.items():
        rows += [Case("not exchangeable", name, draw, design, "perturbed", never_more) for design in unpaired]
    beyond: dict[str, tuple[Draw, bool]] = {
        "five layouts reused, ICC 0.8": (generators.five_layouts, False),
        "drift, baselines first": (generators.drift, True),
    }
    for name, (draw, first) in beyond.items():
        rows += [
            Case(
                "what no test can repair",
                name,
                draw,
                design,
                "significant",
                never_more,
                baselines_first=first,
                separate=not first,
            )
            for design in unpaired
        ]
    for name in ("normal", "heavy tails"):
        draw = FAMILIES[name]
        for share in (0.75, 0.9, 1.0):
            rows += [
                Case(f"all pairs changed by {share:g} delta", name, draw, design, "perturbed", never_more, change=share)
                for design in DESIGNS
            ]
        rows += [
            Case("a pair changed by delta", name, draw, design, "equivalent", never_more, change=1.0, metrics=2)
            for design in DESIGNS
        ]
        rows += [
            Case("power at the stated change", name, draw, design, "first pair perturbed", (0.75, 0.9), change=np.nan)
            for design in (DESIGNS[0], DESIGNS[1], DESIGNS[3])
        ]
    rows += [
        Case("power, other generators", name, draw, design, "first pair perturbed", (0.75, 0.9), change=np.nan)
        for name, draw in OTHER_NOISE.items()
        for design in (DESIGNS[0], DESIGNS[1], DESIGNS[3])
    ]
    noisy = {"baseline spread x3": generators.normal, "baseline spread x3, lognormal": generators.lognormal}
    rows += [
        Case("baselines scatter more", name, draw, Design(b, r), "significant", never_more, spread=1 / 3)
        for name, draw in noisy.items()
        for b, r in ((3, 20), (5, 20), (20, 20))
    ]
    rows += [
        Case("all pairs changed by 1 delta", name, draw, Design(5, 20), "perturbed", never_more, change=1.0,
             spread=1 / 3)
        for name, draw in noisy.items()
    ]  # fmt: skip
    rows += [
        Case(
            "a pair changed by delta",
            "run spread x2",
            generators.normal,
            design,
            "equivalent",
            never_more,
            change=1.0,
            metrics=2,
            spread=2.0,
        )
        for design in unpaired
    ]
    return rows


def judge(case: Case, change: float, seed: int) -> Perturbation:
    """One campaign of a case."""
    rng = np.random.default_rng((seed, case.design.baselines, case.design.runs, len(case.name)))
    baseline, runs = generators.campaign(
        rng, case.draw, case.design, case.metrics, change=change, only_first=np.isnan(case.change), spread=case.spread,
        baselines_first=case.baselines_first, separate=case.separate,
    )  # fmt: skip
    return inner_perturbation(baseline, runs, paired=case.design.paired, n_permutations=PERMUTATIONS, seed=seed)


def told(result: Perturbation) -> list[str]:
    """What a campaign ended with: its verdict, and what else rows count."""
    found = [result.verdict] + ["significant"] * bool(result.p_value <= result.alpha)
    first = next((pair for pair in result.pairs if pair.name in ("metric_0 - metric_1", "metric_0")), None)
    return found + ["first pair perturbed"] * bool(first and first.verdict == "perturbed")


def inner(case: Case, change: float, seed: int) -> list[str]:
    """The outcome of one campaign within a run."""
    return told(judge(case, change, seed))


def family(draw: Draw, seed: int) -> list[str]:
    """The outcome of a campaign of 4 variants in pairs that change nothing, within runs, tested together."""
    rng = np.random.default_rng((seed, VARIANTS))
    baseline, runs = generators.variants(rng, draw, DESIGNS[3], METRICS, VARIANTS)
    parts = [inner_evidence(baseline, one, paired=True, n_permutations=1024) for one in runs]
    return together(parts)


def family_of_traces(seed: int) -> list[str]:
    """The same with traces of made-up programs, within and across runs, 2 variants in 8 pairs."""
    count, names = 8, [f"metric_{k}" for k in range(4)]
    tables = generators.programs(seed, Design(count, 2 * count), 100)
    baseline, runs = tables[0], [tables[1][:count], tables[1][count:]]
    parts = [inner_evidence(ranked(baseline), ranked(one), paired=True) for one in runs]
    memo: Memo = {}
    parts += [outer_evidence(baseline, one, names, held_out=True, paired=True, memo=memo) for one in runs]
    return together(parts)


def ranked(tables: Sequence[NDArray[np.float64]]) -> list[Correlations]:
    """The correlations within each trace."""
    return [spearman(one, [f"metric_{k}" for k in range(one.shape[1])]) for one in tables]


def together(parts: Sequence[Evidence]) -> list[str]:
    """What a campaign ended with whose comparisons are tested together: its gravest verdict, and any significance."""
    found = Family(parts, delta=DEFAULT_DELTA, alpha=0.05).judgements()
    return [gravest([one.verdict for one in found])] + ["significant"] * any(one.p_value <= one.level for one in found)


def detectable(case: Case) -> float:
    """The change of the first pair that the median pilot campaign says it can find."""
    said = []
    for seed in range(1_000_000, 1_000_000 + PILOTS):
        result = judge(case, 0.0, seed)
        said.append(next(pair.detectable_dz for pair in result.pairs if pair.name == "metric_0 - metric_1"))
    return float(np.median(said))


def outer(name: str, held_out: bool, seed: int) -> list[str]:
    """The outcome of one campaign across runs, in which nothing changed."""
    make = {"programs": generators.programs, "white noise": generators.white_noise}[name]
    baseline, runs = make(seed, Design(12, 4), 100)
    return told(
        outer_perturbation(baseline, runs, [f"metric_{k}" for k in range(4)], held_out=held_out, seed=seed,
                           n_permutations=PERMUTATIONS)
    )  # fmt: skip


def judged_similarities(
    seed: int, design: Design, loss: float, noise: tuple[float, float], permutations: int = PERMUTATIONS
) -> Perturbation:
    """The judgement on 8 metrics across runs, of similarities with ``noise`` of alignments and of runs."""
    metrics, b, r = 8, design.baselines, design.runs
    found = generators.similarities(seed, design, metrics, loss, *noise)
    labels = sign_flips(r, permutations, seed) if design.paired else labellings(b, r, permutations, seed)
    compared = compared_similarities(found, b, r, frozenset(), design.paired, labels)
    evidence = Evidence(
        kind="outer-held-out", names=[(f"metric_{k}",) * 2 for k in range(metrics)], baseline_z=compared.baseline_z,
        run_z=compared.run_z, undefined=np.zeros((b + r, metrics), np.bool_), labels=labels,
        statistics=compared.statistics, losses_only=True, interval_scale=compared.interval_scale,
        shared_variance=compared.shared_variance, identical=False, n_references=0, not_assessable=[()] * metrics,
        findings=(), spread_unknown=np.zeros(metrics, np.bool_), without_noise=np.zeros(metrics, np.bool_),
        paired=design.paired,
    )  # fmt: skip
    return Family([evidence], delta=DEFAULT_DELTA, alpha=0.05).judgements()[0]


def across_noise(design: Design, loss: float, noise: tuple[float, float], seed: int) -> list[str]:
    """The outcome of one campaign of similarities, and whether the first metric is equivalent, and its interval of 90%
    misses the loss."""
    result = judged_similarities(seed, design, loss, noise)
    first = next(pair for pair in result.pairs if pair.a == "metric_0")
    missed = not first.ci[0] <= -loss <= first.ci[1]
    return told(result) + ["first pair equivalent"] * (first.verdict == "equivalent") + ["interval misses"] * missed


def clopper_pearson(hits: int, trials: int) -> tuple[float, float]:
    """Exact 95% interval for a proportion (Clopper and Pearson 1934)."""
    low = float(betaincinv(hits, trials - hits + 1, 0.025)) if hits else 0.0
    high = float(betaincinv(hits + 1, trials - hits, 0.975)) if hits < trials else 1.0
    return low, high


def row(key: dict[str, object], outcomes: Sequence[Sequence[str]], judged: str, bar: Bar) -> dict[str, object]:
    """One row of the table from the outcomes of its campaigns."""
    counts = Counter(word for outcome in outcomes for word in outcome)
    total = len(outcomes)
    low, high = clopper_pearson(counts[judged], total)
    shares = {name: f"{counts[name] / total:.3f}" for name in ("significant", *VERDICTS)}
    return {
        **key, **shares, "judged": judged, "rate": f"{counts[judged] / total:.3f}", "low": f"{low:.3f}",
        "high": f"{high:.3f}", "bar": f"{bar[0]:g} to {bar[1]:g}", "met": low <= bar[1] and high >= bar[0],
    }  # fmt: skip


def main() -> None:
    """Make the rows that are missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--campaigns", type=int, default=1000, help="of a row within runs")
    parser.add_argument("--outer", type=int, default=200, help="campaigns of a row across runs")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("results.csv"))
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    done: dict[tuple[str, ...], dict[str, object]] = {}
    keys = ("table", "case", "design", "campaigns")
    if arguments.out.exists():
        with arguments.out.open(newline="") as file:
            done = {tuple(one[key] for key in keys): dict(one) for one in csv.DictReader(file)}
    rows: list[dict[str, object]] = []
    with ProcessPoolExecutor(arguments.workers) as pool:

        def add(tables: Sequence[Judged], name: str, design: str, count: int, work: object) -> None:
            outcomes: list[list[str]] = []  # of the campaigns, which all tables judge
            for table, judged, bar in tables:
                key = dict(zip(keys, (table, name, design, count), strict=True))
                made = done.get(tuple(str(value) for value in key.values()))
                if made is None:
                    outcomes = outcomes or list(pool.map(work, range(count), chunksize=10))  # type: ignore[arg-type]
                    made = row(key, outcomes, judged, bar)
                rows.append(made)
                print(", ".join(str(value) for value in made.values()), flush=True)
                write(arguments.out, rows)

        for case in cases():
            change = case.change * DEFAULT_DELTA if np.isfinite(case.change) else detectable(case)
            work = partial(inner, case, change)
            add([(case.table, case.judged, case.bar)], case.name, case.design.name, arguments.campaigns, work)
        several = ("several variants", "significant", (0.0, 0.05))
        for name, draw in {**FAMILIES, "lognormal": generators.lognormal}.items():
            add([several], name, f"{VARIANTS} variants, 10 pairs", arguments.campaigns, partial(family, draw))
        add([several], "programs, within and across runs", "2 variants, 8 pairs", arguments.outer, family_of_traces)
        for held_out in (True, False):
            aligned = "aligned on the other metrics" if held_out else "aligned on all metrics"
            for name, judged, bar in (
                ("programs", "significant", (0.0, 0.05)),
                ("white noise", "equivalent", (0.0, 0.0)),
            ):
                work = partial(outer, name, held_out)
                add([(f"across runs, {aligned}", judged, bar)], name, "12 + 4", arguments.outer, work)
        for design in DESIGNS_ACROSS:
            for loss, tables in ((DEFAULT_DELTA, LOSSES_OF_DELTA), (0.0, NO_LOSS)):
                work = partial(across_noise, design, loss, ALIGNMENTS)
                add(tables, "alignments alone are noise", design.name, arguments.campaigns, work)


def write(path: Path, rows: Sequence[dict[str, object]]) -> None:
    """Write the table."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
