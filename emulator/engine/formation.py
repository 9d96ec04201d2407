"""Which blocks are translated together.

A region takes the hot blocks around a hot one. A block that becomes hot later is given another region with the old
ones around it, so that a loop is again in one piece, but only `MAX_COPIES` times.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable

from emulator.engine.blocks import Block, BlockCache
from emulator.engine.tiers import Region, Tier
from emulator.events import OpClass

MAX_REGION_INSTRUCTIONS = 1500
WORTH_EXECUTIONS = 8  # for a block to be translated with its hot neighbours
WORTH_SHIFT = 8  # a block this many powers of two less hot than its neighbour is not optimised with it
MAX_COPIES = 2
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
        blocks = self._reachable(
            hot,
            lambda pc: (
                tier.copies[pc] < MAX_COPIES and pc not in tier.hooked and self._executions(pc) >= worth
            ),
        )
        entries = {hot}
        for block in blocks.values():
            if block.slow or (block.transfers and block.last.op_class in _CALLS):
                entries.add(block.end_pc)
            # Loop heads too: another tier may be inside the loop when the optimised translation is ready.
            entries.update(pc for pc in block.successors() if pc <= block.pc)
        entries |= self._call_targets
        entries &= blocks.keys()
        return Region(f"o{hot:x}", [hot, *sorted(entries - {hot})], tuple(blocks), blocks)

    def _function_start(self, pc: int) -> int:
        """The nearest call target at or below ``pc``, or ``pc`` itself: a guess that needs no symbols."""
        if len(self._sorted) != len(self._call_targets):  # which only grow
            self._sorted = sorted(self._call_targets)
        place = bisect_right(self._sorted, pc)
        return self._sorted[place - 1] if place else pc

    def _reachable(self, hot: int, wanted: Callable[[int], bool]) -> dict[int, Block]:
        """``hot`` and the wanted blocks that it or the start of its function reaches over wanted ones, without
        entering callees, nearest first, up to a limit; ordered by pc."""
        blocks: dict[int, Block] = {}
        size = 0
        work = deque([hot, self._function_start(hot)])
        while work and size < MAX_REGION_INSTRUCTIONS:
            pc = work.popleft()
            block = self._cache.known(pc)
            if block is None or pc in blocks or not (pc == hot or wanted(pc)):
                continue
            blocks[pc] = block
            size += len(block.instructions)
            work.extend(block.successors())
        return dict(sorted(blocks.items()))
