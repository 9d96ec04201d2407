"""A kernel that classifies an interval as soon as it has run, and finds out whether the next one is to be simulated."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from emulator.execution.intervals import Written
from emulator.execution.intervals_kernel import DONE, ENOUGH, N_BLOCKS
from emulator.kernels.jit import inline_kernel, kernel
from measure.cycle_close.live_counts_kernel import Live, take, waiting_of
from measure.cycle_close.predictors_kernel import NOTHING, RunTable, next_phase, observe
from measure.cycle_close.signature_kernel import (
    PhaseTable,
    Places,
    Rules,
    add_signature,
    classify,
    distance,
    entry_of_phase,
)

Longs = NDArray[np.int64]
Doubles = NDArray[np.float64]

BUCKETS = 1024  # number of ranges of waiting that are distinguished
EMPTY = -1


class Due(NamedTuple):
    """When phases are sampled again, as a hash table. ``keys``: (m,) with m a power of two, phase * BUCKETS + range of
    waiting, `EMPTY` for none; ``intervals``: (m,) how many more of its intervals pass before the next sample."""

    keys: Longs
    intervals: Longs


class Cover(NamedTuple):
    """Which code the samples stand for. ``shares``: (n, d), their signatures, which sum to 1; ``reach``: the distance
    of signatures up to which a sample stands for an interval. ``state``: see below."""

    shares: Doubles
    reach: float
    state: Longs


# Places in ``Cover.state``: the sample that stood for an interval last; the key of the interval that ran last if no
# sample stands for it, else `EMPTY`.
LATEST_SAMPLE, UNCOVERED, COVER_FIELDS = range(3)


class Found(NamedTuple):
    """What is found of the intervals of a series, one row an interval: ``signatures``, (n, d); ``waits``, ``distances``
    from the phases as fractions of the base, and ``keys``, phase * BUCKETS + range of waiting, (n,); ``counted``, (n,
    COUNTED), what is counted, else NaN. ``state``: (1,), rows found; ``begin``: instructions before them."""

    signatures: Longs
    waits: Doubles
    keys: Longs
    distances: Doubles
    counted: Doubles
    state: Longs
    begin: int


class Online(NamedTuple):
    """All that the kernel reads and changes. ``places``: of blocks; ``wait_step``: width of a range of waiting, 0 if
    waiting is not looked at; ``live``: what is counted; ``wait_cycles``: (COUNTED,), cycles that each miss waits."""

    places: Places
    table: PhaseTable
    rules: Rules
    predictor: RunTable
    due: Due
    cover: Cover
    wait_step: float
    live: Live
    wait_cycles: Doubles


@kernel
def place_of(due: Due, key: int) -> int:
    """The place of ``key`` in ``due``, or the empty place where it belongs."""
    mask = len(due.keys) - 1
    place = (key ^ key >> 10) * 40503 & mask
    while due.keys[place] != key and due.keys[place] != EMPTY:
        place = (place + 1) & mask
    return place


@inline_kernel
def bucket_of(wait: float, step: float) -> int:
    """The range of waiting that ``wait`` [cycles/instruction] lies in: `measure.cycle_close.samples.wait_bucket`."""
    return min(int(np.log1p(wait) / step), BUCKETS - 1) if step > 0.0 else 0


@inline_kernel
def is_covered(cover: Cover, share: Doubles) -> bool:
    """Whether some sample stands for the code of the interval with the signature ``share``, (d,), that sums to 1."""
    samples, latest = len(cover.shares), cover.state[LATEST_SAMPLE]
    if latest < samples and distance(cover.shares[latest], share, cover.reach) <= cover.reach:
        return True
    for sample in range(samples):
        if distance(cover.shares[sample], share, cover.reach) <= cover.reach:
            cover.state[LATEST_SAMPLE] = sample
            return True
    return False


@kernel
def wants_detail(table: PhaseTable, predictor: RunTable, due: Due, cover: Cover) -> bool:
    """Whether the next interval is to be simulated: its predicted phase has no sample, or is due for another, or goes
    on with code that no sample stands for."""
    key = next_phase(predictor)
    if key == NOTHING or entry_of_phase(table, key // BUCKETS) < 0:
        return False
    place = place_of(due, key)
    return due.keys[place] == EMPTY or due.intervals[place] <= 0 or key == cover.state[UNCOVERED]


@kernel
def classify_interval(online: Online, written: Written, found: Found) -> None:
    """Classify the interval that was written last; end the series if the next one is to be simulated.

    Ends the series, too, without a row in ``found``, when there are blocks that ``online.places`` does not have, or
    that need entries there: then it is to be called again when they have them.
    """
    job, row = written.job, written.job[DONE] - 1
    if job[N_BLOCKS] > len(online.places.entries):
        job[ENOUGH] = 1
        return
    signature = found.signatures[row]
    blocks = written.blocks[: written.starts[row + 1]]
    if not add_signature(blocks, written.executions, online.places, written.starts[row], signature):
        job[ENOUGH] = 1
        return
    take(online.live, found.counted[row])
    wait = 0.0
    if online.wait_step > 0.0:
        begin = written.ends[row - 1] if row else found.begin
        wait = waiting_of(found.counted[row], written.ends[row] - begin, online.wait_cycles)
    phase, distance, _ = classify(online.table, online.rules, signature)
    key = phase * BUCKETS + bucket_of(wait, online.wait_step)
    observe(online.predictor, key)
    if online.wait_step > 0.0:
        place = place_of(online.due, key)
        if online.due.keys[place] != EMPTY:
            online.due.intervals[place] -= 1
        online.cover.state[UNCOVERED] = EMPTY if is_covered(online.cover, online.table.share) else key
    found.waits[row], found.keys[row], found.distances[row] = wait, key, distance
    found.state[0] = row + 1
    if wants_detail(online.table, online.predictor, online.due, online.cover):
        job[ENOUGH] = 1
