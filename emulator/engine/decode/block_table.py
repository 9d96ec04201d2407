"""The block table: the blocks of an address space as interpreter operations, and the tables that find them by pc.

Blocks come from three sources: Python decodes one on demand; the interpreter calls the discovery kernel at an unknown
pc (`discovery`); translations of an earlier process name the blocks that they contain (`BlockTable.discover_all`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from emulator.engine.address_tables import GUEST_SPACE, Table
from emulator.engine.blocks import Block, BlockCache
from emulator.engine.decode.discovery import Discovery
from emulator.engine.decode.discovery_kernel import ASK_PYTHON
from emulator.engine.decode.operations import DESCRIPTOR_DTYPE, operations_of
from emulator.engine.hart_state import MAX_BLOCKS, Hart
from emulator.engine.instrument.inline_functions import InlineTables
from emulator.engine.persist.pending import CodeSource
from emulator.engine.tiering.tiers import Tier
from emulator.errors import TooMuchCode
from emulator.events import OpClass
from emulator.native_code.compiler import Compiler

_CALL = int(OpClass.CALL)  # numpy takes ten times as long to compare with an Enum
_NOTHING = np.zeros(0, np.int64)


class BlockTable:
    """The blocks of one address space, by descriptor: numbered from 1 in the order of discovery.

    ``source``: None where only Python discovers blocks. ``count``: number of blocks; ``call_targets``: pcs at which
    functions begin, as far as calls show; ``ready``: the tier that `begin_run` has prepared, None after a change.
    """

    def __init__(self, hart: Hart, cache: BlockCache, source: CodeSource | None, compiler: Compiler) -> None:
        self._hart, self._cache = hart, cache
        self._index_table = Table(GUEST_SPACE * 2)
        self._descriptor_table = Table(MAX_BLOCKS * DESCRIPTOR_DTYPE.itemsize)
        self._index: NDArray[np.uint32] = self._index_table.view("u4")
        self._descriptors: NDArray[np.void] = self._descriptor_table.view("u1").view(DESCRIPTOR_DTYPE)
        self.count = 0
        self._operations: list[NDArray[np.void]] = []  # arrays that descriptors point into, to keep them alive
        self.call_targets: set[int] = set()
        self.ready: Tier | None = None
        self._kernel: Discovery | None = None
        if source is not None:
            self._kernel = Discovery(compiler, cache, source.pages, self._descriptors, self._index)
        hart.set("block_index", self._index_table.address)
        hart.set("blocks", self._descriptor_table.address)

    def __len__(self) -> int:
        return self.count

    # --- queries
    def number_of(self, pc: int) -> int:
        """The descriptor number of the block at ``pc``; 0 for none."""
        number = self._index_table.ints[pc >> 1]
        return 0 if number == ASK_PYTHON else number

    def n_instructions(self, first: int, end: int) -> int:
        """Instructions in the blocks of the descriptors from ``first`` to before ``end``."""
        return int(self._descriptors["n_instructions"][first:end].sum())

    def executions(self, pc: int) -> int:
        """Executions of the block at ``pc`` outside of regions since the last profile reset; 0 for an unknown block."""
        number = self.number_of(pc)
        return int(self._descriptors[number]["count"]) if number else 0

    def all_executions(self, pcs: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
        """The same for many blocks, int64."""
        numbers = self._index[np.array(pcs, np.int64) >> 1]
        numbers[numbers == ASK_PYTHON] = 0
        return self._descriptors["count"][numbers].astype(np.int64)

    def places(self) -> NDArray[np.int64]:
        """pc / 2 of all blocks, int64."""
        places = self._descriptors["pc"][1 : self.count + 1].astype(np.int64) >> 1
        known = self._index[places]
        return places[(known != 0) & (known != ASK_PYTHON)]

    def numbers_at(self, places: NDArray[np.int64]) -> NDArray[np.uint32]:
        """The descriptor numbers of the blocks at ``places`` (pc / 2), uint32."""
        return self._index[places]

    def facts_at(self, places: NDArray[np.int64]) -> NDArray[np.void]:
        """The rows of `BlockFacts` of the blocks at ``places`` (pc / 2)."""
        return self._cache.facts.blocks[self._descriptors[self._index[places]]["number"]]

    # --- counting
    def set_threshold(self, pc: int, executions: int) -> None:
        """Let the block at ``pc`` be reported after ``executions``; 0 for never."""
        self._descriptors[self.number_of(pc)]["threshold"] = executions

    def set_all_thresholds(self, executions: int) -> list[int]:
        """Let every block be reported after ``executions``. Returns the pcs of the blocks that have already run so
        often: they are not reported again."""
        self.ready = None
        known = self._descriptors[1 : len(self) + 1]
        have = known["count"] >= executions
        known["threshold"] = np.where(have, 0, executions)
        pcs = known["pc"][have]
        is_current = self._index[pcs >> 1] == np.flatnonzero(have) + 1  # not invalidated
        return pcs[is_current].tolist()

    def reset_profile(self, hotness_threshold: int, pcs: Collection[int] | None = None) -> None:
        """Set the executions of the blocks at ``pcs``, or of all blocks, to 0, and their thresholds."""
        if pcs is None:
            known = np.arange(1, len(self) + 1)
        else:
            known = np.array([number for pc in pcs if (number := self.number_of(pc))], np.int64)
        self._descriptors["count"][known] = 0
        self._descriptors["threshold"][known] = hotness_threshold

    # --- adding and removing
    def add(self, block: Block, hotness_threshold: int) -> None:
        """Add a descriptor of ``block``, if it has none. Raises `TooMuchCode`."""
        self.ready = None
        if self.number_of(block.pc):
            return
        number = len(self) + 1
        if max(number, block.number) >= MAX_BLOCKS:
            raise TooMuchCode(
                f"got more than {MAX_BLOCKS:,} basic blocks in all programs that the guest has executed, the most that "
                "one run can number: let the programs be run by several runs of the emulator"
            )
        operations = operations_of(block)
        self._operations.append(operations)
        self.count = number
        self._descriptors[number] = (
            operations.ctypes.data, 0, len(block.instructions), block.number, hotness_threshold, block.pc,
            len(operations), block.end_pc, 0
        )  # fmt: skip
        self._index[block.pc >> 1] = number
        if block.call_target is not None:
            self.call_targets.add(block.call_target)

    def invalidate(self, pcs: Sequence[int]) -> None:
        """Remove the blocks at ``pcs``, whose code the guest has changed."""
        self.ready = None
        for pc in pcs:
            self._index_table.ints[pc >> 1] = 0

    def reserve(self, pc: int) -> None:
        """Leave the block at ``pc`` to Python, which has decoded it and given it a number: the kernel must not give it
        another."""
        self.ready = None
        if not self._index[pc >> 1]:
            self._index[pc >> 1] = ASK_PYTHON

    # --- while the guest runs
    def begin_run(self, tier: Tier, fallback: int, hotness_threshold: int) -> bool:
        """Prepare a run in which the interpreter discovers blocks itself, to be run by the host function ``fallback``;
        False where only Python discovers blocks."""
        if self._kernel is None:
            return False
        self._kernel.begin(fallback, tier.dispatch_table.address, hotness_threshold, len(self))
        self._hart.set("discover", self._kernel.address)
        self._hart.set("discovery", self._kernel.table)
        self.ready = tier
        return True

    def watch(self, tables: InlineTables) -> bool:
        """Let the kernel enter the blocks that it discovers from now on in ``tables``, whose calls select by class;
        False where only Python discovers blocks."""
        if self._kernel is None:
            return False
        self._kernel.watch(tables.by_class, tables.inline_map)
        self.ready = None
        return True

    def disable_discovery(self) -> None:
        """Leave discovery to Python, until `begin_run`."""
        self.ready = None
        self._hart.set("discover", 0)

    @property
    def has_found(self) -> bool:
        """Whether the kernel has discovered blocks since `begin_run`."""
        return self._kernel is not None and self._kernel.has_found

    def n_blocks(self) -> NDArray[np.int64]:
        """The number of blocks with facts, (1,): a live view while the interpreter discovers blocks, else a copy."""
        if self._kernel is not None and self._hart.get("discover"):
            return self._kernel.n_blocks
        return np.array([self._cache.facts.n_blocks])

    def end_run(self) -> NDArray[np.int64]:
        """Take in the blocks that the kernel has discovered since `begin_run`; their numbers, int64."""
        kernel = self._kernel
        if kernel is None or not self.has_found:
            return _NOTHING
        operations, numbers = kernel.collect()
        blocks = self._cache.facts.blocks
        self._operations.append(operations)
        self.count += len(numbers)
        self.ready = None
        is_call = blocks["terminator"][numbers] == _CALL
        if np.count_nonzero(is_call):
            self.call_targets.update(blocks["target_pc"][numbers[is_call]].tolist())
        return numbers

    # --- from one process to the next
    def require_python(self, pcs: Collection[int]) -> None:
        """Let a dispatch miss at ``pcs`` return to Python instead of the discovery kernel."""
        self.ready = None
        places = np.array([*pcs], np.int64) >> 1
        self._index[places[self._index[places] == 0]] = ASK_PYTHON

    def discover_all(self, pcs: Collection[int], tier: Tier, fallback: int, threshold: int) -> NDArray[np.int64]:
        """Discover the blocks at ``pcs``; the numbers of the new ones, int64. Raises the guest's fault where memory has
        no code."""
        found = []
        is_prepared = False  # of the kernel: the background thread may change `ready` meanwhile
        for pc in pcs:
            if self.number_of(pc):
                continue
            if self._kernel is not None and self._cache.number_of(pc) is None:
                if not is_prepared:
                    self._kernel.begin(fallback, tier.dispatch_table.address, threshold, len(self))
                    is_prepared = True
                self._index[pc >> 1] = 0
                if self._kernel.discover(pc):
                    continue
            found.append(self.end_run())  # the kernel may have been full
            is_prepared = False
            block = self._cache.get(pc)
            self.add(block, threshold)
            found.append(np.array([block.number]))
        found.append(self.end_run())
        self.ready = None
        return np.concatenate(found)

    def discover(self, pc: int, tier: Tier, fallback: int, threshold: int) -> NDArray[np.int64]:
        """Let the kernel discover the block at ``pc``; its number, or none where the kernel cannot."""
        kernel = self._kernel
        if kernel is None or self._cache.number_of(pc) is not None:
            return _NOTHING
        kernel.begin(fallback, tier.dispatch_table.address, threshold, len(self))
        self._index[pc >> 1] = 0
        kernel.discover(pc)
        self.ready = None
        return self.end_run()

    def close(self) -> None:
        """Empty the table; its blocks do not run again."""
        self._kernel = None
        self._operations.clear()
        self.call_targets.clear()
        self._index_table.clear()
        self._descriptor_table.clear()
