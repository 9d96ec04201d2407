"""Workers of a Dask cluster that make runs, in the place of this machine's own processes (`executor.Workers`).

Files travel by content: a worker gets a file once, before the first run that needs it. Only workers that would give the
same traces as this machine, to the bit, get runs: they are asked for their identity, and those that pass get a resource
that every run requires. A thread looks for workers that come later, such as those that Dask starts in the place of dead
ones. Traces come back to this process, which alone writes to the store.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from instrumenter.errors import InstrumenterError
from measure.arguments import not_expected
from measure.cluster import worker_side
from measure.cluster.alignment import Similarities, Tile, aligner_with
from measure.cluster.identity import difference, digest, machine_identity
from measure.cluster.shipment import Packer
from measure.console.worker_pool import main_module_hidden
from measure.errors import CampaignError, MeasureError, RunError
from measure.perturbation.similarity import Aligner, SimilarityRule
from measure.run_types import Run, RunSpec
from measure.runs.executor import Workers

if TYPE_CHECKING:
    from distributed import Client

LOCAL = "local"
_LOOK_SECONDS = 1.0  # between two looks for new workers
_CONNECT_SECONDS = 15.0
_NO_WORKER_SECONDS = 60.0  # before a cluster without a usable worker is reported
_MOST_DEATHS = 8  # of workers under one run, before the run counts as their cause
_ANSWER_SECONDS = 30.0  # that a worker may take to answer: one that died may never do
_LOST_LOOKS = 5  # in a row that find a run at no worker, before it is submitted anew
_AHEAD = 4  # runs that wait at the scheduler for each worker: more only take memory there


class ClusterError(MeasureError):
    """The cluster cannot be reached, has no usable worker, or is gone."""


WITHOUT_PROFILER = {"distributed.worker.profile.enabled": False}
"""A setting of Dask: its profiler interrupts a worker's run a hundred times a second, which takes some 5% of it."""


def connect(scheduler: str | Client, notify: Callable[[str], None] = lambda text: None) -> DaskWorkers:
    """Workers of the cluster at ``scheduler``: ``tcp://HOST:PORT``, ``local:N`` for N processes on this machine, or a
    client. ``notify`` gets sentences on workers that are not used.

    Raises `CampaignError` for text that is neither, `ClusterError` when there is no cluster or no usable worker.
    """
    try:
        from dask import config as dask_config
        from distributed import Client, LocalCluster
    except ImportError:
        raise CampaignError(
            "--scheduler needs Dask, which is not installed: pip install '.[dask]' in the checkout that this "
            "project was installed from, or run without it"
        ) from None
    if isinstance(scheduler, Client):
        return DaskWorkers(scheduler, [], notify)
    if not isinstance(scheduler, str):  # of a library call: a command has text
        raise not_expected(
            "client", scheduler, "a Dask client, or the address of a scheduler, tcp://HOST:PORT or local:N"
        )
    kind, _, rest = scheduler.partition(":")
    opened: list[Any] = []
    try:
        if kind == LOCAL:
            if not rest.isdecimal() or not int(rest):
                raise CampaignError(f"got the scheduler {scheduler!r}, expected local:N with N processes, as local:4")
            with main_module_hidden(), dask_config.set(WITHOUT_PROFILER):
                cluster: Any = LocalCluster(
                    n_workers=int(rest), threads_per_worker=1, dashboard_address=":0", silence_logs=50
                )
            opened.append(cluster)
            client = Client(cluster, set_as_default=False)
        elif "://" in scheduler:
            client = Client(scheduler, timeout=_CONNECT_SECONDS, set_as_default=False)
        else:
            raise CampaignError(f"got the scheduler {scheduler!r}, expected tcp://HOST:PORT or local:N")
    except (OSError, ValueError) as error:
        for one in opened:
            one.close()
        raise ClusterError(
            f"no scheduler answers at {scheduler} ({error}): start it with `dask scheduler`, and workers with "
            "`dask worker ADDRESS --nworkers auto --nthreads 1`"
        ) from None
    return DaskWorkers(client, [client, *opened], notify)


