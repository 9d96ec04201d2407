"""Collects basic block vectors of a running program, and how long each interval waits for memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from emulator.execution.block_numbers import BlockNumbers
from emulator.machine import Machine
from emulator.timing.inorder import InOrderCore
from measure.cycle_close.live_counts import CountWatcher, Following, live_counts, wait_cycles, waiting
from measure.cycle_close.tracer import profile_selection
from measure.program_phases.bbv import BasicBlockVectors

_BATCH_INSTRUCTIONS = 200_000_000  # in one call: some 40 ms, which bounds the delay of Ctrl-C


@dataclass(frozen=True)
class BlockProfile:
    """``vectors``: of n intervals; ``ends``: (n + 1,) instructions at their boundaries, the first 0; ``waits``: (n,)
    cycles per instruction of waiting for memory; None without a core."""

    vectors: BasicBlockVectors
    ends: NDArray[np.int64]
    waits: NDArray[np.float64] | None


def profile_blocks(machine: Machine, interval_instructions: int, core: InOrderCore | None = None) -> BlockProfile:
    """Run ``machine`` to its end; with ``core``, count the misses of caches like its own, too.

    An entry of a vector is in instructions: executions of the block times its length. Intervals end at the first block
    boundary at or after each multiple; the last one, however short, is included, unlike in other tools. Blocks are
    numbered from 1 as `BlockNumbers` does; blocks that never ran have no dimension.
    """
    following = None if core is None else Following(machine, core)
    machine.observe(profile_selection(following))
    watcher = CountWatcher(live_counts(following))
    at_most = max(1, min(256, _BATCH_INSTRUCTIONS // interval_instructions))
    numbers = BlockNumbers()
    parts, vectors, counted = [], [], []
    while machine.ending is None:
        parts.append(machine.run_intervals(interval_instructions, at_most, watcher.begin(at_most)))
        vectors.append(numbers.vectors(parts[-1], machine.facts.blocks))
        counted.append(watcher.end(len(parts[-1])))
    ends = np.concatenate([np.zeros(1, np.int64), *(part.ends for part in parts)])
    blocks = np.concatenate([np.zeros(0, np.uint32), *(mine for mine, _ in vectors)])
    counts = np.concatenate([np.zeros(0, np.int64), *(mine for _, mine in vectors)])
    sizes = np.concatenate([np.zeros(1, np.int64), *(np.diff(part.starts) for part in parts)])
    profile = BasicBlockVectors(
        counts, blocks.astype(np.int32) - 1, np.cumsum(sizes), numbers.n_blocks, np.arange(1, numbers.n_blocks + 1)
    )  # fmt: skip
    waits = None
    if core is not None:
        waits = waiting(np.concatenate(counted), np.diff(ends), wait_cycles(core.config))
    return BlockProfile(profile, ends, waits)
