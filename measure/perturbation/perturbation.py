"""Inner and outer perturbation: did instrumentation change how the metrics of a program correlate?

Mytkowicz, Diwan, Hauswirth and Sweeney ("Understanding Measurement Perturbation in Trace-based Data") compare
the correlations within a run (inner) and between aligned runs (outer) with those of baselines. This module
keeps their quantities and makes the comparison a test: the run is the unit, the null distribution comes from
exchanging run labels, the largest statistic over all pairs decides, and absence of evidence is never reported
as evidence of absence. Pure functions; `measure.perturbation.verdict` decides, `measure.perturbation.outer`
aligns.

Inner statistic: for each pair of metrics, the difference of mean z between instrumented runs and baselines, in
standard errors that each labelling of the runs computes anew, so that runs which only scatter more than the baselines
are not taken for runs whose mean has moved. With one instrumented run this is the leave-one-run-out test: each run in
turn plays the instrumented one. A change of scatter is tested by itself and becomes a finding.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from measure.perturbation.analysis_types import (
    DEFAULT_DELTA,
    DEFAULT_PERMUTATIONS,
    MOST_STATISTICS,
    SHORT_TRACE_RECORDS,
    Pair,
    Perturbation,
    Verdict,
)
from measure.perturbation.outer import Memo, outer_perturbation
from measure.perturbation.similarity import outer_z
from measure.perturbation.uninformative_metrics import tied_reasons
from measure.perturbation.verdict import Evidence, check_levels, check_pairs, is_same, judge
from measure.stats.correlation import MOST_AT_CEILING, RHO_CEILING, Correlations, fisher_z, share_at_ceiling
from measure.stats.permutation import Labellings, labellings, sign_flips

__all__ = [
    "DEFAULT_DELTA",
    "DEFAULT_PERMUTATIONS",
    "Memo",
    "Pair",
    "Perturbation",
    "Verdict",
    "comparisons",
    "inner_perturbation",
    "outer_perturbation",
    "outer_z",
]


def comparisons(n_variants: int, outer: bool) -> int:
    """How many comparisons share one chance of a false alarm: those within and, if ``outer``, across runs.

    The comparison across runs that are aligned on all metrics makes no verdict and is not counted. Comparisons in pairs
    are tested together (`Family`). The others have equal shares (Bonferroni): exchanging the runs of all variants
    together would take the dependence between variants into account, but puts the runs of a perturbed variant among
    those that stand for no change in the others.
    """
    return max(1, n_variants) * (2 if outer else 1)


def inner_perturbation(
    baseline: Sequence[Correlations],
    runs: Sequence[Correlations],
    *,
    concerning: Sequence[str] | None = None,
    delta: float = DEFAULT_DELTA,
    alpha: float = 0.05,
    comparisons: int = 1,
    paired: bool = False,
    noise_expected: bool = False,
    n_permutations: int = DEFAULT_PERMUTATIONS,
    seed: int,
) -> Perturbation:
    """Compare the correlations within instrumented ``runs`` with those within ``baseline`` runs.

    All pairs of metrics are tested together: the chance that any of them is called perturbed or changed when
    instrumentation changes nothing is at most ``alpha``, over all ``comparisons`` that share it. ``concerning``: only
    pairs that contain one of these metrics, a family of their own with its own ``alpha``; default: all pairs.
    ``delta``: the change of z that still counts as none. Up to ``n_permutations`` labellings are enumerated exactly,
    beyond that so many are drawn with ``seed`` (fewer for hundreds of metrics, whose table would not fit in memory).
    The result does not depend on the order of metrics.

    ``paired``: run i shares its noise with baseline i (the same seed of layout, placement, timer and interrupts), and
    their difference is judged, by flipping signs. Baselines beyond the last run are left out. Fewer than 6 pairs allow
    no p-value below 5%: the least is 2 / 2^R.

    ``noise_expected``: as of a real machine. A pair whose z is the same in all baselines then has no scale of noise and
    gets no p-value. Else, as on an emulated machine, the pair may be known without error, and any change is one.

    Raises ValueError when there is no baseline or no run, when the metrics differ, when there is no pair, for fewer
    baselines than runs that are to be paired, or for alpha or delta outside (0, 0.5) and (0, inf).
    """
    check_levels(delta, alpha, comparisons)
    evidence = inner_evidence(
        baseline, runs, concerning=concerning, paired=paired, noise_expected=noise_expected,
        n_permutations=n_permutations, seed=seed,
    )  # fmt: skip
    return judge(evidence, delta=delta, alpha=alpha, comparisons=comparisons)


def inner_evidence(
    baseline: Sequence[Correlations],
    runs: Sequence[Correlations],
    *,
    concerning: Sequence[str] | None = None,
    paired: bool = False,
    noise_expected: bool = False,
    n_permutations: int = DEFAULT_PERMUTATIONS,
    seed: int = 0,
    flips: Labellings | None = None,
) -> Evidence:
    """What `inner_perturbation` judges. ``flips``: of these pairs' signs, in place of those drawn with ``seed``."""
    metrics = _common_metrics(baseline, runs)
    check_pairs(len(baseline), len(runs), paired)
    if paired:
        baseline = baseline[: len(runs)]
    first, second = np.triu_indices(len(metrics), 1)
    concerned = np.isin(metrics, metrics if concerning is None else list(concerning))
    kept = concerned[first] | concerned[second]
    first, second = first[kept], second[kept]
    if not len(first):
        raise ValueError(f"no pair of {', '.join(metrics)} has one of {', '.join(concerning or ()) or 'no metrics'}")
    couples = list(zip(first.tolist(), second.tolist(), strict=True))
    everything = [*baseline, *runs]
    rho = np.array([one.rho[first, second] for one in everything])
    z = fisher_z(rho)
    affordable = affordable_permutations(len(couples), n_permutations)
    if flips is not None:
        labels = flips
    elif paired:
        labels = sign_flips(len(runs), affordable, seed)
    else:
        labels = labellings(len(baseline), len(runs), affordable, seed)
    at_ceiling = share_at_ceiling(rho[: len(baseline)], rho[len(baseline) :])
    tied = tied_reasons(metrics, *([one.tie_fraction for one in group] for group in (baseline, runs)))
    return Evidence(
        kind="inner",
        names=[(metrics[i], metrics[j]) for i, j in couples],
        baseline_z=z[: len(baseline)],
        run_z=z[len(baseline) :],
        undefined=np.isnan(rho),
        labels=labels,
        statistics=None,
        losses_only=False,
        interval_scale=1.0,
        shared_variance=np.zeros(len(couples)),
        identical=len(baseline) > 1 and _identical(rho[: len(baseline)]),
        n_references=0,
        not_assessable=_not_assessable(tied, couples, at_ceiling),
        findings=_findings(metrics, concerned, baseline, runs),
        spread_unknown=at_ceiling > MOST_AT_CEILING,
        without_noise=noise_expected & (at_ceiling <= MOST_AT_CEILING) & is_same(z[: len(baseline)]),
        paired=paired,
    )


