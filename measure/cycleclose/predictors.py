"""Which phase comes next: the last one again, or what followed the last time that the runs were like these.

Run-length encoding Markov predictors (RLE-n; the cycle-close paper, section 3.1, after Sherwood, Sair and
Calder's phase tracking): the last n phases with the lengths of their runs, hashed, index a tagged table. A tag
miss falls back on the last phase.
"""

from __future__ import annotations

from typing import Protocol

_CONFIDENT = 3


class Predictor(Protocol):
    """``next_phase``: the prediction for the interval to come; `observe` tells what it was."""

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
    """RLE-n. An entry is made when a phase ends, and replaced when it was wrong and no longer trusted.

    A prediction from the table is for a change of phase: while the run goes on, its length changes and so does
    the index. Each entry has a confidence of 0 to 3 that grows when it was right and falls when it was wrong.
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
        found = self._table.get(index)
        if found is not None and found[0] == recent:
            return found[1]
        return self._history[-1][0]

    def observe(self, phase: int) -> None:
        if not self._history:
            self._history = [(phase, 1)]
            return
        index, recent = self._key()
        found = self._table.get(index)
        hit = found is not None and found[0] == recent
        last, length = self._history[-1]
        if found is not None and hit and found[1] == phase:
            self._table[index] = (recent, phase, min(_CONFIDENT, found[2] + 1))
        elif found is not None and hit and found[2] > 0:
            self._table[index] = (recent, found[1], found[2] - 1)
        elif hit or phase != last:
            self._table[index] = (recent, phase, 0)
        if phase == last:
            self._history[-1] = (last, length + 1)
        else:
            self._history = [*self._history[-self._runs :], (phase, 1)]


def predictor_named(name: str) -> Predictor:
    """``last`` or ``rle-N``. Raises ValueError for another name."""
    if name == "last":
        return LastValue()
    if name.startswith("rle-") and name[4:].isdigit() and int(name[4:]) > 0:
        return RunLength(int(name[4:]))
    raise ValueError(f"got the predictor '{name}', expected 'last' or 'rle-N' with N of at least 1")
