"""Tiers: which code runs interpreted, which translated, and when it moves up.

The table of entry points (``slots``) has one host function for every guest pc that control may arrive at: none
(nothing known: back to Python), the interpreter (decoded), or a translation. A block that the interpreter
reports as hot seeds a region - the executed blocks reachable inside its function - which a background thread
compiles and then publishes by storing into the table. One `Tier` exists for each `TraceSelection`; switching
between selections changes one pointer.
"""

from __future__ import annotations

import ctypes
import mmap
import queue
import threading
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from emulator.engine.blocks import Block, BlockCache
from emulator.engine.emit import DECLARATIONS, METADATA
from emulator.engine.entry import Entry
from emulator.engine.fault_location import function_size, pc_at
from emulator.engine.interpreter import DESCRIPTOR_DTYPE, OPERATION_DTYPE, InterpreterEmitter, operations_of
from emulator.engine.llvm import Compiler
from emulator.engine.region import COUNTS, RegionEmitter
from emulator.engine.state import Hart
from emulator.events import OpClass, TraceSelection

GUEST_SPACE = 1 << 31
_MAP_NORESERVE = 0x4000
MAX_BLOCKS = 1 << 20
MAX_REGION_INSTRUCTIONS = 1500
HOT_EXECUTIONS = 300  # interpreted, before a quick translation
OPTIMISE_EXECUTIONS = 20_000  # of a quick translation, before an optimised one
WORTH_EXECUTIONS = 8  # interpreted, for a block to be translated with its hot neighbours
WORTH_SHIFT = 8  # a block this many powers of two less hot than its neighbours is not optimised with them
MAX_COPIES = 2
QUICK_LEVEL, OPTIMISED_LEVEL = 0, 2


class _Table:
    """A large sparse table of zeros: only the pages that are touched take memory."""

    def __init__(self, size_bytes: int) -> None:
        self._map = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE)
        self._view = np.frombuffer(self._map, np.uint8)
        self.address = self._view.ctypes.data

    def view(self, dtype: str) -> np.ndarray:
        return self._view.view(dtype)


@dataclass
class Region:
    """A region on its way to being compiled, or compiled: its host code and the blocks in it."""

    name: str
    entries: list[int]
    blocks: dict[int, Block]
    optimised: bool
    address: int = 0
    image: bytes = b""
    counts: np.ndarray | None = None  # executions of the blocks, in their order, by the quick translation

    @cached_property
    def place(self) -> dict[int, int]:
        """The place of each block in ``counts``."""
        return {pc: place for place, pc in enumerate(self.blocks)}


@dataclass
class Tier:
    """Everything translated for one selection."""

    selection: TraceSelection
    slots: _Table
    interpreter: int
    interpret_only: bool = False
    regions: list[Region] = field(default_factory=list)
    quick: dict[int, Region] = field(default_factory=dict)  # the quick translation of a block
    optimised: set[int] = field(default_factory=set)  # entries of optimised translations, also of those to come
    copies: Counter[int] = field(default_factory=Counter)  # optimised translations that a block is in


