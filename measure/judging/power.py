"""What change of z a campaign can find, said before its runs are made.

In pairs, all comparisons are tested together: the threshold is that of made-up campaigns of as many pairs and variants,
whose differences are normal and share the baselines' noise, with pairs of metrics that are independent (the most
demanding case). Unpaired, the formula is that of a t test at the level of Bonferroni's correction over all pairs of
metrics; the test itself (the largest statistic of all pairs under permutations) is never less powerful than that, up to
its granularity. So the stated change is found with at least the stated probability when z is about normal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from measure.perturbation.perturbation import comparisons
from measure.perturbation.significance import FOUND_ERRORS
from measure.runs.campaign_model import FEWEST_PAIRS, Campaign
from measure.runs.variance import noise_runs
from measure.stats.permutation import critical_value, extremes, paired_differences, ratios, sign_flips

POWER = 0.8
ASSUMED_SPREAD = 0.06
"""Spread of z between runs that is assumed before there are any: that of noisy pairs of metrics (the 90th percentile
of experiments/campaign_design/real_runs.csv; the median is 0.035)."""
ASSUMED_RATIO = 2.0
"""Assumed variance of an unpaired difference over that of a paired one: the median there."""
_FEWEST_MEASURED = FEWEST_PAIRS
_MADE_UP_CAMPAIGNS, _FLIPS = 20, 1024


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


def detectable_change(campaign: Campaign, alpha: float, spread: Spread, n_variants: int = 1) -> float:
    """The change of z of a pair with ``spread`` that is significant in `POWER` of such campaigns; inf if none is.

    ``alpha``: the chance of a false alarm that all comparisons of the campaign share.
    """
    metrics = len(campaign.hardware_metrics)
    if campaign.pairs:
        if 2.0 ** (1 - campaign.pairs) > alpha:
            return math.inf
        freedom, error = campaign.pairs - 1, spread.difference / math.sqrt(campaign.pairs)
        critical = joint_threshold(campaign.pairs, metrics, n_variants, campaign.outer, alpha)
    else:
        b, r = campaign.baselines, campaign.replicates
        level = alpha / comparisons(n_variants, campaign.outer)
        freedom, error = b + r - 2, spread.difference * math.sqrt((1 / b + 1 / r) / 2)
        if freedom < 1 or 1 / math.comb(b + r, r) > level:
            return math.inf
        critical = -float(stdtrit(freedom, level / (metrics * (metrics - 1))))  # two-sided, over all pairs
    return float((critical - stdtrit(freedom, 1 - POWER)) * error)


def joint_threshold(n_pairs: int, n_metrics: int, n_variants: int, outer: bool, alpha: float) -> float:
    """Standard errors from which a change is significant where all variants are tested together, within runs and
    (``outer``) across them: the mean over made-up campaigns in which one pair of metrics changed."""
    rng = np.random.default_rng(0)
    signs = sign_flips(n_pairs, _FLIPS, 0).labels
    within = n_metrics * (n_metrics - 1) // 2
    columns = within + (n_metrics if outer else 0)
    losses_only = np.tile(np.arange(columns) >= within, n_variants)
    found = []
    for _ in range(_MADE_UP_CAMPAIGNS):
        baseline = rng.normal(size=(n_pairs, 1, columns))
        changes = (rng.normal(size=(n_pairs, n_variants, columns)) - baseline).reshape(n_pairs, -1)
        changes[:, 0] += FOUND_ERRORS * math.sqrt(2 / n_pairs)
        statistics = ratios(*paired_differences(changes, signs))
        found.append(critical_value(extremes(statistics, losses_only=losses_only).largest, alpha))
    return float(np.mean(found))


def plan_text(campaign: Campaign, alpha: float, spread: Spread, variants: Sequence[str]) -> str:
    """The design in a sentence: runs, controls, and the change that it can find. ``alpha``: of all its comparisons."""
    return f"{runs_text(campaign, variants)}, compared {comparing_text(campaign, alpha, spread, variants)}"


def runs_text(campaign: Campaign, variants: Sequence[str]) -> str:
    """The runs of the design, by what they collect."""
    extra = campaign.replicates if campaign.has_controls else 0
    noise = noise_runs(campaign)
    total = campaign.baselines + campaign.replicates * len(variants) + extra + noise
    runs = f"{total} runs: {campaign.baselines} baselines"
    of = f"each of {len(variants)} variants" if len(variants) > 1 else "the variant"
    runs += f", {campaign.replicates} of {of}" if variants else ""
    runs += f", {extra} of the null control" if extra else ""
    return runs + (f", {noise} for the sources of noise" if noise else "")


def comparing_text(campaign: Campaign, alpha: float, spread: Spread, variants: Sequence[str]) -> str:
    """How the design compares its runs, and the change that it can find; as in `plan_text`."""
    how = f"in {campaign.pairs} pairs of runs" if campaign.pairs else "unpaired"
    if campaign.paired and not campaign.pairs and variants:
        how += f" (pairs need `baselines` and `replicates` of {FEWEST_PAIRS} or more)"
    if campaign.pairs and (alone := campaign.replicates - campaign.baselines) > 0:
        how += (
            f" (replicates without a baseline to be paired with, {alone} of each variant, are in no verdict: "
            f"`baselines: {campaign.replicates}` pairs them)"
        )
    if not variants:
        return "with nothing: the campaign has no software metrics."
    change = detectable_change(campaign, alpha, spread, len(variants))
    source = f"measured in {spread.measured} runs" if spread.measured else "assumed"
    if math.isinf(change):
        n_shares = 1 if campaign.pairs else comparisons(len(variants), campaign.outer)
        share = f" (its share of {alpha:g} among {n_shares} comparisons)" if n_shares > 1 else ""
        return f"{how}: too few for any p below {alpha / n_shares:.3g}{share}."
    return (
        f"{how}. A change of z of {change:.2f} is significant, and one of "
        f"{change + campaign.delta:.2f} called perturbed (beyond delta, {campaign.delta:g}), in {POWER:.0%} of such "
        f"campaigns where differences spread by {spread.difference:.2f} ({source})."
    )
