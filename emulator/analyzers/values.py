"""Value locality: how often a load returns a value that it has returned recently.

The measure of Lipasti, Wilkerson and Shen, "Value Locality and Load Value Prediction" (ASPLOS 1996, section 2): an
untagged table, indexed by the load's pc, holds its last values; a load hits if its value is the last one, or among the
last ``depth`` different ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from emulator.analyzers.analyzer import Analyzer
from emulator.analyzers.batch import Batch
from emulator.errors import EmulatorError
from emulator.kernels.numba_jit import numba_kernel


@numba_kernel
def look_up(history: Any, used: Any, hits: Any, pcs: Any, values: Any) -> None:
    """Count in ``hits`` (2,) the values that equal the last one, and any one, in ``history`` (entries, depth), latest
    first; ``used``: (entries,) number of values in each row."""
    entries, depth = history.shape
    for n in range(len(pcs)):
        place = np.int64(pcs[n] >> 1) & (entries - 1)
        value = values[n]
        found = used[place]  # the value's position; one behind the last one if it is absent
        for k in range(used[place]):
            if history[place, k] == value:
                found = k
                break
        if found < used[place]:
            hits[1] += 1
            hits[0] += found == 0
        elif used[place] < depth:
            used[place] += 1
        else:
            found = depth - 1
        for k in range(found, 0, -1):
            history[place, k] = history[place, k - 1]
        history[place, 0] = value


class ValueLocality(Analyzer):
    """Loads whose value is the last one, or one of the last ``depth`` different ones, in a table of ``entries``
    rows, a power of two."""

    selection = "class=load fields=pc,value"

    def __init__(self, entries: int = 1024, depth: int = 16) -> None:
        if entries.bit_count() != 1 or depth < 1:
            raise EmulatorError(f"values: entries={entries} depth={depth}: expected a power of two, and 1 or more")
        self.depth = depth
        self._history = np.zeros((entries, depth), np.uint64)
        self._used = np.zeros(entries, np.int64)
        self.loads = 0
        self.hits = np.zeros(2, np.int64)

    def consume(self, batch: Batch) -> None:
        self.loads += len(batch)
        look_up(self._history, self._used, self.hits, batch.pc, batch.value)

    def report(self) -> str:
        share = 100 * self.hits / max(1, self.loads)
        return (
            f"{self.loads:>16,}  loads\n{self.hits[0]:>16,}  {share[0]:5.1f}%  of the value loaded last\n"
            f"{self.hits[1]:>16,}  {share[1]:5.1f}%  of one of the last {self.depth} values"
        )
