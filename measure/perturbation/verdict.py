"""Decides: from per-run correlations and a permutation test to pairs and verdict.

Inner (`measure.perturbation.perturbation`) and outer perturbation (`measure.perturbation.outer`) share this module;
they compute its input. `measure.perturbation.significance` tests, `measure.perturbation.missing_runs` says how many
further runs would settle an open verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from measure.perturbation.analysis_types import (
    FEWEST_BASELINES,
    VERDICTS,
    Kind,
    Pair,
    Perturbation,
    Verdict,
    gravest,
    share_of,
)
from measure.perturbation.detectable import errors_beyond_delta
from measure.perturbation.finding import Finding
from measure.perturbation.findings import findings
from measure.perturbation.missing_runs import OpenVerdict, extra_runs
from measure.perturbation.significance import PairStatistics, Significance, pair_statistics, significance
from measure.stats.intervals import Difference, difference, paired_difference
from measure.stats.permutation import NO_VARIATION, Labellings, false_discovery_rates

NAN = float("nan")
"""Always this object, so that equal results compare equal."""


@dataclass(frozen=True)
class Evidence:
    """Input of `judge`, for P pairs, B baselines and R instrumented runs.

    ``names``: P pairs of metrics. ``baseline_z`` ``(B, P)``, ``run_z`` ``(R, P)``: nan where undefined.
    ``undefined``: ``(B + R, P)`` whether the pair has no correlation in a run because a metric is constant.
    ``statistics``: ``(k, P)`` for each labelling, None: those of ``baseline_z`` and ``run_z``. ``losses_only``: a
    rise is no perturbation. ``interval_scale``: factor by which the baselines' spread in ``baseline_z`` is too small.
    ``shared_variance``: ``(P,)`` what is added to the variance of the mean change, in pairs, or of the baselines' mean,
    because runs share alignments; nan: not known.
    ``identical``: the baselines do not differ at all, so that changes cannot be related to noise. ``not_assessable``:
    for each pair the reasons why an absence of change cannot be shown, () if it can. ``findings``: the caller's
    findings, to be added to the result's. ``spread_unknown``: ``(P,)`` whether z is cut off in so many baselines or
    runs that their spread is not known. ``without_noise``: ``(P,)`` whether z does not vary between baselines where it
    should, so that a change of the pair cannot be related to noise. ``paired``: B = R, and run i belongs to baseline i.
    ``unchanged``: in pairs, each run has in all records the counts of its baseline, so that nothing changed, by
    construction.
    """

    kind: Kind
    names: Sequence[tuple[str, str]]
    baseline_z: NDArray[np.float64]
    run_z: NDArray[np.float64]
    undefined: NDArray[np.bool_]
    labels: Labellings
    statistics: NDArray[np.float64] | None
    losses_only: bool
    interval_scale: float
    shared_variance: NDArray[np.float64]
    identical: bool
    n_references: int
    not_assessable: Sequence[tuple[str, ...]]
    findings: Sequence[str]
    spread_unknown: NDArray[np.bool_]
    without_noise: NDArray[np.bool_]
    paired: bool = False
    unchanged: bool = False


def is_same(baseline_z: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Of each pair ``(P,)`` whether z is the same in all of several baselines ``(B, P)``, but for rounding."""
    return np.asarray(np.ptp(baseline_z, axis=0) <= NO_VARIATION) & (len(baseline_z) > 1)


def check_levels(delta: float, alpha: float, comparisons: int = 1) -> None:
    """Raise ValueError for a limit, a level or a number of comparisons outside its range."""
    if not (delta > 0 and 0 < alpha < 0.5):
        raise ValueError(f"delta {delta}, alpha {alpha}: expected delta above 0 and alpha between 0 and 0.5")
    if comparisons < 1:
        raise ValueError(f"comparisons {comparisons}: expected at least 1, which this comparison is")


def check_pairs(n_baseline: int, n_runs: int, paired: bool) -> None:
    """Raise ValueError for fewer baselines than runs, if each run has a baseline to be paired with."""
    if paired and n_baseline < n_runs:
        raise ValueError(f"{n_baseline} baselines and {n_runs} runs: expected a baseline for each run to pair it with")


def judge(evidence: Evidence, *, delta: float, alpha: float, comparisons: int = 1) -> Perturbation:
    """Decide on each pair and on all pairs of one comparison that is tested by itself.

    ``comparisons``: how many share the chance ``alpha`` of any false alarm (Bonferroni).
    """
    return Family([evidence], delta=delta, alpha=alpha, comparisons=comparisons).judgements()[0]


