"""Region formation: which blocks are compiled together.

A region takes the hot blocks around a hot block in its function, and copies of the small functions that these call,
which may have regions of their own. A block that becomes hot later gets another region with the same blocks around it,
so that a loop is whole again, but a block is in at most `MAX_COPIES` regions.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection

import numpy as np

from emulator.engine.blocks import Block, BlockCache
from emulator.engine.emit.indirect_targets import IndirectTargets, cases_among, ends_with, return_targets
from emulator.engine.tiering.region_states import Region
from emulator.engine.tiering.tiers import Tier
from emulator.events import OpClass

MAX_REGION_INSTRUCTIONS = 600  # 80 ms of LLVM's time, in which no other region is built
MIN_NEIGHBOUR_EXECUTIONS = 8  # for a block to be translated with its hot neighbours
NEIGHBOUR_SHIFT = 5  # a block this many powers of two less hot than its neighbour is not optimised with it
MAX_COPIES = 2
MAX_CALLEE_INSTRUCTIONS = 100  # with its own callees
MAX_CALLEES_INSTRUCTIONS = 500  # in a region
# Of all calls, returns and switches of a region: each target is a join of values, which costs LLVM time.
MAX_INDIRECT_TARGETS = 512
_FUNCTION_BYTES = 1 << 16  # the longest function assumed where its end is not known
_CALLS = (OpClass.CALL, OpClass.INDIRECT_CALL)


class RegionFormer:
    """Forms regions from the blocks of ``cache``. ``call_targets``: where functions begin, a set that grows;
    ``executions``: gives how often the block at a pc ran outside of regions."""

    def __init__(self, cache: BlockCache, call_targets: set[int], executions: Callable[[int], int]) -> None:
        self._cache = cache
        self._call_targets = call_targets
        self._executions = executions
        self._sorted: list[int] = []

    def form(self, tier: Tier, region: Region) -> None:
        """Choose the blocks of ``region`` around its head: hot blocks of its function, and callees. Return sites and
        loop heads are entries, too."""
        hot = region.head
        threshold = max(MIN_NEIGHBOUR_EXECUTIONS, self._executions(hot) >> NEIGHBOUR_SHIFT)

        def is_hot(pc: int) -> bool:
            return pc not in tier.hooked and self._executions(pc) >= threshold

        copies = tier.states.copies
        own = self._reachable(hot, lambda pc: copies[pc] < MAX_COPIES and is_hot(pc))
        callees = self._callees(own, is_hot)
        entries = {hot}
        for block in own.values():
            if block.slow or (block.transfers and block.last.op_class in _CALLS):
                entries.add(block.end_pc)
            # Loop heads too: the guest may be inside the loop when the region is published.
            entries.update(pc for pc in block.successors() if pc <= block.pc)
        entries |= self._call_targets
        entries &= own.keys()
        blocks = dict(sorted({**callees, **own}.items()))
        region.entries = [hot, *sorted(entries - {hot})]
        region.pcs, region.callees, region.blocks = tuple(blocks), frozenset(callees), blocks
        region.indirect_targets = self._indirect_targets(blocks, callees)

    def _function(self, pc: int) -> tuple[int, int]:
        """Start and end of the function around ``pc``: from the nearest call target at or below ``pc``, or ``pc``
        itself, to the next one. A guess that needs no symbols."""
        starts = self._sorted  # one list throughout: the thread of the guest and the compiling thread may both be here
        if len(starts) != len(self._call_targets):  # the set only grows
            starts = self._sorted = sorted(self._call_targets)
        place = bisect_right(starts, pc)
        start = starts[place - 1] if place else pc
        end = starts[place] if place < len(starts) else 1 << 31
        return start, min(end, start + _FUNCTION_BYTES)

    def _reachable(self, hot: int, accepts: Callable[[int], bool]) -> dict[int, Block]:
        """``hot`` and the accepted blocks that it or the start of its function reaches over accepted ones, without
        entering callees, nearest first, up to a limit."""
        blocks: dict[int, Block] = {}
        size = 0
        work = deque([hot, self._function(hot)[0]])
        switched: set[int] = set()  # functions whose switch cases are in the work list
        while work and size < MAX_REGION_INSTRUCTIONS:
            pc = work.popleft()
            if pc in blocks or not (pc == hot or accepts(pc)):
                continue
            block = self._cache.known_block(pc)
            if block is None:
                continue
            blocks[pc] = block
            size += len(block.instructions)
            work.extend(block.successors())
            if ends_with(block, OpClass.INDIRECT_JUMP):
                function = self._function(pc)
                if function[0] not in switched:
                    switched.add(function[0])
                    work.extend(self._cases(*function, accepts))
        return blocks

    def _cases(self, start: int, end: int, accepts: Callable[[int], bool]) -> list[int]:
        """The accepted blocks of a function that only computed jumps lead to; none if cases and jumps are too many."""
        blocks = self._cache.facts.blocks
        pcs, n_jumps = cases_among(blocks[(blocks["pc"] >= start) & (blocks["pc"] < end)])
        cases = [pc for pc in pcs.tolist() if pc != start and accepts(pc)]
        return cases if len(cases) * n_jumps <= MAX_INDIRECT_TARGETS else []

    def _callees(self, blocks: dict[int, Block], accepts: Callable[[int], bool]) -> dict[int, Block]:
        """The accepted blocks of the small functions that ``blocks`` call."""
        found: dict[int, Block] = {}
        room = MAX_CALLEES_INSTRUCTIONS
        for start in sorted({block.call_target for block in blocks.values() if block.call_target is not None}):
            callee = self._callee_blocks(start, accepts)
            new = {pc: block for pc, block in callee.items() if pc not in found and pc not in blocks}
            size = sum(len(block.instructions) for block in new.values())
            if size <= room:
                found.update(new)
                room -= size
        return found

    def _callee_blocks(self, start: int, accepts: Callable[[int], bool]) -> dict[int, Block]:
        """The accepted blocks of a function and of its callees; none if these are too many, or if a call target is
        unknown: control would return from there to other translations."""
        blocks: dict[int, Block] = {}
        size = 0
        work = [start]
        while work:
            pc = work.pop()
            if pc in blocks or not accepts(pc):
                continue
            block = self._cache.known_block(pc)
            if block is None:
                continue
            size += len(block.instructions)
            if size > MAX_CALLEE_INSTRUCTIONS or block.slow or ends_with(block, OpClass.INDIRECT_JUMP):
                return {}
            if block.transfers and block.last.op_class in _CALLS:
                if block.call_target is None:
                    return {}
                work.append(block.call_target)
            blocks[pc] = block
            work.extend(block.successors())
        return blocks

    def _indirect_targets(self, blocks: dict[int, Block], callees: Collection[int]) -> IndirectTargets:
        """The targets inside the region of calls of ``callees`` and of computed jumps, by pc of the block."""
        indirect_targets = return_targets(blocks, callees)
        room = MAX_INDIRECT_TARGETS - sum(map(len, indirect_targets.values()))
        jumps = [pc for pc, block in blocks.items() if ends_with(block, OpClass.INDIRECT_JUMP)]
        if jumps:
            numbers = np.array([block.number for block in blocks.values()])
            cases = cases_among(self._cache.facts.blocks[numbers])[0].tolist()
            for jump in jumps:
                start, end = self._function(jump)
                targets = {pc for pc in cases if start < pc < end}
                if len(targets) <= room:
                    indirect_targets[jump] = targets
                    room -= len(targets)
        return {pc: tuple(sorted(targets)) for pc, targets in indirect_targets.items() if targets}
