"""How many guest instructions a second the timing models take, on a synthetic but realistic record.

The record is somewhat harsher than compiled C usually is: blocks of 5 instructions, 2 of them memory accesses
(stack, streams, a heap larger than the first-level caches), loops, and branches whose bias no history explains.

    python experiments/benchmarks/timing_speed.py [MACHINE.yaml ...]
"""

from __future__ import annotations

import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from emulator.events import BlockFacts, OpClass
from emulator.timing.config import MachineConfig
from emulator.timing.counters import Event
from emulator.timing.inorder import InOrderCore
from emulator.timing.load import load_machine

MACHINES = Path(__file__).parents[2] / "configs" / "machines"
N_BLOCKS = 1500
RECORD_BLOCKS = 300_000
CHUNK_WORDS = 1 << 16
SECONDS = 3.0


def synthetic_record(seed: int) -> tuple[BlockFacts, NDArray[np.uint32], int]:
    """Block facts, stream, and its number of instructions, for a made-up program."""
    rng = np.random.default_rng(seed)
    facts = BlockFacts()
    access_kinds: list[list[int]] = []
    starts, pc = [], 0x10000
    shapes = [1 + int(length) for length in rng.poisson(4.6, N_BLOCKS)]
    for length in shapes:
        starts.append(pc)
        pc += 4 * length
    indirect = rng.random(N_BLOCKS) < 1 / 12
    cases = rng.integers(0, N_BLOCKS, (N_BLOCKS, 4))
    back = rng.random(N_BLOCKS) < 0.12  # branches that close a loop
    reach = np.where(back, -rng.integers(0, 8, N_BLOCKS), rng.integers(2, 12, N_BLOCKS))
    targets = [int(target) for target in (np.arange(N_BLOCKS) + reach).clip(0, N_BLOCKS - 1)]
    for block, length in enumerate(shapes):
        rows, kinds = [], []
        recent = [int(r) for r in rng.integers(5, 30, 4)]
        for position in range(length):
            pc = starts[block] + 4 * position
            rd = int(rng.integers(5, 30))
            rs1, rs2 = (
                int(recent[-1 - k]) if rng.random() < 0.6 else int(rng.integers(5, 30)) for k in (0, 1)
            )
            chance = rng.random()
            if position == length - 1:
                end = OpClass.INDIRECT_JUMP if indirect[block] else OpClass.BRANCH
                rows.append((pc, 4, end, 0, 0, 0, rs1, rs2, 0))
            elif chance < 0.27:
                rows.append((pc, 4, OpClass.LOAD, 1, 8, rd, rs1, 0, 0))
            elif chance < 0.41:
                rows.append((pc, 4, OpClass.STORE, 2, 8, 0, rs1, rs2, 0))
            elif chance < 0.43:
                rows.append((pc, 4, OpClass.INT_MUL, 0, 0, rd, rs1, rs2, 0))
            elif chance < 0.45:
                rows.append((pc, 4, OpClass.FP_ADD, 0, 0, 32 + rd, 32 + rs1, 32 + rs2, 0))
            else:
                rows.append((pc, 4, OpClass.INT_ALU, 0, 0, rd, rs1, rs2, 0))
            if rows[-1][3]:
                kinds.append(int(rng.choice(3, p=[0.70, 0.28, 0.02])))
            recent.append(rd)
        facts.append(rows, None if indirect[block] else starts[targets[block]])
        access_kinds.append(kinds)
    # A loop is taken many times and left; other branches are biased, each its own way.
    trips = rng.integers(3, 60, N_BLOCKS)
    bias = np.where(rng.random(N_BLOCKS) < 0.5, 0.02, 0.97)
    stream, instructions = [], 0
    streams = rng.integers(0x400000, 0x500000, N_BLOCKS)
    count = np.zeros(N_BLOCKS, np.int64)
    block = 0
    uniform = rng.random(RECORD_BLOCKS)
    noise = rng.integers(0, 1 << 18, (RECORD_BLOCKS, 8))
    for step in range(RECORD_BLOCKS):
        stream.append(block)
        instructions += shapes[block]
        for index, kind in enumerate(access_kinds[block]):
            random = int(noise[step, index % 8])
            if kind == 0:
                stream.append(0x7FFF_0000 - (block // 40 * 192 + index * 8))
            elif kind == 1:
                streams[block // 40] += 8
                stream.append(int(streams[block // 40]))
            else:
                stream.append(0x800000 + random // 8 * 8)
        count[block] += 1
        if back[block]:
            taken = count[block] % trips[block] != 0
        else:
            taken = uniform[step] < bias[block]
        if indirect[block]:
            block = int(cases[block, int(noise[step, 0]) % 4])
        else:
            block = targets[block] if taken else (block + 1) % N_BLOCKS
    return facts, np.array(stream, np.uint32), instructions


def speed(config: MachineConfig, facts: BlockFacts, stream: NDArray[np.uint32], instructions: int) -> str:
    """Run the record for a few seconds and describe the speed."""
    core = InOrderCore(config, seed=1)
    starts = {0}
    position = 0
    lengths = facts.blocks["n_accesses"].astype(np.int64) + 1
    while position < len(stream):
        position += int(lengths[stream[position]])
        if position >= max(starts) + CHUNK_WORDS:
            starts.add(position)
    cuts = sorted(starts | {len(stream)})
    chunks = [stream[first:last] for first, last in pairwise(cuts)]
    for chunk in chunks:
        core.consume(facts, chunk)
    before, rounds, start = core.snapshot(), 0, time.perf_counter()
    while time.perf_counter() - start < SECONDS:
        for chunk in chunks:
            core.consume(facts, chunk)
        rounds += 1
    seconds = time.perf_counter() - start
    events = core.snapshot() - before
    return (
        f"{config.name:12} {rounds * instructions / seconds / 1e6:7.1f} M instructions/s  "
        f"CPI {events[Event.CYCLES] / events[Event.INSTRUCTIONS]:.2f}  "
        f"L1D misses {events[Event.L1D_MISSES] / events[Event.L1D_ACCESSES]:.1%}  "
        f"L1I misses {events[Event.L1I_MISSES] / events[Event.L1I_ACCESSES]:.1%}  "
        f"mispredicted {events[Event.BRANCHES_MISPREDICTED] / events[Event.BRANCHES_CONDITIONAL]:.1%}"
    )


def main() -> None:
    facts, stream, instructions = synthetic_record(seed=1)
    paths = [Path(argument) for argument in sys.argv[1:]] or sorted(MACHINES.glob("*.yaml"))
    print(
        f"{instructions / RECORD_BLOCKS:.1f} instructions, {len(stream) / RECORD_BLOCKS - 1:.1f} accesses a block"
    )
    for path in paths:
        print(speed(load_machine(path), facts, stream, instructions))


if __name__ == "__main__":
    main()
