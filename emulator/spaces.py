"""What belongs to one address space: its memory, the code known in it, and its translations.

A guest has one for each of its processes; a process that executes another program gets a new one. Facts about blocks
and their numbers are common to all, so that every observer sees one record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from emulator.engine.blocks import BlockCache
from emulator.engine.discovery import Pages
from emulator.engine.state import Hart
from emulator.engine.translator import Translator
from emulator.errors import GuestFault
from emulator.isa.decode import Instruction, decode
from emulator.linux.abi import Signal
from emulator.memory import (
    ADDRESS_SPACE_BYTES,
    EXEC,
    GUARD_BYTES,
    PAGE_SHIFT,
    WRITE,
    GuestMemory,
    MemoryFault,
)
from emulator.noted import NotedCode

_TABLES = ("block_index", "blocks")
_NEVER = b"", 0, None
# How long a process that ends waits for translations of its own that are of use to the next one.
PATIENCE_SECONDS = 0.5


class Space:
    """``cache``: blocks by pc; ``translator``: None with the oracle as the only engine.

    Code that the guest has changed is found by comparing what was decoded with what is there now, when the guest
    says that it may have changed code (fence.i, riscv_flush_icache) or changes its pages. So a program that adds
    code keeps the translations of what it had. ``in_doubt``: pages that `settle` has to look at.
    """

    def __init__(self, memory: GuestMemory, like: Space | None = None) -> None:
        self.memory = memory
        self.code = NotedCode()
        self.pages = Pages(memory.base, memory.perm, EXEC, self.code.tables)
        self.cache = BlockCache(self.fetch, self._illegal)
        self.translator: Translator | None = None
        self._tables: dict[str, int] = {}
        self._looked_at: list[int] = []  # pages, ascending
        self._stretches: list[tuple[int, int]] = []  # of them, side by side: the first one and the end
        self.in_doubt: set[int] = set()
        self._decoded: dict[
            int, tuple[bytes, int, Instruction | None]
        ] = {}  # where the oracle has executed it
        if like is not None:
            self.cache.join(like.cache)
        memory.on_code_change = self._code_changed

    def translate(self, hart: Hart, translator: Translator) -> None:
        """Give it a translator of its own, which was just made for ``hart``."""
        self.translator = translator
        self._tables = {name: hart.get(name) for name in _TABLES}

    def enter(self, hart: Hart) -> None:
        """Let the hart run here from now on."""
        hart.set("memory", self.memory.base)
        hart.set("memory_start", self.memory.base - GUARD_BYTES)
        hart.set("memory_end", self.memory.base + ADDRESS_SPACE_BYTES + GUARD_BYTES)
        for name, address in self._tables.items():
            hart.set(name, address)

    def close(self) -> None:
        """Nobody runs here again. What is left is small: Python may take its time to find out that nobody needs it."""
        if self.translator is not None:
            self.translator.close()
            self.translator = None
        self.code.close()
        self.cache.close()
        self.memory.close()

    # --- code
    def fetch(self, pc: int) -> int:
        """The raw bits of the instruction at ``pc``. Raises `MemoryFault`."""
        low = self.memory.fetch(pc, 2)
        self.code.note(pc, low)
        half = int.from_bytes(low, "little")
        if half & 3 != 3:
            return half
        high = self.memory.fetch(pc + 2, 2)
        self.code.note(pc + 2, high)
        return half | int.from_bytes(high, "little") << 16

    def instruction_at(self, pc: int) -> tuple[int, Instruction]:
        """The raw bits of the instruction at ``pc``, and what they are. Raises `MemoryFault` and `GuestFault`."""
        before, word, instruction = self._decoded.get(pc, _NEVER)
        if instruction is None or self.memory.fetch(pc, instruction.length_bytes) != before:
            word = self.fetch(pc)
            instruction = decode(word)
            if instruction is None:
                raise self._illegal(pc, word)
            self._decoded[pc] = self.memory.fetch(pc, instruction.length_bytes), word, instruction
        return word, instruction

    def peek(self, start: int, n_bytes: int) -> bytes | None:
        """Code, None where there is none."""
        try:
            return self.memory.fetch(start, n_bytes)
        except MemoryFault:
            return None

    def settle(self) -> None:
        """Find out what code has been changed, where it may have been, and know nothing of it any more."""
        doubtful, self.in_doubt = self.in_doubt, set()
        pages = sorted(doubtful)
        if pages != self._looked_at:  # a guest that changes code does so again and again
            self._looked_at, self._stretches = pages, _stretches(pages)
        found = [places for places in self._changes() if len(places)]
        if not found:
            return
        changed = found[0] if len(found) == 1 else np.unique(np.concatenate(found))
        self.code.forget(changed)
        gone = self.cache.reaching(changed)
        if self.translator is None:
            self.cache.forget(gone)
        elif gone:
            self.translator.forget(gone)

    def doubt_all(self) -> None:
        """Any code may have been changed that the guest can write to, here or elsewhere."""
        pages = self.code.pages()
        if not self.memory.has_shared:
            pages = pages[self.memory.perm[pages] & WRITE != 0]
        self.in_doubt.update(pages.tolist())

    def _changes(self) -> Iterator[NDArray[np.int64]]:
        """Halves of addresses whose code has changed, ascending: pages side by side at once."""
        for first, end in self._stretches:
            contents = self._contents(first, end - first)
            if contents is not None:
                yield self.code.changes(first, contents)
                continue
            for one in range(first, end):
                yield self.code.changes(one, self._contents(one, 1))

    def _contents(self, page: int, n_pages: int) -> memoryview | None:
        """Pages of code as they are, None where they are not all code."""
        try:
            return self.memory.view(page << PAGE_SHIFT, n_pages << PAGE_SHIFT, EXEC)
        except MemoryFault:
            return None

    def _code_changed(self, address: int, length_bytes: int) -> None:
        first, last = address >> PAGE_SHIFT, (address + length_bytes - 1) >> PAGE_SHIFT
        self.in_doubt.update(self.code.pages(first, last).tolist())

    @staticmethod
    def _illegal(pc: int, raw: int) -> Exception:
        return GuestFault(f"illegal instruction {raw:#x}", Signal.SIGILL, pc)


def _stretches(pages: list[int]) -> list[tuple[int, int]]:
    """First and end of the stretches of ``pages``, which ascend."""
    borders = [0, *(n for n in range(1, len(pages)) if pages[n] != pages[n - 1] + 1), len(pages)]
    return [(pages[begin], pages[end - 1] + 1) for begin, end in pairwise(borders) if begin < end]


class Spaces:
    """The address spaces of a guest, by their memory. ``were_several``: whether there was ever more than one."""

    def __init__(self, first: Space) -> None:
        self._spaces = {first.memory: first}
        self.were_several = False

    def get(self, memory: GuestMemory) -> Space | None:
        return self._spaces.get(memory)

    def begin(self, memory: GuestMemory, like: Space) -> Space:
        """One for ``memory``, with the facts of ``like``."""
        self.were_several = True
        self._spaces[memory] = Space(memory, like)
        return self._spaces[memory]

    def fork(self, memory: GuestMemory, copy: GuestMemory) -> None:
        """A process has got a copy of another one's memory."""
        self.begin(copy, self._spaces[memory])

    def keep_only(self, used: Collection[GuestMemory]) -> None:
        """Nobody runs in the others any more: what was known in them is left to others, and they are closed."""
        for gone in [memory for memory in self._spaces if memory not in used]:
            space = self._spaces.pop(gone)
            if space.translator is not None:
                space.translator.leave(PATIENCE_SECONDS)
            space.close()

    def leave(self) -> None:
        """Leave what is known in all of them to other processes."""
        for space in self._spaces.values():
            if space.translator is not None:
                space.translator.leave(PATIENCE_SECONDS)

    def close(self) -> None:
        for space in self._spaces.values():
            space.close()
