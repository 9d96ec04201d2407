"""System calls that wait for descriptors. Every public method is the system call of that name.

Every open file counts as ready: nothing in the guest's world makes it wait but time.
"""

from __future__ import annotations

import errno
import struct

from emulator.linux.clock import NANOSECONDS, Timers, VirtualClock, sleep
from emulator.linux.descriptors import MAX_DESCRIPTORS, DescriptorTable
from emulator.linux.hart import Interrupted
from emulator.linux.signals import SignalState
from emulator.memory import GuestMemory

_POLLNVAL = 0x20
_POLL_READ, _POLL_WRITE = 0x1 | 0x40, 0x4 | 0x100


class PollCalls:
    def __init__(
        self,
        memory: GuestMemory,
        descriptors: DescriptorTable,
        signals: SignalState,
        clock: VirtualClock,
        timers: Timers,
    ) -> None:
        self._memory = memory
        self._descriptors = descriptors
        self._signals = signals
        self._clock = clock
        self._timers = timers

    def ppoll(self, requests: int, count: int, timeout: int, mask: int, size: int) -> int:
        if count > MAX_DESCRIPTORS:
            raise OSError(errno.EINVAL, "ppoll")
        ready = 0
        for address in range(requests, requests + 8 * count, 8):
            fd, events = struct.unpack("<ih", self._memory.read(address, 6))
            result = self._events(fd, events)
            self._memory.write_int(address + 6, 2, result)
            ready += result != 0
        if not ready:
            self._wait(timeout, mask, size)
        return ready

    def pselect6(self, count: int, reading: int, writing: int, failing: int, timeout: int, mask: int) -> int:
        if count > MAX_DESCRIPTORS:
            raise OSError(errno.EINVAL, "pselect6")
        n_bytes = (count + 63) // 64 * 8
        ready = 0
        for address in (reading, writing):
            requested = self._memory.read_int(address, n_bytes) if address else 0
            for fd in range(count):
                if requested >> fd & 1:
                    self._descriptors.file(fd)
                    ready += 1
        if failing:
            self._memory.write(failing, bytes(n_bytes))
        if not ready:
            where, size = struct.unpack("<QQ", self._memory.read(mask, 16)) if mask else (0, 8)
            self._wait(timeout, where, size)
        return ready

    def _events(self, fd: int, events: int) -> int:
        if fd < 0:
            return 0
        try:
            file = self._descriptors.file(fd)
        except OSError:
            return _POLLNVAL
        possible = (_POLL_READ if file.readable else 0) | (_POLL_WRITE if file.writable else 0)
        return events & possible

    def _wait(self, timeout: int, mask: int, size: int) -> None:
        """Let the timeout pass, with the signal mask given; a signal raises `Interrupted`."""
        until = None
        if timeout:
            seconds, nanoseconds = struct.unpack("<qq", self._memory.read(timeout, 16))
            if seconds < 0 or not 0 <= nanoseconds < NANOSECONDS:
                raise OSError(errno.EINVAL, "timeout")
            until = self._clock.elapsed() + seconds * NANOSECONDS + nanoseconds
        before = self._signals.mask
        if mask:
            if size != 8:
                raise OSError(errno.EINVAL, "sigset size")
            self._signals.set_mask(self._memory.read_int(mask, 8))
        if sleep(self._clock, self._timers, self._signals.has_pending, until):
            self._signals.set_mask(before)
            return
        self._signals.mask_to_restore = before
        raise Interrupted(restartable=False)
