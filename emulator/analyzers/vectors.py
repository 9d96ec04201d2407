"""Basic block vectors to a file, in the format that SimPoint reads: a line ``T:block:count :block:count ...`` an
interval, a count being executions times instructions. Blocks are numbered from 1 as they were met."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import IO, cast

from emulator.analyzers.base import Analyzer
from emulator.errors import EmulatorError
from emulator.events import TraceSelection
from emulator.intervals import Intervals


class BlockVectors(Analyzer):
    """Vectors of intervals of ``interval`` instructions to the file ``out`` (gzip'd when it ends in .gz). Needs no
    record, only counts of blocks. The last interval, however short, is in."""

    trace = TraceSelection(counts=True)

    def __init__(self, interval: int = 100_000_000, out: str = "program.bb") -> None:
        self.interval_instructions = interval
        self.out = Path(out)
        self.written = 0
        self._file: IO[bytes] | None = None

    def begin(self) -> None:
        try:
            opened = gzip.open(self.out, "wb") if self.out.suffix == ".gz" else self.out.open("wb")  # noqa: SIM115
            self._file = cast(IO[bytes], opened)
        except OSError as error:
            raise EmulatorError(f"bbv: {self.out}: cannot be written: {error.strerror}") from error

    def interval(self, intervals: Intervals) -> None:
        assert self._file is not None
        lengths = self.machine.facts.blocks["n_instructions"]
        for first, last in zip(intervals.starts[:-1], intervals.starts[1:], strict=True):
            blocks = intervals.blocks[first:last]
            counts = (intervals.executions[first:last] * lengths[blocks]).tolist()
            pairs = zip((blocks + 1).tolist(), counts, strict=True)
            self._file.write(("T" + "".join(f":{block}:{count} " for block, count in pairs) + "\n").encode())
            self.written += 1

    def end(self) -> None:
        if self._file is not None:
            self._file.close()

    def report(self) -> str:
        return f"{self.written:,} vectors of {self.interval_instructions:,} instructions: {self.out}"
