"""Comparison of branch predictors on the same branches.

Always taken; bimodal (Smith, ISCA 1981); gshare and the tournament of both (McFarling, WRL TN-36, 1993); two-level with
local histories (Yeh and Patt, MICRO 1991). Two-bit counters start weakly not taken; all are trained at once.
Branch target buffers and return-address stacks are left to `emulator.timing`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from emulator.analyzers.analyzer import Analyzer
from emulator.analyzers.batch import Batch
from emulator.errors import EmulatorError
from emulator.kernels.numba_jit import inline_numba_kernel, numba_kernel

NAMES = ("always taken", "bimodal", "gshare", "local", "tournament")
BIMODAL, GSHARE, LOCAL, CHOICE, HISTORIES = range(5)  # rows of the tables
LOCAL_BITS = 10


@inline_numba_kernel
def train(counters: Any, place: Any, taken: Any) -> Any:
    """Train a two-bit counter; returns its prediction before that."""
    counter = counters[place]
    if taken:
        if counter < 3:
            counters[place] = counter + 1
    elif counter > 0:
        counters[place] = counter - 1
    return counter >= 2


@numba_kernel
def predict(tables: Any, history: Any, wrong: Any, pcs: Any, taken: Any) -> None:
    """Count mispredictions of every predictor in ``wrong`` (5,). ``history``: (1,) outcomes of all branches."""
    mask = tables.shape[1] - 1
    for n in range(len(pcs)):
        outcome = taken[n] != 0
        place = np.int64(pcs[n] >> 1)
        simple = train(tables[BIMODAL], place & mask, outcome) != 0
        shared = train(tables[GSHARE], (place ^ history[0]) & mask, outcome) != 0
        own = np.int64(tables[HISTORIES, place & mask])
        local = train(tables[LOCAL], own & mask, outcome) != 0
        tables[HISTORIES, place & mask] = (own << 1 | outcome) & ((1 << LOCAL_BITS) - 1)
        chosen = shared if tables[CHOICE, place & mask] >= 2 else simple
        if simple != shared:
            train(tables[CHOICE], place & mask, shared == outcome)
        history[0] = (history[0] << 1 | outcome) & mask
        wrong[0] += not outcome
        wrong[1] += simple != outcome
        wrong[2] += shared != outcome
        wrong[3] += local != outcome
        wrong[4] += chosen != outcome


class BranchPredictors(Analyzer):
    """Mispredictions of conditional branches; tables of ``entries`` counters each, a power of two from 1024
    on."""

    selection = "class=branch fields=pc,taken"

    def __init__(self, entries: int = 4096) -> None:
        if entries < 1 << LOCAL_BITS or entries.bit_count() != 1:
            raise EmulatorError(f"branches: entries={entries}: expected a power of two from {1 << LOCAL_BITS} on")
        self._tables = np.ones((5, entries), np.uint16)
        self._tables[HISTORIES] = 0
        self._history = np.zeros(1, np.int64)
        self.branches = 0
        self.wrong = np.zeros(len(NAMES), np.int64)

    def consume(self, batch: Batch) -> None:
        self.branches += len(batch)
        predict(self._tables, self._history, self.wrong, batch.pc, batch.taken)

    def report(self) -> str:
        lines = [f"{self.branches:>16,}  conditional branches"]
        for name, wrong in zip(NAMES, self.wrong, strict=True):
            lines.append(f"{wrong:>16,}  {100 * wrong / max(1, self.branches):6.2f}%  mispredicted: {name}")
        return "\n".join(lines)
