"""Which source lines ran, how often, in the format of lcov (geninfo's tracefiles, as its manual page has them)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from emulator.analyzers.base import Analyzer
from emulator.analyzers.counts import Executions
from emulator.errors import EmulatorError
from emulator.events import TraceSelection


class Coverage(Analyzer):
    """Line and function coverage to the file ``out``. Needs debug information, and only counts of blocks.

    A line ran as often as that of its instructions which ran most often; lines without code are not in the file.
    """

    trace = TraceSelection(counts=True)

    def __init__(self, out: str = "coverage.info", test: str = "") -> None:
        self.out, self.test = Path(out), test
        self.lines: dict[str, dict[int, int]] = {}
        self.functions: dict[str, dict[str, tuple[int, int]]] = {}  # by file and name: line, executions

    def begin(self) -> None:
        if not self.machine.image.line_rows():
            raise EmulatorError(
                f"{self.machine.image.name}: no debug information to cover lines with; compile it with -g"
            )
        self._executions = Executions(self.session)

    def end(self) -> None:
        pcs, counts = self._executions.by_pc()
        counts = np.append(counts, 0)
        for row in self.machine.image.line_rows():
            if row.line:
                low, high = np.searchsorted(pcs, (row.address, row.end))
                file = self.lines.setdefault(row.file, {})
                file[row.line] = max(file.get(row.line, 0), int(counts[low:high].max(initial=0)))
        for symbol in self.machine.image.symbols:
            place = self.machine.image.source_line(symbol.address) if symbol.is_function else None
            if place is not None:
                at = int(np.searchsorted(pcs, symbol.address))
                ran = int(counts[at]) if at < len(pcs) and pcs[at] == symbol.address else 0
                self.functions.setdefault(place[0], {})[symbol.name] = (place[1], ran)
        try:
            self.out.write_text(self._text())
        except OSError as error:
            raise EmulatorError(f"coverage: {self.out}: cannot be written: {error.strerror}") from error

    def _text(self) -> str:
        parts = [f"TN:{self.test}"]
        for name, lines in sorted(self.lines.items()):
            functions = sorted(self.functions.get(name, {}).items())
            parts.append(f"SF:{name}")
            parts += [f"FN:{line},{function}" for function, (line, _) in functions]
            parts += [f"FNDA:{ran},{function}" for function, (_, ran) in functions]
            parts.append(f"FNF:{len(functions)}\nFNH:{sum(ran > 0 for _, (_, ran) in functions)}")
            parts += [f"DA:{line},{ran}" for line, ran in sorted(lines.items())]
            parts.append(f"LF:{len(lines)}\nLH:{sum(ran > 0 for ran in lines.values())}\nend_of_record")
        return "\n".join(parts) + "\n"

    def report(self) -> str:
        found = [ran for lines in self.lines.values() for ran in lines.values()]
        hit = sum(ran > 0 for ran in found)
        share = 100 * hit / max(1, len(found))
        return f"{hit:,} of {len(found):,} lines of {len(self.lines)} files ran ({share:.1f}%): {self.out}"