@dataclass(frozen=True)
class _Member:
    """A comparison. ``kept``: the pairs that are defined in some run; ``statistics``: theirs, None without a scale of
    noise."""

    evidence: Evidence
    kept: NDArray[np.intp]
    statistics: PairStatistics | None


class Family:
    """Comparisons that are tested together: the largest statistic over all pairs of all of them decides (max-T).

    So correlated comparisons, such as those of several variants with the same baselines, cost less than by dividing
    alpha by their number. Their labellings must correspond, row by row: in row n the same pairs of runs are flipped in
    every comparison, which keeps the dependence between them in the null distribution. Flips are exact for each
    comparison; over several variants that share baselines they are if the differences are jointly symmetric, and else
    approximate as in the wild bootstrap (Wu 1986; Romano and Wolf 2005 for families).

    ``comparisons``: how many share ``alpha``; those outside of the family have equal shares of it. Raises ValueError
    for comparisons with different numbers of labellings.
    """

    def __init__(
        self, evidence: Sequence[Evidence], *, delta: float, alpha: float, comparisons: int | None = None
    ) -> None:
        self._delta, self._alpha = delta, alpha
        self._comparisons = len(evidence) if comparisons is None else comparisons
        counts = {len(one.labels.labels) for one in evidence}
        if len(counts) > 1:
            raise ValueError(f"comparisons with {min(counts)} and {max(counts)} labellings: expected the same in all")
        self._members = [self._member(one) for one in evidence]

    def judgements(self) -> list[Perturbation]:
        """The result of each comparison, in the order of the evidence."""
        return [self._judged(one, self._members) for one in self._members]

    def beside(self, evidence: Evidence) -> Perturbation:
        """The result of a comparison that is tested as strictly as if it were in the family, but costs it nothing."""
        one = self._member(evidence)
        return self._judged(one, [*self._members, one])

    def _member(self, evidence: Evidence) -> _Member:
        kept = np.flatnonzero(~evidence.undefined.all(axis=0))
        statistics = None if _no_scale(evidence) else _statistics(evidence, kept, self._delta)
        return _Member(evidence, kept, statistics)

    def _judged(self, one: _Member, members: Sequence[_Member]) -> Perturbation:
        evidence, delta, alpha = one.evidence, self._delta, self._alpha
        n_baseline, n_runs = len(evidence.baseline_z), len(evidence.run_z)
        together = len(self._members)
        level = share_of(alpha, together, self._comparisons)
        tested = [member.statistics for member in members if member.statistics is not None]
        test = significance(one.statistics, tested, level) if one.statistics is not None else None
        test = test and _of_noisy_pairs(test, evidence.without_noise[one.kept])
        rates = false_discovery_rates(np.full(len(one.kept), np.nan) if test is None else test.p_raw)
        beyond_delta = _errors_beyond_delta(evidence, one.kept, test)
        pairs, assessable, size_unreliable, stuck = [], [], False, []
        for index, p in enumerate(one.kept.tolist()):
            estimate = _estimate(evidence, p, alpha, test is None or bool(evidence.without_noise[p]))
            pair = _pair(evidence, p, estimate, float(rates[index]))
            if test is not None:
                pair = _tested(pair, evidence, estimate, test, index, delta + beyond_delta * float(test.errors[index]))
                pair = replace(pair, verdict=_pair_verdict(pair, evidence, p, test, index, delta, level))
            elif evidence.not_assessable[p]:
                pair = replace(pair, verdict="not assessable")
            if evidence.unchanged:
                interval = (-float("inf") if evidence.losses_only else 0.0, 0.0)
                pair = replace(pair, simultaneous=interval, statistic=0.0, p_adjusted=1.0, verdict="equivalent")
            pairs.append(pair)
            if _stays_open(pair, evidence, p, test, index):
                stuck.append(pair)
            elif pair.verdict != "not assessable" and not evidence.without_noise[p]:
                assessable.append(estimate)
            size_unreliable |= pair.verdict == "changed" and pair.within(delta)
        overall = overall_verdict([pair.verdict for pair in pairs])
        extra = None
        noiseless = [pair for pair, p in zip(pairs, one.kept, strict=True) if evidence.without_noise[p]]
        is_open = overall == "changed" or (overall == "inconclusive" and not stuck and not noiseless)
        if is_open and test is not None and not size_unreliable:
            extra = extra_runs(
                OpenVerdict(
                    assessable, n_baseline, n_runs, delta, alpha, level, test.critical, evidence.losses_only,
                    overall == "changed", sum(len(each.errors) for each in tested),
                )
            )  # fmt: skip
        too_few = evidence.labels.smallest_p > level
        few = too_few or (n_baseline < FEWEST_BASELINES and not evidence.paired)
        order = {verdict: n for n, verdict in enumerate(VERDICTS)}
        result = Perturbation(
            kind=evidence.kind,
            verdict=overall,
            pairs=tuple(sorted(pairs, key=lambda pair: (order[pair.verdict], -_badness(pair, evidence.losses_only)))),
            p_value=float(np.fmin.reduce([pair.p_adjusted for pair in pairs], initial=NAN)),
            delta=delta,
            alpha=alpha,
            n_baseline=n_baseline,
            n_runs=n_runs,
            n_references=evidence.n_references,
            exploratory=few or (n_runs == 1 and overall == "equivalent"),
            extra_runs_needed=extra,
            said=(),
            comparisons=self._comparisons,
            together=together,
            paired=evidence.paired,
            too_few=too_few,
        )
        said = findings(
            result, identical=evidence.identical, smallest_p=evidence.labels.smallest_p, stuck=stuck,
            noiseless=noiseless, unchanged=evidence.unchanged,
        )  # fmt: skip
        return replace(result, said=(*said, *map(Finding, evidence.findings)))


