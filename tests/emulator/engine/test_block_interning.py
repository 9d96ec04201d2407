"""Numbers of blocks in several processes: a naive twin of the tables, and the kernel that looks things up there."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.engine.address_tables import GUEST_SPACE, Table
from emulator.engine.decode.block_interning import InternedBlocks
from emulator.engine.decode.discovery import Discovery
from emulator.engine.decode.operations import DESCRIPTOR_DTYPE
from emulator.engine.entry.entry import Entry
from emulator.events import BlockFacts
from emulator.execution.address_space import AddressSpace
from emulator.isa.decode import assemble
from emulator.memory import EXEC, READ, WRITE, GuestMemory

CODE, FALLBACK = 0x40000, 0x1234


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([0x1000, 0x1002, 0x2000]), st.lists(st.integers(0, 2), min_size=1, max_size=3)),
        max_size=30,
    ),
    st.sets(st.integers(0, 30)),
)
def test_numbers(found: list[tuple[int, list[int]]], caught_up_at: set[int]) -> None:
    facts, twin = BlockFacts(), dict[tuple[int, tuple[int, ...]], int]()
    same: InternedBlocks | None = None
    for n, (pc, words) in enumerate(found):
        if n in caught_up_at:
            same = same or InternedBlocks(facts)
            same.catch_up()
        key = pc, tuple(words)
        if same is not None:
            assert same.find(pc, words) == twin.get(key)
        if key not in twin:
            rows = [(pc + 4 * place, 4, 0, 0, 0, 0, 0, 0, 0) for place in range(len(words))]
            twin[key] = facts.append(rows, None, words)
    same = same or InternedBlocks(facts)
    for (pc, words_of), number in twin.items():
        assert same.find(pc, words_of) == number
    assert same.find(0x3000, [1]) is None


class Process:
    """A space with a kernel of its own."""

    def __init__(self, like: AddressSpace | None) -> None:
        self.memory = GuestMemory()
        self.memory.map(CODE, 4096, READ | WRITE | EXEC)
        self.space = AddressSpace(self.memory, like)
        self.tables = [Table(GUEST_SPACE * 4), Table(GUEST_SPACE * 2), Table(64 * DESCRIPTOR_DTYPE.itemsize)]
        self.descriptors: Any = self.tables[2].view("u1").view(DESCRIPTOR_DTYPE)
        self.kernel = Discovery(
            Entry.get().compiler,
            self.space.cache,
            self.space.pages,
            self.descriptors,
            self.tables[1].view("u4"),
        )

    def meet(self, immediate: int, by_kernel: bool) -> int:
        """The number of a block of two instructions, of which the first one has ``immediate``."""
        code = assemble("addi", rd=5, rs1=5, imm=immediate).to_bytes(4, "little")
        self.memory.write(CODE, code + assemble("ecall").to_bytes(4, "little"))
        self.space.cache.by_pc.clear()
        self.space.cache._undecoded.clear()
        if not by_kernel:
            return self.space.cache.get(CODE).number
        self.tables[1].view("u4")[CODE >> 1] = 0
        self.kernel.begin(FALLBACK, self.tables[0].address, 77, 0)
        assert self.kernel.discover(CODE)
        operations, numbers = self.kernel.collect()
        assert not self.kernel.has_found
        assert self.descriptors[1]["number"] == numbers[0] == self.space.cache.number_of(CODE)
        assert self.descriptors[1]["operations"] == operations.ctypes.data
        assert self.space.cache.get(CODE).words[1] == assemble("ecall")
        return int(numbers[0])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4), st.booleans()), min_size=1, max_size=25))
def test_processes_that_meet_the_same_code(met: list[tuple[int, int, bool]]) -> None:
    first = Process(None)
    processes = [first, Process(first.space), Process(first.space)]
    twin: dict[int, int] = {}
    try:
        for place, immediate, by_kernel in met:
            expected = twin.setdefault(immediate, len(twin))
            assert processes[place].meet(immediate, by_kernel) == expected
            assert first.space.cache.facts.n_blocks == len(twin)
    finally:
        for process in processes:
            process.memory.close()
