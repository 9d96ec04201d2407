"""Consecutive intervals of a run: block executions and reuse times of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from emulator.engine.hart_state import MAX_BLOCKS, REUSE_BINS, Hart
from emulator.engine.tiering.tiers import Tier
from emulator.kernels.jit import BoundKernel


@dataclass(frozen=True)
class Intervals:
    """n consecutive intervals.

    ``ends``: (n,) instructions executed in all at each end. ``blocks``, ``executions``: one entry for each block that
    ran in an interval, by interval and block number; ``starts``: (n + 1,) first entry of each interval.
    ``reuse_times``: (n, REUSE_BINS), each row as `Machine.reuse_times`.
    """

    ends: NDArray[np.int64]
    starts: NDArray[np.int64]
    blocks: NDArray[np.uint32]
    executions: NDArray[np.int64]
    reuse_times: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ends)


class Written(NamedTuple):
    """The arrays that a series of intervals is written to: ``job``, see `emulator.execution.intervals_kernel`, and
    those of `Intervals`, with room behind what is written."""

    job: NDArray[np.int64]
    ends: NDArray[np.int64]
    starts: NDArray[np.int64]
    blocks: NDArray[np.uint32]
    executions: NDArray[np.int64]
    reuse_times: NDArray[np.int64]


class IntervalWatcher(Protocol):
    """Looks at each interval of a series when it has ended, without a return to Python, and may end the series."""

    def watch(self, written: Written) -> BoundKernel:
        """The kernel to call after each interval; it ends the series by setting ``written.job[ENOUGH]`` to 1. Called
        again when arrays of ``written`` have grown."""
        ...


class IntervalWriter:
    """Records intervals of one hart: it keeps the totals at the last boundary, and arrays for new intervals."""

    def __init__(self, hart: Hart) -> None:
        self._hart = hart
        self.counts_before = np.zeros(MAX_BLOCKS, np.int64)  # only touched pages take memory
        self.reuses_before = np.zeros(REUSE_BINS, np.int64)
        self.blocks = np.zeros(1 << 16, np.uint32)
        self.executions = np.zeros(1 << 16, np.int64)
        self.job = np.zeros(0, np.int64)
        self._begin = 0
        self._watcher: IntervalWatcher | None = None
        self._watch: BoundKernel | None = None

    def begin(
        self, at_most: int, instructions: int, length: int, watcher: IntervalWatcher | None = None
    ) -> None:
        """Make room for ``at_most`` intervals; the first ends ``length`` instructions after ``instructions``."""
        from emulator.execution import intervals_kernel as kernel

        self._kernel = kernel
        self.job = np.zeros(kernel.JOB_FIELDS, np.int64)
        self.job[kernel.INSTRUCTIONS] = self._begin = instructions
        self.job[kernel.TARGET] = instructions + length
        self.ends = np.zeros(at_most, np.int64)
        self.starts = np.zeros(at_most + 1, np.int64)
        self.reuse_times = np.zeros((at_most, REUSE_BINS), np.int64)
        self._watcher, self._watch = watcher, None
        self._let_watch()

    def _let_watch(self) -> None:
        """Give the watcher the current arrays."""
        if self._watcher is not None:
            self._watch = self._watcher.watch(
                Written(
                    self.job, self.ends, self.starts, self.blocks, self.executions, self.reuse_times
                )
            )

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The kernels' arguments after the number of blocks."""
        return (
            self._hart.counts, self.counts_before, self._hart.reuses, self.reuses_before, self.ends, self.starts,
            self.blocks, self.executions, self.reuse_times,
        )  # fmt: skip

    def count_from_here(self) -> None:
        """Let the next interval begin here: take the current totals as those at the last boundary."""
        self.counts_before[:] = self._hart.counts
        self.reuses_before[:] = self._hart.reuses.sum(axis=0)[::-1]

    @property
    def is_full(self) -> bool:
        """Whether all intervals are recorded, or the watcher has ended the series."""
        job, kernel = self.job, self._kernel
        return bool(job[kernel.DONE] == len(self.ends) or job[kernel.ENOUGH])

    @property
    def is_open(self) -> bool:
        """Whether instructions ran since the last interval's end."""
        done = self.job[self._kernel.DONE]
        end = self.ends[done - 1] if done else self._begin
        return bool(self.job[self._kernel.INSTRUCTIONS] > end)

    def run(
        self, enter: int, tiers: tuple[Tier, Tier], longest_path: int, length: int, stop: int,
        n_blocks: NDArray[np.int64],
    ) -> tuple[int, bool, int]:  # fmt: skip
        """Run until the writer is full or Python has to act. Returns the instructions so far, whether the interpreting
        tier is in force, and the reason.

        ``tiers``: the translating and the interpreting one; ``longest_path``: instructions that a translation may run
        beyond its budget; ``stop``: instructions in all at which to stop; ``n_blocks``: (1,) number of blocks, live.
        """
        kernel, job, hart = self._kernel, self.job, self._hart
        fast, exact = (tier.dispatch_table for tier in tiers)
        self.make_room(int(n_blocks[0]))
        job[kernel.STOP] = stop
        watch = self._watch
        reason = kernel.run_intervals(
            enter, hart.address, hart.words.view(np.int64), fast.view("u8"), exact.view("u8"), fast.address,
            exact.address, longest_path, length, job, n_blocks, watch.function if watch else 0,
            watch.argument if watch else 0, *self.arguments,
        )  # fmt: skip
        return int(job[kernel.INSTRUCTIONS]), bool(job[kernel.EXACTLY]), reason

    def make_room(self, n_blocks: int) -> None:
        """Make room for one more interval with an entry for every block."""
        has_room = len(self.blocks)
        while len(self.blocks) < self.job[self._kernel.ENTRIES] + n_blocks:
            self.blocks = np.concatenate([self.blocks, np.zeros_like(self.blocks)])
            self.executions = np.concatenate([self.executions, np.zeros_like(self.executions)])
        if len(self.blocks) > has_room:
            self._let_watch()

    def close(self, instructions: int, n_blocks: int) -> None:
        """End the current interval at ``instructions``."""
        self.job[self._kernel.INSTRUCTIONS] = instructions
        self.make_room(n_blocks)
        self._kernel.close_interval(self.job, n_blocks, *self.arguments)
        if self._watch is not None:
            self._watch()

    def intervals(self) -> Intervals:
        """The intervals recorded since `begin`."""
        done, entries = int(self.job[self._kernel.DONE]), int(self.job[self._kernel.ENTRIES])
        return Intervals(
            self.ends[:done], self.starts[: done + 1], self.blocks[:entries].copy(),
            self.executions[:entries].copy(), self.reuse_times[:done],
        )  # fmt: skip
