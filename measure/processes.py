"""Pools of worker processes that end with the command, whatever ends it."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

_GRACE_SECONDS = 5.0  # for a worker to end its own children


def worker_pool(
    count: int, prepare: Callable[..., None] | None = None, arguments: tuple[Any, ...] = ()
) -> ProcessPoolExecutor:
    """``count`` processes, each of which calls ``prepare`` with ``arguments`` first.

    Fresh processes: the emulator has threads and signal handlers, which a fork would copy in mid-air.
    """
    return ProcessPoolExecutor(
        count, multiprocessing.get_context("spawn"), _prepare_worker, (prepare, arguments)
    )


def end_now(pool: ProcessPoolExecutor) -> None:
    """End the workers, without the work that they are in the middle of; they are gone when this returns."""
    processes = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()
    if not _all_gone(processes, _GRACE_SECONDS):
        for process in processes:
            process.kill()
        _all_gone(processes, _GRACE_SECONDS)


def _all_gone(processes: list[Any], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    alive = {process.sentinel for process in processes}
    while alive:
        ended = multiprocessing.connection.wait(alive, max(0.0, deadline - time.monotonic()))
        if not ended:
            return False
        alive.difference_update(ended)
    return True


def _prepare_worker(prepare: Callable[..., None] | None, arguments: tuple[Any, ...]) -> None:
    # Ctrl-C reaches every process of the terminal: the parent decides, and ends workers by SIGTERM.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if prepare is not None:
        prepare(*arguments)


def _end_with_parent() -> None:
    """End a worker whose parent was killed: its queue stays open, and it would wait for work for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    multiprocessing.connection.wait([parent.sentinel])
    os._exit(1)
