"""The kernel that discovers blocks, against the Python that says what a block is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.file_cache import object_path
from emulator.engine.address_tables import GUEST_SPACE, Table
from emulator.engine.blocks import BlockCache
from emulator.engine.decode.discovery import Discovery, _instruction_set, _make_instruction_set
from emulator.engine.decode.operations import DESCRIPTOR_DTYPE, OPERATION_DTYPE, operations_of
from emulator.engine.entry.entry import Entry
from emulator.engine.instrument.inline_functions import InlineTables
from emulator.engine.persist.translation_store import sources_identity
from emulator.errors import GuestFault
from emulator.events import InlineCall, OpClass
from emulator.execution.address_space import AddressSpace
from emulator.isa.decode import assemble
from emulator.isa.table import TABLE
from emulator.memory import EXEC, READ, WRITE, GuestMemory, MemoryFault

CODE, PAGE = 0x7FFFE000, 4096  # the last two pages of the address space
FALLBACK = 0x1234
CALLS = [
    InlineCall(
        place=place, fields=("pc",), kinds=kinds, mnemonics=(), ranges=(), state=0, function="none", after=True
    )
    for place, kinds in enumerate([(int(OpClass.BRANCH), int(OpClass.RETURN)), tuple(map(int, OpClass))[::2]])
]  # fmt: skip


class Twin:
    """The same memory, discovered by both."""

    def __init__(self) -> None:
        self.memory = GuestMemory()
        self.memory.map(CODE, 2 * PAGE, READ | WRITE | EXEC)
        self.dispatch_table, self.index = Table(GUEST_SPACE * 4), Table(GUEST_SPACE * 2)
        self.descriptors = Table(64 * DESCRIPTOR_DTYPE.itemsize)
        self.watched, self.noted = InlineTables(CALLS), InlineTables(CALLS)

    def check(self, code: bytes, at: int = CODE) -> int:
        """Discover the block at ``at`` both ways; how many instructions it has."""
        self.memory.write(at, code)
        space, other = AddressSpace(self.memory), AddressSpace(self.memory)
        descriptors = self.descriptors.view("u1").view(DESCRIPTOR_DTYPE)
        kernel = Discovery(Entry.get().compiler, space.cache, space.pages, descriptors, self.index.view("u4"))
        self.dispatch_table.view("u8")[at >> 1] = self.index.view("u4")[at >> 1] = 0
        kernel.watch(self.watched.by_class, self.watched.inline_map)
        kernel.begin(FALLBACK, self.dispatch_table.address, 77, 0)
        try:
            block = other.cache.get(at)
        except Exception:
            assert not kernel.discover(at)
            assert not kernel.has_found
            return 0
        assert kernel.discover(at)
        assert not kernel.discover(at)  # it is known
        assert kernel.has_found
        operations, _ = kernel.collect()
        assert not kernel.has_found
        for noted in (space.code_shadow, other.code_shadow):
            found, is_known = noted.within(CODE, 2 * PAGE)
            places = range(at >> 1, block.end_pc >> 1)
            if noted is space.code_shadow:  # Python looks at what ends the block before it, too
                assert (is_known.nonzero()[0] + (CODE >> 1)).tolist() == list(places)
            decoded = found[(at - CODE) >> 1 :][: len(places)]
            assert decoded.tobytes() == self.memory.fetch(at, block.end_pc - at)
        expected = operations_of(block)
        assert operations.tolist() == expected.tolist()
        assert space.cache.facts.blocks.tolist() == other.cache.facts.blocks.tolist()
        assert space.cache.facts.instructions.tolist() == other.cache.facts.instructions.tolist()
        assert descriptors[1].tolist() == (
            operations.ctypes.data, 0, len(block.instructions), 0, 77, at, len(operations), block.end_pc, 0
        )  # fmt: skip
        self.noted.add_blocks(other.cache.facts, [block.number])
        code = np.array(block.pcs) >> 1
        entries, expected_entries = (tables.inline_map.view("u8")[code] for tables in (self.watched, self.noted))
        assert entries.tolist() == expected_entries.tolist()
        assert entries.all()
        assert self.index.view("u4")[at >> 1] == 1
        assert self.dispatch_table.view("u8")[at >> 1] == FALLBACK
        assert space.cache.get(at) == block  # decoded when somebody asks, under the same number
        return len(block.instructions)


@pytest.fixture(scope="module")
def twin() -> Iterator[Twin]:
    found = Twin()
    yield found
    found.memory.close()


def words_of(rng: np.random.Generator, count: int) -> bytes:
    """Instructions of all rows with random fields, few of which end a block."""
    rows = [row for row in TABLE if not (row.ends_block or row.slow)]
    words = []
    for _ in range(count):
        row: Any = rows[rng.integers(len(rows))]
        free = int(rng.integers(1 << 32)) & ~row.mask & 0xFFFFFFFF
        words.append(row.match | free)
    return b"".join(word.to_bytes(4, "little") for word in words)


def test_every_row_and_every_rounding_mode(twin: Twin) -> None:
    rng = np.random.default_rng(1)
    for row in TABLE:
        for mode in range(16):
            free = int(rng.integers(1 << 32)) & ~row.mask & 0xFFFFFFFF
            if "rm" in row.fields:
                free = free & ~0x7000 | mode % 8 << 12
            twin.check((row.match | free).to_bytes(4, "little") + assemble("ecall").to_bytes(4, "little"))


def test_accesses_near_one_another(twin: Twin) -> None:
    """Which of them get line timestamps: offsets of a few lines, through few registers that some of them change."""
    rng = np.random.default_rng(7)
    for _ in range(300):
        words = [assemble("ecall")]
        for _ in range(int(rng.integers(1, 25))):
            base, other, offset = (int(rng.choice(of)) for of in ([2, 10, 11], [5, 10, 11], np.arange(-16, 17) * 8))
            load, store = assemble("ld", other, base, imm=offset), assemble("sd", rs1=base, rs2=other, imm=offset)
            words.insert(0, load if rng.integers(2) else store)
        twin.check(b"".join(word.to_bytes(4, "little") for word in words))


def test_16_bit_instructions(twin: Twin) -> None:
    """Of every kind, for 29 is prime."""
    for half in range(0, 1 << 16, 29):
        if half & 3 != 3:
            twin.check(half.to_bytes(2, "little") + b"\x02\x90")


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 70), offset=st.integers(0, 30))
def test_blocks(twin: Twin, seed: int, count: int, offset: int) -> None:
    rng = np.random.default_rng(seed)
    twin.check(words_of(rng, count) + rng.bytes(24), CODE + 2 * offset)


@settings(max_examples=100, deadline=None)
@given(code=st.binary(min_size=2, max_size=80), offset=st.integers(1, 40))
def test_any_bytes_at_the_end_of_the_address_space(twin: Twin, code: bytes, offset: int) -> None:
    at = CODE + 2 * PAGE - 2 * offset
    twin.check(code[: 2 * offset], at)


def test_calls_by_two_instructions(twin: Twin) -> None:
    for rd, used in ((1, 1), (6, 6), (6, 7), (0, 0), (5, 5)):
        for link in (0, 1, 5, 3):
            code = assemble("auipc", rd, imm=0x2000), assemble("jalr", link, used, imm=-6)
            assert twin.check(b"".join(word.to_bytes(4, "little") for word in code)) == 2
    far = assemble("auipc", 6, imm=0x7FFFF000), assemble("jalr", 1, 6, imm=0)  # out of the address space
    assert twin.check(b"".join(word.to_bytes(4, "little") for word in far)) == 2


def test_tables_that_are_kept_are_those_that_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made: tuple[Any, ...] = _make_instruction_set()
    for _ in range(2):  # the second time they are read
        kept: tuple[Any, ...] = _instruction_set()
        assert [(array.dtype, array.shape) for array in kept] == [(array.dtype, array.shape) for array in made]
        assert all(np.array_equal(one, other) for one, other in zip(kept, made, strict=True))
    assert object_path(f"instructions {sources_identity()}").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["perturbation"]


def test_where_nothing_may_be_executed(twin: Twin) -> None:
    nop = assemble("addi").to_bytes(4, "little")
    twin.memory.write(CODE + PAGE - 6, nop + nop)
    twin.memory.protect(CODE + PAGE, PAGE, READ | WRITE)
    try:
        assert twin.check(b"", CODE + PAGE - 6) == 1  # the next one lies half in the page
        assert twin.check(b"", CODE + PAGE - 2) == 0
        with pytest.raises(MemoryFault):
            AddressSpace(twin.memory).cache.get(CODE + PAGE)
    finally:
        twin.memory.protect(CODE + PAGE, PAGE, READ | WRITE | EXEC)


def found_by(kernel: Discovery, descriptors: Any) -> list[tuple[Any, int]]:
    if not kernel.has_found:
        return []
    operations, numbers = kernel.collect()
    blocks = kernel._cache.facts.blocks[numbers]
    rows = descriptors[kernel.n_known + 1 - len(blocks) :][: len(blocks)]
    first = (rows["operations"].astype(np.int64) - operations.ctypes.data) // OPERATION_DTYPE.itemsize
    assert rows["pc"].tolist() == blocks["pc"].tolist()
    ends = first + rows["n_operations"]
    assert [0, *ends.tolist()] == [*first.tolist(), len(operations)]
    return [(operations[a:b], pc) for a, b, pc in zip(first, ends, blocks["pc"].tolist(), strict=True)]


def test_a_table_that_grows(twin: Twin) -> None:
    """Facts, chunks of operations and numbers go on where they are full."""
    space = AddressSpace(twin.memory)
    descriptors = Table(4096 * DESCRIPTOR_DTYPE.itemsize)
    view = descriptors.view("u1").view(DESCRIPTOR_DTYPE)
    kernel = Discovery(Entry.get().compiler, space.cache, space.pages, view, twin.index.view("u4"))
    twin.memory.write(CODE, words_of(np.random.default_rng(3), 900) + b"\x02\x90")
    kept = []
    twin.index.view("u4")[CODE >> 1 :] = 0
    kernel.begin(FALLBACK, twin.dispatch_table.address, 0, 0)
    for place in range(1700):
        if not kernel.discover(CODE + 2 * place):
            if kernel.has_found:
                kept += [(pc, one.copy(), one) for one, pc in found_by(kernel, view)]
            kernel.begin(FALLBACK, twin.dispatch_table.address, 0, len(kept))
            kernel.discover(CODE + 2 * place)
    kept += [(pc, one.copy(), one) for one, pc in found_by(kernel, view)]
    other = BlockCache(space.fetch, lambda pc, raw: GuestFault("illegal", 4, pc))
    for pc, copy, live in kept:
        block = other.get(pc)
        np.testing.assert_array_equal(copy, live)
        assert copy.tolist() == operations_of(block).tolist()
    assert len(kept) > 1100
    assert space.cache.facts.blocks.tolist() == other.facts.blocks.tolist()