class Translator:
    """Keeps the tables of one machine and promotes hot code.

    ``background``: compile in another thread while the interpreter goes on (the default); otherwise compile at
    once, which tests use to know what ran.
    """

    def __init__(
        self,
        hart: Hart,
        cache: BlockCache,
        *,
        background: bool = True,
        hot_executions: int = HOT_EXECUTIONS,
        optimise_executions: int = OPTIMISE_EXECUTIONS,
    ) -> None:
        self.hart = hart
        self.cache = cache
        self.optimise_executions = optimise_executions
        self.background = background
        self._entry = Entry.get()
        self._compiler: Compiler = self._entry.compiler
        self._block_index = _Table(GUEST_SPACE * 2)
        self._descriptors = _Table(MAX_BLOCKS * DESCRIPTOR_DTYPE.itemsize)
        self._index_view = self._block_index.view("u4")
        self._descriptor_view = self._descriptors.view("u1").view(DESCRIPTOR_DTYPE)
        self._call_targets: list[int] = []  # sorted
        self._operations: list[np.ndarray] = []
        self._tiers: dict[tuple[TraceSelection, bool], Tier] = {}
        self.tier: Tier
        hart.set("block_index", self._block_index.address)
        hart.set("blocks", self._descriptors.address)
        hart.set("hot", hot_executions)
        self._queue: queue.SimpleQueue[tuple[Tier, Region] | None] = queue.SimpleQueue()
        self._closing = False
        self._publishing = threading.Lock()
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._generation = 0

    # --- selection
    def select(self, selection: TraceSelection, interpret_only: bool = False) -> Tier:
        """Run with ``selection`` from now on; translations of other selections stay.

        ``interpret_only``: translate nothing, so that all registers are exact at every access: for guests that
        catch memory faults.
        """
        tier = self._tiers.get((selection, interpret_only))
        if tier is None:
            name = f"interpreter{int(selection.blocks)}{int(selection.addresses)}"
            text = DECLARATIONS + InterpreterEmitter(selection, name).emit() + METADATA
            address = self._compiler.compile(text, [name])[name]
            tier = Tier(selection, _Table(GUEST_SPACE * 4), address)
            tier.interpret_only = interpret_only
            self._tiers[selection, interpret_only] = tier
        self.tier = tier
        self.hart.set("slots", tier.slots.address)
        return tier

    # --- from Python's run loop
    def discover(self, pc: int) -> None:
        """Decode the block at ``pc`` and let the interpreter run it. Raises the guest's fault if it cannot."""
        block = self.cache.get(pc)
        if not self._index_view[pc >> 1]:
            number = len(self._operations) + 1
            if number >= MAX_BLOCKS:
                raise MemoryError(f"more than {MAX_BLOCKS} blocks of guest code")
            operations = operations_of(block)
            self._operations.append(operations)
            self._descriptor_view[number] = (
                operations.ctypes.data, 0, len(block.instructions), block.number, (0, 0, 0)
            )  # fmt: skip
            self._index_view[pc >> 1] = number
            if block.call_target is not None:
                place = bisect_left(self._call_targets, block.call_target)
                if self._call_targets[place : place + 1] != [block.call_target]:
                    self._call_targets.insert(place, block.call_target)
        slots = self.tier.slots.view("u8")
        if not slots[pc >> 1]:
            slots[pc >> 1] = self.tier.interpreter

    def is_known(self, pc: int) -> bool:
        """Whether control may arrive at ``pc`` without asking Python."""
        return pc & 1 == 0 and bool(self.tier.slots.view("u8")[pc >> 1])

    def heat(self, pc: int) -> None:
        """``pc`` was found hot: by the interpreter, which wants a quick translation of the region around it,
        or by a quick translation, which wants an optimised one."""
        if self._failure is not None:
            raise self._failure
        tier = self.tier
        if tier.interpret_only:
            return
        if pc not in tier.quick:
            self._compile(tier, self._quick_region(tier, pc))
        elif pc not in tier.optimised:
            region = self._optimised_region(tier, pc)
            if self.background:
                self._order(tier, region)
            else:
                self._compile(tier, region)

    def _order(self, tier: Tier, region: Region) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="translator", daemon=True)
            self._thread.start()
        self._queue.put((tier, region))

    def flush(self) -> None:
        """Forget everything known about guest code (fence.i)."""
        self.drain()
        self._generation += 1
        self.cache.clear()
        for tier in self._tiers.values():
            slots = tier.slots.view("u8")
            for number in range(1, len(self._operations) + 1):
                slots[int(self._pc_of(number)) >> 1] = 0
            for region in tier.regions:
                for entry in region.entries:
                    slots[entry >> 1] = 0
            tier.quick.clear()
            tier.optimised.clear()
            tier.copies.clear()
        for number in range(1, len(self._operations) + 1):
            self._index_view[self._pc_of(number) >> 1] = 0

    def _pc_of(self, number: int) -> int:
        return int(self._operations[number - 1]["pc"][0])

    def drain(self) -> None:
        """Wait until the background thread has published all it was asked for."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Stop compiling; what is under way is finished and thrown away."""
        self._closing = True
        self.drain()

    # --- regions
    def _quick_region(self, tier: Tier, hot: int) -> Region:
        """The warm blocks of the function around ``hot`` that have no translation yet, each of them an entry."""
        blocks = self._reachable(
            [hot, self._function_start(hot)],
            lambda pc: pc not in tier.quick and self._executions(pc) >= WORTH_EXECUTIONS,
        )
        region = Region(f"q{hot:x}", list(blocks), blocks, optimised=False)
        tier.quick.update(dict.fromkeys(blocks, region))
        return region

    def _optimised_region(self, tier: Tier, hot: int) -> Region:
        """The hot blocks of the function around ``hot``; return sites and loop heads are entries, too.

        A block that becomes hot later gives another region with the old blocks around it, up to `MAX_COPIES`.
        """
        worth = self.optimise_executions >> WORTH_SHIFT

        def is_hot(pc: int) -> bool:
            return tier.copies[pc] < MAX_COPIES and self._quick_executions(tier, pc) >= worth

        blocks = self._reachable([hot, self._function_start(hot)], is_hot)
        entries = {hot}
        for block in blocks.values():
            if block.slow or (
                block.transfers and block.last.op_class in (OpClass.CALL, OpClass.INDIRECT_CALL)
            ):
                entries.add(block.end_pc)
            # Loop heads too: a quick translation may be inside the loop when the optimised one is ready.
            entries.update(pc for pc in block.successors() if pc <= block.pc)
        entries &= blocks.keys()
        tier.copies.update(blocks.keys())
        tier.optimised |= entries
        return Region(f"o{hot:x}", [hot, *sorted(entries - {hot})], blocks, optimised=True)

    def _function_start(self, pc: int) -> int:
        """The nearest call target at or below ``pc``, or ``pc`` itself: a guess that needs no symbols."""
        place = bisect_right(self._call_targets, pc)
        return self._call_targets[place - 1] if place else pc

    def _executions(self, pc: int) -> int:
        """How often the block at ``pc`` was interpreted."""
        number = int(self._index_view[pc >> 1])
        return int(self._descriptor_view[number]["count"]) if number else 0

    def _quick_executions(self, tier: Tier, pc: int) -> int:
        """How often the quick translation of the block at ``pc`` was executed."""
        region = tier.quick.get(pc)
        return 0 if region is None or region.counts is None else int(region.counts[region.place[pc]])

    def _reachable(self, seeds: list[int], wanted: Callable[[int], bool]) -> dict[int, Block]:
        """``seeds[0]`` and the wanted blocks reachable from any seed over wanted ones without entering callees,
        nearest first, up to a limit; ordered by pc."""
        blocks: dict[int, Block] = {}
        size = 0
        work = deque(seeds)
        while work and size < MAX_REGION_INSTRUCTIONS:
            pc = work.popleft()
            block = self.cache.by_pc.get(pc)
            if block is None or pc in blocks or not (pc == seeds[0] or wanted(pc)):
                continue
            blocks[pc] = block
            size += len(block.instructions)
            work.extend(block.successors())
        return dict(sorted(blocks.items()))

    def _compile(self, tier: Tier, region: Region) -> None:
        """Translate, link, and make the entries known; safe while the guest runs in another thread."""
        level = OPTIMISED_LEVEL if region.optimised else QUICK_LEVEL
        region.image = self._compiler.compile_object(self._text(tier, region), level)
        names = [region.name] if region.optimised else [region.name, COUNTS]
        addresses = self._compiler.load(region.image, names)
        region.address = addresses[region.name]
        if not region.optimised:
            counts = (ctypes.c_uint32 * len(region.blocks)).from_address(addresses[COUNTS])
            region.counts = np.frombuffer(memoryview(counts), np.uint32)
        slots = tier.slots.view("u8")
        with self._publishing:
            for entry in region.entries:
                if region.optimised or slots[entry >> 1] in (0, tier.interpreter):
                    slots[entry >> 1] = region.address
            tier.regions.append(region)

    def _text(self, tier: Tier, region: Region, locate: bool = False) -> str:
        text = RegionEmitter(
            region.blocks, region.entries, tier.selection, region.name, not region.optimised,
            self.optimise_executions, locate,
        ).emit()  # fmt: skip
        return DECLARATIONS + text + METADATA

    # --- faults
    def guest_pc_of(self, host_pc: int) -> int | None:
        """The guest instruction whose access the host instruction at ``host_pc`` is; None when unknown.

        Translations carry no such table. The region is translated once more with debug locations, which do not
        change the code, and the object's line table is read.
        """
        for tier in self._tiers.values():
            for region in tier.regions:
                offset = host_pc - region.address
                if 0 <= offset < function_size(region.image, region.name):
                    level = OPTIMISED_LEVEL if region.optimised else QUICK_LEVEL
                    located = self._compiler.compile_object(self._text(tier, region, locate=True), level)
                    return pc_at(located, region.image, offset)
        operation = self.hart.get("operation")
        if operation and any(
            rows.ctypes.data <= operation < rows.ctypes.data + rows.nbytes for rows in self._operations
        ):
            return ctypes.c_uint64.from_address(operation + OPERATION_DTYPE.fields["pc"][1]).value  # type: ignore[index]
        return None

    def _work(self) -> None:
        while True:
            job = self._queue.get()
            if job is None or self._closing:
                return
            try:
                self._compile(*job)
            except BaseException as failure:  # reported by the next call from the machine's thread
                self._failure = failure
                return
