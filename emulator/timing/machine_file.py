"""Reads a machine description from YAML.

Errors have the form ``file:line: key: got ..., expected ...``, one a line, all of them at once.
"""

from __future__ import annotations

from pathlib import Path

from common.yaml_document import YamlDocument
from emulator.errors import MachineConfigError
from emulator.timing.machine_config import MachineConfig


def load_machine(path: Path | str) -> MachineConfig:
    """Read and check the machine description in a file.

    ``path``: of the YAML file. Raises `MachineConfigError` with file and line, also for a file that cannot be read.

    ```python
    from emulator import load_machine

    print(load_machine("configs/machines/strongarm.yaml").clock_hz)
    ```
    """
    return YamlDocument.read(Path(path), MachineConfigError).validate(MachineConfig)


def parse_machine(text: str, name: str) -> MachineConfig:
    """Check the machine description ``text``; ``name`` stands for the file in messages. Raises as `load_machine`."""
    return YamlDocument(text, name, MachineConfigError).validate(MachineConfig)
