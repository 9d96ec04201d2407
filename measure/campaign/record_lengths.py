"""Records that are much longer or shorter than the campaign asked for: their events rise and fall together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from measure.campaign.campaign_model import Campaign
from measure.campaign.run_types import Run

_OFF, _MANY = 0.1, 0.05
"""Records are told when more than this part of them differs by more than that part of the length."""


def uneven_records(campaign: Campaign, runs: Sequence[Run]) -> list[str]:
    """A sentence on records of cycles that the ideal sampler ended too late or too early; empty when they are few.

    The emulated guest runs ahead of its timing model, in steps that would be too long where instructions suddenly take
    many cycles more.
    """
    length, unit = campaign.sampling.interval
    if campaign.sampling.mode != "ideal" or unit != "cycles" or not runs:
        return []
    lengths = [np.diff(run.trace.boundaries_cycles) for run in runs]
    off = float(np.mean([np.mean(np.abs(each / length - 1) > _OFF) for each in lengths]))
    if off <= _MANY:
        return []
    longest = max(int(each.max()) for each in lengths)
    mean = np.mean([np.diff(run.trace.boundaries_instructions).mean() for run in runs])
    instructions = int(float(f"{mean:.2g}"))
    asked = campaign.sampling.described
    return [
        f"{off:.0%} of the records are more than {_OFF:.0%} longer or shorter than {asked} (the longest has "
        f"{longest:,}): the guest stops at the end of a block, and late where instructions suddenly take many times "
        "the cycles. Events of such records rise and fall together, which no relation of metrics explains. Longer "
        f"records are more even; those of instructions are, too: `sampling: {{every: {instructions} instructions}}`."
    ]
