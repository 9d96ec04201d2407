"""Exact and sampled permutation tests over run labels or signs, decided by the largest statistic of many columns.

The run is the unit. Unpaired: under the null hypothesis the instrumented runs are exchangeable with the baselines, so
every choice of R of the N runs as "instrumented" is as likely as the observed one. Paired: run i and baseline i share
their noise and are exchangeable within the pair, so every choice of signs of the differences is as likely.
`measure.perturbation.perturbation` computes the statistics' input.

Differences are divided by their own standard error in each labelling: then a test of equal means keeps its level in
large samples when the groups differ in spread (Janssen 1997; Chung and Romano 2013), and exactly, as with any
statistic, when runs are exchangeable.

Sources: max-T, Westfall and Young 1993, section 2.4; the +1 rule, Phipson and Smyth 2010; false discovery
rate, Benjamini and Hochberg 1995.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice
from math import comb

import numpy as np
from numpy.typing import NDArray

NO_VARIATION = 1e-12
"""A column that varies less than this between runs, in z, does not vary: the rest is rounding."""

_TIE = 1e-9
"""Statistics closer than this, relatively, are equal but for the order of summation."""

VARIANCE_FLOOR = 0.01
"""Least variance within a group, as a fraction of the variance over all runs.

A labelling may have equal values in one group by chance, above all where values are tied; its statistic must not
explode. The floor is the same for all labellings, so tests stay exact.
"""

SHARED_DEGREES = 10.0
"""Weight, in runs, of what all columns tell about the spread of the labelled runs against that of one column.

