"""Computes the similarities of pairs of runs on a cluster and on this machine at once.

Pairs go in tiles of runs times runs, so that a worker gets few traces for many alignments. Workers take tiles from the
first on, this machine from the last back, and each tile counts once, by the first that
finishes it. The end needs no worker: this machine makes the tiles of workers that died.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from numpy.typing import NDArray

from measure.perturbation.similarity import Aligner, PreparedRun, SimilarityRule, similarity

_TILE_RUNS = 6  # in each direction: up to 36 pairs
Pair = tuple[PreparedRun, PreparedRun]
Similarities = list[NDArray]


@dataclass(frozen=True)
class Tile:
    """Pairs to align. ``runs``: all that they need; ``couples``: indices of each pair into ``runs``; ``places``: of the
    pairs among all pairs."""

    runs: tuple[PreparedRun, ...]
    couples: tuple[tuple[int, int], ...]
    places: tuple[int, ...]


def tiles_of(pairs: Sequence[Pair]) -> list[Tile]:
    """Tiles with all ``pairs``, each pair in one of them."""
    number: dict[bytes, int] = {}
    places: dict[tuple[int, int], list[int]] = {}
    for place, pair in enumerate(pairs):
        first, second = (number.setdefault(run.digest, len(number)) for run in pair)
        places.setdefault((first // _TILE_RUNS, second // _TILE_RUNS), []).append(place)
    found = []
    for members in places.values():
        runs = {run.digest: run for place in members for run in pairs[place]}
        index = {digest: n for n, digest in enumerate(runs)}
        couples = tuple((index[pairs[place][0].digest], index[pairs[place][1].digest]) for place in members)
        found.append(Tile(tuple(runs.values()), couples, tuple(members)))
    return found


def align_tile(runs: Sequence[PreparedRun], couples: Sequence[tuple[int, int]], how: SimilarityRule) -> Similarities:
    """The similarity of each of ``couples``."""
    return [similarity(runs[first], runs[second], how) for first, second in couples]


Submit = Callable[[Tile, SimilarityRule], "Future[Similarities]"]
"""Lets a worker make `align_tile` of a tile. Its future may fail, or never end."""


def aligner_with(submit: Submit) -> Aligner:
    """The `Aligner` that shares tiles with the workers behind ``submit``."""
    return partial(_align, submit)


def _align(submit: Submit, pairs: Sequence[Pair], how: SimilarityRule, done: Callable[[int], None]) -> Similarities:
    """See `aligner_with`."""
    tiles = tiles_of(pairs)
    found: dict[int, NDArray] = {}
    lock = threading.Lock()

    def keep(tile: Tile, similarities: Similarities) -> None:
        with lock:
            if tile.places[0] not in found:
                found.update(zip(tile.places, similarities, strict=True))
                done(len(tile.places))

    def take(tile: Tile, future: Future[Similarities]) -> None:
        if not future.cancelled() and future.exception() is None:
            keep(tile, future.result())

    def make_here(tile: Tile) -> None:
        if tile.places[0] not in found:
            keep(tile, align_tile(tile.runs, tile.couples, how))

    futures = []
    try:
        for tile in tiles:
            future = submit(tile, how)
            future.add_done_callback(partial(take, tile))
            futures.append(future)
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            list(pool.map(make_here, reversed(tiles)))
    finally:
        for future in futures:
            future.cancel()
    return [found[place] for place in range(len(pairs))]
