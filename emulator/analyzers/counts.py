"""Executions of instructions from the counts of blocks: for analyzers that need no order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.analyzers.batch import opcodes_of
from emulator.analyzers.selection import Selection
from emulator.analyzers.session import Session
from emulator.isa.table import ROWS


class Executions:
    """What was executed while the analyzers of ``session`` watched and ``counts`` was selected."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._machine = session.machine

    def instructions(self, within: Selection) -> tuple[NDArray[np.void], NDArray[np.int64]]:
        """Rows of INSTRUCTION_DTYPE and their executions, (n,) each: of every block that has one that ``within``
        selects, so that an instruction in several blocks comes several times."""
        facts = self._machine.facts
        rows = facts.instructions
        counts = np.repeat(self._session.block_counts(), facts.blocks["n_instructions"])
        chosen = np.isin(rows["op_class"], [int(kind) for kind in within.kinds()])
        if within.mnemonics:
            chosen |= np.isin(opcodes_of(rows["word"]), [ROWS[name].index for name in within.mnemonics])
        places = self._session.places_of(within)
        if places:
            inside = np.zeros(len(rows), np.bool_)
            for low, high in places:
                inside |= (rows["pc"] >= low) & (rows["pc"] < high)
            chosen &= inside
        return rows[chosen], counts[chosen]

    def by_pc(self) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """Addresses of known instructions, ascending, and how often each was executed."""
        rows, counts = self.instructions(Selection())
        pcs, inverse = np.unique(rows["pc"], return_inverse=True)
        totals = np.zeros(len(pcs), np.int64)
        np.add.at(totals, inverse, counts)
        return pcs, totals
