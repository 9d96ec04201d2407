"""What the code of a region refers to by symbols that get their values when it is loaded: numbers of blocks, and places
of counters. They are not in the code, which is kept for processes that number blocks differently."""

from __future__ import annotations

from collections.abc import Iterable

from emulator.engine.blocks import BlockCache
from emulator.engine.hart_state import COUNTS_OFFSET
from emulator.events import TraceSelection


def counters_of(region: str) -> str:
    """The symbol of the offset of a region's counters; it is filled in when the code is loaded."""
    return f"counters.{region}"


def numbers_of(pcs: Iterable[int], cache: BlockCache) -> dict[str, int]:
    """The symbols that a region is loaded with: for the blocks at ``pcs``, their numbers and the offsets of their
    execution counters."""
    found = {}
    for pc in pcs:
        number = cache.number_at(pc)
        found[f"number.{pc:x}"] = number
        found[f"counter.{pc:x}"] = COUNTS_OFFSET + 8 * number
    return found


def counts_branches(selection: TraceSelection) -> bool:
    """Whether regions for ``selection`` count executions by `CounterPlacement`. Not where the guest catches its faults:
    its handler may end the block anywhere, and what is owed there would have to be found out each time."""
    return selection.counts and not selection.exact_faults


def contains_numbers(selection: TraceSelection) -> bool:
    """Whether translations for ``selection`` contain numbers of blocks."""
    return selection.blocks or (selection.counts and not counts_branches(selection))
