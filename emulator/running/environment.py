"""What lies outside the hart, for the oracle, which executes all instructions that reach there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from emulator.running.guest import Guest
from emulator.running.virtual_time import VirtualTime

_CYCLE, _TIME, _INSTRET, _CONTROL = 0xC00, 0xC01, 0xC02, 0x800


class CounterFile(Protocol):
    """Counters that the guest reads and controls through CSRs; None means that there is no such CSR."""

    def read_csr(self, number: int) -> int | None: ...
    def write_control(self, value: int) -> None: ...


class GuestEnvironment:
    """The kernel, the clock, ``counters`` and the address space of whoever runs. ``catch_up``: passes the record so
    far to those who count in it."""

    def __init__(
        self, guest: Guest, time: VirtualTime, counters: CounterFile | None, catch_up: Callable[[], None]
    ) -> None:
        self.counters = counters
        self._guest = guest
        self._time = time
        self._catch_up = catch_up

    def ecall(self) -> None:
        """The system call that the registers ask for; another process may run after it."""
        guest = self._guest
        kernel = guest.kernel
        before = kernel.signals.n_changes
        guest.look = True
        kernel.syscall(guest.hart)
        if kernel.signals.n_changes != before:  # it may catch its faults from now on, or no longer
            guest.changed()

    def read_csr(self, number: int) -> int | None:
        """None when there is none of that number."""
        if self.counters is not None:
            self._catch_up()
            value = self.counters.read_csr(number)
            if value is not None:
                return value
        if number == _CYCLE:
            return self._time.cycles
        if number == _TIME:
            return self._time.nanoseconds()
        return self._time.instructions if number == _INSTRET else None

    def write_csr(self, number: int, value: int) -> bool:
        """False when there is none of that number that can be written to."""
        if self.counters is None or number != _CONTROL:
            return False
        self._catch_up()
        self.counters.write_control(value)
        return True

    def instruction_fence(self) -> None:
        """The guest may have changed code."""
        self._guest.space.doubt_all()
