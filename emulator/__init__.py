"""RISC-V RV64GC Linux user-mode emulator with timing models, a performance-monitoring unit, and analyzers.

```python
from emulator import Machine

with Machine("program", ["argument"]) as machine:
    machine.run()
    print(machine.instructions, machine.ending)
```

Every name is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from emulator.analyzers.analyzer import Analyzer
    from emulator.errors import EmulatorError, GuestImageError, InstructionLimit, MachineConfigError
    from emulator.machine import Machine
    from emulator.timing.machine_file import load_machine

# In the order of the API page.
__all__ = [  # noqa: RUF022
    "Machine",
    "load_machine",
    "Analyzer",
    "EmulatorError",
    "GuestImageError",
    "InstructionLimit",
    "MachineConfigError",
]

_MODULE_OF = {
    "Analyzer": "emulator.analyzers.analyzer",
    "EmulatorError": "emulator.errors",
    "GuestImageError": "emulator.errors",
    "InstructionLimit": "emulator.errors",
    "Machine": "emulator.machine",
    "MachineConfigError": "emulator.errors",
    "load_machine": "emulator.timing.machine_file",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'emulator' has no attribute {name!r}; it has {', '.join(__all__)}")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value
