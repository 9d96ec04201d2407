"""What a `TraceSelection` means for single blocks, and which part of it interpreter and templates contain."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from emulator.engine.blocks import Block
from emulator.events import Ranges, TraceSelection


def overlapping(blocks: NDArray[np.void], ranges: Ranges) -> NDArray[np.bool_]:
    """Which of ``blocks`` (rows of `BlockFacts`) overlap ``ranges``."""
    found = np.zeros(len(blocks), np.bool_)
    for low, high in ranges:
        found |= (blocks["pc"] < high) & (blocks["end_pc"] > low)
    return found


def is_hooked(selection: TraceSelection, block: Block) -> bool:
    """Whether ``selection`` has a hook on an instruction of ``block``."""
    return any(
        instruction.row.mnemonic in selection.hooks
        and (not selection.hook_ranges or any(low <= pc < high for low, high in selection.hook_ranges))
        for instruction, pc in zip(block.instructions, block.pcs, strict=True)
    )


def emitted_selection(selection: TraceSelection) -> TraceSelection:
    """The part of ``selection`` that the interpreter and templates contain: which blocks they run is in the dispatch
    table, and which instructions are watched is in the table of inline functions."""
    inline = tuple(replace(one, ranges=()) for one in selection.inline)
    return replace(selection, hooks=(), hook_ranges=(), inline=inline)
