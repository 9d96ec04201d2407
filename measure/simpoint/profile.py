"""Basic block vectors of a program as it runs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.events import TraceSelection
from emulator.machine import Machine
from measure.simpoint.formats import BlockVectors


def profile_blocks(machine: Machine, interval_instructions: int) -> tuple[BlockVectors, NDArray[np.int64]]:
    """Run ``machine`` to its end; its vectors, and the instructions at the boundaries, (n + 1,).

    Each entry is instructions: executions of the block times its length. Intervals end at the first block
    boundary at or after each multiple; the last one, however short, is in, unlike in other tools.
    """
    machine.observe(TraceSelection(counts=True))
    before = np.zeros(0, np.int64)
    counts, blocks, ends = [], [], [0]
    running = True
    while running:
        running = machine.advance_to_instructions(ends[-1] + interval_instructions)
        if machine.instructions == ends[-1]:
            break
        ends.append(machine.instructions)
        now = machine.block_counts
        before = np.concatenate([before, np.zeros(len(now) - len(before), np.int64)])
        executed = now - before
        before += executed
        mine = np.flatnonzero(executed)
        blocks.append(mine)
        counts.append(executed[mine] * machine.facts.blocks["n_instructions"][mine].astype(np.int64))
    starts = np.concatenate([[0], np.cumsum([len(mine) for mine in blocks])]).astype(np.int64)
    empty = np.zeros(0, np.int64)
    return (
        BlockVectors(np.concatenate([empty, *counts]), np.concatenate([empty, *blocks]), starts),
        np.array(ends, np.int64),
    )