A handful of runs hardly shows its spread in one column; the median over columns of the ratio of the two groups'
variances shows whether such runs scatter more altogether. Moderated variances as in Smyth 2004, section 3.
"""

_CHUNK_VALUES = 2_000_000


@dataclass(frozen=True)
class Labellings:
    """Choices of R of N runs as instrumented, or signs of the differences of R pairs; row 0 is the observed one.

    ``labels``: ``(k, N)`` of 0 and 1, observed: the last R runs; or ``(k, R)`` of 1 and -1, observed: all 1. ``exact``:
    all choices are included, and p-values are exact; otherwise they are a random sample with the observed one added,
    which is the +1 rule. Either way, p = fraction of rows at least as extreme as row 0, and never 0. ``mirrored``: each
    row has a counterpart whose statistics are the same but for their sign.
    """

    labels: NDArray[np.float64]
    exact: bool
    mirrored: bool = False

    @property
    def smallest_p(self) -> float:
        """Lower limit of p-values of two-sided tests."""
        return 2.0 ** (1 - self.labels.shape[1]) if self.mirrored and self.exact else 1 / len(self.labels)

    def of_pairs(self, pairs: Sequence[int]) -> Labellings:
        """The same flips of signs of some of the pairs."""
        return replace(self, labels=self.labels[:, list(pairs)])


def labellings(n_baseline: int, n_runs: int, n_permutations: int, seed: int) -> Labellings:
    """All labellings if there are at most ``n_permutations``, else so many at random and the observed one."""
    n = n_baseline + n_runs
    count = comb(n, n_runs)
    if count <= n_permutations:
        labels = np.zeros((count, n))
        # Chosen from the last run backwards, so that the observed labelling comes first.
        for row, chosen in enumerate(islice(combinations(range(n - 1, -1, -1), n_runs), count)):
            labels[row, list(chosen)] = 1.0
        return Labellings(labels, exact=True)
    labels = np.zeros((n_permutations + 1, n))
    labels[0, n_baseline:] = 1.0
    labels[1:] = np.random.default_rng(seed).permuted(np.tile(labels[0], (n_permutations, 1)), axis=1)
    return Labellings(labels, exact=False)


def sign_flips(n_pairs: int, n_permutations: int, seed: int) -> Labellings:
    """All choices of signs of ``n_pairs`` differences if at most ``n_permutations``, else so many at random.

    The observed signs, all 1, come first. With 5 pairs no two-sided p-value is below 2 / 2^5 = 6.25%.
    """
    if 2**n_pairs <= n_permutations:
        bits = np.arange(2**n_pairs)[:, np.newaxis] >> np.arange(n_pairs)
        return Labellings(1.0 - 2.0 * (bits & 1).astype(np.float64), exact=True, mirrored=True)
    signs = np.ones((n_permutations + 1, n_pairs))
    signs[1:] -= 2.0 * np.random.default_rng(seed).integers(0, 2, (n_permutations, n_pairs))
    return Labellings(signs, exact=False, mirrored=True)


@dataclass(frozen=True)
class Extremes:
    """How extreme each of ``c`` columns is in ``k`` labellings, and the largest of them.

    ``statistic``, ``extremity``: ``(c,)`` observed, signed, and how far from the null hypothesis. ``p_raw``: ``(c,)``
    each column by itself. ``largest``: ``(k,)`` the largest extremity in each labelling.
    """

    statistic: NDArray[np.float64]
    extremity: NDArray[np.float64]
    p_raw: NDArray[np.float64]
    largest: NDArray[np.float64]

    def p_adjusted(self, largest: NDArray[np.float64]) -> NDArray[np.float64]:
        """``(c,)`` familywise over all columns of which ``largest`` ``(k,)`` is the largest, these among them."""
        k = len(largest)
        return np.asarray((k - np.searchsorted(np.sort(largest), _threshold(self.extremity), side="left")) / k)


def extremes(statistics: NDArray[np.float64], *, losses_only: NDArray[np.bool_] | None = None) -> Extremes:
    """The extremes of ``statistics`` ``(k, c)``, one row a labelling, row 0 observed.

    Two-sided, except that columns where ``losses_only`` ``(c,)`` is true count only negative values. The
    columns must be on one scale: see `ratios`.
    """
    extremity = np.abs(statistics) if losses_only is None else np.where(losses_only, -statistics, np.abs(statistics))
    p_raw = (extremity >= _threshold(extremity[0])).sum(axis=0) / len(statistics)
    return Extremes(statistics[0], extremity[0], p_raw, extremity.max(axis=1, initial=-np.inf))


@dataclass(frozen=True)
class MaxT:
    """A max-T test of ``c`` columns.

    ``statistic``: ``(c,)`` observed, signed. ``p_raw``: ``(c,)`` each column by itself. ``p_adjusted``:
    ``(c,)`` familywise over all columns.
    """

    statistic: NDArray[np.float64]
    p_raw: NDArray[np.float64]
    p_adjusted: NDArray[np.float64]


def max_t(statistics: NDArray[np.float64], *, losses_only: NDArray[np.bool_] | None = None) -> MaxT:
    """Judge each column of ``statistics`` ``(k, c)`` by the largest of all, as in `extremes`."""
    found = extremes(statistics, losses_only=losses_only)
    return MaxT(found.statistic, found.p_raw, found.p_adjusted(found.largest))


def critical_value(largest: NDArray[np.float64], level: float) -> float:
    """What ``largest`` ``(k,)``, as in `Extremes`, exceeds in at most a fraction ``level`` of the labellings.

    inf if they are too few.
    """
    beyond = int(level * len(largest) + _TIE)
    return float(np.sort(largest)[-beyond - 1]) if beyond else float("inf")


def _threshold(extremity: NDArray[np.float64]) -> NDArray[np.float64]:
    """The least value that is as extreme as ``extremity``."""
    return np.asarray(extremity - _TIE * np.maximum(1.0, np.abs(extremity)))


def ratios(differences: NDArray[np.float64], errors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Differences in standard errors; 0 where the error is 0, because nothing varies."""
    return np.divide(differences, errors, out=np.zeros_like(differences), where=errors > 0)


