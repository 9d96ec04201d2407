"""The machine that commands take where none is named: configs/machines/desktop.yaml, installed."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

NAME = "desktop.yaml"
DESCRIBED = f"the built-in {NAME}"


def built_in_machine() -> Path:
    """The machine's description, a file of the installation."""
    return Path(str(resources.files("measure.built_in") / NAME))


def described(machine: Path) -> str:
    """What results name as their machine: its path, or that it is the one of the installation."""
    return DESCRIBED if machine == built_in_machine() else str(machine)
