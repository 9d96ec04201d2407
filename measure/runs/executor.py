"""Makes the runs of a plan that are not stored yet, several at once, and stores each as it ends."""

from __future__ import annotations

import concurrent.futures
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from measure.console.worker_pool import end_now, worker_pool
from measure.errors import FewRecordsError, MeasureError, RunError
from measure.perturbation.similarity import Aligner, align_in_threads
from measure.perturbation.wording import counted
from measure.run_types import BASELINE, HOST, Run, RunSpec
from measure.runs.plan import content_keys
from measure.runs.store import Store


@dataclass(frozen=True)
class Failure:
    """A run that failed, and why."""

    spec: RunSpec
    error: RunError

    @property
    def reason(self) -> str:
        """The error in words."""
        return str(self.error)


@dataclass(frozen=True)
class Outcome:
    """The runs of a plan after its execution. ``reused``: number of runs that were stored before; ``untried``: runs of
    the plan that neither are there nor failed."""

    runs: tuple[Run, ...]
    failures: tuple[Failure, ...]
    reused: int
    warnings: tuple[str, ...]
    untried: tuple[RunSpec, ...] = ()

    @property
    def failure(self) -> str:
        """A sentence on the runs that failed; empty when none did."""
        if not self.failures:
            return ""
        first, rest = self.failures[0], f" ({len(self.untried)} more were not tried)" if self.untried else ""
        failed = counted(len(self.failures), "run")
        return f"{failed} failed{rest}, the first of variant '{first.spec.variant}': {first.reason}"

    @property
    def incomplete(self) -> tuple[str, ...]:
        """Sentences on planned runs that were not tried, and on runs that failed."""
        planned = len(self.runs) + len(self.failures) + len(self.untried)
        sentences = []
        if self.untried:
            sentences.append(f"{len(self.untried)} of {planned} runs are missing: `measure run` makes them.")
        if self.failures:
            failed = Counter(one.spec.variant for one in self.failures)
            made = failed + Counter(run.spec.variant for run in self.runs)
            parts = ", ".join(f"{number} of {made[variant]} of {variant}" for variant, number in failed.items())
            again = "`measure run` tries them again"
            if any(one.spec.target != HOST for one in self.failures):
                again += ", but each fails again until the program, its input, the machine or `seed:` is another"
            sentences.append(
                f"{len(self.failures)} of {planned} runs failed ({parts}), and verdicts are of the others, which may "
                f"differ from them: {again}."
            )
        return tuple(sentences)

    @property
    def too_short(self) -> str:
        """Why no run was made, where the program is too short for the sampling interval; empty elsewhere."""
        short = [one.reason for one in self.failures if isinstance(one.error, FewRecordsError)]
        return short[0] if short and not self.runs else ""

    def check_complete(self) -> None:
        """For the end of a command, when its report is written: raises `MeasureError` if runs failed."""
        if self.failures:
            rest = f" and {len(self.untried)} were not tried" if self.untried else ""
            raise MeasureError(f"{counted(len(self.failures), 'run')} failed{rest}; the report is of the others")


def make_run(spec: RunSpec) -> Run | RunError:
    """In a worker: the run, or why it failed."""
    from measure.targets import target_named

    try:
        return target_named(spec.target).execute(spec)
    except RunError as error:
        return error


def _prepare(target: str, machine: str) -> None:
    """In a worker: load and compile what the first run needs."""
    from measure.targets import target_named

    target_named(target).prepare(machine)


