"""An address space: its memory, its blocks, and its translations.

A guest has an address space for each of its processes; a process that executes another program gets a new one. Block
facts and numbers are common to all, so that every observer sees one record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from emulator.engine.blocks import BlockCache
from emulator.engine.decode.discovery import Pages
from emulator.engine.hart_state import Hart
from emulator.engine.persist.code_shadow import CodeShadow
from emulator.engine.translator import Translator
from emulator.errors import GuestFault
from emulator.events import FIRST_PROGRAM, LAST_PROGRAM
from emulator.execution.counter_totals import CounterTotals
from emulator.isa.decode import Instruction, decode
from emulator.linux.abi.numbers import Signal
from emulator.linux.loader.elf import hash_of
from emulator.linux.loader.process_image import ProcessImage
from emulator.memory import (
    ADDRESS_SPACE_BYTES,
    EXEC,
    GUARD_BYTES,
    PAGE_SHIFT,
    WRITE,
    GuestMemory,
    MemoryFault,
)

_TABLES = ("block_index", "blocks")
_NEVER = b"", 0, None
# How long a process that ends waits for a planned region, which serves the next process.
MAX_WAIT_SECONDS = 0.5

_OP_V, _FLOAT_ACCESSES, _VECTOR_WIDTHS = 0x57, (0x07, 0x27), (0, 5, 6, 7)  # opcodes, and their field funct3


class AddressSpace:
    """One process's guest memory, with blocks and translations of its code.

    ``cache``: blocks by pc; ``translator``: None if the oracle is the only engine; ``like``: an address space of the
    same guest, with which it shares block facts; ``program``: the number of the program that its process executes.

    Changed code is found by comparing the code shadow with memory when the guest announces a change (fence.i,
    riscv_flush_icache) or changes code pages. So a program that adds code keeps its translations. ``dirty_pages``:
    pages that `invalidate_changed` has to compare.
    """

    def __init__(
        self, memory: GuestMemory, like: AddressSpace | None = None, program: int = FIRST_PROGRAM
    ) -> None:  # fmt: skip
        self.memory = memory
        self.code_shadow = CodeShadow()
        self.pages = Pages(memory.base, memory.perm, EXEC, self.code_shadow.tables)
        self.cache = BlockCache(self.fetch, self._illegal, self, program)
        self.translator: Translator | None = None
        self._tables: dict[str, int] = {}
        self._compared: list[int] = []  # the pages compared last, ascending
        self._page_ranges: list[tuple[int, int]] = []  # their contiguous ranges: first page and end
        self.dirty_pages: set[int] = set()
        # By pc, of slow instructions: bytes in memory, raw bits, and the decoded instruction.
        self._decoded: dict[int, tuple[bytes, int, Instruction | None]] = {}
        if like is not None:
            self.cache.join(like.cache)
        memory.attach(self)

    @property
    def program(self) -> int:
        """The number of the program that the process executes."""
        return self.cache.program

    def set_translator(self, hart: Hart, translator: Translator) -> None:
        """Set the translator, which was just made for this address space and ``hart``."""
        self.translator = translator
        self._tables = {name: hart.get(name) for name in _TABLES}

    def enter(self, hart: Hart) -> None:
        """Let the hart run in this address space from now on."""
        hart.set("memory", self.memory.base)
        hart.set("memory_start", self.memory.base - GUARD_BYTES)
        hart.set("memory_end", self.memory.base + ADDRESS_SPACE_BYTES + GUARD_BYTES)
        for name, address in self._tables.items():
            hart.set(name, address)

    def close(self) -> None:
        """Release translations, tables and memory. The rest is small and left to Python's garbage collection."""
        if self.translator is not None:
            self.translator.close()
            self.translator = None
        self.code_shadow.close()
        self.cache.close()
        self.memory.close()

    # --- code
    def fetch(self, pc: int) -> int:
        """The raw bits of the instruction at ``pc``. Raises `MemoryFault`."""
        low = self.memory.fetch(pc, 2)
        self.code_shadow.note(pc, low)
        half = int.from_bytes(low, "little")
        if half & 3 != 3:
            return half
        high = self.memory.fetch(pc + 2, 2)
        self.code_shadow.note(pc + 2, high)
        return half | int.from_bytes(high, "little") << 16

    def instruction_at(self, pc: int) -> tuple[int, Instruction]:
        """The instruction at ``pc``: raw bits, and decoded. Raises `MemoryFault` and `GuestFault`."""
        before, word, instruction = self._decoded.get(pc, _NEVER)
        if instruction is None or self.memory.fetch(pc, instruction.length_bytes) != before:
            word = self.fetch(pc)
            instruction = decode(word)
            if instruction is None:
                raise self._illegal(pc, word)
            self._decoded[pc] = self.memory.fetch(pc, instruction.length_bytes), word, instruction
        return word, instruction

    def peek(self, start: int, n_bytes: int) -> bytes | None:
        """``n_bytes`` of code from ``start`` on; None where some are not executable."""
        try:
            return self.memory.fetch(start, n_bytes)
        except MemoryFault:
            return None

    def invalidate_changed(self) -> None:
        """Compare the code of dirty pages, and drop the blocks and translations of changed code."""
        dirty, self.dirty_pages = self.dirty_pages, set()
        pages = sorted(dirty)
        if pages != self._compared:  # a guest that changes code changes the same pages again and again
            self._compared, self._page_ranges = pages, _page_ranges(pages)
        found = [places for places in self._changes() if len(places)]
        if not found:
            return
        changed = found[0] if len(found) == 1 else np.unique(np.concatenate(found))
        self.code_shadow.invalidate(changed)
        gone = self.cache.overlapping(changed)
        if self.translator is None:
            self.cache.invalidate(gone)
        elif gone:
            self.translator.invalidate(gone)

    def mark_all_dirty(self) -> None:
        """Mark all writable code pages as dirty; all code pages if there are shared mappings."""
        pages = self.code_shadow.pages()
        if not self.memory.has_shared:
            pages = pages[self.memory.perm[pages] & WRITE != 0]
        self.dirty_pages.update(pages.tolist())

    def _changes(self) -> Iterator[NDArray[np.int64]]:
        """pc / 2 of changed halfwords, ascending, for each contiguous range of pages."""
        for first, end in self._page_ranges:
            contents = self._contents(first, end - first)
            if contents is not None:
                yield self.code_shadow.changes(first, contents)
                continue
            for one in range(first, end):
                yield self.code_shadow.changes(one, self._contents(one, 1))

    def _contents(self, page: int, n_pages: int) -> memoryview | None:
        """The memory of some pages; None where they are not all executable."""
        try:
            return self.memory.view(page << PAGE_SHIFT, n_pages << PAGE_SHIFT, EXEC)
        except MemoryFault:
            return None

    # --- reports of memory and block cache (`emulator.listeners.CodeListener`)
    def code_changed(self, address: int, length_bytes: int) -> None:
        """Mark the pages with decoded code among these bytes as dirty."""
        first, last = address >> PAGE_SHIFT, (address + length_bytes - 1) >> PAGE_SHIFT
        self.dirty_pages.update(self.code_shadow.pages(first, last).tolist())

    def block_decoded(self, pc: int) -> None:
        """Keep the discovery kernel from numbering the block at ``pc`` again."""
        if self.translator is not None:
            self.translator.block_table.reserve(pc)

    @staticmethod
    def _illegal(pc: int, raw: int) -> GuestFault:
        vector = raw & 127 == _OP_V or (raw & 127 in _FLOAT_ACCESSES and raw >> 12 & 7 in _VECTOR_WIDTHS)
        why = " of the vector extension, which the machine does not have: compile with -march=rv64gc" if vector else ""
        return GuestFault(f"illegal instruction {raw:#x}{why}", Signal.SIGILL, pc)


