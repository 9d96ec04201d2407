"""Kernels of the in-order pipeline: a scoreboard walk, and a memo table of pipeline states that makes it rare.

The walk defines the timing: each instruction issues when its operands, its destination and its unit are ready.
Without a miss, the effect of a block on the pipeline depends only on the block and on the results pending at its entry.
The pending results (cycles left for each register and unit) form a *pipeline state*, numbered at its first occurrence;
the transitions (block, state) -> (cycles, empty cycles, next state) are memoised. So most blocks cost one table lookup,
with exactly the cycles of the walk. Blocks with misses or fetch delays are walked.
"""

from __future__ import annotations

import numpy as np

from emulator.events import ACCESS_ALONE
from emulator.kernels.jit import Integer, inline_kernel, kernel
from emulator.timing.layout import (
    BLOCK_COLUMNS,
    COUNTS,
    DECAYS,
    FIRST_OP,
    HORIZONS,
    LENGTH,
    LINE_DELAYS,
    MAX_DECAY,
    MAX_STATES,
    MAX_TRANSITIONS,
    MISS_DELAYS,
    MISS_LINE,
    MISS_UNTIL,
    NO_STATE,
    OFFSETS,
    OP_COLUMNS,
    OP_LINE,
    OP_REGISTERS,
    OP_TIMING,
    OP_UNIT,
    P_BLOCKS,
    P_L1D_SHIFT,
    P_LOAD_LATENCY,
    P_OPS,
    P_OUTSTANDING,
    P_WIDTH,
    READY,
    S_CYCLE,
    S_HORIZON,
    S_LINES_UNTIL,
    S_LOADS_UNTIL,
    S_STATE,
    S_STATES,
    S_TRANSITIONS,
    S_WALKING,
    SCOREBOARD,
    SEEN_CYCLES,
    SEEN_NEXT,
    SEEN_STALLS,
    SEEN_STATE,
    STATE_SLOTS,
    STATES,
    TRANSITION_KEYS,
    TRANSITION_SLOTS,
    TRANSITIONS,
    UNIT_ALU,
    WALK_DELAYS,
)
from emulator.timing.machine_events import Event

STALL_CYCLES = COUNTS + Event.STALL_CYCLES
FRONTEND_STALL_CYCLES = COUNTS + Event.FRONTEND_STALL_CYCLES
HASH = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio: multiplicative hashing, Knuth vol. 3, 6.4


@inline_kernel
def first_free_mshr(longs: np.ndarray) -> int:
    """The MSHR that is free first; the lowest one of several."""
    best = 0
    for port in range(1, longs[P_OUTSTANDING]):
        if longs[MISS_UNTIL + port] < longs[MISS_UNTIL + best]:
            best = port
    return best


