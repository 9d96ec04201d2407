"""What a program did in consecutive intervals: which blocks ran how often, and how memory was reused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.engine.state import MAX_BLOCKS, REUSE_BINS, Hart
from emulator.engine.tiers import Tier


@dataclass(frozen=True)
class Intervals:
    """Consecutive intervals, n of them.

    ``ends``: (n,) instructions executed in all where each ends. ``blocks``, ``executions``: which blocks ran how
    often, one entry for each block of each interval that ran, by interval and block; ``starts``: (n + 1,) where each
    interval's entries begin. ``reuse_times``: (n, REUSE_BINS) as `Machine.reuse_times`, of each interval.
    """

    ends: NDArray[np.int64]
    starts: NDArray[np.int64]
    blocks: NDArray[np.uint32]
    executions: NDArray[np.int64]
    reuse_times: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ends)


class IntervalWriter:
    """Totals at the last boundary, and room for what ran after it."""

    def __init__(self, hart: Hart) -> None:
        self._hart = hart
        self.counts_before = np.zeros(MAX_BLOCKS, np.int64)  # only what is touched takes memory
        self.reuses_before = np.zeros(REUSE_BINS, np.int64)
        self.blocks = np.zeros(1 << 16, np.uint32)
        self.executions = np.zeros(1 << 16, np.int64)
        self.job = np.zeros(0, np.int64)
        self._begin = 0

    def begin(self, at_most: int, instructions: int, length: int) -> None:
        """Make room for ``at_most`` intervals, the first of which ends ``length`` instructions from now."""
        from emulator import intervals_kernel as kernel

        self._kernel = kernel
        self.job = np.zeros(kernel.JOB_FIELDS, np.int64)
        self.job[kernel.INSTRUCTIONS] = self._begin = instructions
        self.job[kernel.TARGET] = instructions + length
        self.ends = np.zeros(at_most, np.int64)
        self.starts = np.zeros(at_most + 1, np.int64)
        self.reuse_times = np.zeros((at_most, REUSE_BINS), np.int64)

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The kernels' arguments after the number of blocks."""
        return (
            self._hart.counts, self.counts_before, self._hart.reuses, self.reuses_before, self.ends, self.starts,
            self.blocks, self.executions, self.reuse_times,
        )  # fmt: skip

    def forget(self) -> None:
        """Take the totals of now for those at the last boundary."""
        self.counts_before[:] = self._hart.counts
        self.reuses_before[:] = self._hart.reuses.sum(axis=0)[::-1]

    @property
    def is_full(self) -> bool:
        return bool(self.job[self._kernel.DONE] == len(self.ends))

    @property
    def is_open(self) -> bool:
        """Whether something ran since the last interval's end."""
        done = self.job[self._kernel.DONE]
        end = self.ends[done - 1] if done else self._begin
        return bool(self.job[self._kernel.INSTRUCTIONS] > end)

    def run(
        self, enter: int, tiers: tuple[Tier, Tier], longest_path: int, length: int, stop: int,
        n_blocks: NDArray[np.int64],
    ) -> tuple[int, bool, int]:  # fmt: skip
        """Run until an interval cannot be put down or Python is wanted: instructions so far, whether the exact tier
        is in force, and the reason. ``n_blocks``: (1,) how many blocks there are at any moment."""
        kernel, job, hart = self._kernel, self.job, self._hart
        fast, exact = (tier.slots for tier in tiers)
        self.make_room(int(n_blocks[0]))
        job[kernel.STOP] = stop
        reason = kernel.run_intervals(
            enter, hart.address, hart.words.view(np.int64), fast.view("u8"), exact.view("u8"), fast.address,
            exact.address, longest_path, length, job, n_blocks, *self.arguments,
        )  # fmt: skip
        return int(job[kernel.INSTRUCTIONS]), bool(job[kernel.EXACTLY]), reason

    def make_room(self, n_blocks: int) -> None:
        """Let one more interval have an entry for every block."""
        while len(self.blocks) < self.job[self._kernel.ENTRIES] + n_blocks:
            self.blocks = np.concatenate([self.blocks, np.zeros_like(self.blocks)])
            self.executions = np.concatenate([self.executions, np.zeros_like(self.executions)])

    def close(self, instructions: int, n_blocks: int) -> None:
        """The interval ends here."""
        self.job[self._kernel.INSTRUCTIONS] = instructions
        self.make_room(n_blocks)
        self._kernel.close_interval(self.job, n_blocks, *self.arguments)

    def taken(self) -> Intervals:
        """What was put down since `begin`."""
        done, entries = int(self.job[self._kernel.DONE]), int(self.job[self._kernel.ENTRIES])
        return Intervals(
            self.ends[:done], self.starts[: done + 1], self.blocks[:entries].copy(),
            self.executions[:entries].copy(), self.reuse_times[:done],
        )  # fmt: skip