def mean_differences(
    values: NDArray[np.float64], labels: NDArray[np.float64], *, floor: float = VARIANCE_FLOOR
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Means of the labelled minus the other runs, and their standard errors, ``(k, c)`` each, one row a labelling.

    ``values``: ``(N, c)``, one row a run, nan where undefined; ``labels``: ``(k, N)``. The error is Welch's, except
    that the labelled runs' variance is moderated (see `SHARED_DEGREES`), that they count as varying at least as much
    as the others, since a few runs that happen to agree are no evidence of precision, and that no variance is below
    ``floor`` of that over all runs. Columns without variation, and labellings that leave a group without values, give
    0 for both.
    """
    differences = np.empty((len(labels), values.shape[1]))
    errors = np.empty_like(differences)
    least = floor * _pooled_variance(values)
    varies = np.sqrt(_pooled_variance(values)) > NO_VARIATION
    for rows, one in _moments(values, labels):
        both = (one.labelled > 0) & (one.others > 0) & varies
        other_variance = np.maximum(one.other_variance, least)
        variance = np.maximum(_moderated(one.variance, other_variance, one.labelled, varies), other_variance)
        error = np.sqrt(variance / np.maximum(one.labelled, 1.0) + other_variance / np.maximum(one.others, 1.0))
        differences[rows] = np.where(both, one.mean - one.other_mean, 0.0)
        errors[rows] = np.where(both, error, 0.0)
    return differences, errors


def spread_ratios(
    others: NDArray[np.float64], labelled: NDArray[np.float64], labels: NDArray[np.float64]
) -> NDArray[np.float64]:
    """How much more the labelled runs scatter than the others: log of the ratio of their variances, ``(k, c)``.

    ``others``: ``(B, c)``, ``labelled``: ``(R, c)``, one row a run, nan where undefined; ``labels``: ``(k, B + R)``,
    row 0 observed, as in `Labellings`. The labels are exchanged over the distances of the runs from the mean of their
    own group, since a difference of the means would else become spread within the groups of every other labelling.
    These distances are too small by sqrt((n - 1) / n) in a group of n runs, and are enlarged by it. No variance is
    below `VARIANCE_FLOOR` of that over all distances; 0 where nothing varies or a group has fewer than two values.
    """
    residuals = np.vstack([_residuals(others), _residuals(labelled)])
    pooled = _pooled_variance(residuals)
    varies = np.sqrt(pooled) > NO_VARIATION

    def logarithms(values: NDArray[np.float64], labels: NDArray[np.float64]) -> NDArray[np.float64]:
        found = np.zeros((len(labels), values.shape[1]))
        for rows, one in _moments(values, labels):
            usable = varies & (one.labelled > 1) & (one.others > 1)
            own, other = (
                np.where(usable, np.maximum(each, VARIANCE_FLOOR * pooled), 1.0)
                for each in (one.variance, one.other_variance)
            )
            found[rows] = np.log(own / other)
        return found

    result = logarithms(residuals, labels)
    result[0] = logarithms(np.vstack([others, labelled]), labels[:1])[0]  # these distances are not enlarged
    return result


def _residuals(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Distances of ``values`` ``(n, c)`` from their column's mean, with the variance of a single value."""
    defined = np.isfinite(values)
    counts = defined.sum(axis=0)
    means = np.where(defined, values, 0.0).sum(axis=0) / np.maximum(counts, 1)
    return np.asarray((values - means) * np.sqrt(counts / np.maximum(counts - 1, 1)))


@dataclass(frozen=True)
class _Moments:
    """Sizes, means and variances of both groups, ``(k, c)`` each; variances of fewer than two values are 0."""

    labelled: NDArray[np.float64]
    others: NDArray[np.float64]
    mean: NDArray[np.float64]
    other_mean: NDArray[np.float64]
    variance: NDArray[np.float64]
    other_variance: NDArray[np.float64]


def _moments(values: NDArray[np.float64], labels: NDArray[np.float64]) -> Iterator[tuple[slice, _Moments]]:
    """The moments of ``values`` ``(N, c)``, about each column's mean, for one part of the labellings after another."""
    defined = np.isfinite(values)
    counts = defined.sum(axis=0)
    means = np.where(defined, values, 0.0).sum(axis=0) / np.maximum(counts, 1)
    centred = np.where(defined, values - means, 0.0)
    squares = centred**2
    total = squares.sum(axis=0)
    step = max(1, _CHUNK_VALUES // max(1, values.shape[1]))
    for start in range(0, len(labels), step):
        part = labels[start : start + step]
        labelled = part @ defined
        others = counts - labelled
        sums, own = part @ centred, part @ squares
        mean, other_mean = sums / np.maximum(labelled, 1.0), -sums / np.maximum(others, 1.0)
        variance = np.maximum(own - labelled * mean**2, 0.0) / np.maximum(labelled - 1, 1.0)
        rest = np.maximum(total - own - others * other_mean**2, 0.0)
        other_variance = np.where(others > 1, rest / np.maximum(others - 1, 1.0), 0.0)
        yield slice(start, start + step), _Moments(labelled, others, mean, other_mean, variance, other_variance)


def _pooled_variance(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Variance of each column over all runs, 0 for fewer than two values."""
    defined = np.isfinite(values)
    counts = defined.sum(axis=0)
    means = np.where(defined, values, 0.0).sum(axis=0) / np.maximum(counts, 1)
    return np.asarray(np.where(defined, (values - means) ** 2, 0.0).sum(axis=0) / np.maximum(counts - 1, 1))


def _moderated(
    variance: NDArray[np.float64],
    other_variance: NDArray[np.float64],
    labelled: NDArray[np.float64],
    varies: NDArray[np.bool_],
) -> NDArray[np.float64]:
    """``variance`` ``(k, c)`` of ``labelled`` runs, with what the columns that vary tell together about its ratio."""
    if not varies.any() or labelled.max() < 2:
        return variance
    ratio = np.maximum(np.median(variance[:, varies] / other_variance[:, varies], axis=1), 1.0)[:, np.newaxis]
    own = np.maximum(labelled - 1, 0.0)
    return np.asarray((SHARED_DEGREES * ratio * other_variance + own * variance) / (SHARED_DEGREES + own))


def paired_differences(
    values: NDArray[np.float64], signs: NDArray[np.float64], *, floor: float = VARIANCE_FLOOR
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Means of the differences within pairs, and their standard errors, ``(k, c)`` each, one row a choice of signs.

    ``values``: ``(R, c)``, run minus baseline, nan where undefined; ``signs``: ``(k, R)`` of 1 and -1. No variance is
    below ``floor`` of the mean square. Columns of zeros, and those with fewer than two values, give 0 for both.
    """
    defined = np.isfinite(values)
    counts = defined.sum(axis=0)
    filled = np.where(defined, values, 0.0)
    square = (filled**2).sum(axis=0) / np.maximum(counts, 1)
    usable = (counts > 1) & (np.sqrt(square) > NO_VARIATION)
    means = np.where(usable, signs @ filled / np.maximum(counts, 1), 0.0)
    variance = np.maximum(square - means**2, floor * square)
    errors = np.where(usable, np.sqrt(variance / np.maximum(counts - 1, 1)), 0.0)
    return means, errors


def cross_differences(similarity: NDArray[np.float64], labels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Cross-group minus within-baseline mean similarity, in standard errors, ``(k, c)``, one row a labelling.

    ``similarity``: ``(N, N, c)`` symmetric in the runs, nan where undefined and on the diagonal; ``labels``: ``(k,
    N)``. Every labelling is computed anew from all pairs of runs, so that the dependence between quantities that share
    a run is in the null distribution too. The error is that of `mean_differences` for each run's mean similarity to the
    other baselines. Where a labelling leaves no pair, and for columns defined in fewer than half of the runs, it is 0.
    """
    result = np.zeros((len(labels), similarity.shape[2]))
    others = 1.0 - labels
    n_others = others.sum(axis=1)
    # Means over the other baselines share all of these but one: they spread less than a further run's would.
    scale = np.where(n_others > 2, (n_others - 1) / np.maximum(n_others - 2, 1), 1.0)
    for column in range(similarity.shape[2]):
        matrix = similarity[:, :, column]
        defined = np.isfinite(matrix)
        if 2 * defined.any(axis=1).sum() < len(matrix):
            continue
        filled = np.where(defined, matrix, 0.0)
        sums, counts = others @ filled, others @ defined.astype(np.float64)
        each = sums / np.maximum(counts, 1.0)  # the mean similarity of each run to the other baselines
        cross_n, within_n = (counts * labels).sum(axis=1), (counts * others).sum(axis=1)
        both = (cross_n > 0) & (within_n > 0)
        difference = (sums * labels).sum(axis=1) / np.maximum(cross_n, 1.0)
        difference -= (sums * others).sum(axis=1) / np.maximum(within_n, 1.0)
        overall = filled.sum(axis=1)[defined.any(axis=1)] / defined.sum(axis=1)[defined.any(axis=1)]
        least = VARIANCE_FLOOR * float(overall.var(ddof=1)) if len(overall) > 1 else 0.0
        known = counts > 0
        other_variance = np.maximum(_variances(each, known * others) * scale**2, least)
        variance = np.maximum(_variances(each, known * labels), other_variance)
        n_known = (known * labels).sum(axis=1), (known * others).sum(axis=1)
        error = np.sqrt(variance / np.maximum(n_known[0], 1.0) + other_variance / np.maximum(n_known[1], 1.0))
        usable = both & (error > NO_VARIATION)
        result[:, column] = np.where(usable, difference / np.where(usable, error, 1.0), 0.0)
    return result


def _variances(values: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Variance of each row of ``values`` ``(k, N)`` over the entries whose weight is 1; 0 for fewer than two."""
    counts = weights.sum(axis=1)
    means = (values * weights).sum(axis=1) / np.maximum(counts, 1.0)
    return np.asarray(((values - means[:, np.newaxis]) ** 2 * weights).sum(axis=1) / np.maximum(counts - 1, 1.0))


def paired_cross_differences(similarity: NDArray[np.float64], signs: NDArray[np.float64]) -> NDArray[np.float64]:
    """As `cross_differences` for R pairs of a baseline and a run: how much less like baselines the run is, ``(k, c)``.

    ``similarity``: ``(N, N, c)``; the first R runs are the baselines of the pairs, the last R their instrumented runs,
    those between are baselines without a partner. A sign of -1 swaps the roles within a pair. The difference of a pair
    is the mean over all other baselines of their similarity to its run minus that to its baseline.
    """
    n_pairs, n = signs.shape[1], len(similarity)
    result = np.zeros((len(signs), similarity.shape[2]))
    kept = (1.0 + signs) / 2
    is_baseline = np.ones((len(signs), n))
    is_baseline[:, :n_pairs], is_baseline[:, n - n_pairs :] = kept, 1.0 - kept
    for column in range(similarity.shape[2]):
        matrix = similarity[:, :, column]
        defined = np.isfinite(matrix)
        filled = np.where(defined, matrix, 0.0)
        between = np.arange(n_pairs), np.arange(n - n_pairs, n)
        filled[between] = filled[between[::-1]] = 0.0  # a pair's own similarity compares no two pairs
        defined[between] = defined[between[::-1]] = False
        means = (is_baseline @ filled) / np.maximum(is_baseline @ defined.astype(np.float64), 1.0)
        differences = signs * (means[:, n - n_pairs :] - means[:, :n_pairs])
        average = differences.mean(axis=1)
        square = (differences**2).mean(axis=1)
        variance = np.maximum(square - average**2, VARIANCE_FLOOR * square)
        usable = np.sqrt(square) > NO_VARIATION
        error = np.sqrt(np.where(usable, variance, 1.0) / max(n_pairs - 1, 1))
        result[:, column] = np.where(usable, average / error, 0.0)
    return result


def false_discovery_rates(p_values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Benjamini and Hochberg's q-values of ``p_values`` ``(c,)``; nan stays nan and is not counted."""
    result = np.full(len(p_values), np.nan)
    defined = np.flatnonzero(np.isfinite(p_values))
    if len(defined) == 0:
        return result
    order = defined[np.argsort(p_values[defined], kind="stable")]
    adjusted = p_values[order] * len(order) / np.arange(1, len(order) + 1)
    result[order] = np.minimum(np.minimum.accumulate(adjusted[::-1])[::-1], 1.0)
    return result
