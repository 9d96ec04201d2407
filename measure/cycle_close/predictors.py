"""Predicts the next phase: the last phase, or the one that followed the same recent runs of phases before.

Run-length encoding Markov predictors (RLE-n; the cycle-close paper, section 3.1, after Sherwood, Sair and Calder's
phase tracking): the last n phases with the lengths of their runs, hashed, index a tagged table. On a tag miss the
last phase is predicted.
"""

from __future__ import annotations

import numpy as np

from measure.cycle_close.predictors_kernel import NOTHING, RunTable, next_phase, observe


class Predictor:
    """Predicts phases, numbers from 0 on, from the last ``runs`` runs with a table of ``entries``.

    ``table``: its state, for kernels.
    """

    def __init__(self, runs: int, entries: int) -> None:
        self.table = RunTable(
            np.zeros(1, np.int64), np.zeros((runs + 1, 2), np.int64), np.zeros((entries, runs, 2), np.int64),
            np.zeros(entries, np.int64), np.zeros(entries, np.int64), np.zeros(entries, np.int64),
        )  # fmt: skip

    def next_phase(self) -> int | None:
        """The prediction for the next interval; None before the first."""
        predicted = next_phase(self.table)
        return None if predicted == NOTHING else predicted

    def observe(self, phase: int) -> None:
        """To be called with the actual phase of each interval."""
        observe(self.table, phase)


class LastValue(Predictor):
    """Predicts the phase of the last interval."""

    def __init__(self) -> None:
        super().__init__(0, 0)


class RunLength(Predictor):
    """RLE-n. An entry is made when a phase ends, and replaced when it was wrong with confidence 0.

    A table entry predicts a change of phase: while a run continues, its length changes, and so does the index. The
    confidence of an entry is 0 to 3; it grows when the entry was right and falls when it was wrong.
    """

    def __init__(self, runs: int = 2, entries: int = 4096) -> None:
        if runs < 1 or entries < 1:
            raise ValueError(f"RLE-{runs} with {entries} entries, expected at least 1 of each")
        super().__init__(runs, entries)


def predictor_named(name: str) -> Predictor:
    """The predictor ``last`` or ``rle-N``. Raises ValueError for another name."""
    if name == "last":
        return LastValue()
    if name.startswith("rle-") and name[4:].isdigit() and int(name[4:]) > 0:
        return RunLength(int(name[4:]))
    raise ValueError(f"got the predictor '{name}', expected 'last' or 'rle-N' with N of at least 1")
