"""What an instruction needs from outside the hart: system calls, counters and clocks, instruction fences. The oracle
calls it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from emulator.execution.guest import Guest
from emulator.execution.virtual_time import VirtualTime

_CYCLE, _TIME, _INSTRET, _CONTROL = 0xC00, 0xC01, 0xC02, 0x800
_CONTROL_ENABLE = 1


class CounterFile(Protocol):
    """Counters that the guest reads and controls through CSRs; `read_csr` gives None for a CSR that does not exist."""

    def read_csr(self, number: int) -> int | None: ...
    def write_control(self, value: int) -> None: ...


class GuestEnvironment:
    """Implements `emulator.engine.oracle.Environment` by the kernel and the current address space, the clock, and
    ``counters``. ``catch_up``: passes the record so far to its consumers, so that counters are up to date."""

    def __init__(
        self, guest: Guest, time: VirtualTime, counters: CounterFile | None, catch_up: Callable[[], None]
    ) -> None:
        self.counters = counters
        self._guest = guest
        self._time = time
        self._catch_up = catch_up

    def ecall(self) -> None:
        """Execute the system call whose number and arguments are in the registers; afterwards another process may be on
        the hart."""
        guest = self._guest
        signals = guest.kernel.signals
        before = signals.n_changes
        guest.needs_service = True
        guest.kernel.syscall(guest.hart)
        if signals.n_changes != before:  # whether the process catches its faults may have changed
            guest.changed()

    def read_csr(self, number: int) -> int | None:
        """The value of a CSR; None when it does not exist."""
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
        """Write a CSR; False when it does not exist or is read-only."""
        if self.counters is None or number != _CONTROL:
            return False
        self._catch_up()
        self.counters.write_control(value)
        self._guest.scheduler.counters_stand_still = not value & _CONTROL_ENABLE
        return True

    def instruction_fence(self) -> None:
        """The guest announces that it may have changed code."""
        self._guest.address_space.mark_all_dirty()
