"""poll and select: system calls that wait for descriptors.

Every public function handles the system call of that name.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from emulator.linux.kernel.clock import NANOSECONDS
from emulator.linux.kernel.task import Task
from emulator.linux.kernel.waits import Wait, WhenStopped
from emulator.linux.vfs.descriptor_table import MAX_DESCRIPTORS
from emulator.linux.vfs.open_files import POLLERR, POLLHUP, POLLIN, POLLOUT

_POLLNVAL = 0x20
_POLLRDNORM, _POLLWRNORM = 0x40, 0x100


def ppoll(task: Task, requests: int, count: int, timeout: int, mask: int, size: int) -> int | Wait:
    if count > MAX_DESCRIPTORS:
        raise OSError(errno.EINVAL, "ppoll")
    until = _end_of_timeout(task, timeout)
    return wait_with_mask(task, _poll_requests, (task, requests, count), until, mask, size)


def _poll_requests(task: Task, requests: int, count: int) -> int | None:
    """Write the events of each ``struct pollfd``; the number of those with events, None without any."""
    found = 0
    for address in range(requests, requests + 8 * count, 8):
        fd, events = struct.unpack("<ih", task.memory.read(address, 6))
        result = _events(task, fd, events)
        task.memory.write_int(address + 6, 2, result)
        found += result != 0
    return found or None


class _Set(NamedTuple):
    """A set of descriptors that pselect6 gets: where it is, the poll events that it asks for, its bits."""

    address: int
    events: int
    requested: int


def pselect6(task: Task, count: int, reading: int, writing: int, failing: int, timeout: int, mask: int) -> int | Wait:
    if count > MAX_DESCRIPTORS:
        raise OSError(errno.EINVAL, "pselect6")
    n_bytes = _set_bytes(count)
    sets = [
        _Set(address, events, task.memory.read_int(address, n_bytes))
        for address, events in ((reading, POLLIN | POLLHUP), (writing, POLLOUT | POLLERR), (failing, 0))
        if address
    ]
    where, size = struct.unpack("<QQ", task.memory.read(mask, 16)) if mask else (0, 8)
    until = _end_of_timeout(task, timeout)
    return wait_with_mask(task, _select, (task, count, sets), until, where, size, _select_none)


def _select(task: Task, count: int, sets: list[_Set]) -> int | None:
    """Write the ready descriptors of each set and return their number; None without any."""
    states = {
        fd: task.descriptors.file(fd).poll() for fd in range(count) if any(one.requested >> fd & 1 for one in sets)
    }
    if not any(one.requested >> fd & 1 and state & one.events for fd, state in states.items() for one in sets):
        return None
    return _write_sets(task, count, sets, states)


def _select_none(task: Task, count: int, sets: list[_Set]) -> int:
    return _write_sets(task, count, sets, {})


def _write_sets(task: Task, count: int, sets: list[_Set], states: dict[int, int]) -> int:
    """Write the descriptors of each set whose ``states`` have one of its events; return their number."""
    total = 0
    for address, events, requested in sets:
        result = sum(1 << fd for fd in range(count) if requested >> fd & 1 and states.get(fd, 0) & events)
        task.memory.write_int(address, _set_bytes(count), result)
        total += result.bit_count()
    return total


def _set_bytes(count: int) -> int:
    return (count + 63) // 64 * 8


def _events(task: Task, fd: int, events: int) -> int:
    if fd < 0:
        return 0
    try:
        state = task.descriptors.file(fd).poll()
    except OSError:
        return _POLLNVAL
    if state & POLLIN:
        state |= _POLLRDNORM
    if state & POLLOUT:
        state |= _POLLWRNORM
    return state & (events | POLLERR | POLLHUP)


def _end_of_timeout(task: Task, timeout: int) -> int | None:
    """The end of the timeout at address ``timeout`` in elapsed nanoseconds; None without one. Raises OSError."""
    if not timeout:
        return None
    seconds, nanoseconds = struct.unpack("<qq", task.memory.read(timeout, 16))
    if seconds < 0 or not 0 <= nanoseconds < NANOSECONDS:
        raise OSError(errno.EINVAL, "timeout")
    return task.clock.elapsed() + int(seconds * NANOSECONDS + nanoseconds)


@dataclass(frozen=True)
class _MaskedCall:
    """A call that waits with another signal mask. ``mask``: the one to restore; ``at_timeout``: None for result 0."""

    task: Task
    retry: Callable[..., int | None]
    arguments: tuple[Any, ...]
    mask: int
    at_timeout: Callable[..., int] | None


def wait_with_mask(
    task: Task, retry: Callable[..., int | None], arguments: tuple[Any, ...], until: int | None, mask: int,
    size: int, at_timeout: Callable[..., int] | None = None,
    when_stopped: WhenStopped = WhenStopped.PAUSES_TIMEOUT,
) -> int | Wait:  # fmt: skip
    """The result of ``retry(*arguments)`` if it is not None; else a `Wait` for it.

    During the wait the signal mask at address ``mask`` applies (0: the current one); at the timeout ``at_timeout``,
    called with the same arguments, gives the result. Raises OSError(EINVAL) for another ``size`` of the mask than 8."""
    if mask and size != 8:
        raise OSError(errno.EINVAL, "sigset size")
    replacement = task.memory.read_int(mask, 8) if mask else None
    result = retry(*arguments)
    if result is not None:
        return result
    call = _MaskedCall(task, retry, arguments, task.signals.mask, at_timeout)
    if replacement is not None:
        task.signals.set_mask(replacement)
    return Wait(
        _retry_masked, call, until=until, at_timeout=_end_masked, if_interrupted=_keep_mask,
        when_stopped=when_stopped,
    )  # fmt: skip


def _retry_masked(call: _MaskedCall) -> int | None:
    found = call.retry(*call.arguments)
    if found is not None:
        call.task.signals.set_mask(call.mask)
    return found


def _end_masked(call: _MaskedCall) -> int:
    call.task.signals.set_mask(call.mask)
    return 0 if call.at_timeout is None else call.at_timeout(*call.arguments)


def _keep_mask(call: _MaskedCall) -> None:
    """The frame of the signal's handler restores the mask."""
    call.task.signals.mask_to_restore = call.mask
