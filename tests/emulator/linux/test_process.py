"""The process image: what a new program finds in its memory."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from emulator.errors import EmulatorError
from emulator.linux.loader.elf import load_image
from emulator.linux.loader.process_image import (
    STACK_GUARD_BYTES,
    STACK_TOP,
    Layout,
    ProcessImage,
    build_process,
)
from emulator.memory import EXEC, MAPPED, PAGE_BYTES, READ, WRITE, GuestMemory
from tests.emulator.linux.conftest import ElfFile


def build(
    elf_file: type[ElfFile],
    arguments: Sequence[str] = ("guest",),
    environment: dict[str, str] | None = None,
    layout: Layout | None = None,
) -> tuple[GuestMemory, ProcessImage]:
    memory = GuestMemory()
    image = load_image(elf_file().build(), "/bin/guest")
    return memory, build_process(memory, image, list(arguments), environment, layout)


def read_stack(
    memory: GuestMemory, process: ProcessImage
) -> tuple[list[bytes | None], list[bytes | None], dict[int, int]]:
    """(arguments, environment, auxiliary vector) as a C library reads them."""
    words = _words(memory, process)
    count = next(words)
    arguments = [memory.read_cstring(next(words), 1 << 20) for _ in range(count)]
    assert next(words) == 0
    environment = []
    while address := next(words):
        environment.append(memory.read_cstring(address, 1 << 20))
    auxiliary = {}
    while (kind := next(words)) != 0:
        auxiliary[kind] = next(words)
    return arguments, environment, auxiliary


def _words(memory: GuestMemory, process: ProcessImage) -> Iterator[int]:
    address = process.stack_pointer
    while True:
        yield memory.read_int(address, 8)
        address += 8


def test_segments_are_loaded_with_their_permissions(elf_file: type[ElfFile]) -> None:
    memory, process = build(elf_file)
    assert memory.read(0x20000, 16) == b"initialised data"
    assert memory.read(0x20010, 0x1FF0) == bytes(0x1FF0)
    assert memory.perm[0x10] == READ | EXEC | MAPPED
    assert [int(p) for p in memory.perm[0x20:0x23]] == [READ | WRITE | MAPPED] * 2 + [0]
    assert (process.entry, process.brk_start) == (0x10000, 0x22000)


def test_segments_may_share_a_page(elf_file: type[ElfFile]) -> None:
    memory = GuestMemory()
    build_process(memory, load_image(elf_file(data_address=0x10010).build()), ["x"])
    assert memory.perm[0x10] == READ | WRITE | EXEC | MAPPED
    assert memory.perm[0x11] == READ | WRITE | MAPPED
    assert memory.read(0x1000C, 8) == bytes.fromhex("13000000") + b"init"


def test_arguments_environment_and_auxiliary_vector(elf_file: type[ElfFile]) -> None:
    memory, process = build(elf_file, ["guest", "", "ä b"], {"A": "1", "EMPTY": ""})
    arguments, environment, auxiliary = read_stack(memory, process)
    assert arguments == [b"guest", b"", "ä b".encode()]
    assert environment == [b"A=1", b"EMPTY="]
    assert process.stack_pointer % 16 == 0
    at_phdr, at_phent, at_phnum, at_pagesz, at_entry, at_secure, at_random, at_execfn = (
        3,
        4,
        5,
        6,
        9,
        23,
        25,
        31,
    )
    assert (auxiliary[at_phent], auxiliary[at_phnum], auxiliary[at_pagesz]) == (56, 2, 4096)
    assert (auxiliary[at_entry], auxiliary[at_secure], auxiliary[at_phdr]) == (0x10000, 0, 0)
    assert memory.read_cstring(auxiliary[at_execfn]) == b"/bin/guest"
    assert len(set(memory.read(auxiliary[at_random], 16))) > 4


def test_the_seed_decides_the_random_bytes(elf_file: type[ElfFile]) -> None:
    def random_bytes(seed: int) -> bytes:
        memory, process = build(elf_file, layout=Layout(seed=seed))
        return memory.read(read_stack(memory, process)[2][25], 16)

    assert random_bytes(1) == random_bytes(1)
    assert random_bytes(1) != random_bytes(2)


def test_the_stack_ends_in_a_gap(elf_file: type[ElfFile]) -> None:
    memory, process = build(elf_file, layout=Layout(stack_bytes=1 << 16))
    assert process.stack_high - process.stack_low == 1 << 16
    assert memory.valid_range(process.stack_low, 1 << 16, READ | WRITE)
    assert memory.is_free(process.stack_low - STACK_GUARD_BYTES, STACK_GUARD_BYTES)
    assert process.is_stack_overflow(process.stack_low - 8)
    assert not process.is_stack_overflow(process.stack_low)
    assert not process.is_stack_overflow(process.stack_low - STACK_GUARD_BYTES - 1)
    assert process.mmap_high == process.stack_low - STACK_GUARD_BYTES


@pytest.mark.parametrize("offset", [16, 64, 4080, 65536])
def test_stack_offset_moves_the_stack_pointer_by_exactly_that(elf_file: type[ElfFile], offset: int) -> None:
    _, plain = build(elf_file)
    memory, moved = build(elf_file, layout=Layout(stack_offset_bytes=offset))
    assert plain.stack_pointer - moved.stack_pointer == offset
    assert read_stack(memory, moved)[0] == [b"guest"]


def test_heap_offset_moves_brk_up_and_mmap_down(elf_file: type[ElfFile]) -> None:
    _, plain = build(elf_file)
    _, moved = build(elf_file, layout=Layout(heap_offset_bytes=3 * PAGE_BYTES))
    assert moved.brk_start - plain.brk_start == 3 * PAGE_BYTES
    assert plain.mmap_high - moved.mmap_high == 3 * PAGE_BYTES


def test_environment_padding_is_a_variable_of_that_length(elf_file: type[ElfFile]) -> None:
    memory, process = build(elf_file, environment={"A": "1"}, layout=Layout(environment_padding_bytes=100))
    assert read_stack(memory, process)[1] == [b"A=1", b"ENVIRONMENT_PADDING=" + b"x" * 100]


def test_the_trampoline_calls_rt_sigreturn(elf_file: type[ElfFile]) -> None:
    memory, process = build(elf_file)
    load_immediate, ecall = struct.unpack("<II", memory.fetch(process.trampoline, 8))
    assert (load_immediate >> 20, load_immediate & 0xFFFFF, ecall) == (139, 17 << 7 | 0x13, 0x73)
    assert not memory.valid_range(process.trampoline, 8, WRITE)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stack_bytes": 5000}, "stack_bytes is 5000: expected a multiple of 4096, zero or more"),
        ({"stack_bytes": 4096}, "stack_bytes is 4096: expected at least 65536"),
        ({"stack_offset_bytes": 8}, "stack_offset_bytes is 8: expected a multiple of 16, zero or more"),
        (
            {"heap_offset_bytes": -4096},
            "heap_offset_bytes is -4096: expected a multiple of 4096, zero or more",
        ),
        ({"environment_padding_bytes": -1}, "environment_padding_bytes is -1: expected zero or more"),
    ],
)
def test_layouts_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    with pytest.raises(EmulatorError) as caught:
        Layout(**options)
    assert str(caught.value) == message


def test_arguments_that_do_not_fit(elf_file: type[ElfFile]) -> None:
    with pytest.raises(EmulatorError, match=r"take 30018 bytes and there is room for 16384 on a stack of 65536"):
        build(elf_file, ["guest", "x" * 30000], layout=Layout(stack_bytes=65536))


def test_zero_bytes_in_arguments(elf_file: type[ElfFile]) -> None:
    with pytest.raises(EmulatorError, match="argument 'a\\\\x00b' contains a zero byte"):
        build(elf_file, ["a\0b"])


def test_a_stack_that_leaves_no_room(elf_file: type[ElfFile]) -> None:
    with pytest.raises(EmulatorError, match="no room for a heap"):
        build(elf_file, layout=Layout(stack_bytes=STACK_TOP - 0x30000))