@kernel
def walk(longs: np.ndarray, words: np.ndarray, block: int, stream: np.ndarray, first_access: int, delayed: int) -> None:
    """Issue the instructions of ``block`` one by one, from cycle S_CYCLE on, with the scoreboard.

    ``stream[first_access:]`` holds its effective addresses; ``delayed`` is 1 if the delay arrays hold the
    delays of this block, 0 if it has none. Updates S_CYCLE, the horizons, the scoreboard and the stalls.
    """
    width = longs[P_WIDTH]
    load_latency = longs[P_LOAD_LATENCY]
    outstanding = longs[P_OUTSTANDING]
    shift = longs[P_L1D_SHIFT]
    cycle = longs[S_CYCLE]
    horizon = longs[S_HORIZON]
    slots = 0  # instructions issued in this cycle
    stalls = np.int64(0)
    fetched = 0  # lines of the block that have arrived, after the first
    access = first_access
    row = longs[P_BLOCKS] + block * BLOCK_COLUMNS
    op = longs[P_OPS] + np.int64(words[row + FIRST_OP]) * OP_COLUMNS
    for _ in range(words[row + LENGTH]):
        registers = np.int64(words[op + OP_REGISTERS])
        unit = np.int64(words[op + OP_UNIT]) & 0xFF
        is_access = np.int64(words[op + OP_UNIT]) >> 8
        latency = np.int64(words[op + OP_TIMING]) & 0xFFFF
        interval = np.int64(words[op + OP_TIMING]) >> 16
        rd = registers >> 24
        if delayed:
            while fetched < words[op + OP_LINE]:
                fetched += 1
                delay = longs[LINE_DELAYS + fetched]
                if delay > 0:
                    if slots > 0:
                        cycle += 1
                        slots = 0
                    cycle += delay
                    stalls += delay
                    longs[FRONTEND_STALL_CYCLES] += delay
        op += OP_COLUMNS
        if is_access & ACCESS_ALONE:
            # Nothing issues; a load's value is waited for, as by the instruction that would use it.
            if delayed:
                delay = longs[WALK_DELAYS + access - first_access]
                if rd > 0:
                    delay += longs[MISS_DELAYS + access - first_access]
                if delay > 0:
                    if slots > 0:
                        cycle += 1
                        slots = 0
                    cycle += delay
                    stalls += delay
            access += 1
            continue
        start = cycle + 1 if slots == width else cycle
        start = max(start, longs[READY + (registers & 0xFF)], longs[READY + (registers >> 8 & 0xFF)])
        start = max(start, longs[READY + (registers >> 16 & 0xFF)], longs[READY + rd], longs[READY + unit])
        stop = np.int64(0)  # cycles for which a miss stops the pipeline
        if is_access:
            latency = load_latency
            if delayed:
                start += longs[WALK_DELAYS + access - first_access]
                delay = longs[MISS_DELAYS + access - first_access]
                line = np.int64(stream[access]) >> shift
                if outstanding == 0:
                    latency += delay
                    stop = delay
                elif delay > 0:
                    port = first_free_mshr(longs)
                    start = max(start, longs[MISS_UNTIL + port])
                    latency += delay
                    longs[MISS_UNTIL + port] = start + delay
                    longs[MISS_LINE + port] = line
                    longs[S_LINES_UNTIL] = max(longs[S_LINES_UNTIL], start + delay)
                else:
                    for port in range(outstanding):
                        if longs[MISS_LINE + port] == line and longs[MISS_UNTIL + port] > start:
                            latency = longs[MISS_UNTIL + port] - start + load_latency
                if rd > 0 and latency > load_latency:
                    longs[S_LOADS_UNTIL] = max(longs[S_LOADS_UNTIL], start + latency)
            access += 1
        if start > cycle:
            stalls += start - cycle - (1 if slots > 0 else 0)
            cycle = start
            slots = 0
        slots += 1
        if unit != UNIT_ALU:
            longs[READY + unit] = start + interval
            horizon = max(horizon, start + interval)
        if rd > 0:
            longs[READY + rd] = start + latency
            horizon = max(horizon, start + latency)
        if stop > 0:
            cycle += 1 + stop
            slots = 0
            stalls += stop
    if slots > 0:
        cycle += 1
    longs[S_CYCLE] = cycle
    longs[S_HORIZON] = horizon
    longs[STALL_CYCLES] += stalls


@kernel
def start_walking(longs: np.ndarray, words: np.ndarray) -> None:
    """Write the pipeline state into the scoreboard, which is valid from now on."""
    state = longs[S_STATE]
    cycle = longs[S_CYCLE]
    if state > 0:  # in state 0 no result is pending
        for item in range(SCOREBOARD):
            longs[READY + item] = cycle + longs[OFFSETS + state * SCOREBOARD + item]
    longs[S_HORIZON] = cycle + longs[HORIZONS + state]
    longs[S_WALKING] = 1


@kernel
def stop_walking(longs: np.ndarray, words: np.ndarray) -> None:
    """Convert the scoreboard to a pipeline state, unless the value of a load that missed is still pending."""
    cycle = longs[S_CYCLE]
    if longs[S_HORIZON] <= cycle:
        longs[S_STATE] = 0
        longs[S_WALKING] = 0
    elif longs[S_LOADS_UNTIL] <= cycle:
        make_room(longs, words)
        longs[S_STATE] = find_state(longs, words)
        longs[S_WALKING] = 0


@kernel
def decay(longs: np.ndarray, words: np.ndarray, cycles: int) -> None:
    """Advance the pipeline state by ``cycles`` without issue, fewer than its horizon."""
    place = DECAYS + longs[S_STATE] * MAX_DECAY + cycles
    if cycles < MAX_DECAY and longs[place] >= 0:
        longs[S_STATE] = longs[place]
        return
    make_room(longs, words)
    place = DECAYS + longs[S_STATE] * MAX_DECAY + cycles
    start_walking(longs, words)
    longs[S_CYCLE] += cycles
    longs[S_STATE] = find_state(longs, words)
    longs[S_CYCLE] -= cycles
    longs[S_WALKING] = 0
    if cycles < MAX_DECAY:
        longs[place] = longs[S_STATE]


@inline_kernel
def elapse(longs: np.ndarray, words: np.ndarray, cycles: int) -> None:
    """Advance by ``cycles`` in which no instruction issues and pending results progress."""
    if longs[S_WALKING] == 0 and longs[S_STATE] > 0:
        if cycles >= longs[HORIZONS + longs[S_STATE]]:
            longs[S_STATE] = 0
        else:
            decay(longs, words, cycles)
    longs[S_CYCLE] += cycles


