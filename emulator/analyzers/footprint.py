"""Memory footprint and working set: the lines and pages that a program accesses in each interval."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from emulator.analyzers.analyzer import Analyzer
from emulator.analyzers.batch import Batch
from emulator.errors import EmulatorError
from emulator.execution.intervals import Intervals
from emulator.kernels.numba_jit import numba_kernel

LINE_SHIFT, PAGE_SHIFT = 6, 12
_PICTURES = (".png", ".svg", ".pdf")


@numba_kernel
def touch(last: Any, shift: int, interval: int, found: Any, addresses: Any) -> None:
    """Count in ``found`` (2,) the lines accessed for the first time in this interval, and for the first time at all.

    ``last``: the interval of each line's last access, 0 before the first one; ``shift``: log2 of the line size."""
    for n in range(len(addresses)):
        place = addresses[n] >> shift
        if last[place] != interval:
            found[0] += 1
            found[1] += last[place] == 0
            last[place] = interval


class Footprint(Analyzer):
    """Distinct 64-byte lines and 4 KiB pages of data in each interval of ``interval`` instructions (the working set),
    and so far (the footprint); ``out``: the file of a picture to write, which ends in .png, .svg or .pdf."""

    selection = "class=memory fields=address"

    def __init__(self, interval: int = 1_000_000, out: str = "") -> None:
        if out and Path(out).suffix not in _PICTURES:
            raise EmulatorError(
                f"footprint: out={out}: expected the name of a picture, ending in {', '.join(_PICTURES)}"
            )
        self.interval_instructions = interval
        self.out = out
        self.rows: list[tuple[int, int, int, int, int]] = []  # end, lines, pages, lines and pages so far
        self._number = 1
        self._tables = [(np.zeros(1 << 31 >> shift, np.uint32), shift) for shift in (LINE_SHIFT, PAGE_SHIFT)]
        self._found = np.zeros((2, 2), np.int64)

    def consume(self, batch: Batch) -> None:
        for (last, shift), found in zip(self._tables, self._found, strict=True):
            touch(last, shift, self._number, found, batch.address)

    def interval(self, intervals: Intervals) -> None:
        (lines, all_lines), (pages, all_pages) = self._found.tolist()
        self.rows.append((int(intervals.ends[-1]), lines, pages, all_lines, all_pages))
        self._found[:, 0] = 0
        self._number += 1

    def end(self) -> None:
        if self.out:
            self._draw()

    def report(self) -> str:
        if not self.rows:
            return "the program accessed no memory"
        lines = np.array([row[1] for row in self.rows])
        return (
            f"{self.rows[-1][3] << LINE_SHIFT:>16,}  bytes touched, in lines of {1 << LINE_SHIFT}\n"
            f"{self.rows[-1][4] << PAGE_SHIFT:>16,}  bytes touched, in pages of {1 << PAGE_SHIFT}\n"
            f"{round(lines.mean()) << LINE_SHIFT:>16,}  bytes a working set of {self.interval_instructions:,} "
            f"instructions, on average\n{int(lines.max()) << LINE_SHIFT:>16,}  bytes, at most"
        )

    def _draw(self) -> None:
        from matplotlib.figure import Figure

        ends, lines, pages, all_lines, all_pages = np.array(self.rows, np.float64).reshape(-1, 5).T
        figure = Figure(figsize=(8, 4.5), layout="constrained")
        axes = figure.add_subplot()
        for shift, style, unit, columns in (
            (LINE_SHIFT, "-", "lines", (lines, all_lines)),
            (PAGE_SHIFT, "--", "pages", (pages, all_pages)),
        ):
            for number, column in enumerate(columns):
                label = f"{('working set', 'footprint')[number]}, {unit} of {1 << shift} bytes"
                axes.plot(ends / 1e6, column * (1 << shift) / 1024, style, color=f"C{number}", label=label)
        axes.set(xlabel="executed instructions [millions]", ylabel="memory [KiB]")
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
        try:
            figure.savefig(Path(self.out))
        except (OSError, ValueError) as error:
            raise EmulatorError(f"footprint: {self.out}: cannot be written: {error}") from error
