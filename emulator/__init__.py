"""RISC-V RV64GC Linux user-mode emulator with timing models, a performance-monitoring unit, and analyzers.

    from emulator import Machine, load_machine

    with Machine("program", ["argument"]) as machine:
        machine.run()
        print(machine.instructions, machine.ending)

Every name is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from emulator.analyzers.analyzer import Analyzer
    from emulator.errors import EmulatorError
    from emulator.machine import Machine
    from emulator.timing.machine_file import load_machine

__all__ = ["Analyzer", "EmulatorError", "Machine", "load_machine"]

_MODULE_OF = {
    "Analyzer": "emulator.analyzers.analyzer",
    "EmulatorError": "emulator.errors",
    "Machine": "emulator.machine",
    "load_machine": "emulator.timing.machine_file",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'emulator' has no attribute {name!r}; it has {', '.join(__all__)}")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value
