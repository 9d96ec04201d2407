"""Makes the runs of a plan that are not there yet, several at once, and keeps each as it ends."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from measure.errors import MeasureError, RunError
from measure.plan import content_key
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


def _prepare_worker() -> None:
    # Ctrl-C reaches every process of the terminal: the parent decides, workers finish or are ended by it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A worker whose parent was killed would wait for work for ever: nobody closes its queue."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    multiprocessing.connection.wait([parent.sentinel])
    os._exit(1)


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
        self._count = count or os.cpu_count() or 1
        self._pool: concurrent.futures.ProcessPoolExecutor | None = None

    def submit(self, spec: RunSpec) -> concurrent.futures.Future[Run | str]:
        """Make a run: the run, or the reason why there is none."""
        if self._pool is None:
            # Fresh processes: the emulator has threads and signal handlers, which a fork would copy in mid-air.
            self._pool = concurrent.futures.ProcessPoolExecutor(
                self._count, mp_context=multiprocessing.get_context("spawn"), initializer=_prepare_worker
            )
        return self._pool.submit(_execute, spec)

    def close(self) -> None:
        """Let them go when they are done with what they are at; the rest is not begun."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def end(self) -> None:
        """Stop them now: nothing that they are in the middle of is kept anyway."""
        if self._pool is not None:
            processes = list((self._pool._processes or {}).values())
            self._pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.terminate()
            self._pool = None


def execute_plan(
    specs: Sequence[RunSpec],
    store: Store,
    *,
    workers: Workers | int | None = None,
    started: Callable[[int, int], None] = lambda to_do, there: None,
    progress: Callable[[], None] = lambda: None,
) -> Outcome:
    """Make what is missing of ``specs``. Every finished run is stored before the next is waited for.

    A run that fails does not stop the others; after three failures and no success the rest is given up.
    ``workers``: how many at once (default: one a processor), or `Workers` that are used again.
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
    started(len(missing), reused)
    failures: list[Failure] = []
    if missing:
        if isinstance(workers, Workers):
            _run_all(missing, store, workers, done, failures, progress)
        else:
            own = Workers(min(len(missing), workers or os.cpu_count() or 1))
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
    except BaseException:
        workers.end()
        raise
