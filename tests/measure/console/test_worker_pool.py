"""Pools of worker processes end, also when a worker was sending a result."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest

from measure.console.worker_pool import end_now, worker_pool


def send_a_part(sending: Path, dies: bool) -> None:
    """In a worker: begin to send a result, then die or do not go on."""
    frame = sys._getframe()
    while "result_queue" not in frame.f_locals:
        assert frame.f_back
        frame = frame.f_back
    results = frame.f_locals["result_queue"]
    results._wlock.acquire()
    os.write(results._writer.fileno(), (1000).to_bytes(4, "big") + b"a part of the 1000 bytes")
    sending.touch()
    if dies:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(1000)


def wait_for(file: Path) -> None:
    deadline = time.monotonic() + 60
    while not file.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_pool_ends_while_a_worker_sends_a_result(tmp_path: Path) -> None:
    pool = worker_pool(2)
    future = pool.submit(send_a_part, tmp_path / "sending", False)
    reader: Any = pool._executor_manager_thread
    wait_for(tmp_path / "sending")
    end_now(pool)
    reader.join(60)
    assert not reader.is_alive()  # or this process would never end
    assert isinstance(future.exception(), BrokenProcessPool)
    end_now(pool)


def test_a_worker_that_dies_while_it_sends_a_result_breaks_the_pool(tmp_path: Path) -> None:
    with worker_pool(2) as pool:
        first = pool.submit(send_a_part, tmp_path / "sending", True)
        wait_for(tmp_path / "sending")
        other = pool.submit(time.sleep, 0.1)  # which cannot send its result either
        for future in (first, other):
            with pytest.raises(BrokenProcessPool):
                future.result(60)


def test_what_results_are_sent_by_is_closed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when a thread that closes it is stopped right after: the end of the pool, which closes it, comes then."""
    close = os.close

    def close_and_stop(descriptor: int) -> None:
        close(descriptor)
        time.sleep(0.5)

    with worker_pool(1) as pool:
        future = pool.submit(send_a_part, tmp_path / "sending", True)
        results: Any = pool._result_queue
        results._writer._close = lambda: close_and_stop(results._writer._handle)
        monkeypatch.setattr(os, "close", close_and_stop)
        with pytest.raises(BrokenProcessPool):
            future.result(60)


SLOW_TO_FREE_SEMAPHORES = """
import threading, time
from multiprocessing import resource_tracker
from measure.console.worker_pool import end_now, worker_pool

def unregister(name, kind, known=resource_tracker.unregister):
    if threading.current_thread() is not threading.main_thread():
        time.sleep(0.3)
    known(name, kind)

if __name__ == "__main__":
    resource_tracker.unregister = unregister
    pool = worker_pool(1)
    pool.submit(abs, -1).result()
    end_now(pool)
    del pool
    time.sleep(0.5)  # now a thread of the pool frees them
"""


def test_python_ends_after_the_semaphores_of_a_pool_are_freed(tmp_path: Path) -> None:
    """Or a command that SIGTERM ends tells of leaked semaphores after its own message."""
    (tmp_path / "script.py").write_text(SLOW_TO_FREE_SEMAPHORES)
    ended = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_ctrl_c_does_not_reach_a_worker_that_starts() -> None:
    with worker_pool(1) as pool:
        future = pool.submit(abs, -1)
        (worker,) = pool._processes
        os.kill(worker, signal.SIGINT)
        assert future.result(60) == 1
