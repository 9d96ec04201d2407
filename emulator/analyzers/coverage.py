"""Which source lines and branches ran, how often, in the format of lcov."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from emulator.analyzers.base import Analyzer
from emulator.analyzers.counts import Executions
from emulator.analyzers.coverage_kernel import PLACES, tally
from emulator.analyzers.lcov import Branches, Functions, Lines, branches_of, tracefile
from emulator.errors import EmulatorError
from emulator.events import TraceSelection


class Coverage(Analyzer):
    """Line, function and branch coverage to the file ``out``. Needs debug information; with ``branches=0``, which
    leaves the branches out, only counts of blocks.

    A line ran as often as that of its instructions which ran most often; lines without code are not in the file. The
    branches of a line are its conditional jumps, in the order of their addresses: not taken, and taken.
    """

    trace = TraceSelection(counts=True)

    def __init__(self, out: str = "coverage.info", test: str = "", branches: int = 1) -> None:
        self.out, self.test = Path(out), test
        self.selection = "class=branch fields=pc,taken" if branches else ""
        self.function, self.state = tally, np.zeros((PLACES if branches else 0, 3), np.int64)
        self.lines: Lines = {}
        self.functions: Functions = {}
        self.branches: Branches = {}

    def begin(self) -> None:
        if not self.machine.image.line_rows():
            raise EmulatorError(
                f"{self.machine.image.name}: no debug information to cover lines with; compile it with -g"
            )
        self._executions = Executions(self.session)

    def end(self) -> None:
        pcs, counts = self._executions.by_pc()
        ran = dict(zip(pcs.tolist(), counts.tolist(), strict=True))
        outcomes = {pc: (no, yes) for pc, no, yes in self.state[self.state[:, 0] != 0].tolist()}
        self.session.objects.look()
        for image in self.session.objects.images:
            for row in image.line_rows():
                if row.line:
                    low, high = np.searchsorted(pcs, (row.address, row.end))
                    file = self.lines.setdefault(row.file, {})
                    file[row.line] = max(file.get(row.line, 0), int(counts[low:high].max(initial=0)))
            for symbol in image.symbols:
                place = image.source_line(symbol.address) if symbol.is_function else None
                if place is not None:
                    known = self.functions.setdefault(place[0], {})
                    known[symbol.name] = (place[1], ran.get(symbol.address, 0))
            for name, line, pc in branches_of(image) if len(self.state) else ():
                of_line = self.branches.setdefault(name, {}).setdefault(line, [])
                of_line.append(outcomes.get(pc, (0, 0)))
        try:
            self.out.write_text(tracefile(self.test, self.lines, self.functions, self.branches))
        except OSError as error:
            raise EmulatorError(f"coverage: {self.out}: cannot be written: {error.strerror}") from error

    def report(self) -> str:
        found = [ran for lines in self.lines.values() for ran in lines.values()]
        hit = sum(ran > 0 for ran in found)
        share = 100 * hit / max(1, len(found))
        return f"{hit:,} of {len(found):,} lines of {len(self.lines)} files ran ({share:.1f}%): {self.out}"
