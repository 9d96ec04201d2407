"""Kernels of the predictors in `measure.cycle_close.predictors`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from emulator.kernels.jit import Integer, inline_kernel, kernel

Longs = NDArray[np.int64]

NOTHING = -1  # the prediction before the first phase
_CONFIDENT = 3
# Python's hash of a tuple (xxHash), so that runs share entries of the table as they did when Python hashed them.
_PRIME_1, _PRIME_2, _PRIME_5 = (
    np.uint64(prime) for prime in (11400714785074694791, 14029467366897019727, 2870177450012600261)
)
_LENGTH_MIX = np.uint64(2870177450012600261 ^ 3527539)
_INVALID_HASH, _INSTEAD = np.uint64(0xFFFFFFFFFFFFFFFF), np.uint64(1546275796)


class RunTable(NamedTuple):
    """The state of a predictor that looks at n runs of phases; with n = 0 it predicts the last phase.

    ``state``: (1,), number of runs in ``history``. ``history``: (n + 1, 2), phase and length of the latest runs, the
    current one last. One row an entry of the table: ``tags``, (entries, n, 2), the runs; ``tag_runs``, their number, 0
    for an empty entry; ``following``, the phase that followed; ``confidence``, 0 to 3.
    """

    state: Longs
    history: Longs
    tags: Longs
    tag_runs: Longs
    following: Longs
    confidence: Longs


@inline_kernel
def _mixed(hashed: np.uint64, word: np.uint64) -> np.uint64:
    """One step of the hash of a tuple."""
    hashed = hashed + word * _PRIME_2
    return ((hashed << np.uint64(31)) | (hashed >> np.uint64(33))) * _PRIME_1


@inline_kernel
def _finished(hashed: np.uint64, length: Integer) -> np.uint64:
    """The last step of the hash of a tuple of ``length`` items."""
    hashed = hashed + (np.uint64(length) ^ _LENGTH_MIX)
    return _INSTEAD if hashed == _INVALID_HASH else hashed


@kernel
def tuple_hash(runs: Longs) -> int:
    """Python's hash of the tuple of the pairs ``runs``, (n, 2), of numbers from 0 to 2**61 - 2."""
    hashed = _PRIME_5
    for run in range(len(runs)):
        pair = _mixed(_mixed(_PRIME_5, np.uint64(runs[run, 0])), np.uint64(runs[run, 1]))
        hashed = _mixed(hashed, _finished(pair, 2))
    return int(_finished(hashed, len(runs)))


@inline_kernel
def _entry_of(table: RunTable) -> tuple[int, bool]:
    """The table's entry for the latest runs, and whether its tag is these runs. There is at least one run."""
    n, most = table.state[0], table.tags.shape[1]
    first = max(n - most, 0)
    entry = tuple_hash(table.history[first:n]) % len(table.tag_runs)
    is_hit = table.tag_runs[entry] == n - first
    if is_hit:
        for run in range(n - first):
            for part in range(2):
                if table.tags[entry, run, part] != table.history[first + run, part]:
                    is_hit = False
    return entry, is_hit


@kernel
def next_phase(table: RunTable) -> int:
    """The phase predicted for the next interval; `NOTHING` without any interval."""
    n = table.state[0]
    if n == 0:
        return NOTHING
    if table.tags.shape[1] > 0:
        entry, is_hit = _entry_of(table)
        if is_hit:
            return table.following[entry]
    return table.history[n - 1, 0]


@kernel
def observe(table: RunTable, phase: int) -> None:
    """Take notice of the phase of the interval that was predicted."""
    n, most = table.state[0], table.tags.shape[1]
    history = table.history
    if most == 0 or n == 0:
        history[0, 0], history[0, 1] = phase, 1
        table.state[0] = 1
        return
    entry, is_hit = _entry_of(table)
    is_same = history[n - 1, 0] == phase
    if is_hit and table.following[entry] == phase:
        table.confidence[entry] = min(_CONFIDENT, table.confidence[entry] + 1)
    elif is_hit and table.confidence[entry] > 0:
        table.confidence[entry] -= 1
    elif is_hit or not is_same:
        first = max(n - most, 0)
        table.tag_runs[entry] = n - first
        for run in range(n - first):
            for part in range(2):
                table.tags[entry, run, part] = history[first + run, part]
        table.following[entry] = phase
        table.confidence[entry] = 0
    if is_same:
        history[n - 1, 1] += 1
        return
    if n > most:  # the oldest run goes
        for run in range(most):
            for part in range(2):
                history[run, part] = history[run + 1, part]
        n = most
    history[n, 0], history[n, 1] = phase, 1
    table.state[0] = n + 1
