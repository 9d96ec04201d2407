"""Simulates chosen intervals of a program in detail while the rest is emulated."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.events import TraceSelection
from emulator.machine import Machine
from emulator.timing.inorder import InOrderCore
from measure.cycle_close.live_counts import UNKNOWN, Following
from measure.cycle_close.tracer import CoreObserver, TracerSettings, keep_online
from measure.errors import MeasureError

_INSTRUCTIONS_A_REFERENCE = 3  # roughly; converts the warm-up window before an interval to instructions


class DetailedRun:
    """Runs ``machine`` forward, from one chosen interval to the next. ``following``: caches that follow the machine
    meanwhile; the core gets their contents before an interval if settings say ``warm_up="lines"``.

    ``fast``: the selection between these, with what keeps parts of the core up to date; ``mispredicted``: branches
    meanwhile, (1,), live, or `UNKNOWN`.
    """

    def __init__(
        self, machine: Machine, core: InOrderCore, settings: TracerSettings, following: Following | None
    ) -> None:
        self.machine = machine
        self._core = core
        self._detail = CoreObserver(core)
        self._following = following
        self._by_lines = settings.warm_up == "lines"
        self._simulating = self.fast = TraceSelection() if following is None else following.selection
        self.mispredicted = UNKNOWN
        if self._by_lines:
            self.fast, self.mispredicted = keep_online(machine, core, self.fast)
        branches, references = settings.warm_branches, settings.warm_references
        self._window = _INSTRUCTIONS_A_REFERENCE * (branches if self._by_lines else max(references, branches))

    def advance(self, instructions: int) -> None:
        """Emulate up to ``instructions``."""
        if self.machine.instructions < instructions:
            self.machine.observe(self.fast)
            self.machine.advance_to_instructions(instructions)

    def simulate(self, begin: int, end: int) -> NDArray[np.float64]:
        """Events of the interval from ``begin`` to ``end``, (N_EVENTS,), whole numbers, after a warm-up.

        Raises `MeasureError` when no block ends at ``end``: then the program behaves differently from the first time.
        """
        machine, core = self.machine, self._core
        if machine.instructions < begin - self._window:
            self.advance(begin - self._window)
            if self._by_lines and self._following is not None:
                core.adopt(self._following.contents())
        machine.observe(self._simulating, [self._detail])
        machine.advance_to_instructions(begin)
        machine.drain()
        core.follow(machine.hart.pc)
        before = core.snapshot()
        machine.advance_to_instructions(end)
        machine.drain()
        core.follow(machine.hart.pc)
        if machine.instructions != end:
            raise MeasureError(
                f"the program did not do the same again: the interval from {begin} ends after {machine.instructions} "
                f"instructions, expected {end} as in the first run"
            )
        return np.asarray((core.snapshot() - before).astype(np.float64))
