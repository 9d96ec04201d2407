"""One number for a block, whichever of a guest's processes meets it.

A block is its address and its code. Processes that run the same program, copies of one another most of all, meet the
same ones, and a script may start thousands of them: each block is found again under the number that it has.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from emulator.engine.state import MAX_BLOCKS
from emulator.engine.tables import GUEST_SPACE, Table
from emulator.events import BlockFacts


class SameBlocks:
    """Those of ``facts``, whose processes have been several from now on.

    ``latest``: by half the address, the number of the block that came last there, plus 1, uint32; 0 for none;
    ``older``: by number, that of the one that was there before.
    """

    def __init__(self, facts: BlockFacts) -> None:
        self._facts = facts
        self._tables = Table(GUEST_SPACE * 2), Table(MAX_BLOCKS * 4)
        self.latest: NDArray[np.uint32] = self._tables[0].view("u4")
        self.older: NDArray[np.uint32] = self._tables[1].view("u4")
        self._n = 0  # blocks that are in the tables

    def catch_up(self) -> None:
        """Take in the blocks that have come since."""
        first, self._n = self._n, min(self._facts.n_blocks, MAX_BLOCKS)
        places = self._facts.blocks["pc"][first : self._n].astype(np.int64) >> 1
        order = np.argsort(places, kind="stable")
        places, numbers = places[order], (first + 1 + order).astype(np.uint32)
        begins = np.diff(places, prepend=-1) != 0  # the first one of those at an address
        before = np.roll(numbers, 1)
        before[begins] = self.latest[places[begins]]
        self.older[numbers - 1] = before
        ends = np.roll(begins, -1)
        self.latest[places[ends]] = numbers[ends]

    def find(self, pc: int, words: Sequence[int]) -> int | None:
        """The number of the block at ``pc`` of instructions ``words``; None when it is new."""
        self.catch_up()
        facts = self._facts
        number = int(self.latest[pc >> 1]) - 1
        while number >= 0:
            first, count = (
                int(facts.blocks[number][name]) for name in ("first_instruction", "n_instructions")
            )
            if facts.instructions["word"][first : first + count].tolist() == [*words]:
                return number
            number = int(self.older[number]) - 1
        return None
