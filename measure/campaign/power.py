"""What change of z a campaign can find, said before its runs are made.

The formula is that of a t test at the level of Bonferroni's correction over all pairs of metrics. The test itself (the
largest statistic of all pairs under permutations or flips of signs) is never less powerful than that, up to its
granularity, so the stated change is found with at least the stated probability when z is about normal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from measure.campaign.campaign_file import FEWEST_PAIRS, Campaign
from measure.campaign.variance import SOURCES

POWER = 0.8
ASSUMED_SPREAD = 0.06
"""Spread of z between runs that is assumed before there are any: that of noisy pairs of metrics (the 90th percentile
of experiments/campaign_design/real_runs.csv; the median is 0.035)."""
ASSUMED_RATIO = 2.0
"""Assumed variance of an unpaired difference over that of a paired one: the median there."""
_FEWEST_MEASURED = FEWEST_PAIRS


@dataclass(frozen=True)
class Spread:
    """Standard deviation of a difference of z between run and baseline. ``measured``: from so many runs; 0: assumed."""

    difference: float
    measured: int


def assumed_spread(campaign: Campaign) -> Spread:
    """What is assumed before there are runs."""
    variance = 2 * ASSUMED_SPREAD**2
    return Spread(math.sqrt(variance / ASSUMED_RATIO if campaign.pairs else variance), 0)


def measured_spread(z: Mapping[str, Mapping[int, NDArray[np.float64]]], baseline: str, paired: bool) -> Spread | None:
    """The median over pairs of metrics, from finished runs: z by variant and replicate, ``(pairs,)`` each.

    None with too few runs.
    """
    before = z.get(baseline, {})
    variances, count = [], 0
    for variant, runs in z.items():
        both = sorted(before.keys() & runs.keys())
        if variant == baseline or len(both) < _FEWEST_MEASURED:
            continue
        differences = np.array([runs[n] - before[n] for n in both])
        separate = np.array([before[n] for n in both]).var(0, ddof=1) + np.array([runs[n] for n in both]).var(0, ddof=1)
        variances.append(differences.var(axis=0, ddof=1) if paired else separate)
        count += 2 * len(both)
    values = np.concatenate(variances) if variances else np.zeros(0)
    values = values[np.isfinite(values)]
    return Spread(float(np.sqrt(np.median(values))), count) if len(values) else None


def detectable_change(campaign: Campaign, alpha: float, spread: Spread) -> float:
    """The change of z of a pair with ``spread`` that is significant in `POWER` of such campaigns; inf if none is."""
    metrics = len(campaign.hardware_metrics)
    level = alpha / (metrics * (metrics - 1))  # two-sided, over all pairs
    if campaign.pairs:
        count, freedom = campaign.pairs, campaign.pairs - 1
        error = spread.difference / math.sqrt(count)
        smallest = 2.0 ** (1 - count)
    else:
        b, r = campaign.baselines, campaign.replicates
        freedom = b + r - 2
        error = spread.difference * math.sqrt((1 / b + 1 / r) / 2)
        smallest = 1 / math.comb(b + r, r)
    if freedom < 1 or smallest > alpha:
        return math.inf
    return float((stats.t.isf(level, freedom) + stats.t.isf(1 - POWER, freedom)) * error)


def plan_text(campaign: Campaign, alpha: float, spread: Spread, variants: Sequence[str]) -> str:
    """The design in a sentence: runs, controls, and the change that it can find."""
    extra = campaign.replicates if campaign.has_controls else 0
    noise = len(SOURCES) * min(campaign.variance_runs, campaign.baselines)
    total = campaign.baselines + campaign.replicates * len(variants) + extra + noise
    runs = f"{total} runs: {campaign.baselines} baselines, {campaign.replicates} of each of {len(variants)} variants"
    runs += f", {extra} of the null control" if extra else ""
    runs += f", {noise} for the sources of noise" if noise else ""
    how = f"in {campaign.pairs} pairs" if campaign.pairs else "unpaired"
    change = detectable_change(campaign, alpha, spread)
    source = f"measured in {spread.measured} runs" if spread.measured else "assumed"
    if math.isinf(change):
        return f"{runs}, compared {how}: too few for any p below {alpha:g}."
    return (
        f"{runs}, compared {how}. A change of z of {change:.2f} (delta is {campaign.delta:g}) is found in "
        f"{POWER:.0%} of such campaigns where differences spread by {spread.difference:.2f} ({source})."
    )