def affordable_permutations(n_pairs: int, wanted: int = DEFAULT_PERMUTATIONS) -> int:
    """Labellings, at most ``wanted``, whose table of statistics of ``n_pairs`` pairs fits in memory."""
    return min(wanted, MOST_STATISTICS // n_pairs)


def _common_metrics(baseline: Sequence[Correlations], runs: Sequence[Correlations]) -> tuple[str, ...]:
    """The metrics that all runs have. Raises ValueError if they differ or are fewer than two."""
    if not baseline or not runs:
        raise ValueError(f"{len(baseline)} baselines and {len(runs)} runs: expected at least one of each")
    metrics = baseline[0].metrics
    for kind, group in (("baseline", baseline), ("run", runs)):
        for index, one in enumerate(group):
            if one.metrics != metrics:
                raise ValueError(
                    f"{kind} {index} has metrics {', '.join(one.metrics)}: expected {', '.join(metrics)}, "
                    "as the first "
                    "baseline has; compare the metrics that all runs share, in one order"
                )
    if len(metrics) < 2:
        raise ValueError(f"inner perturbation needs at least two metrics, got {len(metrics)}: {', '.join(metrics)}")
    return metrics


def _identical(rho: NDArray[np.float64]) -> bool:
    """Whether baselines do not differ in ``rho`` ``(B, P)``.

    Pairs at the ceiling say nothing about it: copies of one metric correlate at 1 in runs that differ.
    """
    telling = np.isnan(rho).any(axis=0) | (np.abs(np.nan_to_num(rho)) < RHO_CEILING).any(axis=0)
    return bool(telling.any()) and bool(np.array_equal(rho[:, telling], rho[:1, telling].repeat(len(rho), 0), True))


def _not_assessable(
    tied: Sequence[str], couples: Sequence[tuple[int, int]], at_ceiling: NDArray[np.float64]
) -> list[tuple[str, ...]]:
    """For each pair why an absence of change cannot be shown: tied metrics, or correlations at the ceiling."""
    reasons = []
    for (i, j), share in zip(couples, at_ceiling.tolist(), strict=True):
        found = [tied[k] for k in (i, j) if tied[k]]
        if share > MOST_AT_CEILING:
            found.append(
                f"rho is at the ceiling of {RHO_CEILING:g} in {share:.0%} of baselines or of runs, where changes and "
                "spread count as none"
            )
        reasons.append(tuple(found))
    return reasons


def _findings(
    metrics: Sequence[str],
    concerned: NDArray[np.bool_],
    baseline: Sequence[Correlations],
    runs: Sequence[Correlations],
) -> tuple[str, ...]:
    """Sentences on constant metrics and on short traces."""
    sentences = []
    always = concerned & np.all([one.constant for one in [*baseline, *runs]], axis=0)
    if always.any():
        names = ", ".join(metric for metric, flag in zip(metrics, always, strict=True) if flag)
        sentences.append(f"Constant in every run, so without correlations, and left out: {names}.")
    for index, metric in enumerate(metrics):
        before = sum(bool(one.constant[index]) for one in baseline)
        after = sum(bool(one.constant[index]) for one in runs)
        if concerned[index] and 0 < before + after < len(baseline) + len(runs):
            sentences.append(
                f"{metric} is constant in {before} of {len(baseline)} baselines and {after} of "
                f"{len(runs)} runs: "
                "look at its signal before anything else."
            )
    lengths = [one.n_records for one in [*baseline, *runs] if one.n_records is not None]
    if lengths and min(lengths) < SHORT_TRACE_RECORDS:
        sentences.append(
            f"The shortest trace has {min(lengths)} records: correlations of so few are noisy; sample at "
            "a shorter "
            "interval or run longer."
        )
    return tuple(sentences)
