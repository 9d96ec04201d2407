"""Basic block vectors, written to a file in SimPoint's format: a line ``T:block:count :block:count ...`` for each
interval, where a count is executions times instructions. `BlockNumbers` says how blocks are numbered."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, cast

import numpy as np

from common.atomic_files import filling
from emulator.analyzers.analyzer import Analyzer
from emulator.errors import EmulatorError
from emulator.events import TraceSelection
from emulator.execution.block_numbers import BlockNumbers
from emulator.execution.intervals import Intervals


class BlockVectors(Analyzer):
    """Vectors of intervals of ``interval`` instructions to the file ``out`` (compressed if it ends in .gz). Needs only
    block counts, no record. Includes the last interval, however short.

    The file appears when the guest has ended; a pipe or a device, like /dev/stdout, is written at once."""

    trace = TraceSelection(counts=True)

    def __init__(self, interval: int = 100_000_000, out: str = "program.bb") -> None:
        self.interval_instructions = interval
        self.out = Path(out)
        self.written = 0
        self._numbers = BlockNumbers()
        self._file: IO[bytes] | None = None
        self._opened = ExitStack()

    def begin(self) -> None:
        with self._errors_named():
            path = self._opened.enter_context(filling(self.out))
            opened = gzip.open(path, "wb") if self.out.suffix == ".gz" else path.open("wb")  # noqa: SIM115
            self._file = cast(IO[bytes], self._opened.enter_context(opened))

    def interval(self, intervals: Intervals) -> None:
        from emulator.analyzers.vectors_kernel import MOST_BYTES_OF_ENTRY, put_vectors

        assert self._file is not None
        numbers, counts = self._numbers.vectors(intervals, self.machine.facts.blocks)
        text = np.empty(MOST_BYTES_OF_ENTRY * len(counts) + 2 * len(intervals), np.uint8)
        n_bytes = put_vectors(text, intervals.starts, numbers, counts)
        with self._errors_named():
            self._file.write(text[:n_bytes].data)
        self.written += len(intervals)

    def end(self) -> None:
        with self._errors_named():
            self._opened.close()

    @contextmanager
    def _errors_named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            with suppress(OSError):
                self._opened.__exit__(OSError, error, None)  # removes what was written so far
            raise EmulatorError(f"bbv: {self.out}: cannot be written: {error.strerror}") from error

    def report(self) -> str:
        return f"{self.written:,} vectors of {self.interval_instructions:,} instructions: {self.out}"