def _page_ranges(pages: list[int]) -> list[tuple[int, int]]:
    """First page and end of the contiguous ranges of ``pages``, which ascend."""
    borders = [0, *(n for n in range(1, len(pages)) if pages[n] != pages[n - 1] + 1), len(pages)]
    return [(pages[begin], pages[end - 1] + 1) for begin, end in pairwise(borders) if begin < end]


class AddressSpaces:
    """The address spaces of a guest, by memory, of which the first executes ``program``. ``were_several``: whether
    there was ever more than one; ``totals``: counters that are followed over all of them.

    Programs are numbered in the order in which the guest executes them; the same file has the same number.
    """

    def __init__(self, first: AddressSpace, program: ProcessImage) -> None:
        self._by_memory = {first.memory: first}
        self._first_program = program
        self._numbers: dict[str, int] = {}  # by a hash, for a guest may execute any number of large programs
        self._kept: dict[int, ProcessImage] | None = None
        self.were_several = False
        self.totals: list[CounterTotals] = []

    def get(self, memory: GuestMemory) -> AddressSpace | None:
        return self._by_memory.get(memory)

    def begin(self, memory: GuestMemory, program: ProcessImage, like: AddressSpace) -> AddressSpace:
        """A new address space for ``memory``, in which a process executes ``program``, and which shares block facts
        with ``like``."""
        number = self._number(program)
        if self._kept is not None:
            self._kept.setdefault(number, program)
        for each in self.totals:
            each.began(memory, program.image.data)
        return self._add(memory, like, number)

    def fork(self, memory: GuestMemory, copy: GuestMemory) -> None:
        """Add an address space for ``copy``, a process's copy of another's ``memory``."""
        space = self._by_memory[memory]
        self._add(copy, space, space.program)
        for each in self.totals:
            each.forked(memory, copy)

    def programs(self) -> dict[int, ProcessImage]:
        """The programs that processes begin, by number: the first one, and all from the first call on; a live view."""
        if self._kept is None:
            self._kept = {FIRST_PROGRAM: self._first_program}
        return self._kept

    def _add(self, memory: GuestMemory, like: AddressSpace, program: int) -> AddressSpace:
        self.were_several = True
        self._by_memory[memory] = AddressSpace(memory, like, program)
        return self._by_memory[memory]

    def _number(self, program: ProcessImage) -> int:
        """The number of ``program``, a new one if no process has executed it before."""
        if not self._numbers:
            self._numbers[hash_of(self._first_program.image.data)] = FIRST_PROGRAM
        number = min(len(self._numbers), LAST_PROGRAM)
        return self._numbers.setdefault(hash_of(program.image.data), number)

    def keep_only(self, used: Collection[GuestMemory]) -> None:
        """Close the address spaces that no process uses, and hand their translations over to later processes."""
        for gone in [memory for memory in self._by_memory if memory not in used]:
            space = self._by_memory.pop(gone)
            for each in self.totals:
                each.closed(gone)
            if space.translator is not None:
                space.translator.hand_over(MAX_WAIT_SECONDS)
            space.close()

    def hand_over(self) -> None:
        """Hand the translations of all address spaces over to later processes."""
        for space in self._by_memory.values():
            if space.translator is not None:
                space.translator.hand_over(MAX_WAIT_SECONDS)

    def close(self) -> None:
        for space in self._by_memory.values():
            space.close()
