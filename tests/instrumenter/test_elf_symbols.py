"""The reader of symbols agrees with pyelftools."""

from __future__ import annotations

from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from common.elf_files import is_elf
from instrumenter.building.elf_symbols import read_symbols, starts_threads
from instrumenter.building.program_build import build_program
from instrumenter.compiler.toolchain import Toolchain
from instrumenter.spec.software_metrics import MetricSpec

SOURCE = """
extern int elsewhere(void) __attribute__((weak));
static int counter;
__thread int own;
__attribute__((weak)) int weak(void) { return 2; }
int main(void) { own = counter++; return elsewhere ? elsewhere() : weak(); }
"""
KINDS = {"STT_OBJECT": "object", "STT_FUNC": "function", "STT_TLS": "thread-local"}


def expected(path: Path) -> list[tuple[object, ...]]:
    with path.open("rb") as file:
        table = ELFFile(file).get_section_by_name(".symtab")
        assert isinstance(table, SymbolTableSection)
        return [
            (
                one.name, KINDS.get(one["st_info"]["type"], ""), one["st_info"]["bind"].removeprefix("STB_").lower(),
                one["st_shndx"] != "SHN_UNDEF", one["st_value"], one["st_size"],
            )
            for one in table.iter_symbols()
        ]  # fmt: skip


def test_programs_and_objects(tmp_path: Path) -> None:
    source = tmp_path / "symbols.c"
    source.write_text(SOURCE)
    Toolchain().compile(source, ["-O1"], tmp_path / "symbols.o")
    for path in (build_program([source]).elf_path, tmp_path / "symbols.o"):
        assert [tuple(one) for one in read_symbols(path)] == expected(path)
    kinds = {one.name: one.kind for one in read_symbols(tmp_path / "symbols.o")}
    assert (kinds["main"], kinds["counter"], kinds["own"]) == ("function", "object", "thread-local")


def test_a_file_without_sections_has_none(tmp_path: Path) -> None:
    source = tmp_path / "symbols.c"
    source.write_text(SOURCE)
    program = bytearray(build_program([source]).elf_path.read_bytes())
    program[0x28:0x30] = bytes(8)  # e_shoff
    program[0x3A:0x40] = bytes(6)  # e_shentsize, e_shnum, e_shstrndx
    (tmp_path / "stripped").write_bytes(program)
    assert read_symbols(tmp_path / "stripped") == []


@pytest.mark.parametrize("kind", ["-flto", "-flto=thin"])
def test_objects_that_the_linker_compiles(tmp_path: Path, kind: str) -> None:
    """They are no ELF files; a program of them has counters, which are atomic where one of them starts threads."""
    for name, text in (("threads", "#include <pthread.h>\nvoid f(void) { pthread_t t; pthread_create(&t, 0, 0, 0); }"),
                       ("none", "int f(int n) { return n + 1; }")):  # fmt: skip
        (tmp_path / f"{name}.c").write_text(text)
        Toolchain().compile(tmp_path / f"{name}.c", ["-O1", kind], tmp_path / f"{name}.o")
        assert not is_elf(tmp_path / f"{name}.o")
        assert starts_threads(tmp_path / f"{name}.o") == (name == "threads")
    source = tmp_path / "main.c"
    source.write_text("__attribute__((noinline)) int f(int n) { return n + 1; }\nint main(void) { return f(2) - 3; }")
    metrics = {"entries": MetricSpec(event="entry", function="f")}
    assert not build_program([source], ["-O1", kind], metrics=metrics).starts_threads
