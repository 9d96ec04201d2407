"""Instruction mix: executions by instruction class or mnemonic."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.analyzers.analyzer import Analyzer
from emulator.analyzers.batch import opcodes_of
from emulator.analyzers.event_selection import Selection
from emulator.analyzers.instruction_counts import Executions
from emulator.errors import EmulatorError
from emulator.events import OpClass, TraceSelection
from emulator.isa.table import TABLE


class InstructionMix(Analyzer):
    """Executions by ``by``: class or mnemonic; the ``top`` most frequent. Needs only block counts, no record."""

    trace = TraceSelection(counts=True)

    def __init__(self, by: str = "class", top: int = 100) -> None:
        if by not in ("class", "mnemonic"):
            raise EmulatorError(f"mix: by={by}: expected class or mnemonic")
        self.by, self.top = by, top
        self.within = Selection()
        self.counts: dict[str, int] = {}

    def restrict(self, text: str) -> None:
        self.within = Selection.parse(text, self.within)

    def begin(self) -> None:
        self._executions = Executions(self.session)

    def end(self) -> None:
        rows, counts = self._executions.instructions(self.within)
        kinds: NDArray[np.int64]
        if self.by == "class":
            kinds, names = rows["op_class"].astype(np.int64), [kind.name.lower() for kind in OpClass]
        else:
            kinds, names = opcodes_of(rows["word"]).astype(np.int64), [row.mnemonic for row in TABLE]
        totals = np.zeros(len(names), np.int64)
        np.add.at(totals, kinds, counts)
        order = np.argsort(-totals, kind="stable")
        self.counts = {names[n]: int(totals[n]) for n in order if totals[n]}

    def report(self) -> str:
        total = sum(self.counts.values())
        lines = [f"{total:>16,}          instructions"]
        for name, count in list(self.counts.items())[: self.top]:
            lines.append(f"{count:>16,}  {100 * count / total:5.1f}%  {name}")
        return "\n".join(lines)
