"""The trace in the terminal while the program runs: where it is, what is estimated there; pause, go on, end."""

from __future__ import annotations

import os
import select
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from emulator.machine import Machine
from emulator.timing.config import MachineConfig
from measure.cycleclose.metrics import ENERGY, RATES, table_of
from measure.cycleclose.tracer import Category, Interval

if TYPE_CHECKING:
    from rich.console import Console

_SHOW_SECONDS = 0.1


class Keys:
    """Keys as they are pressed, when standard input is a terminal; restores it afterwards."""

    def __init__(self) -> None:
        self._before: list[Any] | None = None

    def __enter__(self) -> Keys:
        if sys.stdin is not None and sys.stdin.isatty():
            import termios
            import tty

            self._before = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin)  # Ctrl-C and Ctrl-Z still work
        return self

    def __exit__(self, *details: Any) -> None:
        if self._before is not None:
            import termios

            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)

    def pressed(self, wait: bool = False) -> str:
        """The key pressed since the last call, "" for none; with ``wait`` until there is one."""
        if self._before is None:
            return ""
        ready, _, _ = select.select([sys.stdin], [], [], None if wait else 0)
        return os.read(sys.stdin.fileno(), 1).decode("latin-1") if ready else ""


class Watch:
    """Shows the latest interval. p pauses, q ends the trace."""

    def __init__(self, console: Console, keys: Keys | None = None) -> None:
        from rich.live import Live

        self._live = Live(console=console, refresh_per_second=1 / _SHOW_SECONDS, transient=True)
        self._keys = keys or Keys()
        self._next = 0.0
        self._sampled = 0

    def __enter__(self) -> Watch:
        self._keys.__enter__()
        self._live.__enter__()
        return self

    def __exit__(self, *details: Any) -> None:
        self._live.__exit__(*details)
        self._keys.__exit__(*details)

    def show(self, machine: Machine, interval: Interval, config: MachineConfig) -> bool:
        """Show the interval and where the program is now; False when the trace is to end here."""
        self._sampled += interval.category is Category.SIMULATED
        now = time.monotonic()
        if now < self._next:
            return True
        self._next = now + _SHOW_SECONDS
        text = self.describe(machine, interval, config)
        key = self._keys.pressed()
        if key in ("p", " "):
            self._live.update(f"{text}\npaused: any key goes on, q ends the trace", refresh=True)
            key = self._keys.pressed(wait=True)
        self._live.update(f"{text}\np pauses, q ends the trace")
        return key != "q"

    def describe(self, machine: Machine, interval: Interval, config: MachineConfig) -> str:
        """Three lines: the interval, the place in the program, the estimates."""
        pc = machine.hart.pc
        line = machine.image.source_line(pc)
        place = f"{pc:#x} {machine.image.symbolize(pc)}" + (f" ({line[0]}:{line[1]})" if line else "")
        energy = config.energy.picojoules() if config.energy is not None else None
        row = table_of([interval], energy).iloc[0]
        values = "  ".join(
            f"{name.replace('_', ' ')} {row[name]:.3f}"
            for name in (*RATES, ENERGY)
            if name in row and np.isfinite(row[name])
        )
        return (
            f"interval {interval.number:,}  {interval.end_instructions / 1e6:,.1f} M instructions  "
            f"phase {interval.phase} ({interval.category.name.lower()}), {self._sampled:,} simulated\n"
            f"{place}\n{values}"
        )
