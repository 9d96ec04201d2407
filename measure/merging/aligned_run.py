"""A run on a baseline's time base, and what that alignment leaves of relations, in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from measure.merging.relations_left import FAINT, NOTHING_KNOWN, WEAKENED, RelationsLeft
from measure.merging.spread import Spread
from measure.run_types import Run

AlignBy = Literal["dtw", "progress"]
_STAND_IN_RELATION = 0.5  # that is taken for an example of what is left


@dataclass(frozen=True)
class AlignedRun:
    """A run on the baseline's time base.

    ``cost``: of the warping path, see `measure.alignment.dtw.Alignment`; nan when aligned by progress. ``distance``:
    root mean square difference of the channels over matched records, in standard deviations: 0 for equal traces, 1.4
    for unrelated ones; compare distances of one alignment method only, since by progress also records that begin at
    different moments count. ``records``: ``(n,)``, the number of the run's records that each baseline record is made
    of, without records in which nothing ran. ``stretched``: half-open ranges of baseline records where that number is
    at least `STRETCHED`, or at least `JUMP` times that of the records around, or at most the inverse of either;
    ``stretched_fraction``: their fraction of all baseline records. ``estimated_progress``: aligned by progress that is
    estimated, see `measure.runs.program_progress`. ``left``: what is left of known relations when one of both metrics
    is moved as the run's are; ``left_of_two``: when both are, the other one from that other run of the merge with which
    least is left.
    """

    run: Run
    spread: Spread
    align: AlignBy
    channels: tuple[str, ...]
    cost: float
    distance: float
    records: NDArray[np.float64]
    stretched: tuple[tuple[int, int], ...]
    stretched_fraction: float
    estimated_progress: bool = False
    left: RelationsLeft = NOTHING_KNOWN
    left_of_two: RelationsLeft = NOTHING_KNOWN

    @property
    def name(self) -> str:
        """Group and replicate."""
        return f"{self.run.spec.variant}/{self.run.spec.replicate}"

    @property
    def weakens(self) -> bool:
        """Whether relations of this run's metrics to those of other runs are shown to be weaker in the merged trace."""
        return any(one.share < WEAKENED for one in (self.left, self.left_of_two))

    @property
    def worse(self) -> RelationsLeft:
        """Of what is left with one and with both metrics moved, that in which relations are further off."""
        return max((self.left, self.left_of_two), key=lambda one: one.error if one.is_known else -1.0)

    @property
    def left_in_words(self) -> str:
        """What is left of known relations; "" where it is not known."""
        if not self.left.is_known:
            return ""
        example = _STAND_IN_RELATION * self.left.share
        both = (
            f" (about {self.left_of_two.share:.0%} when both are, from two runs)" if self.left_of_two.is_known else ""
        )
        return (
            f"of the known relations of hardware metrics, about {self.left.share:.0%} is left when one of both is "
            f"taken from {self.name}{both}, so that a correlation of {_STAND_IN_RELATION:.2f} shows as about "
            f"{example:.2f} in the mean"
        )

    @property
    def faint_in_words(self) -> str:
        """Which relations may be lost, whatever is left of others in the mean; "" where none is far off."""
        worse = self.worse
        if not worse.error >= FAINT:
            return ""
        return (
            f"single relations are off by {worse.error:.2f} (root mean square over hardware metrics; at worst "
            f"{worse.worst_in_words}), so that a correlation below about {2 * worse.error:.1f} may be absent here, or "
            "of the other sign"
        )