def overall_verdict(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict on all pairs; *equivalent* only if at least half of them can be assessed."""
    overall = gravest(verdicts)
    if not verdicts:
        return "inconclusive"
    unknown = sum(one == "not assessable" for one in verdicts)
    return "not assessable" if overall == "equivalent" and 2 * unknown > len(verdicts) else overall


def _no_scale(evidence: Evidence) -> bool:
    """Whether changes cannot be related to noise: baselines that do not differ, or too few of them."""
    return evidence.identical or len(evidence.baseline_z) < 2 or (evidence.paired and len(evidence.run_z) < 2)


def _of_noisy_pairs(test: Significance, without_noise: NDArray[np.bool_]) -> Significance:
    """``test`` without what it says of z of pairs that have no scale of noise, ``(P,)``."""

    def known(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.where(without_noise, NAN, values)

    return replace(
        test, statistic=known(test.statistic), p_adjusted=known(test.p_adjusted), p_raw=known(test.p_raw),
        p_spread=known(test.p_spread),
    )  # fmt: skip


def _statistics(evidence: Evidence, kept: NDArray[np.intp], delta: float) -> PairStatistics:
    baseline, runs = (np.where(evidence.without_noise, NAN, z)[:, kept] for z in (evidence.baseline_z, evidence.run_z))
    scale = evidence.interval_scale
    if scale != 1.0 and np.isfinite(scale):
        centre = np.array([_mean(column) for column in baseline.T])
        baseline = centre + (baseline - centre) * scale
    return pair_statistics(
        baseline,
        runs,
        evidence.undefined[:, kept],
        evidence.labels,
        spread_unknown=evidence.spread_unknown[kept],
        statistics=None
        if evidence.statistics is None
        else np.where(evidence.without_noise, 0.0, evidence.statistics)[:, kept],
        shared_variance=evidence.shared_variance[kept],
        paired=evidence.paired,
        losses_only=evidence.losses_only,
        delta=delta,
    )


def _errors_beyond_delta(evidence: Evidence, kept: NDArray[np.intp], test: Significance | None) -> float:
    """Standard errors by which a detectable change exceeds delta; nan if it is not known."""
    if test is None or evidence.kind != "inner":
        return NAN  # across runs, power also depends on how well a changed trace aligns
    baseline, runs = evidence.baseline_z[:, kept], evidence.run_z[:, kept]
    return errors_beyond_delta(baseline, runs, evidence.paired, test.critical_found)


def _pair(evidence: Evidence, p: int, estimate: Difference, rate: float) -> Pair:
    """The pair without what needs a scale of noise."""
    a, b = evidence.names[p]
    nan = float("nan")
    baseline_z, run_z = _mean(evidence.baseline_z[:, p]), _mean(evidence.run_z[:, p])
    undefined = _undefined_note(evidence.undefined[:, p], len(evidence.baseline_z))
    return Pair(
        a=a,
        b=b,
        baseline_z=baseline_z,
        baseline_z_sd=estimate.baseline_sd,
        baseline_rho=float(np.tanh(baseline_z)),
        run_z=run_z,
        run_z_sd=_spread(evidence.run_z[:, p]),
        run_rho=float(np.tanh(run_z)),
        delta_z=estimate.delta,
        ci=(estimate.low, estimate.high),
        simultaneous=(nan, nan),
        statistic=nan,
        p_adjusted=nan,
        q_value=rate,
        p_spread=nan,
        detectable_dz=nan,
        verdict="inconclusive",
        reasons=tuple(filter(None, (*evidence.not_assessable[p], undefined))),
    )


def _tested(
    pair: Pair, evidence: Evidence, estimate: Difference, test: Significance, index: int, detectable: float
) -> Pair:
    """``pair`` with its test, its simultaneous interval, and the change that would be ``detectable`` if it has one."""
    error, by_flag = float(test.errors[index]), test.appeared[index]
    p_adjusted = float(test.p_adjusted[index])
    half = test.critical * error if error > 0 else 0.0
    if not np.isfinite(estimate.low) or not np.isfinite(pair.delta_z) or not np.isfinite(half):
        simultaneous = (float("nan"), float("nan"))
    elif evidence.losses_only:
        simultaneous = (-float("inf"), pair.delta_z + half)
    else:
        simultaneous = (pair.delta_z - half, pair.delta_z + half)
    return replace(
        pair,
        simultaneous=simultaneous,
        statistic=float(test.statistic[index]),
        p_adjusted=float(np.fmin(p_adjusted, test.p_appeared[index])) if by_flag else p_adjusted,
        p_spread=float(test.p_spread[index]),
        detectable_dz=detectable if error > 0 and np.isfinite(estimate.low) and np.isfinite(detectable) else NAN,
    )


def _pair_verdict(
    pair: Pair, evidence: Evidence, p: int, test: Significance, index: int, delta: float, level: float
) -> Verdict:
    """*Equivalent* comes before *changed*: a significant change within delta has no open size."""
    if test.appeared[index] and test.p_appeared[index] <= level:
        return "perturbed"
    significant = bool(test.p_adjusted[index] <= level)
    low, high = pair.simultaneous
    if significant and (high < -delta or (low > delta and not evidence.losses_only)):
        return "perturbed"
    unknown = bool(evidence.not_assessable[p])
    if pair.within(delta) and not unknown and not evidence.undefined[:, p].any():
        return "equivalent"
    if significant:
        return "changed"
    return "not assessable" if unknown else "inconclusive"


def _stays_open(pair: Pair, evidence: Evidence, p: int, test: Significance | None, index: int) -> bool:
    """Whether no further runs settle ``pair``: it is undefined in some of those of now, but in too few for a change."""
    undefined = bool(evidence.undefined[:, p].any())
    return pair.verdict == "inconclusive" and undefined and test is not None and not test.appeared[index]


def _estimate(evidence: Evidence, p: int, alpha: float, no_scale: bool) -> Difference:
    baseline, runs = evidence.baseline_z[:, p], evidence.run_z[:, p]
    if evidence.unchanged:
        return Difference(0.0, 0.0, 0.0, _spread(baseline), 0.0, True, True)
    if evidence.paired and not no_scale:
        return paired_difference(baseline, runs, alpha, float(evidence.shared_variance[p]))
    if no_scale or not np.isfinite(evidence.interval_scale):
        nan = float("nan")
        return Difference(_mean(runs) - _mean(baseline), nan, nan, nan, nan, False)
    centre = _mean(baseline)
    scaled = centre + (baseline - centre) * evidence.interval_scale
    return difference(scaled, runs, alpha, float(evidence.shared_variance[p]))


def _badness(pair: Pair, losses_only: bool) -> float:
    """Order within a verdict: by size of the change; pairs that became (un)defined come first."""
    if not np.isfinite(pair.delta_z):
        return float("inf")
    return -pair.delta_z if losses_only else abs(pair.delta_z)


def _mean(values: NDArray[np.float64]) -> float:
    defined = values[np.isfinite(values)]
    return float(defined.mean()) if len(defined) else float("nan")


def _spread(values: NDArray[np.float64]) -> float:
    defined = values[np.isfinite(values)]
    return float(defined.std(ddof=1)) if len(defined) > 1 else float("nan")


def _undefined_note(undefined: NDArray[np.bool_], n_baseline: int) -> str:
    if not undefined.any():
        return ""
    baseline, runs = undefined[:n_baseline], undefined[n_baseline:]
    return (
        f"undefined, because a metric is constant, in {baseline.sum()} of {len(baseline)} baselines "
        f"and {runs.sum()} of {len(runs)} runs"
    )
