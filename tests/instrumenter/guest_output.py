"""Runs a built program, for tests of what it prints and counts."""

from __future__ import annotations

from pathlib import Path

from emulator.linux.vfs.files import VirtualFiles
from emulator.machine import Machine
from instrumenter.building.program_build import Build


def output_of(program: Path) -> str:
    """What a program that ends well prints."""
    with Machine(program, files=VirtualFiles(), limit_instructions=10_000_000, background=False) as machine:
        assert machine.run().status == 0
        return machine.files.output(1).decode()


def execute(build: Build) -> tuple[str, dict[str, int]]:
    """Output and counters of a run that ends well."""
    files = VirtualFiles()
    with Machine(build.elf_path, files=files, limit_instructions=10_000_000, background=False) as machine:
        assert machine.run().status == 0
        counters = {}
        for metric, at in build.counters.items():
            symbol = machine.image.find_symbol(at.symbol)
            assert symbol is not None
            counters[metric] = machine.memory.read_int(symbol.address + at.offset_bytes, 8)
        return files.output(1).decode(), counters
