"""Predicts the next phase: the last phase, or the one that followed the same recent runs of phases before.

Run-length encoding Markov predictors (RLE-n; the cycle-close paper, section 3.1, after Sherwood, Sair and Calder's
phase tracking): the last n phases with the lengths of their runs, hashed, index a tagged table. On a tag miss the
last phase is predicted.
"""

from __future__ import annotations

from typing import Protocol

_CONFIDENT = 3


class Predictor(Protocol):
    """``next_phase``: the prediction for the next interval; `observe` is called with its actual phase."""

    def next_phase(self) -> int | None: ...
    def observe(self, phase: int) -> None: ...


class LastValue:
    """The phase of the last interval."""

    def __init__(self) -> None:
        self._last: int | None = None

    def next_phase(self) -> int | None:
        return self._last

    def observe(self, phase: int) -> None:
        self._last = phase


class RunLength:
    """RLE-n. An entry is made when a phase ends, and replaced when it was wrong with confidence 0.

    A table entry predicts a change of phase: while a run continues, its length changes, and so does the index. The
    confidence of an entry is 0 to 3; it grows when the entry was right and falls when it was wrong.
    """

    def __init__(self, runs: int = 2, entries: int = 4096) -> None:
        if runs < 1 or entries < 1:
            raise ValueError(f"RLE-{runs} with {entries} entries, expected at least 1 of each")
        self._runs = runs
        self._entries = entries
        self._history: list[tuple[int, int]] = []  # (phase, length), the current run last
        self._table: dict[int, tuple[tuple[tuple[int, int], ...], int, int]] = {}  # tag, phase, confidence

    def _key(self) -> tuple[int, tuple[tuple[int, int], ...]]:
        recent = tuple(self._history[-self._runs :])
        return hash(recent) % self._entries, recent

    def next_phase(self) -> int | None:
        if not self._history:
            return None
        index, recent = self._key()
        entry = self._table.get(index)
        if entry is not None and entry[0] == recent:
            return entry[1]
        return self._history[-1][0]

    def observe(self, phase: int) -> None:
        if not self._history:
            self._history = [(phase, 1)]
            return
        index, recent = self._key()
        entry = self._table.get(index)
        hit = entry is not None and entry[0] == recent
        last, length = self._history[-1]
        if entry is not None and hit and entry[1] == phase:
            self._table[index] = (recent, phase, min(_CONFIDENT, entry[2] + 1))
        elif entry is not None and hit and entry[2] > 0:
            self._table[index] = (recent, entry[1], entry[2] - 1)
        elif hit or phase != last:
            self._table[index] = (recent, phase, 0)
        if phase == last:
            self._history[-1] = (last, length + 1)
        else:
            self._history = [*self._history[-self._runs :], (phase, 1)]


def predictor_named(name: str) -> Predictor:
    """The predictor ``last`` or ``rle-N``. Raises ValueError for another name."""
    if name == "last":
        return LastValue()
    if name.startswith("rle-") and name[4:].isdigit() and int(name[4:]) > 0:
        return RunLength(int(name[4:]))
    raise ValueError(f"got the predictor '{name}', expected 'last' or 'rle-N' with N of at least 1")
