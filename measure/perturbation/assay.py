"""Assay sensitivity of outer comparisons: would a loss of similarity be seen if there were one?

Runs that have nothing in common align with baselines as well as these with one another, which is not at all. So that
an absence of change across runs can be shown for a metric, its baselines must be alike when aligned on other metrics,
and a known misalignment must be detected: each of these baselines is compared with the next one, and with the next one
run backwards, in which every record is misplaced. What is left of similarity then, by chance and by relations between
metrics, is what unrelated runs have; the true similarity must exceed it by more than delta.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from measure.perturbation.similarity import PreparedRun, SimilarityRule, backwards, similarity
from measure.stats.intervals import t_quantile

MOST_PAIRS = 20
FEWEST_PAIRS = 3
"""Pairs of baselines that are compared, and without which nothing can be shown."""

Assay = NDArray[np.float64]
"""z of pairs of baselines ``(k, m)``, and of the same pairs with one run backwards: ``(2, k, m)``."""


def assay(baselines: Sequence[PreparedRun], how: SimilarityRule) -> Assay:
    """Similarity of each of up to 20 baselines with the next one, as it is and backwards; nan where undefined.

    Held out, even where ``how`` aligns on all metrics: an alignment on the metric itself makes any two runs alike.
    """
    held_out = SimilarityRule(True, how.alignment, how.duplicates)
    pairs = list(zip(baselines, [*baselines[1:], *baselines[:1]], strict=True))[:MOST_PAIRS]
    # Backwards, alignments would leave any band and cost most of all; they find no more likeness outside of it.
    if len(baselines) < FEWEST_PAIRS or len(how.duplicates) < 2:
        return np.full((2, 0, len(how.duplicates)), np.nan)
    return np.array(
        [
            [similarity(first, second, held_out) for first, second in pairs],
            [similarity(first, backwards(second), held_out, widen=False) for first, second in pairs],
        ]
    )


def not_assessable(found: Assay, how: SimilarityRule, metrics: Sequence[str], delta: float, alpha: float) -> list[str]:
    """For each metric why an absence of change across runs cannot be shown, "" if it can.

    Two one-sided tests at ``alpha``: the baselines' similarity exceeds ``delta``, so that as much can be lost; and
    misplaced records lose more than ``delta``.
    """
    reasons = []
    for metric, name in enumerate(metrics):
        aligned, misplaced = found[0, :, metric], found[1, :, metric]
        if len(metrics) > 1 and len(how.duplicates[metric]) == len(metrics) - 1:
            others = ", ".join(metrics[k] for k in how.duplicates[metric])
            reasons.append(f"all other metrics ({others}) nearly duplicate {name}: there is none to align on")
        elif np.isfinite(aligned).sum() < FEWEST_PAIRS:
            reasons.append(f"too few baselines or other metrics to show that runs align in {name}")
        elif not (lower := _lower_bound(aligned, alpha)) > delta:
            mean = np.nanmean(aligned)
            reasons.append(
                f"baselines are hardly alike in {name} when aligned on other metrics (z {mean:.2f}, at least "
                f"{lower:.2f}): no loss could be seen" + ("; with more baselines it might be" if mean > delta else "")
            )
        elif not (loss := _lower_bound(aligned - misplaced, alpha)) > delta:
            chance, own, mean = np.nanmean(misplaced), np.nanmean(aligned), np.nanmean(aligned - misplaced)
            seen = f"z {own:.2f} between baselines as they are, {chance:.2f} where one runs backwards"
            if mean > delta:
                reasons.append(
                    f"it is not shown that a misalignment would be seen in {name}: {seen}, a loss of {mean:.2f}, of "
                    f"which so few baselines show {max(loss, 0.0):.2f}; more of them may show enough"
                )
            else:
                reasons.append(
                    f"{name} is nearly as alike between runs that do not correspond ({seen}): a misalignment would not "
                    "be seen"
                )
        else:
            reasons.append("")
    return reasons


def _lower_bound(values: NDArray[np.float64], alpha: float) -> float:
    """One-sided lower bound of the mean of ``values`` at level ``alpha``; nan left out."""
    defined = values[np.isfinite(values)]
    if len(defined) < FEWEST_PAIRS:
        return float("-inf")
    error = defined.std(ddof=1) / np.sqrt(len(defined))
    return float(defined.mean() - t_quantile(len(defined) - 1, 1 - alpha) * error)
