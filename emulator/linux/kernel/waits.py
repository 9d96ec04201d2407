"""Waits: what a system call returns that cannot give its result yet."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from emulator.linux.kernel.clock import LAST_NANOSECONDS

Result = int | None
"""The result of a system call; None: the registers of the hart already hold it."""

_NO_EVENT = "the guest waits for ever: no timer and no other process will send it a signal"


class WhenStopped(Enum):
    """What a stop of the process does to a waiting system call (signal(7)): it continues with the same timeout, its
    timeout is paused, or it fails with EINTR."""

    CONTINUES = 0
    PAUSES_TIMEOUT = 1
    FAILS = 2


class Wait:
    """A system call that waits, as data: functions of a module, and the arguments that all of them get.

    ``retry``: gives the call's result when the wait is over, another `Wait` after progress, else None; it may raise
    `WouldBlock` instead. It is called after every event or, if ``is_notified``, only after `WaitQueue.notify`.
    ``until``: timeout in elapsed nanoseconds; None: no timeout. ``at_timeout``: gives the result then (default: 0).
    ``restartable``: whether the call may be restarted after a signal handler. ``if_interrupted``: called when a signal
    ends the call; gives its result, or None for EINTR. ``when_stopped``: what a stop of the process does to the call.
    ``deadlock``: the message if no event can ever end the wait.
    """

    def __init__(
        self,
        retry: Callable[..., int | Wait | None],
        *arguments: Any,
        until: int | None = None,
        at_timeout: Callable[..., int] | None = None,
        restartable: bool = False,
        if_interrupted: Callable[..., int | None] | None = None,
        when_stopped: WhenStopped = WhenStopped.CONTINUES,
        is_notified: bool = False,
        deadlock: str = _NO_EVENT,
    ) -> None:
        self.retry = retry
        self.arguments = arguments
        self.until = None if until is None else min(until, LAST_NANOSECONDS)
        self.at_timeout = at_timeout
        self.restartable = restartable
        self.if_interrupted = if_interrupted
        self.when_stopped = when_stopped
        self.is_notified = is_notified
        self.deadlock = deadlock

    def result(self) -> int | Wait | None:
        """The result if the wait is over, else None. Raises OSError, `MemoryFault` and `MemoryLimit`."""
        return self.retry(*self.arguments)

    def result_at_timeout(self) -> int:
        return 0 if self.at_timeout is None else self.at_timeout(*self.arguments)

    def result_if_interrupted(self) -> int | None:
        """The result of a call that a signal ends; None for EINTR, or to restart it."""
        return None if self.if_interrupted is None else self.if_interrupted(*self.arguments)


def never(*arguments: object) -> None:
    """The ``retry`` of a wait that only a timeout or a signal ends."""
