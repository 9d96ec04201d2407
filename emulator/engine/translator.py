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
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from emulator.engine.blocks import Block, BlockCache
from emulator.engine.emit import DECLARATIONS, METADATA
from emulator.engine.entry import Entry
from emulator.engine.fault_location import function_size, pc_at
from emulator.engine.interpreter import DESCRIPTOR_DTYPE, OPERATION_DTYPE, InterpreterEmitter, operations_of
from emulator.engine.llvm import Compiler
from emulator.engine.region import RegionEmitter
from emulator.engine.state import Hart
from emulator.events import OpClass, TraceSelection

GUEST_SPACE = 1 << 31
_MAP_NORESERVE = 0x4000
MAX_BLOCKS = 1 << 20
MAX_REGION_INSTRUCTIONS = 1500
HOT_EXECUTIONS = 300  # interpreted, before a quick translation
OPTIMISE_EXECUTIONS = 10_000  # arrivals at an entry of a quick translation, before an optimised one
WORTH_EXECUTIONS = 8  # interpreted, for a block to be translated with its hot neighbours
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
    """A compiled region: its host code and the blocks in it."""

    name: str
    entries: list[int]
    blocks: dict[int, Block]
    optimised: bool
    address: int = 0
    image: bytes = b""
    counters: dict[int, int] | None = None


@dataclass
class Tier:
    """Everything translated for one selection."""

    selection: TraceSelection
    slots: _Table
    interpreter: int
    interpret_only: bool = False
    regions: list[Region] = field(default_factory=list)
    quick: set[int] = field(default_factory=set)  # entries translated quickly or on their way
    optimised: set[int] = field(default_factory=set)


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
        self._queue: queue.SimpleQueue[tuple[Tier, Region, str] | None] = queue.SimpleQueue()
        self._closing = False
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
        optimised = pc in tier.quick
        done = tier.optimised if optimised else tier.quick
        if pc in done:
            return
        region = self._form_region(pc, optimised)
        done.update(region.entries)
        if optimised:
            tier.quick.update(region.entries)
        text = self._text(tier, region)
        level = OPTIMISED_LEVEL if region.optimised else QUICK_LEVEL
        # Quick translations repay at once; so does what an earlier process left on the disk.
        cached = self._compiler.cached_object(text, level)
        if cached is not None:
            self._publish(tier, region, cached)
        elif self.background and region.optimised:
            self._order(tier, region, text)
        else:
            self._publish(tier, region, self._compiler.compile_object(text, level))

    def _order(self, tier: Tier, region: Region, text: str) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="translator", daemon=True)
            self._thread.start()
        self._queue.put((tier, region, text))

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
    def _form_region(self, hot: int, optimised: bool) -> Region:
        """The executed blocks of the function around ``hot``; return sites and loop heads are entries, too."""
        start = self._function_start(hot)
        blocks = self._reachable(start)
        if hot not in blocks:
            blocks = self._reachable(hot)
            start = hot
        entries = {hot}
        for block in blocks.values():
            if block.slow or (
                block.transfers and block.last.op_class in (OpClass.CALL, OpClass.INDIRECT_CALL)
            ):
                entries.add(block.end_pc)
            # Loop heads too: the interpreter may be inside the loop when its translation is ready.
            entries.update(pc for pc in block.successors() if pc <= block.pc)
        ordered = [start, *sorted(pc for pc in entries & blocks.keys() if pc != start)]
        return Region(f"{'o' if optimised else 'q'}{start:x}", ordered, blocks, optimised)

    def _function_start(self, pc: int) -> int:
        """The nearest call target at or below ``pc``, or ``pc`` itself: a guess that needs no symbols."""
        place = bisect_right(self._call_targets, pc)
        return self._call_targets[place - 1] if place else pc

    def _executions(self, pc: int) -> int:
        number = int(self._index_view[pc >> 1])
        return int(self._descriptor_view[number]["count"]) if number else 0

    def _reachable(self, seed: int) -> dict[int, Block]:
        """Warm blocks reachable from ``seed`` without entering callees, nearest first, up to a limit."""
        blocks: dict[int, Block] = {}
        size = 0
        work = deque([seed])
        while work and size < MAX_REGION_INSTRUCTIONS:
            pc = work.popleft()
            block = self.cache.by_pc.get(pc)
            if pc in blocks or block is None or (pc != seed and self._executions(pc) < WORTH_EXECUTIONS):
                continue
            blocks[pc] = block
            size += len(block.instructions)
            work.extend(block.successors())
        return dict(sorted(blocks.items()))

    def _publish(self, tier: Tier, region: Region, image: bytes) -> None:
        """Link an object and make its entries known; safe while the guest runs in another thread."""
        region.image = image
        region.address = self._compiler.load(image, [region.name])[region.name]
        slots = tier.slots.view("u8")
        for entry in region.entries:
            if region.optimised or entry not in tier.optimised:
                slots[entry >> 1] = region.address
        tier.regions.append(region)

    def _text(self, tier: Tier, region: Region, locate: bool = False) -> str:
        if not region.optimised and region.counters is None:
            offset = DESCRIPTOR_DTYPE.fields["count"][1]  # type: ignore[index]
            region.counters = {
                pc: int(self._index_view[pc >> 1]) * DESCRIPTOR_DTYPE.itemsize + offset
                for pc in region.entries
            }
        text = RegionEmitter(
            region.blocks, region.entries, tier.selection, region.name, region.counters,
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
            tier, region, text = job
            try:
                self._publish(tier, region, self._compiler.compile_object(text, OPTIMISED_LEVEL))
            except BaseException as failure:  # reported by the next call from the machine's thread
                self._failure = failure
                return
