"""Finds the instructions that access ranges of addresses and nothing else, in a run without timing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from emulator.counterfactual.record_kernel import INSIDE, mark_accesses
from emulator.events import ACCESS_NONE, FIRST_PROGRAM, BlockFacts, TraceSelection


class RangeAccesses:
    """An observer that marks each instruction of the program that the guest begins with by whether it accesses one of
    the half-open ``ranges``, other addresses, or both."""

    selection = TraceSelection(blocks=True, addresses=True)

    def __init__(self, ranges: Sequence[tuple[int, int]]) -> None:
        self._lows = np.array([low for low, _ in ranges], np.int64)
        self._highs = np.array([high for _, high in ranges], np.int64)
        self._n_accesses = np.zeros(0, np.int64)
        self._first_access = np.zeros(1, np.int64)
        self._pcs = np.zeros(0, np.uint32)  # of each access of each block
        self._is_own = np.zeros(0, np.bool_)  # whether each is of the program
        self._marks = np.zeros(0, np.uint8)

    def consume(self, facts: BlockFacts, stream: NDArray[np.uint32]) -> None:
        known = len(self._n_accesses)
        if facts.n_blocks > known:
            counts = facts.blocks["n_accesses"][known:].astype(np.int64)
            rows = facts.instructions_of(np.arange(known, facts.n_blocks))
            self._n_accesses = np.concatenate([self._n_accesses, counts])
            self._first_access = np.concatenate([self._first_access, self._first_access[-1] + np.cumsum(counts)])
            self._pcs = np.concatenate([self._pcs, rows["pc"][rows["access"] != ACCESS_NONE]])
            is_own = facts.blocks["program"][known:] == FIRST_PROGRAM
            self._is_own = np.concatenate([self._is_own, np.repeat(is_own, counts)])
            self._marks = np.concatenate([self._marks, np.zeros(counts.sum(), np.uint8)])
        mark_accesses(
            np.ascontiguousarray(stream, np.uint32), self._n_accesses, self._first_access, self._lows, self._highs,
            self._marks,
        )  # fmt: skip

    def only_inside(self) -> tuple[int, ...]:
        """Addresses of the instructions all of whose accesses so far were in a range, ascending."""
        marks: dict[int, int] = {}
        marked = self._is_own & (self._marks > 0)
        for pc, mark in zip(self._pcs[marked].tolist(), self._marks[marked].tolist(), strict=True):
            marks[pc] = marks.get(pc, 0) | mark
        return tuple(sorted(pc for pc, mark in marks.items() if mark == INSIDE))
