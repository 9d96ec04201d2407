"""Execution counts of instructions, computed from block counts: for analyzers that need no event order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.analyzers.analyzer import AnalysisContext
from emulator.analyzers.batch import opcodes_of
from emulator.analyzers.event_selection import Selection
from emulator.events import FIRST_PROGRAM
from emulator.isa.table import ROWS


class Executions:
    """Execution counts while the analyzers of ``session`` were active and ``counts`` was selected."""

    def __init__(self, session: AnalysisContext) -> None:
        self._session = session
        self._machine = session.machine

    def instructions(self, within: Selection) -> tuple[NDArray[np.void], NDArray[np.int64]]:
        """The instructions that ``within`` selects, as rows of INSTRUCTION_DTYPE, and their executions, (n,) each:
        by address, those of the first program's processes.

        An instruction that is in several blocks has a row for each of them."""
        facts = self._machine.facts
        rows = facts.instructions
        counts = np.repeat(self._session.block_counts(), facts.blocks["n_instructions"])
        chosen = np.isin(rows["op_class"], [int(kind) for kind in within.kinds()])
        if within.mnemonics:
            chosen |= np.isin(opcodes_of(rows["word"]), [ROWS[name].index for name in within.mnemonics])
        ranges = self._session.ranges_of(within)
        if ranges:
            inside = np.zeros(len(rows), np.bool_)
            for low, high in ranges:
                inside |= (rows["pc"] >= low) & (rows["pc"] < high)
            chosen &= inside & self._of_first_program()
        return rows[chosen], counts[chosen]

    def by_pc(self) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """Addresses of all instructions of the first program that were decoded, ascending, and their execution counts,
        (n,) each."""
        rows, counts = self.instructions(Selection())
        own = self._of_first_program()
        rows, counts = rows[own], counts[own]
        pcs, inverse = np.unique(rows["pc"], return_inverse=True)
        totals = np.zeros(len(pcs), np.int64)
        np.add.at(totals, inverse, counts)
        return pcs, totals

    def _of_first_program(self) -> NDArray[np.bool_]:
        """Whether each row of the instruction facts is of the first program, (n,)."""
        blocks = self._machine.facts.blocks
        return np.repeat(blocks["program"] == FIRST_PROGRAM, blocks["n_instructions"])
