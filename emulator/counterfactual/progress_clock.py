"""A clock of a program's progress: executions of chosen instructions, by which places in the runs of two programs are
compared that execute these instructions equally often."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from emulator.counterfactual.progress_kernel import INSTRUCTIONS, LAST, NEXT, PROGRESS, follow_progress
from emulator.events import FIRST_PROGRAM, BlockFacts, TraceSelection


class Places(NamedTuple):
    """Places in a run, (n,) each. ``progress``: of the clock before the place; ``instructions``: before the place;
    ``last``, ``following``: instructions at the end of the block with the last tick of the clock before the place, and
    with the first one after it, or at the end of the run."""

    progress: NDArray[np.int64]
    instructions: NDArray[np.int64]
    last: NDArray[np.int64]
    following: NDArray[np.int64]

    @property
    def gap_instructions(self) -> NDArray[np.int64]:
        """Instructions between the ticks around each place, (n,): how uncertain the place is by the clock alone."""
        return np.asarray(self.following - self.last)


class ProgressClock:
    """An observer that counts the executions of the instructions at ``ticks``, addresses of the program that the guest
    begins with, as progress; and those of all instructions of other programs.

    ``targets``: ascending, for `reached`; ``with_addresses``: whether another observer selects addresses, which are
    then in the record.
    """

    def __init__(
        self, ticks: Sequence[int], targets: NDArray[np.int64] | None = None, *, with_addresses: bool = False
    ) -> None:
        self.selection = TraceSelection(blocks=True, addresses=with_addresses, exact_stop=True)
        self._with_addresses = with_addresses
        self._ticks = np.array(sorted(ticks), np.uint32)
        self._targets = np.zeros(0, np.int64) if targets is None else np.ascontiguousarray(targets, np.int64)
        self._reached = np.full(len(self._targets), -1, np.int64)
        self._state = np.array([0, 0, 0, -1, 0], np.int64)
        self._n_accesses = np.zeros(0, np.int64)
        self._length = np.zeros(0, np.int64)
        self._progress = np.zeros(0, np.int64)
        self._marks: list[tuple[int, int, int]] = []
        self._following: list[int] = []

    @property
    def progress(self) -> int:
        """Ticks so far; call `Machine.drain` first."""
        return int(self._state[PROGRESS])

    @property
    def instructions(self) -> int:
        """Instructions so far."""
        return int(self._state[INSTRUCTIONS])

    @property
    def reached(self) -> NDArray[np.int64]:
        """Instructions at the end of the block in which each target was reached, (n,); -1 for a target that was not."""
        return self._reached

    def consume(self, facts: BlockFacts, stream: NDArray[np.uint32]) -> None:
        """Follow the record."""
        known = len(self._length)
        if facts.n_blocks > known:
            blocks = facts.blocks[known:]
            rows = facts.instructions_of(np.arange(known, facts.n_blocks))
            counts = blocks["n_instructions"].astype(np.int64)
            block = np.repeat(np.arange(len(blocks)), counts)
            is_tick = np.isin(rows["pc"], self._ticks) | (blocks["program"][block] != FIRST_PROGRAM)
            ticks = np.bincount(block, is_tick, minlength=len(blocks))
            accesses = blocks["n_accesses"].astype(np.int64) * self._with_addresses
            self._n_accesses = np.concatenate([self._n_accesses, accesses])
            self._length = np.concatenate([self._length, counts])
            self._progress = np.concatenate([self._progress, ticks.astype(np.int64)])
        follow_progress(
            np.ascontiguousarray(stream, np.uint32), self._n_accesses, self._length, self._progress, self._targets,
            self._reached, self._state,
        )  # fmt: skip

    def mark(self) -> None:
        """Note the place that the run has reached; call `Machine.drain` first."""
        self._resolve()
        self._marks.append((int(self._state[PROGRESS]), int(self._state[INSTRUCTIONS]), int(self._state[LAST])))

    def places(self) -> Places:
        """The places that were noted; call it after the end of the run."""
        self._resolve()
        following = self._following + [self.instructions] * (len(self._marks) - len(self._following))
        progress, instructions, last = np.array(self._marks, np.int64).reshape(-1, 3).T
        return Places(progress, instructions, last, np.array(following, np.int64))

    def _resolve(self) -> None:
        """Give the marks that still lack it the first tick after them, if there was one."""
        if self._state[NEXT] >= 0:
            self._following += [int(self._state[NEXT])] * (len(self._marks) - len(self._following))
        if len(self._following) == len(self._marks):
            self._state[NEXT] = -1


def run_targets(progress: NDArray[np.int64]) -> NDArray[np.int64]:
    """What `ProgressClock` needs as targets for `places_in_other_run`: each progress and the next tick, ascending."""
    return np.unique(np.concatenate([progress, progress + 1]))


def places_in_other_run(places: Places, other: ProgressClock) -> NDArray[np.int64]:
    """Instructions, (n,), before the same places in the run that ``other`` followed to its end with the targets
    `run_targets`: at the same progress, and between two ticks at the same fraction of the instructions, or before."""
    reached = np.where(other.reached < 0, other.instructions, other.reached)
    at = dict(zip(run_targets(places.progress).tolist(), reached.tolist(), strict=True)) | {0: 0}
    begin = np.array([at[one] for one in places.progress.tolist()], np.int64)
    end = np.array([at[one + 1] for one in places.progress.tolist()], np.int64)
    on_the_way = places.instructions - places.last
    return np.asarray(begin + on_the_way * (end - begin) // np.maximum(places.gap_instructions, 1))
