"""Runs a built program, for tests of what it prints."""

from __future__ import annotations

from pathlib import Path

from emulator.linux.vfs.files import VirtualFiles
from emulator.machine import Machine


def output_of(program: Path) -> str:
    """What a program that ends well prints."""
    with Machine(program, files=VirtualFiles(), limit_instructions=10_000_000, background=False) as machine:
        assert machine.run().status == 0
        return machine.files.output(1).decode()