@kernel
def find_state(longs: np.ndarray, words: np.ndarray) -> Integer:
    """The number of the scoreboard's pipeline state; a new state is added (call `make_room` before)."""
    cycle = longs[S_CYCLE]
    candidate = longs[S_STATES]
    offsets = OFFSETS + candidate * SCOREBOARD
    horizon = np.int64(0)
    code = np.uint64(0)
    for item in range(1, SCOREBOARD):
        pending = max(longs[READY + item] - cycle, np.int64(0))
        longs[offsets + item] = pending
        if pending > 0:
            code = (code ^ np.uint64(pending << 8 | item)) * np.uint64(HASH)
            horizon = max(horizon, pending)
    if horizon == 0:
        return np.int64(0)
    slot = np.int64(code >> np.uint64(40)) % STATE_SLOTS
    while longs[STATES + slot] >= 0:
        known = longs[STATES + slot]
        same = True
        for item in range(1, SCOREBOARD):
            if longs[OFFSETS + known * SCOREBOARD + item] != longs[offsets + item]:
                same = False
                break
        if same:
            return known
        slot = (slot + 1) % STATE_SLOTS
    longs[STATES + slot] = candidate
    longs[HORIZONS + candidate] = horizon
    for cycles in range(MAX_DECAY):
        longs[DECAYS + candidate * MAX_DECAY + cycles] = -1
    longs[S_STATES] = candidate + 1
    return candidate


@kernel
def clear_states(longs: np.ndarray, words: np.ndarray) -> None:
    """Clear the tables of states and transitions, which are only a cache of the walk."""
    for slot in range(STATE_SLOTS):
        longs[STATES + slot] = -1
    for slot in range(TRANSITION_SLOTS):
        longs[TRANSITION_KEYS + slot] = -1
    for row in range(longs[P_BLOCKS], longs[P_OPS], BLOCK_COLUMNS):
        words[row + SEEN_STATE] = NO_STATE
    longs[S_STATES] = 1
    longs[S_TRANSITIONS] = 0


@kernel
def make_room(longs: np.ndarray, words: np.ndarray) -> None:
    """Clear the tables if one is full, keeping the pipeline's state."""
    if longs[S_STATES] < MAX_STATES and longs[S_TRANSITIONS] < MAX_TRANSITIONS:
        return
    if longs[S_WALKING] == 0:
        start_walking(longs, words)
        clear_states(longs, words)
        longs[S_STATE] = find_state(longs, words)
        longs[S_WALKING] = 0
    else:
        clear_states(longs, words)


@kernel
def issue_by_transition(
    longs: np.ndarray, words: np.ndarray, block: int, stream: np.ndarray, first_access: int
) -> None:
    """Issue a block without misses by its transition from the current state, which is walked and stored if new.

    The block's row then has this transition as its last one."""
    make_room(longs, words)
    state = longs[S_STATE]
    key = np.int64(block) << 16 | state
    slot = np.int64((np.uint64(key) * np.uint64(HASH)) >> np.uint64(40)) % TRANSITION_SLOTS
    while longs[TRANSITION_KEYS + slot] >= 0 and longs[TRANSITION_KEYS + slot] != key:
        slot = (slot + 1) % TRANSITION_SLOTS
    if longs[TRANSITION_KEYS + slot] == key:
        value = longs[TRANSITIONS + slot]
        longs[S_CYCLE] += value >> 40
        longs[STALL_CYCLES] += value >> 16 & 0xFFFFFF
        longs[S_STATE] = value & 0xFFFF
    else:
        cycle = longs[S_CYCLE]
        stalls = longs[STALL_CYCLES]
        start_walking(longs, words)
        walk(longs, words, block, stream, first_access, np.int64(0))
        longs[S_WALKING] = 0
        longs[S_STATE] = find_state(longs, words)
        value = longs[S_CYCLE] - cycle << 40 | longs[STALL_CYCLES] - stalls << 16 | longs[S_STATE]
        longs[TRANSITION_KEYS + slot] = key
        longs[TRANSITIONS + slot] = value
        longs[S_TRANSITIONS] += 1
    row = longs[P_BLOCKS] + block * BLOCK_COLUMNS
    words[row + SEEN_STATE] = state
    words[row + SEEN_CYCLES] = value >> 40
    words[row + SEEN_STALLS] = value >> 16 & 0xFFFFFF
    words[row + SEEN_NEXT] = value & 0xFFFF
