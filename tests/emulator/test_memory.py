"""Guest memory: mapping, permissions, limits, and that a bad access never reaches the host."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator import memory_mapping
from emulator.memory import (
    ADDRESS_SPACE_BYTES,
    EXEC,
    LOCKED,
    MAPPED,
    NOT_FORKED,
    PAGE_BYTES,
    READ,
    WIPED_ON_FORK,
    WRITE,
    GuestMemory,
    MemoryFault,
    MemoryLimit,
)


@pytest.fixture
def memory() -> Iterator[GuestMemory]:
    memory = GuestMemory()
    yield memory
    memory.close()


def test_bytes_lie_at_base_plus_address_in_the_host(memory: GuestMemory) -> None:
    memory.map(0x10000, PAGE_BYTES, READ | WRITE)
    memory.write(0x10010, b"hello")
    assert ctypes.string_at(memory.base + 0x10010, 5) == b"hello"
    ctypes.memmove(memory.base + 0x10020, b"host", 4)
    assert memory.read(0x10020, 4) == b"host"


def test_integers_are_little_endian_and_truncated(memory: GuestMemory) -> None:
    memory.map(0x10000, PAGE_BYTES, READ | WRITE)
    memory.write_int(0x10000, 4, 0x1_1234_5678)
    assert memory.read(0x10000, 5) == b"\x78\x56\x34\x12\x00"
    memory.write_int(0x10008, 8, -2)
    assert memory.read_int(0x10008, 8) == 2**64 - 2


@pytest.mark.parametrize(
    ("address", "n_bytes", "message"),
    [
        (0, 8, "bad guest read at 0x0: nothing is mapped there"),
        (0x10FFC, 8, "bad guest read at 0x11000: nothing is mapped there"),
        (ADDRESS_SPACE_BYTES - 4, 4, "bad guest read at 0x7ffffffc: nothing is mapped there"),
        (ADDRESS_SPACE_BYTES, 1, "bad guest read at 0x80000000: nothing is mapped there"),
        (2**64 - 8, 8, "bad guest read at 0xfffffffffffffff8: nothing is mapped there"),
    ],
)
def test_reading_what_is_not_mapped(memory: GuestMemory, address: int, n_bytes: int, message: str) -> None:
    memory.map(0x10000, PAGE_BYTES, READ | WRITE)
    with pytest.raises(MemoryFault) as caught:
        memory.read(address, n_bytes)
    assert str(caught.value) == message
    assert not caught.value.mapped


def test_a_range_over_the_end_of_the_address_space_faults_at_the_end(memory: GuestMemory) -> None:
    memory.map(ADDRESS_SPACE_BYTES - PAGE_BYTES, PAGE_BYTES, READ | WRITE)
    with pytest.raises(MemoryFault, match="at 0x80000000: nothing"):
        memory.write(ADDRESS_SPACE_BYTES - 2, b"1234")
    assert memory.read(ADDRESS_SPACE_BYTES - 2, 2) == b"\0\0"


def test_permissions_are_checked_and_say_what_was_lacking(memory: GuestMemory) -> None:
    memory.map(0x10000, PAGE_BYTES, READ)
    with pytest.raises(MemoryFault, match="bad guest write at 0x10004: the page does not allow it"):
        memory.write_int(0x10004, 4, 1)
    with pytest.raises(MemoryFault, match="bad guest execute at 0x10004") as caught:
        memory.fetch(0x10004, 4)
    assert (caught.value.access, caught.value.mapped) == (EXEC, True)
    memory.protect(0x10000, PAGE_BYTES, 0)
    with pytest.raises(MemoryFault, match="bad guest read at 0x10000: the page does not allow it"):
        memory.read(0x10000, 1)


def test_execute_and_write_permission_include_reading(memory: GuestMemory) -> None:
    memory.map(0x10000, PAGE_BYTES, EXEC)
    memory.map(0x11000, PAGE_BYTES, WRITE)
    assert memory.perm[0x10] == EXEC | READ | MAPPED
    assert memory.perm[0x11] == WRITE | READ | MAPPED
    assert memory.fetch(0x10000, 2) == memory.read(0x11000, 2) == b"\0\0"


def test_a_fault_in_the_middle_of_a_write_changes_nothing(memory: GuestMemory) -> None:
    memory.map(0x10000, PAGE_BYTES, READ | WRITE)
    with pytest.raises(MemoryFault):
        memory.write(0x10FFE, b"1234")
    assert memory.read(0x10FFE, 2) == b"\0\0"


def test_mapping_again_gives_zeros(memory: GuestMemory) -> None:
    memory.map(0x10000, 2 * PAGE_BYTES, READ | WRITE)
    memory.write(0x10000, b"a" * 2 * PAGE_BYTES)
    memory.map(0x11000, PAGE_BYTES, READ | WRITE)
    assert memory.read(0x10FFF, 2) == b"a\0"
    memory.write(0x11000, b"b")
    memory.discard(0x10000, 2 * PAGE_BYTES)
    assert memory.read(0x10000, 2 * PAGE_BYTES) == bytes(2 * PAGE_BYTES)


def test_move_keeps_contents_and_the_permission_of_each_page(memory: GuestMemory) -> None:
    memory.map(0x10000, 3 * PAGE_BYTES, READ | WRITE)
    for page in range(3):
        memory.write(0x10000 + page * PAGE_BYTES, bytes([page + 1]) * PAGE_BYTES)
    memory.protect(0x11000, PAGE_BYTES, 0)
    memory.protect(0x12000, PAGE_BYTES, READ)
    memory.move(0x10000, 0x50000, 3 * PAGE_BYTES)
    assert [int(p) for p in memory.perm[0x50:0x53]] == [READ | WRITE | MAPPED, MAPPED, READ | MAPPED]
    assert memory.is_free(0x10000, 3 * PAGE_BYTES)
    memory.protect(0x51000, PAGE_BYTES, READ)
    assert [memory.read_int(0x50000 + page * PAGE_BYTES, 1) for page in range(3)] == [1, 2, 3]
    assert memory.mapped_bytes == 3 * PAGE_BYTES


def test_the_limit_counts_usable_pages_only() -> None:
    memory = GuestMemory(limit_bytes=4 * PAGE_BYTES)
    memory.map(0x100000, 1 << 20, 0)  # a reservation costs nothing
    memory.map(0x10000, 3 * PAGE_BYTES, READ | WRITE)
    with pytest.raises(MemoryLimit, match="asked for 8192 bytes more than the 12288 it has"):
        memory.map(0x20000, 2 * PAGE_BYTES, READ | WRITE)
    assert memory.is_free(0x20000, 2 * PAGE_BYTES)
    with pytest.raises(MemoryLimit, match="may not use more than 16384"):
        memory.protect(0x100000, 2 * PAGE_BYTES, READ)
    memory.map(0x10000, 4 * PAGE_BYTES, READ | WRITE)  # replaces three
    memory.unmap(0x0F000, 3 * PAGE_BYTES)
    assert memory.mapped_bytes == 2 * PAGE_BYTES


def test_find_free_goes_down_from_the_top(memory: GuestMemory) -> None:
    assert memory.find_free(PAGE_BYTES, 0x10000, 0x20000) == 0x1F000
    memory.map(0x1E000, 2 * PAGE_BYTES, 0)
    assert memory.find_free(1, 0x10000, 0x20000) == 0x1D000
    memory.map(0x1B000, PAGE_BYTES, READ)
    assert memory.find_free(3 * PAGE_BYTES, 0x10000, 0x20000) == 0x18000
    assert memory.find_free(0xB000, 0x10000, 0x20000) == 0x10000
    assert memory.find_free(0xB001, 0x10000, 0x20000) is None
    assert memory.find_free(2**62, 0x10000, 0x20000) is None


def test_protecting_a_hole_is_refused(memory: GuestMemory) -> None:
    memory.map(0x10000, PAGE_BYTES, READ)
    with pytest.raises(MemoryFault, match="0x11000"):
        memory.protect(0x10000, 2 * PAGE_BYTES, READ | WRITE)
    assert memory.perm[0x10] == READ | MAPPED


@pytest.mark.parametrize(("address", "length"), [(1, 4096), (4096, 0), (4096, 5), (0x7FFFF000, 8192), (-4096, 4096)])
def test_ranges_that_are_not_pages_of_the_space_are_refused(memory: GuestMemory, address: int, length: int) -> None:
    with pytest.raises(ValueError, match="expected"):
        memory.map(address, length, READ)


def test_c_strings_end_at_a_zero_a_limit_or_a_fault(memory: GuestMemory) -> None:
    memory.map(0x10000, 2 * PAGE_BYTES, READ | WRITE)
    memory.write(0x10FFE, b"abcd\0")
    assert memory.read_cstring(0x10FFE) == b"abcd"
    assert memory.read_cstring(0x10FFE, limit_bytes=4) is None
    memory.write(0x11FFE, b"zz")
    with pytest.raises(MemoryFault, match="0x12000"):
        memory.read_cstring(0x11FFE)


def test_changes_to_code_are_announced(memory: GuestMemory) -> None:
    seen = []
    memory.map(0x10000, 2 * PAGE_BYTES, READ | WRITE)
    memory.attach(SimpleNamespace(code_changed=lambda address, length: seen.append((address, length))))
    memory.write(0x10000, b"data")
    memory.protect(0x11000, PAGE_BYTES, READ | WRITE | EXEC)
    assert seen == []
    memory.write_int(0x10FFC, 4, 0)  # as a store of the guest
    memory.write(0x10FFE, bytes(4))
    memory.protect(0x11000, PAGE_BYTES, READ)
    memory.map(0x11000, PAGE_BYTES, EXEC)
    memory.unmap(0x10000, 2 * PAGE_BYTES)
    assert seen == [(0x10FFE, 4), (0x11000, PAGE_BYTES), (0x10000, 2 * PAGE_BYTES)]


def test_after_close_every_access_is_a_fault() -> None:
    memory = GuestMemory()
    memory.map(0x10000, PAGE_BYTES, READ | WRITE)
    memory.close()
    memory.close()
    with pytest.raises(MemoryFault):
        memory.read(0x10000, 1)
    with pytest.raises(MemoryLimit, match="closed"):
        memory.map(0x10000, PAGE_BYTES, READ)


def test_forgotten_memory_is_given_back() -> None:
    for _ in range(200):  # 400 GiB of address space in all
        GuestMemory().map(0x10000, PAGE_BYTES, READ | WRITE)


PAGES = 8
operations = st.lists(
    st.tuples(
        st.sampled_from(["map", "unmap", "protect", "write"]),
        st.integers(0, PAGES - 1),
        st.integers(1, 3),
        st.sampled_from([0, READ, READ | WRITE, READ | EXEC]),
    ),
    max_size=25,
)


def naive_areas(memory: GuestMemory) -> list[tuple[int, int, int]]:
    found: list[tuple[int, int, int]] = []
    for page in range(PAGES + 10):
        entry = int(memory.perm[page])
        if entry and found and found[-1][2] == entry and sum(found[-1][:2]) == page * PAGE_BYTES:
            found[-1] = (found[-1][0], found[-1][1] + PAGE_BYTES, entry)
        elif entry:
            found.append((page * PAGE_BYTES, PAGE_BYTES, entry))
    return found


@settings(max_examples=100, deadline=None, derandomize=True)
@given(operations, st.booleans())
def test_any_sequence_of_operations_matches_a_dictionary_of_pages(sequence: Any, host_tells: bool) -> None:
    memory = GuestMemory()
    model: dict[int, tuple[int, int]] = {}  # page -> permission, first byte
    for step, (operation, first, count, prot) in enumerate(sequence):
        pages = range(first, first + count)
        where = (first * PAGE_BYTES, count * PAGE_BYTES)
        if operation == "map":
            memory.map(*where, prot)
            model.update((page, (prot, 0)) for page in pages)
        elif operation == "unmap":
            memory.unmap(*where)
            for page in pages:
                model.pop(page, None)
        elif operation == "protect":
            if all(page in model for page in pages):
                memory.protect(*where, prot)
                model.update((page, (prot, model[page][1])) for page in pages)
            else:
                with pytest.raises(MemoryFault):
                    memory.protect(*where, prot)
        elif first in model and model[first][0] & WRITE:
            memory.write(where[0], bytes([step]))
            model[first] = (model[first][0], step)
        else:
            with pytest.raises(MemoryFault):
                memory.write(where[0], bytes([step]))
    for page in range(PAGES + 3):
        prot, byte = model.get(page, (0, 0))
        assert memory.valid_range(page * PAGE_BYTES, PAGE_BYTES, READ) == bool(prot)
        if prot:
            assert memory.read_int(page * PAGE_BYTES, 1) == byte
    assert memory.mapped_bytes == sum(1 for prot, _ in model.values() if prot) * PAGE_BYTES
    assert memory.areas() == naive_areas(memory)
    with pytest.MonkeyPatch.context() as patch:
        if not host_tells:
            patch.setattr(memory_mapping.os, "pread", lambda *_: b"")
        copy = memory.copy()
    assert copy.areas() == memory.areas()
    assert copy.mapped_bytes == memory.mapped_bytes
    for address, length, entry in memory.areas():
        if entry & READ:
            assert copy.read(address, length) == memory.read(address, length)
    copy.close()
    memory.close()


def test_a_copy_has_what_the_guest_may_not_read_now(memory: GuestMemory) -> None:
    """A page without permissions keeps its contents over a fork: it may get permissions later."""
    memory.map(0x10000, 2 * PAGE_BYTES, READ | WRITE)
    memory.write(0x10000, b"hidden")
    memory.protect(0x10000, 2 * PAGE_BYTES, 0)
    other = memory.copy()
    try:
        for one in (memory, other):
            assert not one.valid_range(0x10000, 1, READ)
            one.protect(0x10000, PAGE_BYTES, READ)
            assert one.read(0x10000, 6) == b"hidden"
    finally:
        other.close()


def test_marks_stay_with_pages_and_say_what_a_copy_has(memory: GuestMemory) -> None:
    for page, marks in enumerate((LOCKED, WIPED_ON_FORK, NOT_FORKED)):
        memory.map(0x10000 + page * PAGE_BYTES, PAGE_BYTES, READ | WRITE)
        memory.write(0x10000 + page * PAGE_BYTES, b"x")
        memory.mark(0x10000 + page * PAGE_BYTES, PAGE_BYTES, marks)
    memory.protect(0x10000, 3 * PAGE_BYTES, READ)
    assert [entry for _, _, entry, _ in memory.parts_of(0x10000, 0x10000 + 3 * PAGE_BYTES)] == [
        READ | MAPPED | marks for marks in (LOCKED, WIPED_ON_FORK, NOT_FORKED)
    ]
    other = memory.copy()
    try:
        assert other.read(0x10000, 1) == b"x"
        assert other.read(0x11000, 1) == b"\0"
        assert other.is_free(0x12000, PAGE_BYTES)
        assert [int(entry) for entry in other.perm[0x10:0x12]] == [
            READ | MAPPED,
            READ | MAPPED | WIPED_ON_FORK,
        ]
    finally:
        other.close()
    memory.move(0x10000, 0x20000, PAGE_BYTES)
    assert memory.perm[0x20] == READ | MAPPED | LOCKED
    memory.mark(0x20000, 2 * PAGE_BYTES, 0, without=LOCKED)  # what is not mapped gets no marks
    assert [int(entry) for entry in memory.perm[0x20:0x22]] == [READ | MAPPED, 0]
