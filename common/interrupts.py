"""Interruptions of a command: Ctrl-C, SIGTERM, a time limit. All are `KeyboardInterrupt`: code safe for Ctrl-C is safe.

Signals reach only the main thread. In other threads `terminable` does nothing, and a `TimeLimit` acts only in `set`.
What is raised in a destructor or a callback of the garbage collector, Python drops; it is raised once more then. An
extension module whose import is interrupted may raise an `ImportError` from it; the interruption is raised then.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

INTERRUPTED = 130  # 128 plus the signal's number, as in shells
TERMINATED = 143
_SAME_SECONDS = 1.0  # between two Ctrl-C
_AGAIN_SECONDS = 0.01  # after which a destructor may have ended


class Terminated(KeyboardInterrupt):
    """SIGTERM was received."""


class OutOfTime(KeyboardInterrupt):
    """A `TimeLimit` is reached."""


def exit_status(error: BaseException) -> int:
    """The exit status of a command that ``error`` interrupted."""
    return TERMINATED if isinstance(error, Terminated) else INTERRUPTED


@contextmanager
def terminable() -> Iterator[None]:
    """Within it SIGTERM raises `Terminated`, once: a second SIGTERM does not interrupt the cleanup."""
    if not _is_main():
        yield
        return

    def end(number: int, frame: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        with _raised_if_dropped(Terminated, signal.SIGTERM, lambda: signal.signal(signal.SIGTERM, end)):
            yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def interruptible() -> Iterator[None]:
    """Around a whole command: Ctrl-C raises `KeyboardInterrupt`, once; a later one ends the process at once.

    Within a second it is the same Ctrl-C, which a process between may have passed on. An exception amid the cleanup
    could leave locks that the end of Python waits for.
    """
    if not _is_main() or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    first: float | None = None

    def interrupt(number: int, frame: Any) -> None:
        nonlocal first
        if first is None:
            first = time.monotonic()
            raise KeyboardInterrupt
        if time.monotonic() > first + _SAME_SECONDS:
            os._exit(INTERRUPTED)

    def forget() -> None:
        nonlocal first
        first = None

    signal.signal(signal.SIGINT, interrupt)
    try:
        with _raised_if_dropped(KeyboardInterrupt, signal.SIGINT, forget):
            yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class TimeLimit:
    """Raises `OutOfTime` at a moment of `time.monotonic`, which `set` changes; None: never."""

    def __init__(self) -> None:
        self._deadline: float | None = None

    def set(self, deadline: float | None) -> None:
        """Change the limit. Raises `OutOfTime` at once when the moment is past."""
        self._deadline = deadline
        left = None if deadline is None else deadline - time.monotonic()
        if _is_main():
            signal.setitimer(signal.ITIMER_REAL, 0.0 if left is None else max(left, 0.0))
        if left is not None and left <= 0:
            raise OutOfTime

    def _alarm(self, number: int, frame: Any) -> None:
        if self._deadline is not None and time.monotonic() >= self._deadline:
            raise OutOfTime


@contextmanager
def time_limit(deadline: float | None) -> Iterator[TimeLimit]:
    """A `TimeLimit` for the ``with`` block. `OutOfTime` may be raised as late as at its end."""
    limit = TimeLimit()
    if not _is_main():
        limit.set(deadline)
        yield limit
        return
    before = signal.signal(signal.SIGALRM, limit._alarm)
    try:
        with _raised_if_dropped(OutOfTime, signal.SIGALRM):
            limit.set(deadline)
            yield limit
    finally:
        limit.set(None)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _raised_if_dropped(
    kind: type[BaseException], number: int, prepare: Callable[[], object] = lambda: None
) -> Iterator[None]:
    """Within it the signal ``number`` comes again, after ``prepare``, when Python drops the exception ``kind`` of its
    handler; at its end the exception is raised, if the signal has not come by then, or if it caused another error."""
    before, main = sys.unraisablehook, threading.main_thread().ident
    assert main is not None
    coming: list[threading.Timer] = []

    def hook(dropped: Any) -> None:
        if dropped.exc_type is not kind:
            before(dropped)
            return
        prepare()
        coming.append(threading.Timer(_AGAIN_SECONDS, signal.pthread_kill, (main, number)))
        coming[-1].start()

    sys.unraisablehook = hook
    try:
        yield
        if any(not timer.finished.is_set() for timer in coming):
            raise kind
    except Exception as error:
        if _is_caused_by(error, kind):
            raise kind from error
        raise
    finally:
        sys.unraisablehook = before
        for timer in coming:
            timer.cancel()
            timer.join()


def _is_caused_by(error: BaseException | None, kind: type[BaseException]) -> bool:
    """Whether an exception was raised from one of ``kind``."""
    while error is not None and not isinstance(error, kind):
        error = error.__cause__
    return error is not None


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()
