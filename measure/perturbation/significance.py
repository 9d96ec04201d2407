"""Tests the pairs of comparisons: familywise p-values, simultaneous intervals, and changes of spread.

`pair_statistics` computes what one comparison contributes, `significance` decides over all comparisons that are tested
together. `measure.perturbation.verdict` turns the result into verdicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from measure.stats.intervals import t_quantile, welch
from measure.stats.permutation import (
    Extremes,
    Labellings,
    critical_value,
    extremes,
    mean_differences,
    paired_differences,
    ratios,
    spread_ratios,
)

FLAG_FLOOR = 0.25
"""`VARIANCE_FLOOR` for being undefined, which most groups are never or always, so that no variance is left."""

MOSTLY = 0.5
"""A pair became (un)defined if that is so in at least this fraction more or fewer of the runs than of the baselines."""

FOUND_ERRORS = 4.5
"""Standard errors by which a change that is found exceeds delta: about a critical value, and a quantile of noise."""

FEWEST_FOR_SPREAD = 3
"""Runs in each group without which a change of spread is not tested."""

FEWEST_FOR_MORE_RUNS = 6
"""Baselines below which more runs are compared by Welch's t, too: so few do not show whether they scatter more."""


@dataclass(frozen=True)
class Significance:
    """The tests of P pairs; familywise: over all pairs of all comparisons that were tested together.

    ``statistic``: change of z in standard errors; ``p_adjusted``: of it, familywise; ``p_raw``: by itself.
    ``appeared``: the pair became defined or undefined in half of the runs or more, ``p_appeared``: of that,
    familywise in the same family (1 where it was never undefined). ``errors``: standard errors, enlarged where Welch's
    t has wider intervals and is called for; ``critical``: half-width, in standard errors, of intervals that all hold
    together; ``critical_found``: the same in a campaign in which one pair changed by so much that it is found.
    ``p_spread``: familywise, that runs vary as much as baselines (nan: not tested).
    """

    statistic: NDArray[np.float64]
    p_adjusted: NDArray[np.float64]
    p_raw: NDArray[np.float64]
    appeared: NDArray[np.bool_]
    p_appeared: NDArray[np.float64]
    errors: NDArray[np.float64]
    critical: float
    critical_found: float
    p_spread: NDArray[np.float64]


@dataclass(frozen=True)
class WelchTest:
    """Welch's t for P pairs. ``t``, ``errors``: ``(P,)`` the statistic, and standard errors, infinite where a group has
    fewer than two values and 0 where nothing varies; ``degrees``: of freedom, by Welch and Satterthwaite;
    ``baseline_degrees``: of the baselines alone; ``losses_only``: one-sided."""

    t: NDArray[np.float64]
    errors: NDArray[np.float64]
    degrees: NDArray[np.float64]
    baseline_degrees: NDArray[np.float64]
    losses_only: bool

    @property
    def p_values(self) -> NDArray[np.float64]:
        """p-values ``(P,)``, times their number; 1 where there is no error."""
        from scipy.special import stdtr

        p = stdtr(self.degrees, self.t) if self.losses_only else 2 * stdtr(self.degrees, -np.abs(self.t))
        usable = np.isfinite(self.errors) & (self.errors > 0)
        return np.where(usable, np.minimum(1.0, p * len(self.t)), 1.0)

    @property
    def by_baselines(self) -> WelchTest:
        """The same with the degrees of freedom of the baselines, which are safe where these are few or scatter more.

        See Hsu 1938; Mickey and Brown 1966. Welch's and Satterthwaite's are too many if a few baselines agree by
        chance: with 3 of three times the spread, 20 runs and 10 pairs of metrics, 19% of tests had a false alarm.
        """
        return replace(self, degrees=self.baseline_degrees)

    def half_widths(self, level: float) -> NDArray[np.float64]:
        """Of intervals ``(P,)`` that all hold together with probability 1 - ``level`` (Bonferroni)."""
        tail = level / len(self.errors) / (1 if self.losses_only else 2)
        return np.asarray(t_quantile(self.degrees, 1 - tail) * self.errors)


@dataclass(frozen=True)
class PairStatistics:
    """The statistics of one comparison's P pairs under all k labellings.

    ``changes``: of the P pairs, then of those that are sometimes undefined, whose numbers are ``sometimes``.
    ``beyond``: ``(k,)`` the largest statistic of the pairs when the runs are moved by their change, but by no more
    than delta; ``beyond_found``: the same if one pair changed by so much that it is found. ``spread``: that runs
    scatter more, and less, None: not tested; ``spread_unknown``: ``(P,)`` pairs left out of it. ``appeared``,
    ``errors``: as in `Significance`. ``welch``: a test that lets each group have its spread, None in pairs;
    ``few_baselines``: whether that is called for in any case.
    """

    changes: Extremes
    sometimes: NDArray[np.intp]
    beyond: NDArray[np.float64]
    beyond_found: NDArray[np.float64]
    spread: tuple[Extremes, Extremes] | None
    spread_unknown: NDArray[np.bool_]
    appeared: NDArray[np.bool_]
    errors: NDArray[np.float64]
    welch: WelchTest | None
    few_baselines: bool


