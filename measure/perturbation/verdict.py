"""Decides: from per-run correlations and a permutation test to pairs, verdict, and the number of runs missing.

Inner (`measure.perturbation.perturbation`) and outer perturbation (`measure.perturbation.outer`) share this module;
they compute its input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import comb

import numpy as np
from numpy.typing import NDArray

from measure.perturbation.analysis_types import FEWEST_BASELINES, Kind, Pair, Perturbation, Verdict
from measure.perturbation.findings import findings
from measure.stats.intervals import Difference, detectable_change, difference, extra_runs_for
from measure.stats.permutation import Labellings, MaxT, false_discovery_rates, max_t, mean_differences

_ORDER: dict[Verdict, int] = {"perturbed": 0, "inconclusive": 1, "equivalent": 2}


@dataclass(frozen=True)
class Evidence:
    """Input of `judge`, for P pairs, B baselines and R instrumented runs.

    ``names``: P pairs of metrics. ``baseline_z`` ``(B, P)``, ``run_z`` ``(R, P)``: nan where undefined.
    ``undefined``: ``(B + R, P)`` whether the pair has no correlation in a run because a metric is constant.
    ``statistics``: ``(k, P)`` for each labelling. ``losses_only``: a rise is no perturbation.
    ``interval_scale``: factor by which the baselines' spread in ``baseline_z`` is too small. ``identical``:
    the baselines do not differ at all, so that changes cannot be related to noise. ``notes``: P remarks.
    ``findings``: the caller's findings, to be added to the result's.
    """

    kind: Kind
    names: Sequence[tuple[str, str]]
    baseline_z: NDArray[np.float64]
    run_z: NDArray[np.float64]
    undefined: NDArray[np.bool_]
    labels: Labellings
    statistics: NDArray[np.float64]
    losses_only: bool
    interval_scale: float
    identical: bool
    n_references: int
    notes: Sequence[str]
    findings: Sequence[str]


def check_levels(delta: float, alpha: float) -> None:
    """Raise ValueError for a limit or a level outside its range."""
    if not (delta > 0 and 0 < alpha < 0.5):
        raise ValueError(f"delta {delta}, alpha {alpha}: expected delta above 0 and alpha between 0 and 0.5")


def judge(evidence: Evidence, *, delta: float, alpha: float) -> Perturbation:
    """Decide on each pair and on all pairs together."""
    n_baseline, n_runs = len(evidence.baseline_z), len(evidence.run_z)
    kept = np.flatnonzero(~evidence.undefined.all(axis=0))
    test, appeared = _test(evidence, kept)
    no_scale = evidence.identical or n_baseline < 2
    rates = false_discovery_rates(np.full(len(kept), np.nan) if no_scale else test.p_raw)
    pairs, estimates = [], []
    tail = _reachable_level(evidence, alpha) / (2 * max(1, len(kept)))
    for index, p in enumerate(kept.tolist()):
        estimate = _estimate(evidence, p, alpha, no_scale)
        significant = not no_scale and bool(test.p_adjusted[index] <= alpha)
        undefined = evidence.undefined[:, p]
        if significant and appeared[index]:
            verdict: Verdict = "perturbed"
        else:
            verdict = _pair_verdict(estimate, significant, delta, evidence.losses_only, bool(undefined.any()))
        note = "; ".join(filter(None, (evidence.notes[p], _undefined_note(undefined, n_baseline))))
        a, b = evidence.names[p]
        baseline_z, run_z = _mean(evidence.baseline_z[:, p]), _mean(evidence.run_z[:, p])
        pairs.append(
            Pair(
                a=a,
                b=b,
                baseline_z=baseline_z,
                baseline_z_sd=estimate.baseline_sd,
                baseline_rho=float(np.tanh(baseline_z)),
                run_z=run_z,
                run_rho=float(np.tanh(run_z)),
                delta_z=estimate.delta,
                ci=(estimate.low, estimate.high),
                statistic=float(test.statistic[index]),
                p_adjusted=float("nan") if no_scale else float(test.p_adjusted[index]),
                q_value=float(rates[index]),
                detectable_dz=detectable_change(estimate, n_baseline, n_runs, delta=delta, tail=tail),
                verdict=verdict,
                note=note,
            )
        )
        estimates.append(estimate)
    verdicts = {pair.verdict for pair in pairs}
    overall: Verdict = "inconclusive"
    if "perturbed" in verdicts:
        overall = "perturbed"
    elif verdicts == {"equivalent"}:
        overall = "equivalent"
    exploratory = n_baseline < FEWEST_BASELINES or evidence.labels.smallest_p > alpha
    extra = None
    if overall == "inconclusive":
        extra = _extra_runs(pairs, estimates, n_baseline, n_runs, delta, alpha, evidence.losses_only)
    ordered = tuple(sorted(pairs, key=lambda pair: (_ORDER[pair.verdict], -_badness(pair, evidence.losses_only))))
    result = Perturbation(
        kind=evidence.kind,
        verdict=overall,
        pairs=ordered,
        p_value=min((pair.p_adjusted for pair in pairs), default=float("nan")),
        delta=delta,
        alpha=alpha,
        n_baseline=n_baseline,
        n_runs=n_runs,
        n_references=evidence.n_references,
        exploratory=exploratory,
        extra_runs_needed=extra,
        findings=(),
    )
    sentences = findings(result, identical=evidence.identical, smallest_p=evidence.labels.smallest_p)
    return replace(result, findings=(*sentences, *evidence.findings))


def _reachable_level(evidence: Evidence, alpha: float) -> float:
    """The largest attainable p-value at or below ``alpha``; nan without one, and across runs.

    The power of outer comparisons also depends on how well a changed trace aligns.
    """
    steps = int(alpha / evidence.labels.smallest_p + 1e-9)
    return steps * evidence.labels.smallest_p if steps and evidence.kind == "inner" else float("nan")


def _test(evidence: Evidence, kept: NDArray[np.intp]) -> tuple[MaxT, NDArray[np.bool_]]:
    """Max-T over the pairs' changes of z and their changes from defined to undefined or back.

    Both statistics of a pair are in the family; the more extreme one counts. Returns the test, one column a pair, and
    flags: the pairs for which the change of being defined counts, and concerns half of the runs or more.
    """
    n_baseline, n_pairs = len(evidence.baseline_z), len(kept)
    undefined = evidence.undefined[:, kept]
    sometimes = np.flatnonzero(undefined.any(axis=0))
    flags = mean_differences(undefined[:, sometimes].astype(np.float64), evidence.labels.labels)
    losses = np.repeat([evidence.losses_only, False], [n_pairs, len(sometimes)])
    test = max_t(np.hstack([evidence.statistics[:, kept], flags]), losses_only=losses)
    statistic, p_adjusted, p_raw = (values[:n_pairs].copy() for values in (test.statistic, test.p_adjusted, test.p_raw))
    by_flag = np.zeros(n_pairs, np.bool_)
    change = np.abs(undefined[n_baseline:].mean(axis=0) - undefined[:n_baseline].mean(axis=0))
    for pair, flag in zip(sometimes, range(n_pairs, len(losses)), strict=True):
        # Two tests of one pair: its own p-value is corrected for both, the familywise one already is.
        p_raw[pair] = min(1.0, 2 * min(p_raw[pair], test.p_raw[flag]))
        if test.p_adjusted[flag] <= p_adjusted[pair]:
            statistic[pair], p_adjusted[pair] = test.statistic[flag], test.p_adjusted[flag]
            by_flag[pair] = change[pair] >= 0.5
    return MaxT(statistic, p_raw, p_adjusted), by_flag


def _estimate(evidence: Evidence, p: int, alpha: float, no_scale: bool) -> Difference:
    baseline, runs = evidence.baseline_z[:, p], evidence.run_z[:, p]
    if no_scale or not np.isfinite(evidence.interval_scale):
        nan = float("nan")
        return Difference(_mean(runs) - _mean(baseline), nan, nan, nan, nan, False)
    centre = _mean(baseline)
    return difference(centre + (baseline - centre) * evidence.interval_scale, runs, alpha)


def _pair_verdict(
    estimate: Difference, significant: bool, delta: float, losses_only: bool, sometimes_undefined: bool
) -> Verdict:
    change = -estimate.delta if losses_only else abs(estimate.delta)
    if significant and change > delta:
        return "perturbed"
    within = estimate.low > -delta and (losses_only or estimate.high < delta)
    return "equivalent" if within and not sometimes_undefined else "inconclusive"


def _extra_runs(
    pairs: Sequence[Pair],
    estimates: Sequence[Difference],
    n_baseline: int,
    n_runs: int,
    delta: float,
    alpha: float,
    losses_only: bool,
) -> int | None:
    """Additional runs of each kind needed to show one change beyond delta, or else that all are within."""
    beyond: list[int | None] = []
    within: list[int | None] = []
    for pair, estimate in zip(pairs, estimates, strict=True):
        if pair.verdict != "inconclusive":
            continue
        change = -estimate.delta if losses_only else abs(estimate.delta)
        if change > delta:
            tail = alpha / (2 * len(pairs))
            beyond.append(extra_runs_for(estimate, n_baseline, n_runs, margin=change, tail=tail))
        else:
            within.append(extra_runs_for(estimate, n_baseline, n_runs, margin=delta - change, tail=alpha))
    changes = [count for count in beyond if count is not None]
    if changes:
        needed = min(changes)
        while comb(n_baseline + n_runs + 2 * needed, n_runs + needed) < 1 / alpha:
            needed += 1  # enough labellings for a p-value to reach alpha
        return needed
    if beyond or not within or None in within:
        return None
    return max(count for count in within if count is not None)


def _badness(pair: Pair, losses_only: bool) -> float:
    """Order within a verdict: by size of the change; pairs that became (un)defined come first."""
    if not np.isfinite(pair.delta_z):
        return float("inf")
    return -pair.delta_z if losses_only else abs(pair.delta_z)


def _mean(values: NDArray[np.float64]) -> float:
    defined = values[np.isfinite(values)]
    return float(defined.mean()) if len(defined) else float("nan")


def _undefined_note(undefined: NDArray[np.bool_], n_baseline: int) -> str:
    if not undefined.any():
        return ""
    baseline, runs = undefined[:n_baseline], undefined[n_baseline:]
    return (
        f"undefined, because a metric is constant, in {baseline.sum()} of {len(baseline)} baselines "
        f"and {runs.sum()} of {len(runs)} runs"
    )
