"""Virtual time: simulated cycles over the machine's clock frequency, and estimates of the instructions to a moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from emulator.events import Consumer

# Steps are shorter than estimated, and a moment is approached in ever smaller ones: future cache misses are unknown.
_SAFETY_FACTOR, _MIN_CYCLES_EACH = 1.3, 0.25


class TimingCore(Consumer, Protocol):
    """A timing core: a consumer of the record that counts cycles."""

    @property
    def cycles(self) -> int: ...


class VirtualTime:
    """The guest's clock. ``instructions``: executed so far, set by the engines; without a ``core`` an instruction takes
    a cycle. ``catch_up``: passes the record so far to the core, which lags behind the guest.
    """

    def __init__(self, core: TimingCore | None, clock_hz: int, catch_up: Callable[[], None]) -> None:
        self.core = core
        self.clock_hz = clock_hz
        self.instructions = 0
        self._catch_up = catch_up
        self._core_hides = hasattr(core, "timed_instructions")

    @property
    def cycles(self) -> int:
        """Simulated cycles so far."""
        if self.core is None:
            return self.instructions
        self._catch_up()
        return self.core.cycles

    @property
    def timed_instructions(self) -> int:
        """Instructions so far that take time: all, but for those that a counterfactual core does not see."""
        if not self._core_hides:
            return self.instructions
        self._catch_up()
        return int(getattr(self.core, "timed_instructions"))  # noqa: B009 - only counterfactual cores have it

    def nanoseconds(self) -> int:
        """Nanoseconds since the guest began."""
        cycles = self.instructions if self.core is None else self.cycles
        return cycles * 1_000_000_000 // self.clock_hz

    def instructions_until(self, nanoseconds: int) -> int:
        """Instructions to that moment, at least 1; with a core an underestimate, to be repeated after the step."""
        target_cycles, cycles = -(-nanoseconds * self.clock_hz // 1_000_000_000), self.cycles
        if self.core is None:
            return max(1, target_cycles - cycles)
        return self.step_towards(target_cycles, cycles)

    def step_towards(self, target_cycles: int, cycles: int) -> int:
        """Instructions, at least 1, of a step that hardly leads beyond ``target_cycles``; ``cycles``: so far."""
        timed = self.timed_instructions
        cycles_each = cycles / timed if timed else 1.0
        return max(1, int((target_cycles - cycles) / (_SAFETY_FACTOR * max(cycles_each, _MIN_CYCLES_EACH))))
