"""What the sampler itself changes: the campaign's baselines sampled by signals and by the machine unnoticed.

Same seeds, same programs but for the sampler. Pairs of runs with one seed are alike, which the tests, made for
independent groups, do not use: they err on the side of fewer alarms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from measure.campaign import Campaign
from measure.perturbation import inner_perturbation, outer_perturbation
from measure.report.model import SamplerTruth
from measure.stats.correlation import spearman
from measure.types import Run

Mode = Literal["ideal", "signal"]


def other_mode(campaign: Campaign) -> tuple[Campaign | None, str]:
    """The campaign's baselines by the other sampler, or why there are none."""
    mode: Mode = "ideal" if campaign.sampling.mode == "signal" else "signal"
    if mode == "signal" and campaign.sampling.interval[1] != "cycles":
        return (
            None,
            "a sampler in the program goes by a timer, and this campaign's intervals are in instructions",
        )
    changes: dict[str, Any] = {
        "sampling": campaign.sampling.model_copy(update={"mode": mode}),
        "software_metrics": {},
        "variants": {},
        "cumulative": None,
    }
    return campaign.model_copy(update=changes), ""


def assess_sampler(campaign: Campaign, ideal: Sequence[Run], by_signal: Sequence[Run]) -> SamplerTruth:
    """Compare, with the campaign's levels."""
    hardware = campaign.hardware_metrics
    before, after = ([run.trace.columns(hardware) for run in group] for group in (ideal, by_signal))
    inner = inner_perturbation(
        [spearman(one, hardware) for one in before], [spearman(one, hardware) for one in after],
        delta=campaign.delta, alpha=campaign.alpha, seed=campaign.seed,
    )  # fmt: skip
    outer = None
    if campaign.outer:
        outer = outer_perturbation(
            before, after, hardware,
            held_out=True, delta=campaign.delta, alpha=campaign.alpha, seed=campaign.seed,
        )  # fmt: skip

    def percent(attribute: str) -> Any:
        mean = np.mean([getattr(run, attribute) for run in ideal])
        return 100 * (np.array([getattr(run, attribute) for run in by_signal]) / mean - 1)

    return SamplerTruth(percent("total_instructions"), percent("total_cycles"), inner, outer)
