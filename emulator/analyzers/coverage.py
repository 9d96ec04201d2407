"""Line, function and branch coverage of the guest, written in the format of lcov."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from common.atomic_files import write_text
from common.library_sources import is_library_source
from emulator.analyzers.analyzer import Analyzer
from emulator.analyzers.coverage_kernel import TABLE_ROWS, tally
from emulator.analyzers.event_selection import Selection
from emulator.analyzers.instruction_counts import Executions
from emulator.analyzers.lcov import Branches, Functions, Lines, branches_of, tracefile
from emulator.errors import EmulatorError
from emulator.events import TraceSelection


class Coverage(Analyzer):
    """Line, function and branch coverage to the file ``out``. Needs debug information. With ``branches=0`` branches are
    left out, and no branch events are recorded: block counts are enough. The sources of the compiler's C and C++
    libraries are left out, except with ``libraries=1`` or where ``--select`` says what to cover. Processes that
    execute another program do not count.

    The count of a line is the largest execution count of its instructions in a function, added up over the functions
    that have copies of it: instances of a template, and those that it is inlined into. Where one function has several
    copies, the one executed most counts. Lines without code are not in the file. Each
    conditional jump of a line is one branch, in order of address, with how often it was not taken and taken.
    """

    trace = TraceSelection(counts=True)
    first_program = True

    def __init__(self, out: str = "coverage.info", test: str = "", branches: int = 1, libraries: int = 0) -> None:
        self.out, self.test = Path(out), test
        self.selection = "class=branch fields=pc,taken" if branches else ""
        self.function, self.state = tally, np.zeros((TABLE_ROWS if branches else 0, 3), np.int64)
        self.within, self._all_sources = Selection(), bool(libraries)
        self.lines: Lines = {}
        self.functions: Functions = {}
        self.branches: Branches = {}

    def restrict(self, text: str) -> None:
        given = Selection.parse(text)
        if given.classes or given.mnemonics:
            raise EmulatorError(
                f"coverage: got --select {text!r}, expected the code to cover: symbol, source, library or range"
            )
        self.within, self._all_sources = given, True
        if self.selection:
            self.selection = replace(given, classes=("branch",), fields=("pc", "taken"))

    def begin(self) -> None:
        image = self.session.objects.images[0]
        if not any(self._is_covered(row.file) for row in image.line_rows()):
            raise EmulatorError(f"{image.name}: no debug information for line coverage; compile it with -g")
        self._executions = Executions(self.session)

    def end(self) -> None:
        pcs, counts = self._executions.by_pc()
        ran = dict(zip(pcs.tolist(), counts.tolist(), strict=True))
        outcomes = {pc: (no, yes) for pc, no, yes in self.state[self.state[:, 0] != 0].tolist()}
        self.session.objects.refresh()
        copies: dict[str, dict[tuple[int, int], int]] = {}  # by file: by line and function
        for image in self.session.objects.images:
            for row in image.line_rows():
                if row.line and self._is_covered(row.file) and self._is_inside(row.address):
                    low, high = np.searchsorted(pcs, (row.address, row.end))
                    function = image.function_at(row.address)
                    place = row.line, function.address if function is not None else -1
                    file = copies.setdefault(row.file, {})
                    file[place] = max(file.get(place, 0), int(counts[low:high].max(initial=0)))
            for symbol in image.symbols:
                source = image.source_line(symbol.address) if symbol.is_function else None
                if source is not None and self._is_covered(source[0]) and self._is_inside(symbol.address):
                    of_file = self.functions.setdefault(source[0], {})
                    of_file[symbol.name] = (source[1], ran.get(symbol.address, 0))
            for name, line, pc in branches_of(image) if len(self.state) else ():
                if self._is_covered(name) and self._is_inside(pc):
                    of_line = self.branches.setdefault(name, {}).setdefault(line, [])
                    of_line.append(outcomes.get(pc, (0, 0)))
        for name, counts_of in copies.items():
            lines = self.lines.setdefault(name, {})
            for (line, _), count in counts_of.items():
                lines[line] = lines.get(line, 0) + count
        try:
            write_text(self.out, tracefile(self.test, self.lines, self.functions, self.branches))
        except OSError as error:
            raise EmulatorError(f"coverage: {self.out}: cannot be written: {error.strerror}") from error

    def _is_covered(self, source: str) -> bool:
        return self._all_sources or not is_library_source(source)

    def _is_inside(self, address: int) -> bool:
        ranges = self.session.ranges_of(self.within)
        return not ranges or any(low <= address < high for low, high in ranges)

    def report(self) -> str:
        found = [ran for lines in self.lines.values() for ran in lines.values()]
        hit = sum(ran > 0 for ran in found)
        share = 100 * hit / max(1, len(found))
        files = f"{len(self.lines):,} file{'s' * (len(self.lines) != 1)}"
        return f"{hit:,} of {len(found):,} lines of {files} ran ({share:.1f}%): {self.out}"
