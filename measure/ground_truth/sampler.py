"""Measures what the sampler itself changes: baselines sampled by signals against the same ones sampled ideally.

Both groups have the same seeds and programs; only the sampler differs. The tests ignore this pairing by seed, so they
may miss a small change, but do not raise more false alarms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from measure.judging.comparison import Compared, percent_over
from measure.perturbation.perturbation import inner_perturbation, outer_perturbation
from measure.report.model import SamplerTruth
from measure.run_types import Run
from measure.runs.campaign_model import Campaign
from measure.stats.correlation import spearman

Mode = Literal["ideal", "signal"]


def other_mode(campaign: Campaign) -> tuple[Campaign | None, str]:
    """A campaign of the baselines by the other sampler; or None, and why it is not possible."""
    mode: Mode = "ideal" if campaign.sampling.mode == "signal" else "signal"
    if mode == "signal" and campaign.sampling.interval[1] != "cycles":
        return (
            None,
            "the in-guest sampler needs intervals in cycles, and this campaign's intervals are in instructions",
        )
    changes: dict[str, Any] = {
        "sampling": campaign.sampling.model_copy(update={"mode": mode}),
        "software_metrics": {},
        "variants": {},
        "cumulative": None,
        "variance_runs": 0,
    }
    return campaign.model_copy(update=changes), ""


def assess_sampler(campaign: Campaign, ideal: Sequence[Run], by_signal: Sequence[Run]) -> SamplerTruth:
    """Compare the two groups of runs, with the campaign's delta, alpha and seed."""
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
            held_out=True, alignment=campaign.alignment_setting,
            delta=campaign.delta, alpha=campaign.alpha, seed=campaign.seed,
        )  # fmt: skip
    sides = Compared(tuple(ideal), tuple(by_signal), paired=False)
    instructions, cycles = (percent_over(sides, total) for total in ("total_instructions", "total_cycles"))
    return SamplerTruth(instructions, cycles, inner, outer)
