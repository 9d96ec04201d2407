"""ELF images: what is accepted, what every refusal says, and that damaged files never do worse."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.errors import GuestImageError
from emulator.linux.loader.elf import load_image
from emulator.memory import EXEC, READ, WRITE
from tests.emulator.linux.conftest import ElfFile

EXPECTED = "expected a riscv64 Linux executable (64-bit little-endian ELF): "
COMPILE = "compile it with `instrument-cc`"


def test_segments_entry_and_headers(elf_file: type[ElfFile]) -> None:
    image = load_image(elf_file().build(), "tiny")
    code, data = image.segments
    assert (image.name, image.entry, image.bias) == ("tiny", 0x10000, 0)
    assert (code.address, code.memory_bytes, code.prot) == (0x10000, 16, READ | EXEC)
    assert (data.address, data.data, data.memory_bytes) == (0x20000, b"initialised data", 0x2000)
    assert data.prot == READ | WRITE
    assert (image.start, image.end) == (0x10000, 0x22000)
    assert (image.phdr_count, image.phdr_entry_bytes) == (2, 56)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"class": 1}, "it is a 32-bit ELF file; " + EXPECTED + COMPILE),
        ({"order": 2}, "it is a big-endian ELF file; " + EXPECTED + COMPILE),
        ({"os": 9}, "it is for another operating system (OS ABI 9); " + EXPECTED + COMPILE),
        ({"machine": 62}, "it is a program for x86-64; " + EXPECTED + COMPILE),
        ({"machine": 183}, "it is a program for AArch64; " + EXPECTED + COMPILE),
        ({"machine": 9999}, "it is a program for machine number 9999; " + EXPECTED + COMPILE),
        ({"type": 1}, "it is an object file, not an executable; " + EXPECTED + "link it into a program"),
        ({"type": 4}, "it is a core dump, not an executable; " + EXPECTED + "link it into a program"),
        ({"flags": 0xD}, "it uses the embedded (RV64E) ABI; " + EXPECTED + "compile it with -mabi=lp64d"),
        (
            {"flags": 7},
            "it uses the quad-precision floating-point ABI; " + EXPECTED + "compile it with -mabi=lp64d",
        ),
        ({"flags": 0x105}, "it has unknown ABI flags (0x105); " + EXPECTED + COMPILE),
        (
            {"entry": 0x20000},
            "the file is damaged: the entry point 0x20000 is not in executable code; " + EXPECTED + "build it again",
        ),
        (
            {"phnum": 0},
            "the file is damaged: 0 program headers of 56 bytes, expected some of 56; " + EXPECTED + "build it again",
        ),
        (
            {"phoff": 5000},
            "the file is truncated: the program header table ends at byte 5112 of 208; "
            + EXPECTED
            + "copy or build it again",
        ),
    ],
)
def test_refusals_say_what_was_got_expected_and_to_do(
    elf_file: type[ElfFile], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(GuestImageError) as caught:
        load_image(elf_file(header=changes).build(), "program")
    assert str(caught.value) == "program: " + message


def test_a_dynamically_linked_program_names_its_interpreter(elf_file: type[ElfFile]) -> None:
    path = "/lib/ld-musl-riscv64.so.1"
    assert load_image(elf_file(interpreter=path.encode() + b"\0").build()).interpreter == path
    assert load_image(elf_file().build()).interpreter is None


@pytest.mark.parametrize("name", [b"ld.so\0", b"\0", b"/a\0b\0"])
def test_an_interpreter_that_is_no_path(elf_file: type[ElfFile], name: bytes) -> None:
    with pytest.raises(GuestImageError, match=r"the interpreter.s name is .*, expected an absolute path"):
        load_image(elf_file(interpreter=name).build())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (b"#!/bin/sh\n", "it is a script, not an ELF file"),
        (b"MZ\x90\x00", r"it is not an ELF file \(it begins with 4d 5a 90 00\)"),
        (b"\x7fELF\x02\x01", "the file is truncated within the ELF header"),
    ],
)
def test_files_that_are_not_elf(data: bytes, message: str) -> None:
    with pytest.raises(GuestImageError, match=message):
        load_image(data)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(GuestImageError, match="nothing: cannot read the program: No such file"):
        load_image(tmp_path / "nothing")


@pytest.mark.parametrize("address", [0, 0x7FFF_F000, 0xFFFF_FFFF_8000_0000])
def test_segments_outside_the_address_space(elf_file: type[ElfFile], address: int) -> None:
    with pytest.raises(GuestImageError, match="lies outside the 2 GiB guest address space"):
        load_image(elf_file(data_address=address).build())


def test_overlapping_segments(elf_file: type[ElfFile]) -> None:
    with pytest.raises(GuestImageError, match="segments at 0x10000 and 0x10008 overlap"):
        load_image(elf_file(data_address=0x10008).build())


def test_more_file_than_memory(elf_file: type[ElfFile]) -> None:
    with pytest.raises(GuestImageError, match="0x20000 has more bytes in the file than in memory"):
        load_image(elf_file(data_memory_bytes=3).build())


FUNCTION, OBJECT, NOTYPE = 2, 1, 0


def test_symbols_name_addresses(elf_file: type[ElfFile]) -> None:
    symbols = [
        ("main", FUNCTION, 0x10004, 8),
        ("_start", NOTYPE, 0x10000, 0),
        ("counter", OBJECT, 0x20008, 4),
        ("$xrv64i", NOTYPE, 0x10008, 0),
        (".L1", NOTYPE, 0x10008, 0),
        ("alias", FUNCTION, 0x10004, 0),
        ("_ZN3geo5StackIiE4pushERKi", FUNCTION, 0x10010, 8),
    ]
    image = load_image(elf_file(symbols=symbols).build())
    assert image.symbolize(0x10000) == "_start"
    assert image.symbolize(0x10002) == "_start+0x2"
    assert image.symbolize(0x10008) == "main+0x4"
    assert image.symbolize(0x1000C) == "0x1000c"
    assert image.symbolize(0xFFFC) == "0xfffc"
    assert image.symbolize(0x10014) == "geo::Stack<int>::push+0x4"
    assert image.symbolize(0x10010) == "geo::Stack<int>::push"
    counter = image.find_symbol("counter")
    assert counter is not None
    assert counter.address == 0x20008
    assert not counter.is_function
    assert image.find_symbol("absent") is None
    names = ["_start", "alias", "main", "_ZN3geo5StackIiE4pushERKi", "counter"]
    assert [symbol.name for symbol in image.symbols] == names


SYMBOLS, NAMES = -128, -64  # where the section headers begin: of the symbol table and of its names


@pytest.mark.parametrize(
    ("place", "layout", "value", "message"),
    [
        (
            SYMBOLS + 24,
            "<Q",
            1 << 40,
            "the file is truncated: the symbol table ends at byte 1099511627848 of 480",
        ),
        (SYMBOLS + 32, "<Q", 4800, "the file is truncated: the symbol table ends at byte 5008 of 480"),
        (
            NAMES + 24,
            "<Q",
            1 << 40,
            "the file is truncated: the symbol names ends at byte 1099511627784 of 480",
        ),
        (SYMBOLS + 40, "<I", 3, "the file is damaged: the symbol table has no names"),
        (NAMES + 4, "<I", 8, "the file is damaged: the symbol table has no names"),
    ],
)
def test_a_damaged_symbol_table_is_found_when_the_file_is_read(
    elf_file: type[ElfFile], place: int, layout: str, value: int, message: str
) -> None:
    damaged = bytearray(elf_file(symbols=[("main", FUNCTION, 0x10004, 8), ("x", OBJECT, 0x20008, 4)]).build())
    struct.pack_into(layout, damaged, len(damaged) + place, value)
    with pytest.raises(GuestImageError, match=message):
        load_image(bytes(damaged))


def test_without_debug_information_there_are_no_lines(elf_file: type[ElfFile]) -> None:
    image = load_image(elf_file().build())
    assert image.source_line(0x10000) is None
    assert image.line_rows() == ()


@pytest.fixture(scope="module")
def valid(elf_file: type[ElfFile]) -> bytes:
    return elf_file(symbols=[("main", FUNCTION, 0x10004, 8), ("counter", OBJECT, 0x20008, 4)]).build()


@settings(max_examples=300, deadline=None, derandomize=True)
@given(data=st.data())
def test_damaged_files_raise_nothing_but_image_errors(valid: bytes, data: st.DataObject) -> None:
    damaged = bytearray(valid[: data.draw(st.integers(0, len(valid)))])
    for _ in range(data.draw(st.integers(0, 4))):
        if damaged:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        image = load_image(bytes(damaged))
    except GuestImageError:
        return
    assert image.start <= image.entry < image.end <= 1 << 31
    image.symbolize(image.entry)
    image.source_line(image.entry)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.integers(0, 63 + 56 * 2), st.integers(0, 2**64 - 1), st.sampled_from([1, 2, 4, 8]))
def test_any_header_field_may_lie(valid: bytes, offset: int, value: int, size: int) -> None:
    damaged = bytearray(valid)
    damaged[offset : offset + size] = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    try:
        image = load_image(bytes(damaged))
    except GuestImageError:
        return
    assert image.symbolize(image.entry)
