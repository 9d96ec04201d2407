"""Hardware events of a machine, and the static event counts of each block.

Static events depend on the instructions alone: one row of small integers a block, made from the block facts.
Dynamic events (misses, mispredictions, stalls) come from the timing kernels. Their PAPI names are left to
`emulator.pmu`.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from emulator.events import ACCESS_ALONE, ACCESS_HIDDEN, ACCESS_LOAD, ACCESS_STORE, BlockFacts, OpClass


class Event(IntEnum):
    """Index of a counter. From INSTRUCTIONS up to FIRST_DYNAMIC the events are static facts of the blocks."""

    CYCLES = 0
    INSTRUCTIONS = 1
    LOADS = 2  # instructions that read memory; an atomic read-modify-write is a load and a store
    STORES = 3
    BRANCHES = 4  # control transfers of every kind
    BRANCHES_CONDITIONAL = 5
    CALLS = 6
    RETURNS = 7
    INDIRECT_TRANSFERS = 8  # indirect jumps and calls, returns not included
    ATOMICS = 9
    INT_OPERATIONS = 10  # integer ALU, multiply and divide
    INT_MULTIPLIES = 11
    INT_DIVIDES = 12
    FP_INSTRUCTIONS = 13  # arithmetic, comparisons, conversions and moves; loads and stores not included
    FP_OPERATIONS = 14  # additions, multiplications, divisions, square roots; a fused multiply-add is two
    FP_ADDS = 15  # additions, subtractions, comparisons, minimum, maximum, sign injection, classification
    FP_MULTIPLIES = 16
    FP_FUSED = 17
    FP_DIVIDES = 18
    FP_SQUARE_ROOTS = 19
    FP_CONVERSIONS = 20
    FP_MOVES = 21
    FENCES = 22
    SYSTEM_INSTRUCTIONS = 23  # ecall, ebreak, and accesses to control and status registers
    L1D_ACCESSES = 24
    BRANCHES_TAKEN = 25  # conditional branches that were taken
    BRANCHES_MISPREDICTED = 26  # conditional branches whose direction was mispredicted
    TARGETS_MISPREDICTED = 27  # returns and indirect transfers whose target was mispredicted
    BTB_MISSES = 28  # taken direct transfers whose target the branch target buffer did not have
    L1I_ACCESSES = 29  # fetches of a line other than the one fetched last
    L1I_MISSES = 30
    L1D_MISSES = 31
    L1D_LOAD_MISSES = 32
    L1D_STORE_MISSES = 33  # atomics included
    L1D_WRITEBACKS = 34  # dirty lines written back
    L2_ACCESSES = 35  # demand accesses: what missed in either first-level cache
    L2_MISSES = 36
    L2_DATA_ACCESSES = 37
    L2_DATA_MISSES = 38
    L2_WRITEBACKS = 39
    MEMORY_READS = 40  # lines read from memory
    MEMORY_WRITES = 41  # lines, or written-through stores, that reach memory
    ITLB_MISSES = 42
    DTLB_MISSES = 43
    STALL_CYCLES = 44  # cycles in which no instruction issued
    FRONTEND_STALL_CYCLES = 45  # of these, the ones waiting for fetch


N_EVENTS = len(Event)
FIRST_STATIC = int(Event.INSTRUCTIONS)
FIRST_DYNAMIC = int(Event.BRANCHES_TAKEN)
N_STATIC = FIRST_DYNAMIC - FIRST_STATIC

_EVENTS_OF_CLASS: dict[OpClass, dict[Event, int]] = {
    OpClass.INT_ALU: {Event.INT_OPERATIONS: 1},
    OpClass.INT_MUL: {Event.INT_OPERATIONS: 1, Event.INT_MULTIPLIES: 1},
    OpClass.INT_DIV: {Event.INT_OPERATIONS: 1, Event.INT_DIVIDES: 1},
    OpClass.ATOMIC: {Event.ATOMICS: 1},
    OpClass.BRANCH: {Event.BRANCHES: 1, Event.BRANCHES_CONDITIONAL: 1},
    OpClass.JUMP: {Event.BRANCHES: 1},
    OpClass.CALL: {Event.BRANCHES: 1, Event.CALLS: 1},
    OpClass.RETURN: {Event.BRANCHES: 1, Event.RETURNS: 1},
    OpClass.INDIRECT_JUMP: {Event.BRANCHES: 1, Event.INDIRECT_TRANSFERS: 1},
    OpClass.INDIRECT_CALL: {Event.BRANCHES: 1, Event.CALLS: 1, Event.INDIRECT_TRANSFERS: 1},
    OpClass.FP_ADD: {Event.FP_INSTRUCTIONS: 1, Event.FP_OPERATIONS: 1, Event.FP_ADDS: 1},
    OpClass.FP_MUL: {Event.FP_INSTRUCTIONS: 1, Event.FP_OPERATIONS: 1, Event.FP_MULTIPLIES: 1},
    OpClass.FP_FMA: {Event.FP_INSTRUCTIONS: 1, Event.FP_OPERATIONS: 2, Event.FP_FUSED: 1},
    OpClass.FP_DIV: {Event.FP_INSTRUCTIONS: 1, Event.FP_OPERATIONS: 1, Event.FP_DIVIDES: 1},
    OpClass.FP_SQRT: {Event.FP_INSTRUCTIONS: 1, Event.FP_OPERATIONS: 1, Event.FP_SQUARE_ROOTS: 1},
    OpClass.FP_CVT: {Event.FP_INSTRUCTIONS: 1, Event.FP_CONVERSIONS: 1},
    OpClass.FP_MOVE: {Event.FP_INSTRUCTIONS: 1, Event.FP_MOVES: 1},
    OpClass.CSR: {Event.SYSTEM_INSTRUCTIONS: 1},
    OpClass.FENCE: {Event.FENCES: 1},
    OpClass.SYSTEM: {Event.SYSTEM_INSTRUCTIONS: 1},
}


def _events_of_instruction() -> NDArray[np.uint8]:
    """Static events of one instruction by class and access flags, ``(class, access flags, N_STATIC)``."""
    table = np.zeros((len(OpClass), 2 * ACCESS_ALONE, N_STATIC), np.uint8)
    table[:, :, Event.INSTRUCTIONS - FIRST_STATIC] = 1
    for op_class, events in _EVENTS_OF_CLASS.items():
        for event, count in events.items():
            table[op_class, :, event - FIRST_STATIC] = count
    for access in range(ACCESS_ALONE):
        table[:, access, Event.LOADS - FIRST_STATIC] = bool(access & ACCESS_LOAD)
        table[:, access, Event.STORES - FIRST_STATIC] = bool(access & ACCESS_STORE)
        table[:, access, Event.L1D_ACCESSES - FIRST_STATIC] = 0 < access < ACCESS_HIDDEN
    table[:, ACCESS_ALONE:, :] = 0
    return table


_EVENTS_OF_INSTRUCTION = _events_of_instruction()


def events_of_instruction(op_class: OpClass, access: int) -> NDArray[np.uint8]:
    """Static events of one execution of an instruction of this class and access flags, (N_STATIC,)."""
    return _EVENTS_OF_INSTRUCTION[op_class, access]


def static_events(facts: BlockFacts, first_block: int, last_block: int) -> NDArray[np.uint8]:
    """Static event counts of blocks ``first_block:last_block``, ``(last_block - first_block, N_STATIC)``.

    Column k is event ``FIRST_STATIC + k``. No count passes 255: a block has at most 64 instructions. Blocks may be
    without instructions.
    """
    blocks = facts.blocks[first_block:last_block]
    if len(blocks) == 0:
        return np.zeros((0, N_STATIC), np.uint8)
    starts = blocks["first_instruction"].astype(np.int64)
    rows = facts.instructions[starts[0] : starts[-1] + int(blocks["n_instructions"][-1])]
    events = _EVENTS_OF_INSTRUCTION[rows["op_class"], rows["access"]]
    found = np.zeros((len(blocks), N_STATIC), np.uint8)
    full = blocks["n_instructions"] > 0  # reduceat takes an empty sum for one term
    if full.any():
        found[full] = np.add.reduceat(events, (starts - starts[0])[full], axis=0, dtype=np.uint8)
    return found
