"""Virtual time: simulated cycles over the machine's clock frequency, and estimates of the instructions to a moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from emulator.events import Consumer

# A moment is approached in ever smaller steps, as the cycles that instructions will take are unknown: the first goes a
# third of the way, the last ones four fifths. So a phase may begin whose instructions take three times as long. If some
# of late took longer than that, none of the steps would lead beyond the moment by more than `_ALLOWED` of the whole way
# if they did again; of late: half of that is forgotten after `_KEPT` such ways.
_FIRST_PART, _LAST_PART = 0.3, 0.8
_ALLOWED, _KEPT = 0.02, 32
_MIN_CYCLES_EACH = 0.25
_RECENT_INSTRUCTIONS = 1000  # from which the recent cycles of an instruction are known
_COLD_CYCLES_EACH = 20.0  # of an instruction before that, while caches are empty
_OF_MEAN = 0.7  # recent cycles of an instruction are taken for no less than this fraction of the whole run's


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
        self._target_cycles, self._whole_way = -1, 1  # of the steps to one moment
        self._recent_begin = 0, 0  # instructions and cycles
        self._recent_cycles_each = self._most_cycles_each = 0.0

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
        left = target_cycles - cycles
        if target_cycles != self._target_cycles or left > self._whole_way:
            self._target_cycles, self._whole_way = target_cycles, max(1, left)
        part = _LAST_PART - (_LAST_PART - _FIRST_PART) * left / self._whole_way
        expected = part * left / self._cycles_each(cycles)
        safe = (left + _ALLOWED * self._whole_way) / max(self._most_cycles_each, _MIN_CYCLES_EACH)
        return max(1, int(min(expected, safe)))

    def _cycles_each(self, cycles: int) -> float:
        """Cycles that the next instructions are expected to take each: as many as the last ones, whose number changes
        from phase to phase."""
        timed = self.timed_instructions
        if timed < _RECENT_INSTRUCTIONS:
            return _COLD_CYCLES_EACH
        begin, begin_cycles = self._recent_begin
        if timed - begin >= _RECENT_INSTRUCTIONS:
            self._recent_cycles_each = (cycles - begin_cycles) / (timed - begin)
            kept = 0.5 ** (max(0, cycles - begin_cycles) / (_KEPT * self._whole_way))  # less: went back, then ahead
            self._most_cycles_each = max(self._recent_cycles_each, kept * self._most_cycles_each)
        if timed < begin or timed - begin >= _RECENT_INSTRUCTIONS:  # less: the machine went back to an earlier state
            self._recent_begin = timed, cycles
        return max(self._recent_cycles_each, _OF_MEAN * cycles / timed, _MIN_CYCLES_EACH)
