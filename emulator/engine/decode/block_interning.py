"""Block interning: a block has one number in all processes of a guest that execute the same program.

A block is its program, its address and its code. Processes that run the same program discover the same blocks, and a
script may start thousands of processes: each block keeps the number that it got first. Code that two programs share,
such as that of a library, has a number for each: what is said of a program does not hold for the other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from emulator.engine.address_tables import GUEST_SPACE, Table
from emulator.engine.hart_state import MAX_BLOCKS
from emulator.events import FIRST_PROGRAM, BlockFacts


class InternedBlocks:
    """The blocks of ``facts``, found by program, address and code; used from a guest's second process on.

    ``latest``: by pc / 2, number + 1 of the newest block at that address, uint32, 0 for none; ``older``: by number, the
    same of the next older block at the same address.
    """

    def __init__(self, facts: BlockFacts) -> None:
        self._facts = facts
        self._tables = Table(GUEST_SPACE * 2), Table(MAX_BLOCKS * 4)
        self.latest: NDArray[np.uint32] = self._tables[0].view("u4")
        self.older: NDArray[np.uint32] = self._tables[1].view("u4")
        self._n = 0  # blocks in the tables

    def catch_up(self) -> None:
        """Enter the blocks that were added to ``facts`` since the last call."""
        first, self._n = self._n, min(self._facts.n_blocks, MAX_BLOCKS)
        places = self._facts.blocks["pc"][first : self._n].astype(np.int64) >> 1
        order = np.argsort(places, kind="stable")
        places, numbers = places[order], (first + 1 + order).astype(np.uint32)
        begins = np.diff(places, prepend=-1) != 0  # the first of the blocks at an address
        before = np.roll(numbers, 1)
        before[begins] = self.latest[places[begins]]
        self.older[numbers - 1] = before
        ends = np.roll(begins, -1)
        self.latest[places[ends]] = numbers[ends]

    def find(self, pc: int, words: Sequence[int], program: int = FIRST_PROGRAM) -> int | None:
        """The number of the block of ``program`` at ``pc`` whose instructions are ``words``; None when it is new."""
        self.catch_up()
        facts = self._facts
        number = int(self.latest[pc >> 1]) - 1
        while number >= 0:
            names = ("first_instruction", "n_instructions", "program")
            first, count, of = (int(facts.blocks[number][name]) for name in names)
            if of == program and facts.instructions["word"][first : first + count].tolist() == [*words]:
                return number
            number = int(self.older[number]) - 1
        return None
