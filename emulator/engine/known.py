"""What the interpreter can run: known blocks as operations, and the tables that it finds them by.

Blocks come from three sides: Python decodes one when it is asked to; the interpreter calls a kernel where it comes to
an address that nothing is known of (`discovery`); and translations of an earlier process are made of some (`meet`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from emulator.engine.blocks import Block, BlockCache
from emulator.engine.compiler import Compiler
from emulator.engine.discovery import Discovery
from emulator.engine.discovery_kernel import ASK, N_DESCRIPTORS
from emulator.engine.operations import DESCRIPTOR_DTYPE, operations_of
from emulator.engine.remembered import CodeSource
from emulator.engine.state import MAX_BLOCKS, Hart
from emulator.engine.tables import GUEST_SPACE, Table
from emulator.engine.tiers import Tier
from emulator.errors import TooMuchCode
from emulator.events import OpClass

# numpy takes ten times as long to compare with an Enum's
_BRANCH, _CALL, _INDIRECT_CALL = int(OpClass.BRANCH), int(OpClass.CALL), int(OpClass.INDIRECT_CALL)
_NOTHING = np.zeros(0, np.int64)


class KnownCode:
    """The code of one address space.

    ``call_targets``: where functions begin, as far as calls tell. ``source`` is None where only Python discovers
    blocks. ``count``: how many blocks there are; ``ready``: the tier for which `begin` has nothing to do.
    """

    def __init__(self, hart: Hart, cache: BlockCache, source: CodeSource | None, compiler: Compiler) -> None:
        self._hart, self._cache = hart, cache
        self._index_table = Table(GUEST_SPACE * 2)
        self._descriptor_table = Table(MAX_BLOCKS * DESCRIPTOR_DTYPE.itemsize)
        self._index: NDArray[np.uint32] = self._index_table.view("u4")
        self._descriptors: NDArray[np.void] = self._descriptor_table.view("u1").view(DESCRIPTOR_DTYPE)
        self.count = 0  # of descriptors, which begin with 1
        self._operations: list[NDArray[np.void]] = []  # what they point into
        self.call_targets: set[int] = set()
        self.ready: Tier | None = None  # what the kernel is prepared for
        self._kernel: Discovery | None = None
        if source is not None:
            cache.on_decoded = self._decoded
            self._kernel = Discovery(compiler, cache, source.pages, self._descriptors, self._index)
        hart.set("block_index", self._index_table.address)
        hart.set("blocks", self._descriptor_table.address)

    def __len__(self) -> int:
        return self.count

    # --- questions
    def number_of(self, pc: int) -> int:
        """Of the descriptor of the block at ``pc``; 0 for none."""
        number = self._index_table.ints[pc >> 1]
        return 0 if number == ASK else number

    def n_instructions(self, first: int, end: int) -> int:
        """How many instructions the blocks of these descriptors have."""
        return int(self._descriptors["n_instructions"][first:end].sum())

    def executions(self, pc: int) -> int:
        """How often the interpreter has run the block at ``pc`` since the counts began."""
        number = self.number_of(pc)
        return int(self._descriptors[number]["count"]) if number else 0

    def all_executions(self, pcs: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
        """The same of many, int64."""
        numbers = self._index[np.array(pcs, np.int64) >> 1]
        numbers[numbers == ASK] = 0
        return self._descriptors["count"][numbers].astype(np.int64)

    def places(self) -> NDArray[np.int64]:
        """Half the addresses of the blocks that the interpreter can run."""
        places = self._descriptors["pc"][1 : self.count + 1].astype(np.int64) >> 1
        known = self._index[places]
        return places[(known != 0) & (known != ASK)]

    def numbers_at(self, places: NDArray[np.int64]) -> NDArray[np.uint32]:
        """Of the descriptors of such blocks."""
        return self._index[places]

    def facts_at(self, places: NDArray[np.int64]) -> NDArray[np.void]:
        """Rows of `BlockFacts` of such blocks."""
        return self._cache.facts.blocks[self._descriptors[self._index[places]]["number"]]

    # --- counting
    def report_at(self, pc: int, executions: int) -> None:
        """Let the interpreter report the block at ``pc`` when it has run so often; 0 for never."""
        self._descriptors[self.number_of(pc)]["threshold"] = executions

    def report_all_at(self, executions: int) -> list[int]:
        """Let the interpreter report every block when it has run so often; where those are that have, and are not
        reported any more."""
        self.ready = None
        known = self._descriptors[1 : len(self) + 1]
        have = known["count"] >= executions
        known["threshold"] = np.where(have, 0, executions)
        pcs = known["pc"][have]
        is_current = self._index[pcs >> 1] == np.flatnonzero(have) + 1  # not forgotten
        return pcs[is_current].tolist()

    def count_anew(self, report_at: int, pcs: Collection[int] | None = None) -> None:
        """The blocks at ``pcs``, or all, have run 0 times."""
        if pcs is None:
            known = np.arange(1, len(self) + 1)
        else:
            known = np.array([number for pc in pcs if (number := self.number_of(pc))], np.int64)
        self._descriptors["count"][known] = 0
        self._descriptors["threshold"][known] = report_at

    # --- blocks come and go
    def add(self, block: Block, report_at: int) -> None:
        """Let the interpreter have ``block``. Raises `TooMuchCode`."""
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
            operations.ctypes.data, 0, len(block.instructions), block.number, report_at, block.pc, len(operations)
        )  # fmt: skip
        self._index[block.pc >> 1] = number
        if block.call_target is not None:
            self.call_targets.add(block.call_target)

    def forget(self, pcs: Sequence[int]) -> None:
        """The blocks at ``pcs`` are known no more: the guest has changed them."""
        self.ready = None
        for pc in pcs:
            self._index_table.ints[pc >> 1] = 0

    def _decoded(self, pc: int) -> None:
        """Python knows a block at ``pc``, under a number of its own."""
        self.ready = None
        if not self._index[pc >> 1]:
            self._index[pc >> 1] = ASK

    # --- while the guest runs
    def begin(self, tier: Tier, runner: int, report_at: int) -> bool:
        """The guest is about to run: let the interpreter discover blocks by itself, for ``runner`` to run; False where
        only Python discovers any."""
        if self._kernel is None:
            return False
        self._kernel.begin(runner, tier.slots.address, report_at, len(self))
        self._hart.set("discover", self._kernel.address)
        self._hart.set("discovery", self._kernel.table)
        self.ready = tier
        return True

    def discover_nothing(self) -> None:
        """Leave it to Python, until `begin`."""
        self.ready = None
        self._hart.set("discover", 0)

    @property
    def has_found(self) -> bool:
        """Whether `end` has something to do."""
        kernel = self._kernel
        return kernel is not None and kernel.words[N_DESCRIPTORS] > kernel.told + 1

    def n_blocks(self) -> NDArray[np.int64]:
        """How many blocks have facts, (1,): of any moment while the interpreter discovers blocks, and of now
        otherwise."""
        if self._kernel is not None and self._hart.get("discover"):
            return self._kernel.n_blocks
        return np.array([self._cache.facts.n_blocks])

    def end(self) -> NDArray[np.int64]:
        """The guest has run: take in what was discovered, blocks of these numbers."""
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
    def ask_for(self, pcs: Collection[int]) -> None:
        """Leave it to Python when control arrives at these addresses and nothing is known there."""
        self.ready = None
        places = np.array([*pcs], np.int64) >> 1
        self._index[places[self._index[places] == 0]] = ASK

    def meet(self, pcs: Collection[int], tier: Tier, runner: int, report_at: int) -> NDArray[np.int64]:
        """Know the blocks at these addresses, where there is code; their numbers, of those that were not known."""
        found = []
        is_prepared = False  # the kernel: not `ready`, which the background thread may change meanwhile
        for pc in pcs:
            if self.number_of(pc):
                continue
            if self._kernel is not None and self._cache.number_of(pc) is None:
                if not is_prepared:
                    self._kernel.begin(runner, tier.slots.address, report_at, len(self))
                    is_prepared = True
                self._index[pc >> 1] = 0
                if self._kernel.discover(pc):
                    continue
            found.append(self.end())  # the kernel may have been full
            is_prepared = False
            block = self._cache.get(pc)
            self.add(block, report_at)
            found.append(np.array([block.number]))
        found.append(self.end())
        self.ready = None
        return np.concatenate(found)

    def meet_near(self, pc: int, tier: Tier, runner: int, report_at: int, at_most: int) -> NDArray[np.int64]:
        """Discover the block at ``pc`` and the blocks that control may reach from it before an indirect jump, about
        ``at_most`` in all. Gives the numbers of the new blocks: none where the kernel cannot discover the first one."""
        kernel = self._kernel
        if kernel is None or self._cache.number_of(pc) is not None:
            return _NOTHING
        kernel.begin(runner, tier.slots.address, report_at, len(self))
        self._index[pc >> 1] = 0
        found, pcs, n = [], [pc], 0
        while pcs and n < at_most:
            for one in pcs[: at_most - n]:
                kernel.discover(one)
            numbers = self.end()
            found.append(numbers)
            n += len(numbers)
            blocks = self._cache.facts.blocks[numbers]
            kinds, known = blocks["terminator"], blocks["target_known"] != 0
            comes_back = (kinds == _BRANCH) | (kinds == _CALL) | (kinds == _INDIRECT_CALL)
            pcs = [*blocks["target_pc"][known].tolist(), *blocks["end_pc"][comes_back].tolist()]
        self.ready = None
        return np.concatenate(found)

    def close(self) -> None:
        """Nobody runs any of it again."""
        self._kernel = None
        self._operations.clear()
        self.call_targets.clear()
        self._index_table.clear()
        self._descriptor_table.clear()
