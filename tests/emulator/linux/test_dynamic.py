"""Programs that a dynamic linker of the guest starts, and what happens without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.engine.tiering.tiers import Region, Tier
from emulator.errors import GuestImageError
from emulator.execution.backtrace import Places
from emulator.linux.vfs.files import VirtualFiles
from emulator.machine import Machine
from tests.emulator.dynamic_root import INTERPRETER, build_root


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with a position-independent program and the interpreter that it asks for."""
    return build_root(tmp_path_factory.mktemp("root"))


@pytest.mark.parametrize("engine", ["translated", "oracle"])
def test_the_interpreter_starts_the_program(root: Path, engine: str) -> None:
    with Machine(root / "program", ["x"], files=VirtualFiles(root=root), engine=engine) as machine:
        assert machine.run().status == 5
        assert machine.files.output(1) == b"loader\nbased\nheaders\nprogram\n"
        assert machine.image.name == "/program"
        assert machine.process.interpreter is not None
        assert machine.process.interpreter.bias % 0x10000 == 0
        maps = machine.files.contents("/proc/self/maps").decode()
        assert {line.split()[-1] for line in maps.splitlines()} >= {"/program", INTERPRETER, "[stack]"}
        where = machine.kernel.mappings.file_at(machine.process.interpreter.entry)
        assert where is not None
        assert where.startswith(f"{INTERPRETER}+0x")


def test_places_in_libraries_have_the_function_and_the_file(root: Path) -> None:
    with Machine(root / "program", ["x"], files=VirtualFiles(root=root)) as machine:
        interpreter, process = machine.process.interpreter, machine.kernel.process
        assert interpreter is not None
        entry, mapped = interpreter.entry, machine.kernel.mappings.file_at(interpreter.entry)
        for program in (process.program, process.program._replace(interpreter=None)):  # known, or read
            process.program = program
            assert Places(machine.kernel).text(entry) == f"{entry:#x} _start ({mapped})"
        assert Places(machine.kernel).text(0x1234) == "0x1234"


def test_an_interpreter_that_the_guest_cannot_see(root: Path) -> None:
    for files in (VirtualFiles(), VirtualFiles(mapped={INTERPRETER: root})):
        with pytest.raises(GuestImageError, match=rf"its interpreter {INTERPRETER} is not among the guest's.*--root"):
            Machine(root / "program", ["x"], files=files)


@pytest.mark.parametrize("contents", [b"", b"#!/bin/sh\n", b"\x7fELF"])
def test_an_interpreter_that_is_none(root: Path, contents: bytes) -> None:
    with pytest.raises(GuestImageError, match="own-loader"):
        Machine(root / "program", ["x"], files=VirtualFiles(mapped={INTERPRETER: contents}))


def test_a_program_cannot_be_its_own_interpreter(root: Path) -> None:
    files = VirtualFiles(mapped={INTERPRETER: root / "program"})
    with pytest.raises(GuestImageError, match="is not a position-independent dynamic linker"):
        Machine(root / "program", ["x"], files=files)


def test_translations_of_libraries_are_kept_too(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code that the loader maps is taken when it is there; a loader that has changed is translated anew."""
    import emulator.engine.persist.translation_store as archive_module
    from emulator.engine.translator import Translator

    monkeypatch.setattr(archive_module, "cache_directory", lambda: tmp_path)
    compile_ = Translator._compile
    made: list[str] = []

    def compile_and_list(self: Translator, tier: Tier, region: Region) -> None:
        made.append(region.name)
        compile_(self, tier, region)

    monkeypatch.setattr(Translator, "_compile", compile_and_list)

    def run(loader: Path | bytes) -> tuple[bytes, list[str], int]:
        made.clear()
        files = VirtualFiles(root=root, mapped={INTERPRETER: loader})
        with Machine(
            root / "program", ["x"], files=files, keep_translations=True, background=False,
            templates=False, optimise_executions=2,
        ) as machine:  # fmt: skip
            assert machine.run().status == 5
            machine.save_translations()
            return machine.files.output(1), list(made), machine.facts.n_blocks

    loader = root / INTERPRETER.lstrip("/")
    output, first, n_blocks = run(loader)
    assert first
    assert run(loader) == (output, [], n_blocks)
    code = loader.read_bytes()
    assert code.count(b"loader\n") == 1
    changed = code.replace(b"loader\n", b"LOADER\n")  # not code: all is taken
    assert run(changed) == (output.replace(b"loader", b"LOADER"), [], n_blocks)
