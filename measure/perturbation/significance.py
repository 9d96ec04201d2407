"""Tests the pairs of one comparison: familywise p-values, simultaneous intervals, and changes of spread.

`measure.perturbation.verdict` turns them into verdicts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from measure.stats.permutation import (
    Labellings,
    critical_value,
    max_t,
    mean_differences,
    paired_differences,
    ratios,
    spread_differences,
)

FLAG_FLOOR = 0.25
"""`VARIANCE_FLOOR` for being undefined, which most groups are never or always, so that no variance is left."""

MOSTLY = 0.5
"""A pair became (un)defined if that is so in at least this fraction more or fewer of the runs than of the baselines."""

FEWEST_FOR_SPREAD = 3
"""Runs in each group without which a change of spread is not tested."""


@dataclass(frozen=True)
class Significance:
    """The tests of P pairs.

    ``statistic``: change of z in standard errors; ``p_adjusted``: of it, familywise; ``p_raw``: by itself.
    ``appeared``: the pair became defined or undefined in half of the runs or more, ``p_appeared``: of that,
    familywise in the same family (1 where it was never undefined). ``errors``: standard errors; ``critical``:
    half-width, in standard errors, of intervals that all hold together. ``p_spread``: familywise, that runs vary no
    more than baselines (nan: not tested).
    """

    statistic: NDArray[np.float64]
    p_adjusted: NDArray[np.float64]
    p_raw: NDArray[np.float64]
    appeared: NDArray[np.bool_]
    p_appeared: NDArray[np.float64]
    errors: NDArray[np.float64]
    critical: float
    p_spread: NDArray[np.float64]


def compare_pairs(
    baseline: NDArray[np.float64],
    runs: NDArray[np.float64],
    undefined: NDArray[np.bool_],
    labels: Labellings,
    *,
    statistics: NDArray[np.float64] | None,
    paired: bool,
    losses_only: bool,
    delta: float,
    level: float,
) -> Significance:
    """Test ``runs`` ``(R, P)`` against ``baseline`` ``(B, P)`` at ``level`` over all pairs together.

    ``undefined``: ``(B + R, P)``. ``statistics``: ``(k, P)`` by labelling, in place of those of ``runs`` and
    ``baseline``. ``paired``: B = R, and run i belongs to baseline i.

    Where the spread between runs changed, p-values are at least those of Welch's t over all pairs by Bonferroni,
    which take a spread of each group for granted. Simultaneous intervals invert the test: the runs are moved by their
    change, but by no more than ``delta``, so that what is judged beyond delta is compared with runs that differ by
    exactly delta.
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
    test = max_t(np.hstack([plain, ratios(*flagged)]), losses_only=losses)
    more = np.abs(undefined[n_baseline:].mean(axis=0) - undefined[:n_baseline].mean(axis=0))
    p_appeared = np.ones(n_pairs)
    p_appeared[sometimes] = test.p_adjusted[n_pairs:]
    moved = np.maximum(change, -delta) if losses_only else np.clip(change, -delta, delta)
    shifted = ratios(*tested(moved))
    p_spread = _spread(baseline, runs, labels, paired)
    p_adjusted = test.p_adjusted[:n_pairs]
    if not paired and (p_spread <= level).any():
        # The runs are not exchangeable with the baselines, whatever their means: no p-value rests on that any more.
        p_adjusted = np.maximum(p_adjusted, _welch(baseline, runs, losses_only))
    return Significance(
        statistic=test.statistic[:n_pairs],
        p_adjusted=p_adjusted,
        p_raw=test.p_raw[:n_pairs],
        appeared=more >= MOSTLY,
        p_appeared=p_appeared,
        errors=error,
        critical=critical_value(shifted, level, losses_only=losses[:n_pairs]),
        p_spread=p_spread,
    )


def _spread(
    baseline: NDArray[np.float64], runs: NDArray[np.float64], labels: Labellings, paired: bool
) -> NDArray[np.float64]:
    """Familywise p-values ``(P,)`` that runs scatter no more than baselines do.

    One-sided: a handful of runs often agree by chance. In pairs: of the differences of their distances from the mean
    of each group, whose signs are flipped.
    """
    if min(len(baseline), len(runs)) < FEWEST_FOR_SPREAD:
        return np.full(baseline.shape[1], np.nan)
    if paired:
        before, after = (_distances(group) for group in (baseline, runs))
        found = ratios(*paired_differences(before - after, labels.labels))
    else:
        found = -spread_differences(np.vstack([baseline, runs]), labels.labels)
    return max_t(found, losses_only=np.ones(found.shape[1], np.bool_)).p_adjusted


def _welch(baseline: NDArray[np.float64], runs: NDArray[np.float64], losses_only: bool) -> NDArray[np.float64]:
    """p-values ``(P,)`` of Welch's t, times the number of pairs; 1 where a group has fewer than two values."""
    from scipy.special import stdtr

    defined = [np.isfinite(group).sum(axis=0) for group in (baseline, runs)]
    few = (defined[0] < 2) | (defined[1] < 2)
    counts = [np.maximum(number, 2) for number in defined]
    filled = [np.where(few, 0.0, group) for group in (baseline, runs)]
    means = [np.nansum(group, axis=0) / n for group, n in zip(filled, counts, strict=True)]
    parts = [
        np.nansum((group - mean) ** 2, axis=0) / (n - 1) / n
        for group, mean, n in zip(filled, means, counts, strict=True)
    ]
    error = np.sqrt(parts[0] + parts[1])
    usable = ~few & (error > 0)
    safe = np.where(usable, error, 1.0)
    lower = sum(part**2 / (n - 1) for part, n in zip(parts, counts, strict=True))
    degrees = np.where(usable, safe**4 / np.where(usable, lower, 1.0), 1.0)
    t = (means[1] - means[0]) / safe
    p = stdtr(degrees, t) if losses_only else 2 * stdtr(degrees, -np.abs(t))
    return np.where(usable, np.minimum(1.0, p * len(t)), 1.0)


def _distances(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Distance of each value ``(n, P)`` from its column's mean."""
    defined = np.isfinite(values)
    means = np.where(defined, values, 0.0).sum(axis=0) / np.maximum(defined.sum(axis=0), 1)
    return np.abs(values - means)