class RunFuture(Future[Run | RunError]):
    """A run on the cluster. Cancelling it takes it back from the scheduler, too."""

    def __init__(self, spec: RunSpec, take_back: Callable[[RunFuture], None]) -> None:
        super().__init__()
        self.spec, self.deaths = spec, 0
        self._take_back = take_back
        self.remote: Any = None

    def cancel(self) -> bool:
        cancelled = super().cancel()
        if cancelled:
            self._take_back(self)
        return cancelled


class DaskWorkers(Workers):
    """Makes runs through ``client``. ``owned``: what is closed at the end. See `connect`."""

    def __init__(self, client: Client, owned: list[Any], notify: Callable[[str], None]) -> None:
        super().__init__(1)
        self._client, self._owned, self._notify = client, owned, notify
        self._identity = machine_identity()
        self._resource = f"perturbation-{digest(self._identity)}"
        self._packer = Packer()
        self._admitted: set[str] = set()
        self._refused: set[str] = set()
        self._told_errors: set[type[Exception]] = set()  # of looks at the cluster
        self._had_none = False  # whether there was no worker that takes runs, since one was admitted
        self._lost_looks: dict[RunFuture, int] = {}  # in a row, by run that is at no worker
        self._waiting: list[RunFuture] = []  # not yet at the scheduler
        self._submitted: set[RunFuture] = set()
        self._lock = threading.RLock()  # held while files are sent, workers admitted, and runs submitted
        self._closed = threading.Event()
        try:
            self._admit()
        except BaseException:
            self.close()
            raise
        if not self._admitted:
            n_refused = len(self._refused)
            self.close()
            raise ClusterError(
                "the cluster has no worker"
                + (f" that can be used: {n_refused} refused" if n_refused else "")
                + "; start workers with `dask worker ADDRESS --nworkers auto --nthreads 1`, with the same versions "
                "installed and on the same kind of processor"
            )
        self.count = len(self._admitted)
        self._watcher = threading.Thread(target=self._watch, name="cluster", daemon=True)
        self._watcher.start()

    @property
    def addresses(self) -> frozenset[str]:
        """The workers that take runs now."""
        return frozenset(self._admitted)

    @property
    def local_pool(self) -> None:
        """There are no processes on this machine."""
        return None

    def prepare(self, target: str, machine: str) -> None:
        """Let every worker load what runs on ``target`` need, without waiting for it."""
        arguments: dict[str, Any] = {"workers": sorted(self._admitted), "on_error": "return"}
        threading.Thread(
            target=self._client.run, args=(worker_side.prepare, target, machine), kwargs=arguments, daemon=True
        ).start()

    def submit(self, spec: RunSpec) -> Future[Run | RunError]:
        """Make a run on any worker. Its future has a `ClusterError` when the scheduler is gone."""
        future = RunFuture(spec, self._take_back)
        with self._lock:
            self._waiting.append(future)
            self._feed()
        return future

    @property
    def aligner(self) -> Aligner:
        """Shares alignments with the cluster."""
        return aligner_with(self._submit_tile)

    def close(self) -> None:
        """Give back the connection, and end the cluster if it was started here."""
        self.end()

    def end(self) -> None:
        """Take back all runs, and close as `close` does."""
        self._closed.set()
        with self._lock:
            unfinished = [*self._waiting, *self._submitted]
            self._waiting.clear()
            self._submitted.clear()
        remote = [future.remote for future in unfinished if future.remote is not None]
        for future in unfinished:
            _end_with(future, ClusterError("the run was taken back: the connection to the cluster was closed"))
        with contextlib.suppress(Exception):  # the scheduler may be gone
            self._client.cancel(remote, force=True)
        for one in self._owned:
            with contextlib.suppress(Exception):
                one.close()
        self._owned = []

    # --- runs
    def _feed(self) -> None:
        """Submit waiting runs, as many as keep every worker busy."""
        while self._waiting and len(self._submitted) < _AHEAD * max(1, len(self._admitted)):
            future = self._waiting.pop(0)
            if not future.cancelled():
                try:
                    self._send(future)
                except (OSError, MeasureError, InstrumenterError) as error:
                    _end_with(future, ClusterError(f"the files of a run cannot be sent to the cluster: {error}"))

    def _send(self, future: RunFuture) -> None:
        known = len(self._packer.contents)
        shipment = self._packer.shipment(future.spec)
        if len(self._packer.contents) > known:
            self._give_files(self._admitted)
        self._submitted.add(future)
        future.remote = self._client.submit(
            worker_side.execute, future.spec, shipment, pure=False, resources={self._resource: 1}
        )
        future.remote.add_done_callback(lambda remote: self._ended(future, remote))

    def _ended(self, future: RunFuture, remote: Any) -> None:
        """Called in a thread of the client when the scheduler reports the end of a run."""
        with self._lock:
            if future not in self._submitted or future.remote is not remote:
                return
        from distributed.scheduler import KilledWorker

        again = False
        try:
            result = remote.result(timeout=_CONNECT_SECONDS) if remote.status != "cancelled" else None
            if result is None:
                _end_with(future, ClusterError("the scheduler is gone; finished runs are kept: start again"))
            else:
                _set(future, replace(result, spec=future.spec) if isinstance(result, Run) else result)
        except KilledWorker:
            future.deaths += 1
            again = future.deaths < _MOST_DEATHS
            if not again:
                died = f"{_MOST_DEATHS} times its worker died: of too little memory, or ended from outside"
                _set(future, RunError(died))
        except Exception as error:
            # Of a worker that died after its run, whose result was not fetched yet, Dask says that it was lost.
            future.deaths += 1
            again = future.deaths < _MOST_DEATHS and self._is_alive()
            if not again:
                _end_with(future, ClusterError(f"a run could not be made on the cluster: {error}"))
        with self._lock:
            self._submitted.discard(future)
            future.remote = None
            if again:
                self._waiting.insert(0, future)
            if not self._closed.is_set():
                self._feed()

    def _submit_tile(self, tile: Tile, how: SimilarityRule) -> Future[Similarities]:
        """Let a worker align the runs of a tile. The future ends when the worker does; it fails when that fails."""
        future: Future[Similarities] = Future()
        remote = self._client.submit(
            worker_side.align, tile.runs, tile.couples, how, pure=False, resources={self._resource: 1}
        )

        def ended(remote: Any) -> None:
            with contextlib.suppress(InvalidStateError):
                try:
                    future.set_result(remote.result(timeout=_CONNECT_SECONDS))
                except Exception as error:  # Dask has many errors; the caller makes the tile itself
                    future.set_exception(error)

        def cancelled(future: Future[Similarities]) -> None:
            if future.cancelled():
                with contextlib.suppress(Exception):
                    self._client.cancel([remote], force=True)

        remote.add_done_callback(ended)
        future.add_done_callback(cancelled)
        return future

    def _is_alive(self) -> bool:
        return self._client.status == "running"

    def _take_back(self, future: RunFuture) -> None:
        remote = future.remote
        if remote is not None:
            with contextlib.suppress(Exception):
                self._client.cancel([remote], force=True)
        with self._lock:
            self._submitted.discard(future)

    # --- workers
    def _watch(self) -> None:
        """Admit workers as they come; report when there is none for long."""
        without_since = time.monotonic()
        told = False
        while not self._closed.wait(_LOOK_SECONDS):
            for look in (self._admit, self._find_lost):
                try:
                    look()
                except Exception as error:
                    self._tell_once(error)
            if self._admitted or not self._is_alive():
                without_since, told = time.monotonic(), False
            elif not told and time.monotonic() - without_since > _NO_WORKER_SECONDS:
                told = True
                self._notify("The cluster has no usable worker: runs wait until there is one")

    def _tell_once(self, error: Exception) -> None:
        """Tell of an error of a look at the cluster, if it is the first of its type: the next look comes soon.

        Workers and the scheduler may go at any moment, for which Dask has many errors, with addresses in them. But an
        error that stays would let a campaign wait in silence.
        """
        if type(error) not in self._told_errors and self._is_alive() and not self._closed.is_set():
            self._told_errors.add(type(error))
            self._notify(f"A look at the cluster's workers failed, and is repeated: {type(error).__name__}: {error}")

    def _admit(self) -> None:
        """Ask new workers for their identity, send the files so far to those that are used, and let them take runs."""
        there = set(self._client.scheduler_info(n_workers=-1)["workers"])
        with self._lock:
            self._admitted &= there
            self._had_none |= not self._admitted
            new = sorted(there - self._admitted - self._refused)
        if not new:
            return
        identities = self._ask(new, worker_side.identity)
        usable = []
        for address, theirs in identities.items():
            if not isinstance(theirs, dict | ImportError):
                continue  # it does not answer, or is gone again: it is asked anew
            why = difference(self._identity, theirs) if isinstance(theirs, dict) else _without_us(theirs)
            if why:
                self._refused.add(address)
                self._notify(f"The worker {address} is not used: {why}")
            else:
                usable.append(address)
        with self._lock:
            self._give_files(usable)
            given = self._ask(usable, worker_side.take_runs, self._resource)
            self._admitted |= {address for address, answer in given.items() if answer is True}
            if self._admitted and self._had_none:
                self._submit_anew()
                self._had_none = False
            self._feed()

    def _submit_anew(self) -> None:
        """Submit runs again that no worker could take: Dask looks at them when a worker joins, which is before it has
        the resource, and not when it gets it."""
        self._submit_again(
            [future for future in self._submitted if future.remote is not None and future.remote.status == "pending"]
        )

    def _find_lost(self) -> None:
        """Submit runs again that no worker has for several looks, although there are workers that take runs."""
        with self._lock:
            waiting = [future for future in self._submitted if future.remote is not None]
            if not self._admitted or not waiting:
                self._lost_looks.clear()
                return
        at_workers = {key for keys in self._client.processing().values() for key in keys}
        with self._lock:
            looks = {
                future: self._lost_looks.get(future, 0) + 1
                for future in waiting
                if future.remote is not None and future.remote.status == "pending"
                and future.remote.key not in at_workers and future in self._submitted
            }  # fmt: skip
            lost = [future for future, count in looks.items() if count >= _LOST_LOOKS]
            self._lost_looks = {future: count for future, count in looks.items() if count < _LOST_LOOKS}
            if lost:
                self._submit_again(lost)
                self._feed()

    def _submit_again(self, stuck: list[RunFuture]) -> None:
        """Take runs back from the scheduler, and let them wait to be submitted before all others."""
        remote = [future.remote for future in stuck]
        for future in stuck:
            future.remote = None
            self._submitted.discard(future)
        self._waiting[:0] = stuck
        if remote:
            self._client.cancel(remote, force=True)

    def _give_files(self, workers: Any) -> None:
        """Send the files that these workers do not have."""
        workers = sorted(workers)
        if not workers or not self._packer.contents:
            return
        answers = self._ask(workers, worker_side.missing_files, sorted(self._packer.contents))
        for address, names in answers.items():
            if isinstance(names, list) and names:
                contents = {name: self._packer.contents[name] for name in names}
                self._ask([address], worker_side.store_files, contents)

    def _ask(self, workers: list[str], function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
        """Answers of workers by address; an exception for one that cannot answer, and nothing from one that does not
        within `_ANSWER_SECONDS`."""
        if not workers:
            return {}
        try:
            answers: dict[str, Any] = self._client.run(
                function, *arguments, workers=workers, on_error="return", callback_timeout=_ANSWER_SECONDS
            )
            return answers
        except TimeoutError:
            if len(workers) == 1:
                return {}
        return {
            address: answer for one in workers for address, answer in self._ask([one], function, *arguments).items()
        }


def _without_us(error: ImportError) -> str:
    """Why a worker could not tell its identity."""
    return f"perturbation is not installed in its environment ({error})"


def _set(future: RunFuture, result: Run | RunError) -> None:
    with contextlib.suppress(InvalidStateError):
        future.set_result(result)


def _end_with(future: RunFuture, error: Exception) -> None:
    with contextlib.suppress(InvalidStateError):
        future.set_exception(error)
