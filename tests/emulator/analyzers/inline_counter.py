"""An analyzer with a function in line."""

from __future__ import annotations

import numpy as np

from emulator.analyzers.analyzer import Analyzer


class Counter(Analyzer):
    """Counts instructions."""

    inline = "fields=pc"

    def __init__(self) -> None:
        self.state = np.zeros(1, np.int64)

    @staticmethod
    def inline_before(state, pc):  # type: ignore[no-untyped-def]
        state[0] += 1
