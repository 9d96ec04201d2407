"""poll and select: system calls that wait for descriptors. Every public method is the system call of that name."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable

from emulator.linux.kernel.clock import NANOSECONDS, VirtualClock
from emulator.linux.kernel.signals import SignalState
from emulator.linux.kernel.tasks import Wait, WhenStopped
from emulator.linux.vfs.descriptor_table import MAX_DESCRIPTORS, DescriptorTable
from emulator.linux.vfs.open_files import POLLERR, POLLHUP, POLLIN, POLLOUT
from emulator.memory import GuestMemory

_POLLNVAL = 0x20
_POLLRDNORM, _POLLWRNORM = 0x40, 0x100


class PollCalls:
    def __init__(
        self, memory: GuestMemory, descriptors: DescriptorTable, signals: SignalState, clock: VirtualClock
    ) -> None:
        self._memory = memory
        self._descriptors = descriptors
        self._signals = signals
        self._clock = clock

    def ppoll(self, requests: int, count: int, timeout: int, mask: int, size: int) -> int:
        if count > MAX_DESCRIPTORS:
            raise OSError(errno.EINVAL, "ppoll")

        def ready() -> int | None:
            found = 0
            for address in range(requests, requests + 8 * count, 8):
                fd, events = struct.unpack("<ih", self._memory.read(address, 6))
                result = self._events(fd, events)
                self._memory.write_int(address + 6, 2, result)
                found += result != 0
            return found or None

        return self._wait(ready, timeout, mask, size)

    def pselect6(self, count: int, reading: int, writing: int, failing: int, timeout: int, mask: int) -> int:
        if count > MAX_DESCRIPTORS:
            raise OSError(errno.EINVAL, "pselect6")
        n_bytes = (count + 63) // 64 * 8
        sets = [
            (address, events, self._memory.read_int(address, n_bytes))
            for address, events in ((reading, POLLIN | POLLHUP), (writing, POLLOUT | POLLERR), (failing, 0))
            if address
        ]
        where, size = struct.unpack("<QQ", self._memory.read(mask, 16)) if mask else (0, 8)

        def answer(found: Callable[[int, int], bool]) -> int:
            total = 0
            for address, events, requested in sets:
                result = sum(1 << fd for fd in range(count) if requested >> fd & 1 and found(fd, events))
                self._memory.write_int(address, n_bytes, result)
                total += result.bit_count()
            return total

        def ready() -> int | None:
            states = {
                fd: self._descriptors.file(fd).poll()
                for fd in range(count)
                if any(requested >> fd & 1 for _, _, requested in sets)
            }
            if not any(
                requested >> fd & 1 and state & events
                for fd, state in states.items()
                for _, events, requested in sets
            ):
                return None
            return answer(lambda fd, events: bool(states[fd] & events))

        return self._wait(ready, timeout, where, size, lambda: answer(lambda fd, events: False))

    def _events(self, fd: int, events: int) -> int:
        if fd < 0:
            return 0
        try:
            state = self._descriptors.file(fd).poll()
        except OSError:
            return _POLLNVAL
        if state & POLLIN:
            state |= _POLLRDNORM
        if state & POLLOUT:
            state |= _POLLWRNORM
        return state & (events | POLLERR | POLLHUP)

    def _wait(
        self, ready: Callable[[], int | None], timeout: int, mask: int, size: int,
        on_timeout: Callable[[], int] = lambda: 0,
    ) -> int:  # fmt: skip
        """The result of ``ready``, or of ``on_timeout`` at the timeout; the signal mask at ``mask`` applies
        meanwhile."""
        until = None
        if timeout:
            seconds, nanoseconds = struct.unpack("<qq", self._memory.read(timeout, 16))
            if seconds < 0 or not 0 <= nanoseconds < NANOSECONDS:
                raise OSError(errno.EINVAL, "timeout")
            until = self._clock.elapsed() + seconds * NANOSECONDS + nanoseconds
        return wait_with_mask(self._memory, self._signals, ready, until, on_timeout, mask, size)


def wait_with_mask(
    memory: GuestMemory, signals: SignalState, ready: Callable[[], int | None], until: int | None,
    on_timeout: Callable[[], int], mask: int, size: int,
    when_stopped: WhenStopped = WhenStopped.PAUSES_TIMEOUT,
) -> int:  # fmt: skip
    """Return the result of ``ready`` if it is not None; else raise a `Wait` for it.

    During the wait the signal mask at address ``mask`` applies (0: the current one); at the timeout ``on_timeout``
    gives the result. Raises OSError(EINVAL) for another ``size`` of the mask than 8."""
    if mask and size != 8:
        raise OSError(errno.EINVAL, "sigset size")
    replacement = memory.read_int(mask, 8) if mask else None
    result = ready()
    if result is not None:
        return result
    before = signals.mask

    def ready_again() -> int | None:
        found = ready()
        if found is not None:
            signals.set_mask(before)
        return found

    def timed_out() -> int:
        signals.set_mask(before)
        return on_timeout()

    def interrupted() -> None:
        signals.mask_to_restore = before

    if replacement is not None:
        signals.set_mask(replacement)
    raise Wait(ready_again, until, timed_out, interrupted=interrupted, when_stopped=when_stopped)