def pair_statistics(
    baseline: NDArray[np.float64],
    runs: NDArray[np.float64],
    undefined: NDArray[np.bool_],
    labels: Labellings,
    *,
    spread_unknown: NDArray[np.bool_],
    statistics: NDArray[np.float64] | None,
    shared_variance: NDArray[np.float64],
    paired: bool,
    losses_only: bool,
    delta: float,
) -> PairStatistics:
    """The statistics of ``runs`` ``(R, P)`` against ``baseline`` ``(B, P)``.

    ``undefined``: ``(B + R, P)``. ``spread_unknown``: ``(P,)`` pairs whose spread is not tested. ``statistics``:
    ``(k, P)`` by labelling, in place of those of ``runs`` and ``baseline``. ``shared_variance``: ``(P,)`` what is added
    to the variance of the change, in pairs, or of the baselines' mean, as these are not independent; nan: not known.
    ``paired``: B = R, and run i belongs to baseline i.
    """
    n_baseline, n_pairs = baseline.shape

    def tested(moved: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        if paired:
            return paired_differences(runs - moved - baseline, labels.labels)
        return mean_differences(np.vstack([baseline, runs - moved]), labels.labels)

    differences, errors = tested(np.zeros(n_pairs))
    change, error = differences[0], errors[0]
    plain = ratios(differences, errors) if statistics is None else statistics
    sometimes = np.flatnonzero(undefined.any(axis=0))
    flags = undefined[:, sometimes].astype(np.float64)
    if paired:
        flagged = paired_differences(flags[n_baseline:] - flags[:n_baseline], labels.labels, floor=FLAG_FLOOR)
    else:
        flagged = mean_differences(flags, labels.labels, floor=FLAG_FLOOR)
    losses = np.repeat([losses_only, False], [n_pairs, len(sometimes)])
    more = np.abs(undefined[n_baseline:].mean(axis=0) - undefined[:n_baseline].mean(axis=0))
    moved = np.maximum(change, -delta) if losses_only else np.clip(change, -delta, delta)
    beyond = extremes(ratios(*tested(moved)), losses_only=losses[:n_pairs]).largest
    return PairStatistics(
        changes=extremes(np.hstack([plain, ratios(*flagged)]), losses_only=losses),
        sometimes=sometimes,
        beyond=beyond,
        beyond_found=np.maximum(beyond, _found(baseline, runs, labels, paired, error)),
        spread=changes_of_spread(
            np.where(spread_unknown, np.nan, baseline), np.where(spread_unknown, np.nan, runs), labels, paired
        ),
        spread_unknown=spread_unknown,
        appeared=more >= MOSTLY,
        errors=np.where(error > 0, np.sqrt(error**2 + shared_variance), 0.0),
        welch=None if paired else welch_test(baseline, runs, losses_only, shared_variance),
        few_baselines=n_baseline < min(FEWEST_FOR_MORE_RUNS, len(runs)),
    )


def significance(one: PairStatistics, together: Sequence[PairStatistics], level: float) -> Significance:
    """Test the pairs of ``one`` at ``level`` over all pairs of the comparisons ``together``, ``one`` among them.

    Their labellings correspond: row by row, the same runs or pairs change their roles. Where the spread between runs
    changed, or few baselines do not show whether it did, p-values of unpaired runs are at least those of Welch's t over
    the comparison's pairs by Bonferroni, and simultaneous intervals at least as wide.
    Simultaneous intervals invert the test: the runs are moved by their change, but by no more than delta, so that what
    is judged beyond delta is compared with runs that differ by exactly delta.
    """
    n_pairs = len(one.errors)
    adjusted = one.changes.p_adjusted(_largest([each.changes.largest for each in together]))
    p_adjusted, p_appeared = adjusted[:n_pairs], np.ones(n_pairs)
    p_appeared[one.sometimes] = adjusted[n_pairs:]
    more_p = less_p = np.full(n_pairs, np.nan)
    if one.spread is not None:
        tested = [each.spread for each in together if each.spread]
        more_p, less_p = (
            np.where(one.spread_unknown, np.nan, found.p_adjusted(_largest([each[way].largest for each in tested])))
            for way, found in enumerate(one.spread)
        )
    critical, errors = critical_value(_largest([each.beyond for each in together]), level), one.errors
    baselines_decide = one.few_baselines or bool((less_p <= level).any())
    if one.welch is not None and (baselines_decide or (more_p <= level).any()):
        # The runs are not exchangeable with the baselines, whatever their means: nothing rests on that any more.
        welch_t = one.welch.by_baselines if baselines_decide else one.welch
        p_adjusted = np.maximum(p_adjusted, welch_t.p_values)
        if 0 < critical < np.inf:
            errors = np.maximum(errors, welch_t.half_widths(level) / critical)
    return Significance(
        statistic=one.changes.statistic[:n_pairs],
        p_adjusted=p_adjusted,
        p_raw=one.changes.p_raw[:n_pairs],
        appeared=one.appeared,
        p_appeared=p_appeared,
        errors=errors,
        critical=critical,
        critical_found=critical_value(_largest([one.beyond_found, *(each.beyond for each in together)]), level),
        p_spread=np.minimum(1.0, 2 * np.minimum(more_p, less_p)),
    )


def _found(
    baseline: NDArray[np.float64],
    runs: NDArray[np.float64],
    labels: Labellings,
    paired: bool,
    errors: NDArray[np.float64],
) -> NDArray[np.float64]:
    """The statistic, in each labelling, of a pair that changed by so much beyond delta that it is found, ``(k,)``.

    That of the pair with the median error, as if what is left of its change were `FOUND_ERRORS` standard errors.
    """
    usable = np.flatnonzero(errors > 0)
    if not len(usable):
        return np.zeros(len(labels.labels))
    one = usable[np.argsort(errors[usable], kind="stable")[len(usable) // 2]]
    before, after = baseline[:, [one]], runs[:, [one]]
    change = np.nanmean(after - before) if paired else np.nanmean(after) - np.nanmean(before)
    after = after - change + FOUND_ERRORS * errors[one]
    if paired:
        return np.abs(ratios(*paired_differences(after - before, labels.labels))[:, 0])
    return np.abs(ratios(*mean_differences(np.vstack([before, after]), labels.labels))[:, 0])


def _largest(of_each: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """The largest of several comparisons in each labelling, ``(k,)``."""
    return np.asarray(np.max(of_each, axis=0))


def changes_of_spread(
    baseline: NDArray[np.float64], runs: NDArray[np.float64], labels: Labellings, paired: bool
) -> tuple[Extremes, Extremes] | None:
    """The statistics of the hypotheses that runs scatter no more, and no less, than baselines; None: too few runs.

    Each is one-sided: a handful of runs often agree by chance, and a ratio of variances says less of that. Of the
    distances from the mean of each group, so that a change of the mean is none of spread: in pairs the signs of their
    differences are flipped, else their labels exchanged.
    """
    if min(len(baseline), len(runs)) < FEWEST_FOR_SPREAD:
        return None
    if paired:
        before, after = (_distances(group) for group in (baseline, runs))
        found = ratios(*paired_differences(before - after, labels.labels))
    else:
        found = -spread_ratios(baseline, runs, labels.labels)
    one_sided = np.ones(found.shape[1], np.bool_)
    return extremes(found, losses_only=one_sided), extremes(-found, losses_only=one_sided)


def welch_test(
    baseline: NDArray[np.float64],
    runs: NDArray[np.float64],
    losses_only: bool,
    shared_variance: NDArray[np.float64] | float = 0.0,
) -> WelchTest:
    """Welch's t of ``runs`` ``(R, P)`` against ``baseline`` ``(B, P)``, whose mean varies by ``shared_variance`` more
    than that of independent values."""
    defined = [np.isfinite(group).sum(axis=0) for group in (baseline, runs)]
    few = (defined[0] < 2) | (defined[1] < 2)
    counts = [np.maximum(number, 2) for number in defined]
    filled = [np.where(few, 0.0, group) for group in (baseline, runs)]
    means = [np.nansum(group, axis=0) / n for group, n in zip(filled, counts, strict=True)]
    parts = [
        np.nansum((group - mean) ** 2, axis=0) / (n - 1) / n
        for group, mean, n in zip(filled, means, counts, strict=True)
    ]
    usable = ~few & (parts[0] + parts[1] > 0)
    parts[0] = parts[0] + shared_variance
    error, degrees = welch([np.where(usable, part, 1.0) for part in parts], counts)
    errors = np.where(usable, error, np.where(few, np.inf, 0.0))
    return WelchTest((means[1] - means[0]) / error, errors, degrees, counts[0] - 1.0, losses_only)


def _distances(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Distance of each value ``(n, P)`` from its column's mean."""
    defined = np.isfinite(values)
    means = np.where(defined, values, 0.0).sum(axis=0) / np.maximum(defined.sum(axis=0), 1)
    return np.abs(values - means)
