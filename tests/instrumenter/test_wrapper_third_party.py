"""A program by others with its own makefile, where it has been fetched before: the counts of its single-file build."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from emulator.linux.vfs.files import VirtualFiles
from emulator.machine import Machine
from instrumenter.building.program_build import Build, build_program
from instrumenter.projects.project import Project, ProjectRecipe
from instrumenter.spec.software_metrics import MetricSpec
from measure.programs.catalogue import ProgramSpec, ensure_project, ensure_sources, load_catalogue

CATALOGUE = Path(__file__).parents[2] / "configs" / "programs.yaml"
METRICS = {
    "table_gets": MetricSpec(event="entry", function="luaH_getshortstr"),
    "collections": MetricSpec(event="call", callee="singlestep"),
    "instructions": MetricSpec(event="loop", function="luaV_execute"),
}


def execute(build: Build, program: ProgramSpec) -> tuple[bytes, list[int]]:
    """Output and counters of a small run."""
    assert program.stdin is not None
    files = VirtualFiles(stdin=program.stdin.read_bytes())
    arguments = program.arguments_for("small")
    with Machine(build.elf_path, arguments, files=files, limit_instructions=100_000_000, background=False) as machine:
        assert machine.run().status == 0
        counters = []
        for at in build.counters.values():
            symbol = machine.image.find_symbol(at.symbol)
            assert symbol is not None
            counters.append(machine.memory.read_int(symbol.address + at.offset_bytes, 8))
        return files.output(1), counters


def test_lua_by_its_makefile() -> None:
    catalogue = load_catalogue(CATALOGUE)
    single, made = catalogue["lua"], catalogue["lua-make"]
    assert single.package is not None
    assert made.package is not None
    assert made.build is not None
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    if not (single.package.directory.is_dir() and made.package.directory.is_dir()):
        pytest.skip("Lua has not been fetched on this machine")
    project = Project(ensure_project(made)[0], made.build.command, made.build.binary)
    build = ProjectRecipe.of(project).build(METRICS)
    assert build.warnings == ()
    flags = ["-O2", *single.compiler_flags()]
    expected = build_program(ensure_sources(single), flags, METRICS, libraries=single.linker_flags())
    assert execute(build, made) == execute(expected, single)
