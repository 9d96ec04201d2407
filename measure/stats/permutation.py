"""Exact and sampled permutation tests over run labels, decided by the largest statistic of many columns.

The run is the unit: under the null hypothesis the instrumented runs are exchangeable with the baselines, so every
choice of R of the N runs as "instrumented" is as likely as the observed one. `measure.perturbation.perturbation`
computes the statistics' input.

Sources: max-T, Westfall and Young 1993, section 2.4; the +1 rule, Phipson and Smyth 2010; false discovery
rate, Benjamini and Hochberg 1995.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, islice
from math import comb

import numpy as np
from numpy.typing import NDArray

NO_VARIATION = 1e-12
"""A column that varies less than this between runs, in z, does not vary: the rest is rounding."""

_TIE = 1e-9
"""Statistics closer than this, relatively, are equal but for the order of summation."""

_CHUNK_VALUES = 4_000_000


@dataclass(frozen=True)
class Labellings:
    """Choices of R of N runs as instrumented; row 0 is the observed one (the last R runs).

    ``labels``: ``(k, N)`` of 0 and 1. ``exact``: all choices are included, and p-values are exact; otherwise
    they are a random sample with the observed one added, which is the +1 rule. Either way, p = fraction of rows
    at least as extreme as row 0, and never 0.
    """

    labels: NDArray[np.float64]
    exact: bool

    @property
    def smallest_p(self) -> float:
        """Lower limit of p-values."""
        return 1 / len(self.labels)


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
    """Judge each column of ``statistics`` ``(k, c)``, one row a labelling, row 0 observed.

    Two-sided, except that columns where ``losses_only`` ``(c,)`` is true count only negative values. The
    columns must be on one scale: see `mean_differences`.
    """
    extremity = np.abs(statistics)
    if losses_only is not None:
        extremity = np.where(losses_only, -statistics, extremity)
    largest = extremity.max(axis=1, initial=-np.inf)
    observed = extremity[0] - _TIE * np.maximum(1.0, np.abs(extremity[0]))
    k = len(statistics)
    p_adjusted = (k - np.searchsorted(np.sort(largest), observed, side="left")) / k
    p_raw = (extremity >= observed).sum(axis=0) / k
    return MaxT(statistics[0], p_raw, p_adjusted)


def mean_differences(values: NDArray[np.float64], labels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Standardised means of the labelled minus the other runs, ``(k, c)``, one row a labelling.

    ``values``: ``(N, c)``, one row a run, nan where undefined; ``labels``: ``(k, N)``. Each column is divided by its
    standard deviation over all N runs, the same for every labelling. For complete columns this gives the same order as
    the pooled two-sample t (t is a monotone function of it). Unlike t, it never divides by the tiny spread that a
    labelling may have by chance. A column without variation, or a group without values, gives 0.
    """
    defined = np.isfinite(values)
    counts = defined.sum(axis=0)
    means = np.where(defined, values, 0.0).sum(axis=0) / np.maximum(counts, 1)
    centred = np.where(defined, values - means, 0.0)
    spread = np.sqrt((centred**2).sum(axis=0) / np.maximum(counts - 1, 1))
    varies = spread > NO_VARIATION
    scaled = np.where(varies, centred / np.where(varies, spread, 1.0), 0.0)
    result = np.empty((len(labels), values.shape[1]))
    step = max(1, _CHUNK_VALUES // max(1, values.shape[1]))
    for start in range(0, len(labels), step):
        part = labels[start : start + step]
        labelled = part @ defined
        unlabelled = counts - labelled
        both = (labelled > 0) & (unlabelled > 0)
        weight = np.where(both, counts / np.where(both, labelled * unlabelled, 1.0), 0.0)
        result[start : start + step] = (part @ scaled) * np.sqrt(weight)
    return result


def cross_differences(similarity: NDArray[np.float64], labels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Cross-group minus within-baseline mean similarity, standardised, ``(k, c)``, one row a labelling.

    ``similarity``: ``(N, N, c)`` symmetric in the runs, nan where undefined and on the diagonal; ``labels``: ``(k,
    N)``. Every labelling is computed anew from all pairs of runs, so that the dependence between quantities that share
    a run is in the null distribution too. Each column is divided by the root mean square of its differences over the
    labellings. Where a labelling leaves no pair, the value is 0.
    """
    n_columns = similarity.shape[2]
    result = np.zeros((len(labels), n_columns))
    others = 1.0 - labels
    for column in range(n_columns):
        matrix = similarity[:, :, column]
        defined = np.isfinite(matrix)
        filled = np.where(defined, matrix, 0.0)
        sums, counts = others @ filled, others @ defined.astype(np.float64)
        cross_n, within_n = (counts * labels).sum(axis=1), (counts * others).sum(axis=1)
        both = (cross_n > 0) & (within_n > 0)
        cross = (sums * labels).sum(axis=1) / np.where(both, cross_n, 1.0)
        within = (sums * others).sum(axis=1) / np.where(both, within_n, 1.0)
        difference = np.where(both, cross - within, 0.0)
        scale = np.sqrt(np.mean(difference**2))
        if scale > NO_VARIATION:
            result[:, column] = difference / scale
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
