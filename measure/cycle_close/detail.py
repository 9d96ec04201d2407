"""Simulates chosen intervals of a program in detail while the rest is emulated."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from emulator.events import TraceSelection
from emulator.machine import Machine
from emulator.timing.inorder import InOrderCore
from emulator.timing.warm import Touched
from measure.cycle_close.code_lines import KEPT_INTERVALS, CodeLines
from measure.cycle_close.mispredictions import UNKNOWN
from measure.cycle_close.reuse import WaitModel
from measure.cycle_close.tracer import CoreObserver, TracerSettings, keep_online
from measure.errors import MeasureError

_INSTRUCTIONS_A_REFERENCE = 3  # roughly; converts the warm-up window before an interval to instructions


class DetailedRun:
    """Runs ``machine`` forward, from one chosen interval to the next. ``waits``: model of the intervals before them.

    ``fast``: the selection between these, with what keeps parts of the core up to date; ``mispredicted``: branches
    meanwhile, (1,), live, or `UNKNOWN`.
    """

    def __init__(self, machine: Machine, core: InOrderCore, settings: TracerSettings, waits: WaitModel) -> None:
        self.machine = machine
        self._waits = waits
        self._core = core
        self._detail = CoreObserver(core)
        self._exact_lines = settings.warm_up == "lines"
        line_bits = waits.selection.line_bits
        self._simulating = self.fast = TraceSelection(line_bits=line_bits if self._exact_lines else 0)
        self.mispredicted = UNKNOWN
        if self._exact_lines:
            self.fast, self.mispredicted = keep_online(machine, core, self.fast)
        self._counting = replace(self.fast, counts=True)
        self._code = CodeLines(core.config)
        self._shortest = settings.interval_instructions
        self._simulated_until = 0  # [instructions]
        branches, references = settings.warm_branches, settings.warm_references
        self._window = _INSTRUCTIONS_A_REFERENCE * (branches if self._exact_lines else max(references, branches))

    def advance(self, instructions: int) -> None:
        """Emulate up to ``instructions``."""
        if self.machine.instructions < instructions:
            self.machine.observe(self.fast)
            self.machine.advance_to_instructions(instructions)

    def simulate(self, begin: int, end: int) -> NDArray[np.float64]:
        """Events per instruction of the interval from ``begin`` to ``end``, (N_EVENTS,), after a warm-up.

        Raises `MeasureError` when no block ends at ``end``: then the program behaves differently from the first time.
        """
        machine, core = self.machine, self._core
        if machine.instructions < begin - self._window:
            if self._exact_lines:
                self._count(begin - self._window)
                now, touched = machine.instructions, Touched(*machine.touched_lines(core.lines_to_warm))
                code, since = self._code.before(now, machine.facts), now - self._simulated_until
                core.warm_caches(touched, code, since, self._waits.fills_before(now))
            else:
                self.advance(begin - self._window)
        machine.observe(self._simulating, [self._detail])
        machine.advance_to_instructions(begin)
        machine.drain()
        before = core.snapshot()
        machine.advance_to_instructions(end)
        machine.drain()
        self._simulated_until = machine.instructions
        core.follow(machine.hart.pc)
        if machine.instructions != end:
            raise MeasureError(
                f"the program did not do the same again: the interval from {begin} ends after {machine.instructions} "
                f"instructions, expected {end} as in the first run"
            )
        return np.asarray((core.snapshot() - before) / (end - begin))

    def _count(self, instructions: int) -> None:
        """Emulate up to ``instructions``, or a few blocks further, and record which blocks run when."""
        machine, start = self.machine, self.machine.instructions
        length = max(self._shortest, -(-(instructions - start) // KEPT_INTERVALS))
        machine.observe(self._counting)
        machine.count_from_here()
        while machine.ending is None and machine.instructions < instructions:
            begin = machine.instructions
            left = instructions - begin
            ran = machine.run_intervals(min(length, left), max(1, left // length))
            if len(ran) == 0:
                return
            self._code.add(begin, ran)
