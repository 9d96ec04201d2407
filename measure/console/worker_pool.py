"""Pools of worker processes that end with the command, however it ends."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
import time
import types
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any

from common.interrupts import TERMINATED, Terminated, terminable

_starting = threading.Lock()  # of processes
_closing = threading.Lock()  # of what results are sent by
_GRACE_SECONDS = 5.0  # for a worker to end its own children
_CHECK_SECONDS = 1.0  # between looks for workers that died


def worker_pool(count: int) -> ProcessPoolExecutor:
    """``count`` processes. They are spawned, not forked: the emulator has threads and signal handlers, which a fork
    would copy."""
    return _Pool(count, _Context(), _prepare_worker)


@contextmanager
def main_module_hidden() -> Iterator[None]:
    """A context in which processes are started without the caller's script."""
    with _starting:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = types.ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = main


class _Process(SpawnProcess):
    """A fresh process that does not run the caller's script again.

    multiprocessing imports the main module in each process that it starts, for what the module defines. Workers need
    nothing of it, and a script without ``if __name__ == "__main__"`` would start itself over and over.
    """

    @staticmethod
    def _Popen(process_obj: Any) -> Any:
        # A Ctrl-C waits until the new process ignores it; another thread of this one takes it meanwhile.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            with main_module_hidden():
                return SpawnProcess._Popen(process_obj)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Context(SpawnContext):
    Process = _Process


class _Pool(ProcessPoolExecutor):
    """A pool that breaks also when a worker dies while it sends a result.

    The thread of an executor reads results: it would wait for the rest of this one, and the other workers for their
    turn to send.
    """

    _guard: threading.Thread | None = None

    def submit(self, *arguments: Any, **options: Any) -> Future[Any]:
        future = super().submit(*arguments, **options)
        if self._guard is None:
            reader, processes, results = self._executor_manager_thread, self._processes, self._result_queue
            # No daemon: the end of Python would stop it while it frees the pool's semaphores, and tell of a leak.
            self._guard = threading.Thread(target=_end_with_first, args=(reader, processes, results))
            self._guard.start()
        return future


def end_now(pool: ProcessPoolExecutor) -> None:
    """End the workers at once, and their work with them; they are gone when this returns."""
    processes, results = list((pool._processes or {}).values()), pool._result_queue
    pool.shutdown(wait=False, cancel_futures=True)
    _end(processes, results)


def _end(processes: Sequence[Any], results: Any) -> None:
    """End ``processes``, and what waits for the rest of a result that one of them was sending."""
    for process in processes:
        process.terminate()
    if not _all_gone(processes, _GRACE_SECONDS):
        for process in processes:
            process.kill()
        _all_gone(processes, _GRACE_SECONDS)
    if results is not None:  # the pool was not ended before
        _close(results._writer)  # this process has the last one; the end of Python waits for the pool's thread


def _close(connection: Any) -> None:
    """Close a connection that another thread closes, too, as soon as its other end sees the end of it.

    Its own method forgets the descriptor only after it is closed: by then it may be that of another file.
    """
    with _closing:
        descriptor, connection._handle = connection._handle, None
    if descriptor is not None:
        os.close(descriptor)


def _end_with_first(reader: threading.Thread, processes: dict[int, Any], results: Any) -> None:
    """End ``processes`` when one of them has died and ``reader``, the thread of their pool, does not."""
    while reader.is_alive():
        workers = list(processes.values())
        multiprocessing.connection.wait([worker.sentinel for worker in workers], _CHECK_SECONDS)
        if any(worker.exitcode for worker in workers):
            reader.join(_GRACE_SECONDS)
            if reader.is_alive():
                _end(list(processes.values()), results)  # some may have started meanwhile
            return
        reader.join(_CHECK_SECONDS)


@contextmanager
def ending_with_worker() -> Iterator[None]:
    """In a worker, around work with child processes such as the compiler: `end_now` ends these, too."""
    try:
        with terminable():
            yield
    except Terminated:
        os._exit(TERMINATED)  # the pool's next work in this process is not wanted either


def _all_gone(processes: Sequence[Any], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    alive = {process.sentinel for process in processes}
    while alive:
        ended = multiprocessing.connection.wait(alive, max(0.0, deadline - time.monotonic()))
        if not ended:
            return False
        alive.difference_update(ended)
    return True


def _prepare_worker() -> None:
    # Ctrl-C reaches every process of the terminal; the parent handles it, and ends workers by SIGTERM.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End a worker whose parent was killed: its queue stays open, and it would wait for work forever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    multiprocessing.connection.wait([parent.sentinel])
    os._exit(1)