class Workers:
    """Processes that make runs; started on first use, and reused until `close`.

    ``count``: default: one per processor. As a context manager, it is closed, or after an exception ended.
    """

    def __init__(self, count: int | None = None) -> None:
        self.count = count or os.cpu_count() or 1
        self._pool: concurrent.futures.ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *details: object) -> None:
        if kind is None:
            self.close()
        else:
            self.end()

    def prepare(self, target: str, machine: str) -> None:
        """Let every process load what runs on ``target`` need, without waiting for it.

        ``machine``: its description, as YAML text. Errors are left to the first run, which reports them.
        """
        for _ in range(self.count):
            self._started().submit(_prepare, target, machine)

    @property
    def aligner(self) -> Aligner:
        """What aligns pairs of runs: threads of this process, which need no copies of traces."""
        return align_in_threads

    @property
    def local_pool(self) -> concurrent.futures.ProcessPoolExecutor | None:
        """The processes, for other work between runs; None where they are on other machines."""
        return self._started()

    def submit(self, spec: RunSpec) -> concurrent.futures.Future[Run | RunError]:
        """Make a run; the future's result is the run, or why it failed."""
        return self._started().submit(make_run, spec)

    def _started(self) -> concurrent.futures.ProcessPoolExecutor:
        if self._pool is None:
            self._pool = worker_pool(self.count)
        return self._pool

    def close(self) -> None:
        """Let the processes finish their current runs and end; runs that were not begun are cancelled."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def end(self) -> None:
        """Stop the processes at once; their unfinished runs are lost."""
        if self._pool is not None:
            pool, self._pool = self._pool, None
            end_now(pool)


def execute_plan(
    specs: Sequence[RunSpec],
    store: Store,
    *,
    keys: Sequence[str] | None = None,
    workers: Workers | int | None = None,
    started: Callable[[int, int, int], None] = lambda to_do, there, at_once: None,
    progress: Callable[[], None] = lambda: None,
) -> Outcome:
    """Make those of ``specs`` that are not stored. Every finished run is stored before the next is waited for.

    Specs with one key, as of two variants with the same metrics, are made once, and each has the run as its own.

    A run that fails does not stop the others. Only while none has succeeded, now or before, is the rest given up: after
    three failures, a baseline's among them if there is one to make (counters alone may fail), and at once if the first
    run that ends has too few records, as the others would have, as well.
    ``keys``: `content_keys` of the specs, if the caller has them. ``workers``: runs at once (default: one per
    processor), or `Workers` to reuse. ``started`` is called with the number of runs to make, the number of stored ones,
    and the number made at once; ``progress`` after each run.
    Ctrl-C, SIGTERM and a time limit end the workers; finished runs are kept.
    """
    done: dict[str, Run] = {}
    warnings: list[str] = []
    missing: list[tuple[str, RunSpec]] = []
    keys = content_keys(specs) if keys is None else keys
    unique: dict[str, RunSpec] = {}
    for key, spec in zip(keys, specs, strict=True):
        unique.setdefault(key, spec)
    for key, spec in unique.items():
        run, damage = store.load(key, spec)
        if damage:
            warnings.append(f"{damage}; its run was made again.")
        if run is None:
            missing.append((key, spec))
        else:
            done[key] = run
    reused = sum(key in done for key in keys)
    own = workers if isinstance(workers, Workers) else Workers(min(len(missing), workers or os.cpu_count() or 1))
    started(len(missing), reused, own.count)
    errors: dict[str, RunError] = {}
    if missing:
        if own is workers:
            _run_all(missing, store, own, done, errors, progress)
        else:
            try:
                _run_all(missing, store, own, done, errors, progress)
            finally:
                own.close()
    runs = tuple(replace(done[key], spec=spec) for key, spec in zip(keys, specs, strict=True) if key in done)
    failed = [Failure(spec, errors[key]) for key, spec in zip(keys, specs, strict=True) if key in errors]
    untried = tuple(spec for key, spec in zip(keys, specs, strict=True) if key not in done and key not in errors)
    return Outcome(runs, tuple(failed), reused, tuple(warnings), untried)


def _run_all(
    missing: Sequence[tuple[str, RunSpec]],
    store: Store,
    workers: Workers,
    done: dict[str, Run],
    errors: dict[str, RunError],
    progress: Callable[[], None],
) -> None:
    """Make the ``missing`` runs; fills ``done`` and ``errors``, why runs failed, and stores each run as it ends."""
    futures: dict[concurrent.futures.Future[Run | RunError], tuple[str, RunSpec]] = {}
    baselines = {key for key, spec in missing if spec.variant == BASELINE}
    try:
        futures = {workers.submit(spec): (key, spec) for key, spec in missing}
        for future in concurrent.futures.as_completed(futures):
            key, spec = futures[future]
            try:
                result = future.result()
            except concurrent.futures.process.BrokenProcessPool:
                raise MeasureError(
                    "a worker process died (out of memory, or ended from outside); finished runs are kept: start again"
                ) from None
            if isinstance(result, RunError):
                store.save_failure(key, spec, str(result))
                errors[key] = result
                all_fail = len(errors) >= 3 and (not baselines or not baselines.isdisjoint(errors))
                if not done and (all_fail or isinstance(result, FewRecordsError)):
                    for other in futures:
                        other.cancel()
                    _keep(_finished(futures, done), store)
                    return
            else:
                store.save(key, result)
                done[key] = result
            progress()
    except BaseException as error:
        finished = _finished(futures, done)
        workers.end()
        if isinstance(error, KeyboardInterrupt):
            _keep(finished, store)
        raise


def _finished(
    futures: Mapping[concurrent.futures.Future[Run | RunError], tuple[str, RunSpec]], done: Mapping[str, Run]
) -> list[tuple[str, concurrent.futures.Future[Run | RunError]]]:
    """The ``futures`` that ended, with their keys, without those of runs that are ``done``."""
    return [(key, future) for future, (key, _) in futures.items() if key not in done and future.done()]


def _keep(finished: Sequence[tuple[str, concurrent.futures.Future[Run | RunError]]], store: Store) -> None:
    """Store the runs that ended before the others were given up and were not handled yet."""
    for key, future in finished:
        if not future.cancelled() and not future.exception():
            result = future.result()
            if isinstance(result, Run):
                store.save(key, result)
