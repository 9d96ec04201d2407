"""Consecutive intervals of a run: block executions of each."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from emulator.engine.address_tables import Table
from emulator.engine.hart_state import MAX_BLOCKS, Hart
from emulator.engine.tiering.tiers import Tier
from emulator.kernels.jit import BoundKernel


@dataclass(frozen=True)
class Intervals:
    """n consecutive intervals.

    ``ends``: (n,) instructions executed in all at each end. ``blocks``, ``executions``: one entry for each block that
    ran in an interval, by interval and block number; ``starts``: (n + 1,) first entry of each interval.
    """

    ends: NDArray[np.int64]
    starts: NDArray[np.int64]
    blocks: NDArray[np.uint32]
    executions: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ends)


class Written(NamedTuple):
    """The arrays that a series of intervals is written to: ``job``, the job of
    `emulator.execution.intervals_kernel` as int64 words, and those of `Intervals`, with room behind what is written."""

    job: NDArray[np.int64]
    ends: NDArray[np.int64]
    starts: NDArray[np.int64]
    blocks: NDArray[np.uint32]
    executions: NDArray[np.int64]


class Place(NamedTuple):
    """Where a series of intervals of ``length`` has come to: ``instructions`` so far, and from where on the next
    interval ends (``target``), all in instructions."""

    instructions: int
    length: int
    target: int


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
        self.blocks = np.zeros(1 << 16, np.uint32)
        self.executions = np.zeros(1 << 16, np.int64)
        self._begin = 0
        self._job: Any = None
        self._gone_back_to: Place | None = None
        self._watcher: IntervalWatcher | None = None
        self._watch: BoundKernel | None = None

    def begin(self, at_most: int, instructions: int, length: int, watcher: IntervalWatcher | None = None) -> None:
        """Make room for ``at_most`` intervals, the first of which begins here, after ``instructions``.

        It goes on with the multiples of ``length`` of the series before, if that had this length and ended here:
        otherwise each series would shift them by what its last block ran beyond one.
        """
        from emulator.execution import intervals_kernel as kernel

        self._kernel = kernel
        target = instructions + length
        for place in (self.place, self._gone_back_to):
            if place is not None and (place.instructions, place.length) == (instructions, length):
                target = place.target
        self._jobs = np.zeros(1, kernel.JOB_DTYPE)
        self._job = self._jobs[0]
        self._job_words = self._jobs.view(np.int64).data  # faster than fields, for each system call
        self._bound: BoundKernel | None = None
        self._bound_for: tuple[Any, ...] = ()
        self._job["instructions"] = self._begin = instructions
        self._job["target"], self._job["length"] = target, length
        self._hart_words = self._hart.words.view(np.int64)
        self.ends = np.zeros(at_most, np.int64)
        self.starts = np.zeros(at_most + 1, np.int64)
        self._watcher, self._watch = watcher, None
        self._let_watch()

    def _let_watch(self) -> None:
        """Give the watcher the current arrays."""
        if self._watcher is not None:
            self._watch = self._watcher.watch(
                Written(self._jobs.view(np.int64), self.ends, self.starts, self.blocks, self.executions)
            )

    def _arrays(self) -> tuple[Any, Any]:
        """The last arguments of both kernels."""
        kernel, hart = self._kernel, self._hart
        counters = hart.branch_counters
        return (
            kernel.Totals(
                hart.counts,
                self.counts_before,
                counters.values,
                counters.n,
                counters.starts,
                counters.terms,
            ),
            kernel.IntervalArrays(self.ends, self.starts, self.blocks, self.executions),
        )

    def count_from_here(self, n_blocks: int) -> None:
        """Let the next interval begin here: take the current totals of ``n_blocks`` blocks as those at the last
        boundary."""
        self._hart.add_up_counters()
        self.counts_before[:n_blocks] = self._hart.counts[:n_blocks]

    @property
    def place(self) -> Place | None:
        """Where the series has come to, for a snapshot; None before the first one."""
        if self._job is None:
            return None
        return Place(int(self._job["instructions"]), int(self._job["length"]), self.target)

    def go_back(self, place: Place | None) -> None:
        """Let a series that begins there go on from ``place``, as one that begins where the last one ended does."""
        self._gone_back_to = place

    @property
    def target(self) -> int:
        """Instructions in all from which on the current interval ends, at the next block boundary."""
        return int(self._job["target"])

    @property
    def is_full(self) -> bool:
        """Whether all intervals are recorded, or the watcher has ended the series."""
        words = self._job_words
        return words[self._kernel.DONE] == len(self.ends) or bool(words[self._kernel.ENOUGH])

    def is_open(self, instructions: int) -> bool:
        """Whether some of the ``instructions`` so far ran since the last interval's end."""
        done = self._job["done"]
        end = self.ends[done - 1] if done else self._begin
        return bool(instructions > end)

    def run(
        self, enter: int, tiers: tuple[Tier, Tier], longest_path: int, instructions: int, stop: int,
        n_blocks: NDArray[np.int64],
    ) -> tuple[int, bool, int]:  # fmt: skip
        """Run until the writer is full or Python has to act. Returns the instructions so far, whether the interpreting
        tier is in force, and the reason.

        ``tiers``: the translating and the interpreting one; ``longest_path``: instructions that a translation may run
        beyond its budget; ``instructions``: so far, those of the oracle, too; ``stop``: instructions in all at which to
        stop; ``n_blocks``: (1,) number of blocks, live.
        """
        kernel, words, hart = self._kernel, self._job_words, self._hart
        fast, exact = (tier.dispatch_table for tier in tiers)
        self.make_room(int(n_blocks[0]))
        counters, watch = hart.branch_counters, self._watch
        current = (
            fast, exact, n_blocks, watch, hart.counts, counters.values, counters.n, counters.starts,
            counters.terms, self.blocks,
        )  # fmt: skip
        if len(self._bound_for) != len(current) or any(map(operator.is_not, current, self._bound_for)):
            self._bind(enter, *current[:4])
            self._bound_for = current
        words[kernel.INSTRUCTIONS], words[kernel.STOP], words[kernel.LONGEST_PATH] = instructions, stop, longest_path
        assert self._bound is not None
        reason = self._bound()
        return words[kernel.INSTRUCTIONS], bool(words[kernel.EXACTLY]), reason

    def _bind(
        self, enter: int, fast: Table, exact: Table, n_blocks: NDArray[np.int64],
        watch: BoundKernel | None,
    ) -> None:  # fmt: skip
        """Bind the kernel to the current arrays, and write their addresses into the job."""
        job = self._job
        job["enter_at"], job["state_at"] = enter, self._hart.address
        job["fast_at"], job["exact_at"] = fast.address, exact.address
        job["watcher_at"], job["watcher_argument"] = (watch.function, watch.argument) if watch else (0, 0)
        hart = self._kernel.HartWords(self._hart_words, fast.view("u8"), exact.view("u8"), n_blocks)
        self._bound = self._kernel.run_intervals.bound(self._jobs, hart, *self._arrays())

    def make_room(self, n_blocks: int) -> None:
        """Make room for one more interval with an entry for every block."""
        has_room = len(self.blocks)
        while len(self.blocks) < self._job_words[self._kernel.ENTRIES] + n_blocks:
            self.blocks = np.concatenate([self.blocks, np.zeros_like(self.blocks)])
            self.executions = np.concatenate([self.executions, np.zeros_like(self.executions)])
        if len(self.blocks) > has_room:
            self._let_watch()

    def close(self, instructions: int, n_blocks: int) -> None:
        """End the current interval at ``instructions``."""
        self._job["instructions"] = instructions
        self.make_room(n_blocks)
        self._kernel.close_interval(self._jobs, n_blocks, *self._arrays())
        if self._watch is not None:
            self._watch()

    def intervals(self) -> Intervals:
        """The intervals recorded since `begin`."""
        done, entries = int(self._job["done"]), int(self._job["entries"])
        return Intervals(
            self.ends[:done], self.starts[: done + 1], self.blocks[:entries].copy(),
            self.executions[:entries].copy(),
        )  # fmt: skip
