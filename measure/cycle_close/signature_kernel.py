"""Kernels that compute signatures and event counts from block executions, and classify signatures."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from emulator.kernels.jit import inline_kernel, kernel

Longs = NDArray[np.int64]
Doubles = NDArray[np.float64]
_STRIDE = 8  # entries of a signature that are compared before it is looked at whether they are too far apart


class Places(NamedTuple):
    """Where each block counts. ``entries``: of each block, the entry of a signature, `NO_ENTRY` until it is given one;
    ``settled``: whether it keeps that entry when it is frequent; ``lengths``: its instructions. ``totals``: (d,)
    instructions of each entry so far."""

    entries: Longs
    settled: NDArray[np.bool_]
    lengths: Longs
    totals: Longs


NO_ENTRY = -1
FREQUENT = 16
"""A branch is frequent in an interval if one of its instructions in so many belongs to it."""


@kernel
def fill_signatures(
    starts: NDArray[np.int64], blocks: NDArray[np.uint32], executions: Longs, places: Places, first: int, out: Longs
) -> int:  # fmt: skip
    """Add each block's instructions to the signature entry of the transfer that it belongs to, in the rows of ``out``,
    (n, d), zeros, from ``first`` on. Returns the first row whose blocks need entries, n if there is none."""
    for row in range(first, len(out)):
        if not add_signature(blocks[: starts[row + 1]], executions, places, starts[row], out[row]):
            return row
    return len(out)


@inline_kernel
def add_signature(blocks: NDArray[np.uint32], executions: Longs, places: Places, first: int, out: Longs) -> bool:
    """`fill_signatures` of one interval, whose blocks begin at ``first`` and end with ``blocks``; ``out``: (d,). False,
    and nothing is done, if some have no entry, or are frequent and not settled."""
    total = 0
    for place in range(first, len(blocks)):
        if places.entries[blocks[place]] == NO_ENTRY:
            return False
        total += executions[place] * places.lengths[blocks[place]]
    for place in range(first, len(blocks)):
        block = blocks[place]
        if executions[place] * places.lengths[block] * FREQUENT >= total and not places.settled[block]:
            return False
    for place in range(first, len(blocks)):
        block = blocks[place]
        instructions = executions[place] * places.lengths[block]
        out[places.entries[block]] += instructions
        places.totals[places.entries[block]] += instructions
    return True


@kernel
def add_up(
    starts: NDArray[np.int64],
    blocks: NDArray[np.uint32],
    executions: NDArray[np.int64],
    each: NDArray[np.uint8],
    out: NDArray[np.int64],
) -> None:
    """Add each interval's events: ``each`` (n_blocks, m) of one execution of a block; ``out`` (n, m)."""
    for row in range(len(out)):
        for place in range(starts[row], starts[row + 1]):
            block, times = blocks[place], executions[place]
            for column in range(out.shape[1]):
                out[row, column] += times * each[block, column]


@inline_kernel
def total_of(signature: Longs) -> int:
    """The sum of a signature, at least 1."""
    total = 0
    for entry in signature:
        total += entry
    return max(total, 1)


@inline_kernel
def distance(row: Doubles, share: Doubles, enough: float) -> float:
    """Manhattan distance of two signatures that sum to 1; some number above ``enough`` if it is above that."""
    apart = 0.0
    done = 0
    while done < len(share) and apart <= enough:
        end = min(done + _STRIDE, len(share))
        for entry in range(done, end):
            apart += abs(row[entry] - share[entry])
        done = end
    return apart


def manhattan(signatures: NDArray[np.float64], used: int, signature: NDArray[np.int64]) -> NDArray[np.float64]:
    """Distance of ``signature``, divided by its sum, from each of the first ``used`` rows."""
    out = np.zeros(used)
    fill_distances(signatures, signature, out)
    return out


@kernel
def fill_distances(signatures: Doubles, signature: Longs, out: Doubles) -> None:
    """Put the distances of `manhattan` into ``out``."""
    share = np.empty(len(signature))
    total = total_of(signature)
    for entry in range(len(signature)):
        share[entry] = signature[entry] / total
    for row in range(len(out)):
        out[row] = distance(signatures[row], share, np.inf)


class PhaseTable(NamedTuple):
    """The state of a `measure.cycle_close.classifier.SignatureTable`; a row an entry of the table.

    ``signatures``: (entries, d), each sums to 1; ``phases``: numbers of the phases; ``last_seen``: when each was
    matched last; ``members``: its intervals so far; ``state``: see below; ``share``: scratch, (d,).
    """

    signatures: Doubles
    phases: Longs
    last_seen: Longs
    members: Longs
    state: Longs
    share: Doubles


# Places in ``state``: entries in use; intervals classified; phases so far; phases replaced; the latest entry matched.
USED, CLOCK, PHASES, REPLACED, LATEST, STATE_FIELDS = range(6)


class Rules(NamedTuple):
    """How intervals are classified: the largest distance of one phase, as a fraction of a base of which ``base`` is the
    number of lengths of an interval; whether a full table takes no new phases; and whether the signature of a phase is
    the mean of its intervals."""

    threshold: float
    base: float
    is_closed_when_full: bool
    takes_mean: bool


@inline_kernel
def nearest(table: PhaseTable) -> tuple[int, float]:
    """The entry closest to ``table.share``, the first of equals, and its distance; -1 and infinity without entries."""
    used = table.state[USED]
    place, least = -1, np.inf
    if used:
        place = table.state[LATEST]  # most likely the closest, which makes the others short
        least = distance(table.signatures[place], table.share, np.inf)
    for row in range(used):
        apart = distance(table.signatures[row], table.share, least)
        if apart < least or (apart == least and row < place):
            place, least = row, apart
    return place, least


@kernel
def classify(table: PhaseTable, rules: Rules, signature: Longs) -> tuple[int, float, bool]:
    """The phase of the interval with ``signature``, (d,), which sums to its instructions; its distance from the phase
    as a fraction of the base; and whether the phase is new."""
    state = table.state
    state[CLOCK] += 1
    total = total_of(signature)
    for entry in range(len(signature)):
        table.share[entry] = signature[entry] / total
    place, apart = nearest(table)
    apart /= rules.base
    is_full = state[USED] == len(table.phases)
    if place >= 0 and (apart < rules.threshold or (is_full and rules.is_closed_when_full)):
        table.members[place] += 1
        if rules.takes_mean:
            weight = 1.0 / table.members[place]
            for entry in range(len(signature)):
                own = table.signatures[place, entry]
                table.signatures[place, entry] = own + weight * (table.share[entry] - own)
        is_new = False
    else:
        is_new = True
        if is_full:
            place = 0
            for row in range(len(table.phases)):
                if table.last_seen[row] < table.last_seen[place]:
                    place = row
            state[REPLACED] += 1
        else:
            place = state[USED]
            state[USED] += 1
        table.phases[place] = state[PHASES]
        state[PHASES] += 1
        table.members[place] = 1
        for entry in range(len(signature)):
            table.signatures[place, entry] = table.share[entry]
    table.last_seen[place] = state[CLOCK]
    state[LATEST] = place
    return table.phases[place], apart, is_new


@kernel
def entry_of_phase(table: PhaseTable, phase: int) -> int:
    """The table's entry of ``phase``; -1 if it is not, or no more, in the table."""
    latest = table.state[LATEST]
    if latest < table.state[USED] and table.phases[latest] == phase:
        return latest
    for row in range(table.state[USED]):
        if table.phases[row] == phase:
            return row
    return -1
