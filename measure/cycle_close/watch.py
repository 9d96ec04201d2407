"""The live view of a trace: shows the program's position and the latest estimates; pauses, ends, and attaches gdb.

With a debugger the tracer still runs the program interval by interval, and the debugger may stop it anywhere, inside
an interval too: the trace is the same as without a debugger, unless the debugger changes memory or registers. A part
that is run again after a rollback stops again.
"""

from __future__ import annotations

import os
import select
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from emulator.machine import Machine
from emulator.timing.machine_config import MachineConfig
from measure.cycle_close.rates import ENERGY, RATES, columns_of
from measure.cycle_close.tracer import Category, Interval

if TYPE_CHECKING:
    from rich.console import Console

    from emulator.gdb.debugger import Debugger

_SHOW_SECONDS = 0.1


class Keys:
    """Reads single key presses when standard input is a terminal; restores the terminal afterwards."""

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

    @property
    def descriptor(self) -> int | None:
        """The host descriptor that is readable when a key is pressed; None without a terminal."""
        return None if self._before is None else sys.stdin.fileno()

    def pressed(self, wait: bool = False) -> str:
        """The key pressed since the last call, "" for none; with ``wait``, blocks until there is one."""
        if self._before is None:
            return ""
        ready, _, _ = select.select([sys.stdin], [], [], None if wait else 0)
        return os.read(sys.stdin.fileno(), 1).decode("latin-1") if ready else ""


class Watch:
    """Shows the latest interval. p pauses, q ends the trace, g waits for gdb at ``gdb_port`` of the loopback (0: any).

    While gdb is attached, running the program may raise `emulator.gdb.killed.Killed`; then the trace must end.
    """

    def __init__(self, console: Console, keys: Keys | None = None, gdb_port: int = 0) -> None:
        from rich.live import Live

        self._live = Live(console=console, refresh_per_second=1 / _SHOW_SECONDS, transient=True)
        self._keys = keys or Keys()
        self._gdb_port = gdb_port
        self._debugger: Debugger | None = None
        self._problem = ""  # why gdb could not be attached
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
        """Show the interval and the program's position; False when the trace is to end here. Raises `Killed`."""
        self._sampled += interval.category is Category.SIMULATED
        if self._debugger is not None:
            self._debugger.poll()
            if self._debugger.session_end is not None:
                self.detach_gdb()
        now = time.monotonic()
        if now < self._next:
            return True
        self._next = now + _SHOW_SECONDS
        text = self.describe(machine, interval, config)
        key = self._keys.pressed()
        if key in ("p", " "):
            self._live.update(f"{text}\npaused: any key continues, g attaches gdb, q ends the trace", refresh=True)
            key = self._keys.pressed(wait=True)
        if key == "g" and self._debugger is None:
            key = self._wait_for_gdb(machine, text)
        what = "gdb is attached: Ctrl-C in gdb stops the program" if self._debugger else "p pauses, g attaches gdb"
        self._live.update(f"{text}\n{self._problem}{what}, q ends the trace")
        return key != "q"

    def detach_gdb(self) -> None:
        """Detach gdb, if attached. To be called while the machine exists, at the program's end or before."""
        if self._debugger is not None:
            debugger, self._debugger = self._debugger, None
            debugger.finish()

    def _wait_for_gdb(self, machine: Machine, text: str) -> str:
        """Wait for gdb, and serve it until it continues the program; the key pressed instead, "" for none."""
        from emulator.errors import EmulatorError
        from emulator.gdb.debugger import Debugger
        from emulator.gdb.server import LOOPBACK, Listener

        self._problem = ""
        try:
            with Listener(self._gdb_port) as listener:
                command = f"gdb-multiarch -ex 'target remote {LOOPBACK}:{listener.port}'"
                self._live.update(f"{text}\npaused, waiting for gdb: {command}; any key continues", refresh=True)
                connection = listener.accept(self._keys.descriptor)
        except EmulatorError as error:
            self._problem = f"{error}\n"
            return ""
        if connection is None:
            return self._keys.pressed()
        self._live.update(f"{text}\ngdb controls the program", refresh=True)
        self._debugger = Debugger(machine, connection)
        self._debugger.begin()
        return ""

    def describe(self, machine: Machine, interval: Interval, config: MachineConfig) -> str:
        """Three lines: the interval, the position in the program, the estimates."""
        pc = machine.hart.pc
        line = machine.image.source_line(pc)
        place = f"{pc:#x} {machine.image.symbolize(pc)}" + (f" ({line[0]}:{line[1]})" if line else "")
        energy = config.energy.picojoules() if config.energy is not None else None
        row = columns_of([interval], energy)
        values = "  ".join(
            f"{name.replace('_', ' ')} {row[name][0]:.3f}"
            for name in (*RATES, ENERGY)
            if name in row and np.isfinite(row[name][0])
        )
        return (
            f"interval {interval.number:,}  {interval.end_instructions / 1e6:,.1f} M instructions  "
            f"phase {interval.phase} ({interval.category.name.lower()}), {self._sampled:,} simulated\n"
            f"{place}\n{values}"
        )
