"""Records that are much longer or shorter than the campaign asked for: their events rise and fall together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from measure.run_types import Run
from measure.runs.campaign_model import SHORTEST_INTERVAL, Campaign

INSTRUCTIONS, CYCLES = "PAPI_TOT_INS", "PAPI_TOT_CYC"
"""Where records are even in one, the other is the metric that varies from record to record."""
_OFF = 0.1
MANY = 0.05
"""Records are uneven when more than this part of them differs from the length by more than `_OFF` of it."""


@dataclass(frozen=True)
class UnevenRecords:
    """Records of cycles of which too many have another length than ``asked_cycles``.

    ``off``: their part; ``longest``: in cycles; ``instructions``: the interval that makes about as many records, all of
    one length.
    """

    asked_cycles: int
    off: float
    longest: int
    instructions: int

    @property
    def described(self) -> str:
        """How many records differ from what by how much."""
        difference = f"more than {_OFF:.0%} longer or shorter than {self.asked_cycles:,} cycles"
        return f"{self.off:.0%} of the records are {difference}"

    @property
    def even_interval(self) -> str:
        """The interval of instructions as `sampling: {every: ...}` takes it."""
        return f"{self.instructions} instructions"


def find_uneven(length_cycles: int, runs: Sequence[Run], many: float = MANY) -> UnevenRecords | None:
    """The unevenness of the records of ``runs``, which were asked for at ``length_cycles``; None where no more than
    ``many`` of them are of another length.

    The emulated guest runs ahead of its timing model, in steps that would be too long where instructions suddenly take
    many cycles more.
    """
    lengths = [np.diff(run.trace.boundaries_cycles) for run in runs]
    off = float(np.mean([np.mean(np.abs(each / length_cycles - 1) > _OFF) for each in lengths]))
    if off <= many:
        return None
    longest = max(int(each.max()) for each in lengths)
    mean = np.mean([np.diff(run.trace.boundaries_instructions).mean() for run in runs])
    return UnevenRecords(length_cycles, off, longest, max(SHORTEST_INTERVAL, int(float(f"{mean:.2g}"))))


def uneven_records(campaign: Campaign, runs: Sequence[Run]) -> UnevenRecords | None:
    """The unevenness of a campaign's records; None of records of instructions and of those that a timer ends, which
    are as they are."""
    length, unit = campaign.sampling.interval
    if campaign.sampling.mode != "ideal" or unit != "cycles" or not runs:
        return None
    return find_uneven(length, runs)


def about_uneven_records(campaign: Campaign, runs: Sequence[Run]) -> list[str]:
    """A sentence on records of cycles that the ideal sampler ended too late or too early; empty when they are few."""
    uneven = uneven_records(campaign, runs)
    if uneven is None:
        return []
    return [
        f"{uneven.described} (the longest has {uneven.longest:,}): the guest stops at the end of a block, and late "
        "where instructions suddenly take many times the cycles. Events of such records rise and fall together, which "
        "no relation of metrics explains. Longer records are more even; those of instructions are, too: "
        f"`sampling: {{every: {uneven.even_interval}}}`."
    ]
