"""Reads a machine description from YAML.

Errors have the form ``file:line: key: got ..., expected ...``, one a line, all of them at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml

from common.layered_yaml import read_layers
from common.yaml_document import YamlDocument
from emulator.errors import MachineConfigError
from emulator.timing.machine_config import MachineConfig


def load_machine(path: Path | str, settings: Sequence[str] = ()) -> MachineConfig:
    """Read and check the machine description in a file.

    ``path``: of the YAML file, which may extend another; ``settings``: changes of it, such as ``l1d.size_bytes=65536``
    (`common.layered_yaml`). Raises `MachineConfigError` with file and line, also for a file that cannot be read.

    ```python
    from emulator import load_machine

    print(load_machine("configs/machines/strongarm.yaml").clock_hz)
    ```
    """
    return read_layers(Path(path), MachineConfigError, settings).validate(MachineConfig)


def machine_text(path: Path | str) -> str:
    """The machine description in a file as one text that extends no other file. Raises as `load_machine`."""
    document = read_layers(Path(path), MachineConfigError)
    text = Path(path).read_text("utf-8")
    if document.data == yaml.safe_load(text):
        return text
    document.validate(MachineConfig)
    return yaml.safe_dump(document.data, sort_keys=False, allow_unicode=True)


def parse_machine(text: str, name: str) -> MachineConfig:
    """Check the machine description ``text``; ``name`` stands for the file in messages. Raises as `load_machine`."""
    return YamlDocument(text, name, MachineConfigError).validate(MachineConfig)
