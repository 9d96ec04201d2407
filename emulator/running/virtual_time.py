"""Virtual time: simulated cycles over the machine's clock frequency, and what is to be run until a moment of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from emulator.events import Consumer

# Steps aim short of the moment that they lead to, and it is come to in ever smaller ones: what misses the next cycles
# have nobody knows.
_CAUTION, _LEAST_CYCLES_EACH = 1.3, 0.25


class TimingCore(Consumer, Protocol):
    """What the machine asks of a timing core beside consuming the record."""

    @property
    def cycles(self) -> int: ...


class VirtualTime:
    """``instructions``: executed so far, by whoever runs the guest; without a ``core`` each of them is a cycle.

    ``catch_up``: passes the record so far to the core, which lags behind the guest.
    """

    def __init__(self, core: TimingCore | None, clock_hz: int, catch_up: Callable[[], None]) -> None:
        self.core = core
        self.clock_hz = clock_hz
        self.instructions = 0
        self._catch_up = catch_up

    @property
    def cycles(self) -> int:
        """Simulated cycles so far."""
        if self.core is None:
            return self.instructions
        self._catch_up()
        return self.core.cycles

    def nanoseconds(self) -> int:
        """Since the guest began."""
        cycles = self.instructions if self.core is None else self.cycles
        return cycles * 1_000_000_000 // self.clock_hz

    def instructions_until(self, nanoseconds: int) -> int:
        """Instructions to that moment, at least 1; with a core about as many, to be asked again then."""
        target_cycles, cycles = -(-nanoseconds * self.clock_hz // 1_000_000_000), self.cycles
        if self.core is None:
            return max(1, target_cycles - cycles)
        return self.instructions_towards(target_cycles, cycles)

    def instructions_towards(self, target_cycles: int, cycles: int) -> int:
        """A step, of at least 1, that hardly leads beyond the target; ``cycles``: so far."""
        cycles_each = cycles / self.instructions if self.instructions else 1.0
        return max(1, int((target_cycles - cycles) / (_CAUTION * max(cycles_each, _LEAST_CYCLES_EACH))))
