"""A timing core that sees an edited record: the guest executes everything, the core is told another story.

The core itself is an unchanged `InOrderCore`: it gets facts without the free instructions, a record without the
addresses that they access, and addresses moved to where another program has its code and data. A run without an
intervention does not pass through here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from emulator.counterfactual.record_kernel import edit_record
from emulator.errors import EmulatorError
from emulator.events import ACCESS_ALONE, ACCESS_HIDDEN, ACCESS_NONE, FIRST_PROGRAM, BlockFacts, OpClass
from emulator.timing.inorder import InOrderCore


class InterventionError(EmulatorError):
    """An intervention that has no meaning, such as free control transfers."""


@dataclass(frozen=True)
class CounterfactualSettings:
    """What the core does not see. All addresses are those of the program that the guest begins with: processes that
    execute another program are seen as they are, and all their instructions are progress.

    ``instructions``: addresses of the chosen instructions, none a control transfer; ``free``: they take no issue slots
    and count as nothing (their bytes are still fetched, where they lie between others); ``uncached``: their loads and
    stores touch no cache or TLB. With ``uncached`` alone they issue, count as instructions and hit; with ``free`` alone
    their accesses still miss, evict, and are waited for.
    ``code_moves``, ``data_moves``: pairs (begin, distance), begin ascending: from ``begin`` to the next begin, code or
    data is seen at the address plus the distance. Where code is moved, bytes of chosen instructions take no space.
    ``progress_at``: addresses of the instructions whose executions are the program's progress; () for all that are not
    chosen.
    """

    instructions: tuple[int, ...] = ()
    free: bool = False
    uncached: bool = False
    code_moves: tuple[tuple[int, int], ...] = ()
    data_moves: tuple[tuple[int, int], ...] = ()
    progress_at: tuple[int, ...] = ()


class CounterfactualCore:
    """An `InOrderCore` behind an editor of the record.

    ``core``: gets the edited record and nothing else; ``settings``: what is edited. Raises `InterventionError` for a
    chosen instruction that transfers control when its block is first seen.
    """

    follows_tasks = True

    def __init__(self, core: InOrderCore, settings: CounterfactualSettings) -> None:
        self._core, self._settings = core, settings
        self.selection = core.selection
        self.config = core.config
        self._chosen = np.array(sorted(settings.instructions), np.uint32)
        self._progress_at = np.array(sorted(settings.progress_at), np.uint32)
        self._code = _Moves(settings.code_moves)
        self._data = _Moves(settings.data_moves)
        self._facts = BlockFacts()
        self._n_known = 0
        self._n_accesses = np.zeros(0, np.int64)  # of each block, in the record as it comes
        self._own_length = np.zeros(0, np.int64)  # progress of each block
        self._timed_length = np.zeros(0, np.int64)  # instructions of each block that take time
        self._first_kept = np.zeros(1, np.int64)  # by block: its first place in `_kept`; and the end
        self._kept = np.zeros(0, np.int64)  # places of accesses that the core sees, among those of their block
        self._is_moved = np.zeros(0, np.bool_)  # whether moves of addresses hold for each block
        # Progress, instructions that took time, and the last block.
        self._totals = np.array([0, 0, -1], np.int64)

    @property
    def cycles(self) -> int:
        """Cycles of the core, which does not see what is free."""
        return self._core.cycles

    @property
    def counters(self) -> NDArray[np.int64]:
        """Events of the core, (N_EVENTS,); a live view."""
        return self._core.counters

    @property
    def progress(self) -> int:
        """Executions so far of the instructions of ``progress_at``, or of all that were not chosen, free or not."""
        return int(self._totals[0])

    @property
    def timed_instructions(self) -> int:
        """Instructions so far that took time: all but the free ones."""
        return int(self._totals[1])

    def disturb(self, seed: int, lines: int) -> None:
        """See `InOrderCore.disturb`."""
        self._core.disturb(seed, lines)

    def consume(self, facts: BlockFacts, stream: NDArray[np.uint32]) -> None:
        """Edit the record and pass it to the core."""
        if facts.n_blocks > self._n_known:
            self._add_blocks(facts)
        edited = np.empty(len(stream), np.uint32)
        length = edit_record(
            np.ascontiguousarray(stream, np.uint32), self._n_accesses, self._first_kept, self._kept, self._own_length,
            self._timed_length, self._is_moved, self._data.begins, self._data.distances, edited, self._totals,
        )  # fmt: skip
        self._core.consume(self._facts, edited[:length])

    def interrupted(self, pc: int) -> None:
        """See `InOrderCore.interrupted`."""
        block = int(self._totals[2])
        is_moved = block < 0 or bool(self._is_moved[block])
        self._core.interrupted(int(self._code.moved(np.array([pc]))[0]) if is_moved else pc)

    def _add_blocks(self, facts: BlockFacts) -> None:
        """Edit the facts of new blocks."""
        blocks = facts.blocks[self._n_known :].copy()
        counts = blocks["n_instructions"].astype(np.int64)
        ends = np.cumsum(counts)
        block = np.repeat(np.arange(len(blocks)), counts)
        place = np.arange(len(block)) - np.repeat(ends - counts, counts)
        rows = facts.instructions[blocks["first_instruction"].astype(np.int64)[block] + place].copy()
        is_own = blocks["program"] == FIRST_PROGRAM
        self._is_moved = np.concatenate([self._is_moved, is_own])
        chosen = is_own[block] & np.isin(rows["pc"], self._chosen)
        transfers = chosen & (rows["op_class"] >= OpClass.BRANCH) & (rows["op_class"] <= OpClass.INDIRECT_CALL)
        if transfers.any():
            at = int(rows["pc"][transfers][0])
            raise InterventionError(f"the chosen instruction at {at:#x} transfers control, expected none that does")
        accesses = rows["access"] != ACCESS_NONE
        unseen = chosen & self._settings.uncached
        before = np.cumsum(accesses) - accesses
        slots = before - np.repeat(before[ends - counts], counts)
        seen = accesses & ~unseen
        seen_per_block = np.bincount(block[seen], minlength=len(blocks))
        self._kept = np.concatenate([self._kept, slots[seen]])
        self._first_kept = np.concatenate([self._first_kept, self._first_kept[-1] + np.cumsum(seen_per_block)])
        self._n_accesses = np.concatenate([self._n_accesses, blocks["n_accesses"].astype(np.int64)])
        counted = ~chosen
        if len(self._progress_at):
            counted = ~is_own[block] | np.isin(rows["pc"], self._progress_at)
        own = np.bincount(block[counted], minlength=len(blocks))
        self._own_length = np.concatenate([self._own_length, own])
        timed = np.bincount(block[~chosen], minlength=len(blocks)) if self._settings.free else counts
        self._timed_length = np.concatenate([self._timed_length, timed])
        blocks["n_accesses"] = seen_per_block
        kept = np.ones(len(rows), np.bool_)
        if self._settings.free:
            kept = ~chosen | seen
            rows["access"][chosen & seen] |= ACCESS_ALONE
        elif self._settings.uncached:
            rows["access"][chosen & accesses] |= ACCESS_HIDDEN
        if self._settings.code_moves:
            self._move(blocks, rows, block, ends - counts, ~chosen)
        length = np.bincount(block[kept], minlength=len(blocks))
        blocks["n_instructions"] = length
        blocks["first_instruction"] = self._facts.n_instructions + np.cumsum(length) - length
        blocks["terminator"] = np.where(kept[ends - 1], blocks["terminator"], OpClass.INT_ALU)
        self._facts.extend(blocks, rows[kept])
        self._n_known = facts.n_blocks

    def _move(
        self, blocks: NDArray[np.void], rows: NDArray[np.void], block: NDArray[np.int64], firsts: NDArray[np.int64],
        takes_space: NDArray[np.bool_],
    ) -> None:  # fmt: skip
        """Move the program's blocks and the rows of their instructions; a block stays in one part, whatever the moves
        say. Rows that take no space are fetched with the byte before them."""
        sizes = np.where(takes_space, rows["length_bytes"], 0).astype(np.int64)
        before = np.cumsum(sizes) - sizes
        is_own = blocks["program"] == FIRST_PROGRAM
        begins, targets = (blocks[name].astype(np.int64) for name in ("pc", "target_pc"))
        starts = np.where(is_own, self._code.moved(begins), begins)
        places = before - before[firsts][block]
        rows["pc"] = starts[block] + np.where(takes_space, places, np.maximum(places - 1, 0))
        rows["length_bytes"][~takes_space] = 1
        blocks["pc"] = starts
        blocks["end_pc"] = starts + np.bincount(block, sizes, minlength=len(blocks)).astype(np.int64)
        blocks["target_pc"] = np.where(is_own, self._code.moved(targets), targets)


class _Moves:
    """Moves as arrays. ``begins``, (n,), ascending; ``distances``, (n,): of addresses from a begin to the next; the
    first begin is 0."""

    def __init__(self, moves: Sequence[tuple[int, int]]) -> None:
        pairs = [(0, 0), *moves]
        self.begins = np.array([begin for begin, _ in pairs], np.int64)
        self.distances = np.array([distance for _, distance in pairs], np.int64)
        if (np.diff(self.begins) < 0).any():
            raise InterventionError("moves begin in descending order, expected ascending")

    def moved(self, addresses: NDArray[np.int64]) -> NDArray[np.int64]:
        """``addresses``, (n,), after the moves."""
        return addresses + self.distances[np.searchsorted(self.begins, addresses, side="right") - 1]
