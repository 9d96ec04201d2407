"""Compares runs of a variant with baselines: in pairs that share their noise, or all with all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from measure.campaign.campaign_file import FEWEST_PAIRS, Campaign
from measure.campaign.run_types import Run
from measure.perturbation.analysis_types import Perturbation
from measure.perturbation.perturbation import Memo, comparisons, inner_perturbation, outer_perturbation
from measure.stats.correlation import spearman


@dataclass(frozen=True)
class Compared:
    """Runs to compare. ``paired``: run i and baseline i share their noise; baselines without a partner come last."""

    baselines: tuple[Run, ...]
    runs: tuple[Run, ...]
    paired: bool


def runs_of(runs: Sequence[Run], variant: str) -> list[Run]:
    """The runs of a variant by replicate."""
    return sorted((run for run in runs if run.spec.variant == variant), key=lambda run: run.spec.replicate)


def compared(campaign: Campaign, baselines: Sequence[Run], runs: Sequence[Run]) -> Compared:
    """The pairs of a paired campaign; all runs if it is not, or if so many runs failed that too few pairs are left."""
    if campaign.pairs:
        before = {run.spec.replicate: run for run in baselines}
        after = {run.spec.replicate: run for run in runs}
        both = sorted(before.keys() & after.keys())
        if len(both) >= FEWEST_PAIRS:
            alone = [before[n] for n in sorted(before.keys() - after.keys())]
            return Compared((*(before[n] for n in both), *alone), tuple(after[n] for n in both), True)
    return Compared(tuple(baselines), tuple(runs), False)


class Comparison:
    """Compares variants of a campaign with its ``baselines``, by the campaign's delta, level and seed.

    Its variants, within and across runs, share one chance of a false alarm; controls are judged at the same level.
    """

    def __init__(self, campaign: Campaign, baselines: Sequence[Run]) -> None:
        self.campaign, self._baselines = campaign, baselines
        # Alignments of baselines with one another, shared by all comparisons with the same baselines.
        self._memos: dict[tuple[int, ...], Memo] = {}
        self._levels: dict[str, Any] = {
            "delta": campaign.delta, "alpha": campaign.alpha_of_a_look, "seed": campaign.seed,
            "comparisons": comparisons(len(campaign.variant_sets()), campaign.outer),
        }  # fmt: skip

    def tables(self, runs: Sequence[Run]) -> list[NDArray[np.int64]]:
        """The hardware metrics of each run, ``(n, m)``."""
        return [run.trace.counts(self.campaign.hardware_metrics) for run in runs]

    def inner(self, runs: Sequence[Run], changed: Sequence[NDArray[np.int64]] | None = None) -> Perturbation:
        """Perturbation within ``runs``. ``changed``: tables to use in place of those of ``runs``."""
        hardware = self.campaign.hardware_metrics
        given = {id(run): table for run, table in zip(runs, changed or self.tables(runs), strict=True)}
        sides = compared(self.campaign, self._baselines, runs)
        return inner_perturbation(
            [spearman(table, hardware) for table in self.tables(sides.baselines)],
            [spearman(given[id(run)], hardware) for run in sides.runs],
            paired=sides.paired,
            **self._levels,
        )

    def outer(self, runs: Sequence[Run], held_out: bool) -> Perturbation:
        """Perturbation across ``runs`` aligned with baselines."""
        sides = compared(self.campaign, self._baselines, runs)
        memo = self._memos.setdefault(tuple(run.spec.replicate for run in sides.baselines), {})
        return outer_perturbation(
            self.tables(sides.baselines), self.tables(sides.runs), self.campaign.hardware_metrics,
            held_out=held_out, paired=sides.paired, memo=memo, **self._levels,
        )  # fmt: skip
