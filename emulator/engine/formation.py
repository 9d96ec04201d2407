"""Which blocks are translated together.

A region takes the hot blocks around a hot one in its function, and small functions that these call: a copy of them, for
they may have regions of their own. A block that becomes hot later is given another region with the old ones around it,
so that a loop is again in one piece, but only `MAX_COPIES` times.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection

import numpy as np

from emulator.engine.blocks import Block, BlockCache
from emulator.engine.tiers import Region, Tier
from emulator.engine.ways import Ways, cases_among, ends_with, ways_of_calls
from emulator.events import OpClass

MAX_REGION_INSTRUCTIONS = 600  # 80 ms of LLVM's time, in which nothing else becomes fast
WORTH_EXECUTIONS = 8  # for a block to be translated with its hot neighbours
WORTH_SHIFT = 5  # a block this many powers of two less hot than its neighbour is not optimised with it
MAX_COPIES = 2
MAX_CALLEE_INSTRUCTIONS = 100  # with its own callees
MAX_CALLEES_INSTRUCTIONS = 500  # in a region
MAX_WAYS = (
    512  # of a region's calls, returns and switches, in all: at each of them values meet, which costs LLVM
)
_FUNCTION_BYTES = 1 << 16  # at most: where its end is not known
_CALLS = (OpClass.CALL, OpClass.INDIRECT_CALL)


class RegionFormer:
    """Forms regions from the blocks of ``cache``; ``call_targets``: where functions begin, as it becomes known;
    ``executions`` tells how often a block ran outside of them."""

    def __init__(self, cache: BlockCache, call_targets: set[int], executions: Callable[[int], int]) -> None:
        self._cache = cache
        self._call_targets = call_targets
        self._executions = executions
        self._sorted: list[int] = []

    def around(self, tier: Tier, hot: int) -> Region:
        """The hot blocks of the function around ``hot``; return sites and loop heads are entries, too."""
        worth = max(WORTH_EXECUTIONS, self._executions(hot) >> WORTH_SHIFT)

        def is_hot(pc: int) -> bool:
            return pc not in tier.hooked and self._executions(pc) >= worth

        own = self._reachable(hot, lambda pc: tier.copies[pc] < MAX_COPIES and is_hot(pc))
        callees = self._callees(own, is_hot)
        entries = {hot}
        for block in own.values():
            if block.slow or (block.transfers and block.last.op_class in _CALLS):
                entries.add(block.end_pc)
            # Loop heads too: another tier may be inside the loop when the optimised translation is ready.
            entries.update(pc for pc in block.successors() if pc <= block.pc)
        entries |= self._call_targets
        entries &= own.keys()
        blocks = dict(sorted({**callees, **own}.items()))
        return Region(
            f"o{hot:x}", [hot, *sorted(entries - {hot})], tuple(blocks), frozenset(callees),
            self._ways(blocks, callees), blocks,
        )  # fmt: skip

    def _function(self, pc: int) -> tuple[int, int]:
        """From the nearest call target at or below ``pc``, or ``pc`` itself, to the next: a guess that needs no
        symbols."""
        if len(self._sorted) != len(self._call_targets):  # which only grow
            self._sorted = sorted(self._call_targets)
        place = bisect_right(self._sorted, pc)
        start = self._sorted[place - 1] if place else pc
        end = self._sorted[place] if place < len(self._sorted) else 1 << 31
        return start, min(end, start + _FUNCTION_BYTES)

    def _reachable(self, hot: int, wanted: Callable[[int], bool]) -> dict[int, Block]:
        """``hot`` and the wanted blocks that it or the start of its function reaches over wanted ones, without
        entering callees, nearest first, up to a limit."""
        blocks: dict[int, Block] = {}
        size = 0
        work = deque([hot, self._function(hot)[0]])
        switched: set[int] = set()  # functions whose cases are among the work
        while work and size < MAX_REGION_INSTRUCTIONS:
            pc = work.popleft()
            if pc in blocks or not (pc == hot or wanted(pc)):
                continue
            block = self._cache.known(pc)
            if block is None:
                continue
            blocks[pc] = block
            size += len(block.instructions)
            work.extend(block.successors())
            if ends_with(block, OpClass.INDIRECT_JUMP):
                function = self._function(pc)
                if function[0] not in switched:
                    switched.add(function[0])
                    work.extend(self._cases(*function, wanted))
        return blocks

    def _cases(self, start: int, end: int, wanted: Callable[[int], bool]) -> list[int]:
        """The wanted blocks of a function that only computed jumps lead to; none where these are many."""
        blocks = self._cache.facts.blocks
        pcs, n_jumps = cases_among(blocks[(blocks["pc"] >= start) & (blocks["pc"] < end)])
        cases = [pc for pc in pcs.tolist() if pc != start and wanted(pc)]
        return cases if len(cases) * n_jumps <= MAX_WAYS else []

    def _callees(self, blocks: dict[int, Block], wanted: Callable[[int], bool]) -> dict[int, Block]:
        """Small functions that ``blocks`` call, whole as far as they are wanted."""
        found: dict[int, Block] = {}
        room = MAX_CALLEES_INSTRUCTIONS
        for start in sorted(
            {block.call_target for block in blocks.values() if block.call_target is not None}
        ):
            callee = self._whole(start, wanted)
            new = {pc: block for pc, block in callee.items() if pc not in found and pc not in blocks}
            size = sum(len(block.instructions) for block in new.values())
            if size <= room:
                found.update(new)
                room -= size
        return found

    def _whole(self, start: int, wanted: Callable[[int], bool]) -> dict[int, Block]:
        """The wanted blocks of a function and of those that it calls; nothing if these are too many, or call what is
        not known: control would come back from there to other translations."""
        blocks: dict[int, Block] = {}
        size = 0
        work = [start]
        while work:
            pc = work.pop()
            if pc in blocks or not wanted(pc):
                continue
            block = self._cache.known(pc)
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

    def _ways(self, blocks: dict[int, Block], callees: Collection[int]) -> Ways:
        """Where calls of ``callees`` and the computed jumps of ``blocks`` may lead among them."""
        ways = ways_of_calls(blocks, callees)
        room = MAX_WAYS - sum(map(len, ways.values()))
        jumps = [pc for pc, block in blocks.items() if ends_with(block, OpClass.INDIRECT_JUMP)]
        if jumps:
            numbers = np.array([block.number for block in blocks.values()])
            cases = cases_among(self._cache.facts.blocks[numbers])[0].tolist()
            for jump in jumps:
                start, end = self._function(jump)
                targets = {pc for pc in cases if start < pc < end}
                if len(targets) <= room:
                    ways[jump] = targets
                    room -= len(targets)
        return {pc: tuple(sorted(targets)) for pc, targets in ways.items() if targets}
