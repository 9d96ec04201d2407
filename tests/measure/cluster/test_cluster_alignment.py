"""Pairs of runs aligned on a cluster and here at once: the same similarities, whatever workers do."""

from __future__ import annotations

import threading
from concurrent.futures import Future

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from measure.alignment.setting import DEFAULT_ALIGNMENT
from measure.cluster.alignment import Similarities, Tile, align_tile, aligner_with, tiles_of
from measure.cluster.dask_workers import connect
from measure.perturbation.similarity import PreparedRun, SimilarityRule, align_in_threads, prepare

distributed = pytest.importorskip("distributed", reason="Dask is an optional dependency")
METRICS = ("a", "b", "c")
HOW = SimilarityRule(True, DEFAULT_ALIGNMENT, ((), (), ()))


def runs(n: int) -> list[PreparedRun]:
    rng = np.random.default_rng(3)
    driver = np.sin(np.linspace(0, 9, 60))
    return [prepare(driver[:, None] + rng.normal(0, 0.5, (60, 3)), METRICS, f"run {k}") for k in range(n)]


RUNS = runs(9)
PAIRS = [(one, other) for n, one in enumerate(RUNS) for other in RUNS[n + 1 :]]


def here() -> Similarities:
    return align_in_threads(PAIRS, HOW, lambda count: None)


def made_by(submit: object) -> tuple[Similarities, list[int]]:
    """The similarities of all pairs, and the numbers of pairs that were reported as done."""
    counts: list[int] = []
    return aligner_with(submit)(PAIRS, HOW, counts.append), counts  # type: ignore[arg-type]


def same(one: Similarities, other: Similarities) -> bool:
    return len(one) == len(other) and all(np.array_equal(a, b, equal_nan=True) for a, b in zip(one, other, strict=True))


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=60))
@settings(deadline=None)
def test_every_pair_is_in_one_tile(chosen: list[tuple[int, int]]) -> None:
    pairs = [(RUNS[i], RUNS[j]) for i, j in chosen]
    tiles = tiles_of(pairs)
    assert sorted(place for tile in tiles for place in tile.places) == list(range(len(pairs)))
    for tile in tiles:
        assert len(tile.runs) <= 12
        for (first, second), place in zip(tile.couples, tile.places, strict=True):
            assert (tile.runs[first], tile.runs[second]) == pairs[place]


def test_workers_that_never_answer_cost_nothing() -> None:
    futures: list[Future[Similarities]] = []

    def submit(tile: Tile, how: SimilarityRule) -> Future[Similarities]:
        futures.append(Future())
        return futures[-1]

    found, counts = made_by(submit)
    assert same(found, here())
    assert sum(counts) == len(PAIRS)
    assert all(future.cancelled() for future in futures)  # so that the cluster does not go on


def test_workers_that_fail_cost_nothing() -> None:
    def submit(tile: Tile, how: SimilarityRule) -> Future[Similarities]:
        future: Future[Similarities] = Future()
        future.set_exception(RuntimeError("the worker died"))
        return future

    assert same(made_by(submit)[0], here())


def test_each_pair_is_counted_once_when_both_make_it() -> None:
    threads = []

    def submit(tile: Tile, how: SimilarityRule) -> Future[Similarities]:
        future: Future[Similarities] = Future()

        def answer() -> None:
            if future.set_running_or_notify_cancel():
                future.set_result(align_tile(tile.runs, tile.couples, how))

        threads.append(threading.Thread(target=answer))
        threads[-1].start()
        return future

    found, counts = made_by(submit)
    for thread in threads:
        thread.join()
    assert same(found, here())
    assert sum(counts) == len(PAIRS)


def test_answers_of_workers_are_taken() -> None:
    """What a worker has answered is not made again."""

    def submit(tile: Tile, how: SimilarityRule) -> Future[Similarities]:
        future: Future[Similarities] = Future()
        marked: list[NDArray[np.float64]] = [np.full(3, place) for place in tile.places]
        future.set_result(marked)
        return future

    found, _ = made_by(submit)
    assert [z[0] for z in found] == list(range(len(PAIRS)))


def _is_profiled() -> bool:
    from dask import config

    return bool(config.get("distributed.worker.profile.enabled"))


@pytest.mark.slow
def test_on_a_real_cluster() -> None:
    with connect("local:1") as cluster:
        done: list[int] = []
        found = cluster.aligner(PAIRS, HOW, done.append)
        remote = cluster._submit_tile(tiles_of(PAIRS)[0], HOW).result(timeout=120)
        profiled = cluster._client.run(_is_profiled)
    assert not any(profiled.values())  # the profiler would make runs slower
    assert same(found, here())
    assert sum(done) == len(PAIRS)
    places = tiles_of(PAIRS)[0].places
    assert same(remote, [here()[place] for place in places])
