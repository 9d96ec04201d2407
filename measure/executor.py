"""Makes the runs of a plan that are not there yet, several at once, and keeps each as it ends."""

from __future__ import annotations

import concurrent.futures
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from measure.errors import MeasureError, RunError
from measure.plan import content_key
from measure.processes import end_now, worker_pool
from measure.store import Store
from measure.types import Run, RunSpec


@dataclass(frozen=True)
class Failure:
    """A run that could not be made, and why."""

    spec: RunSpec
    reason: str


@dataclass(frozen=True)
class Outcome:
    """What became of a plan's runs. ``reused``: how many were there already."""

    runs: tuple[Run, ...]
    failures: tuple[Failure, ...]
    reused: int
    warnings: tuple[str, ...]


def _execute(spec: RunSpec) -> Run | str:
    """In a worker: the run, or the reason why there is none."""
    from measure.targets import target_named

    try:
        return target_named(spec.target).execute(spec)
    except RunError as error:
        return str(error)


class Workers:
    """Processes that make runs; started when they are needed, and used again until `close`.

    ``count``: how many; default: one a processor.
    """

    def __init__(self, count: int | None = None) -> None:
        self.count = count or os.cpu_count() or 1
        self._pool: concurrent.futures.ProcessPoolExecutor | None = None

    def submit(self, spec: RunSpec) -> concurrent.futures.Future[Run | str]:
        """Make a run: the run, or the reason why there is none."""
        if self._pool is None:
            self._pool = worker_pool(self.count)
        return self._pool.submit(_execute, spec)

    def close(self) -> None:
        """Let them go when they are done with what they are at; the rest is not begun."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def end(self) -> None:
        """Stop them now: nothing that they are in the middle of is kept anyway."""
        if self._pool is not None:
            pool, self._pool = self._pool, None
            end_now(pool)


def execute_plan(
    specs: Sequence[RunSpec],
    store: Store,
    *,
    workers: Workers | int | None = None,
    started: Callable[[int, int, int], None] = lambda to_do, there, at_once: None,
    progress: Callable[[], None] = lambda: None,
) -> Outcome:
    """Make what is missing of ``specs``. Every finished run is stored before the next is waited for.

    A run that fails does not stop the others; after three failures and no success the rest is given up.
    ``workers``: how many at once (default: one a processor), or `Workers` that are used again. ``started`` is told how
    many runs are to be made, how many are there already, and how many are made at once; ``progress`` that a run ended.
    Ctrl-C, SIGTERM and a time limit end the workers and keep what they finished.
    """
    done: dict[str, Run] = {}
    warnings: list[str] = []
    missing: list[tuple[str, RunSpec]] = []
    keys = [content_key(spec) for spec in specs]
    for key, spec in zip(keys, specs, strict=True):
        run, damage = store.load(key, spec)
        if damage:
            warnings.append(f"{damage}; its run was made again.")
        if run is None:
            missing.append((key, spec))
        else:
            done[key] = run
    reused = len(done)
    own = (
        workers
        if isinstance(workers, Workers)
        else Workers(min(len(missing), workers or os.cpu_count() or 1))
    )
    started(len(missing), reused, own.count)
    failures: list[Failure] = []
    if missing:
        if own is workers:
            _run_all(missing, store, own, done, failures, progress)
        else:
            try:
                _run_all(missing, store, own, done, failures, progress)
            finally:
                own.close()
    runs = tuple(done[key] for key in keys if key in done)
    return Outcome(runs, tuple(failures), reused, tuple(warnings))


def _run_all(
    missing: Sequence[tuple[str, RunSpec]],
    store: Store,
    workers: Workers,
    done: dict[str, Run],
    failures: list[Failure],
    progress: Callable[[], None],
) -> None:
    futures: dict[concurrent.futures.Future[Run | str], tuple[str, RunSpec]] = {}
    try:
        futures = {workers.submit(spec): (key, spec) for key, spec in missing}
        successes = 0
        for future in concurrent.futures.as_completed(futures):
            key, spec = futures[future]
            try:
                result = future.result()
            except concurrent.futures.process.BrokenProcessPool:
                raise MeasureError(
                    "a worker process died (out of memory, or ended from outside); finished runs are kept: start again"
                ) from None
            if isinstance(result, str):
                store.save_failure(key, spec, result)
                failures.append(Failure(spec, result))
                if len(failures) >= 3 and not successes:
                    for other in futures:
                        other.cancel()
                    return
            else:
                store.save(key, result)
                done[key] = result
                successes += 1
            progress()
    except BaseException as error:
        finished = [
            (key, future) for future, (key, _) in futures.items() if key not in done and future.done()
        ]
        workers.end()
        if isinstance(error, KeyboardInterrupt):
            _keep(finished, store)
        raise


def _keep(finished: Sequence[tuple[str, concurrent.futures.Future[Run | str]]], store: Store) -> None:
    """Store the runs that ended before an interruption and were not looked at yet."""
    for key, future in finished:
        if not future.cancelled() and not future.exception():
            result = future.result()
            if isinstance(result, Run):
                store.save(key, result)
