"""Kernels of the in-order core: its main loop over the record, and the decoding of block facts."""

from __future__ import annotations

from typing import Any

import numpy as np

from emulator.events import ACCESS_HIDDEN, ACCESS_STORE, OpClass
from emulator.kernels.jit import Integer, inline_kernel, kernel
from emulator.timing.issue_kernel import (
    FRONTEND_STALL_CYCLES,
    STALL_CYCLES,
    elapse,
    issue_by_transition,
    start_walking,
    stop_walking,
    walk,
)
from emulator.timing.layout import (
    ACCESSES,
    BLOCK_COLUMNS,
    COUNTS,
    END_PC,
    EXECUTIONS,
    FIRST_OP,
    LAST_LINE,
    LAST_PC,
    LENGTH,
    LINE_DELAYS,
    MISS_DELAYS,
    MISS_LINE,
    NO_STATE,
    NO_TARGET,
    OP_COLUMNS,
    OP_LINE,
    OP_REGISTERS,
    OP_TIMING,
    OP_UNIT,
    P_BLOCKS,
    P_DTLB,
    P_ITLB,
    P_L1D_SHIFT,
    P_L1I_SHIFT,
    P_LOAD_LATENCY,
    P_OPS,
    P_OUTSTANDING,
    P_PAGE_SHIFT,
    PC,
    S_CYCLE,
    S_DATA_PAGE,
    S_FETCH_LINE,
    S_FETCH_PAGE,
    S_LINES_UNTIL,
    S_PREVIOUS,
    S_STATE,
    S_TOUCHED,
    S_WALKING,
    SEEN_CYCLES,
    SEEN_NEXT,
    SEEN_STALLS,
    SEEN_STATE,
    STORES_HIGH,
    STORES_LOW,
    TARGET_PC,
    TERMINATOR,
    WALK_DELAYS,
    Ledger,
)
from emulator.timing.machine_events import FIRST_STATIC, N_STATIC, Event
from emulator.timing.memory_kernel import access_data, fetch_line, translate_data, translate_fetch
from emulator.timing.predictor_kernel import resolve

FIRST_TRANSFER, LAST_TRANSFER = int(OpClass.BRANCH), int(OpClass.INDIRECT_CALL)
CYCLES = int(Event.CYCLES)
L1I_ACCESSES = COUNTS + Event.L1I_ACCESSES


@kernel
def decode(
    longs: np.ndarray,
    words: np.ndarray,
    timing: np.ndarray,
    blocks: np.ndarray,
    instructions: np.ndarray,
    first_block: int,
) -> None:
    """Write the facts of blocks ``first_block:`` into the core's tables.

    ``timing``: (classes, 3) unit, latency and interval by OpClass; ``blocks`` and ``instructions`` as in
    `emulator.events.BlockFacts`.
    """
    shift = longs[P_L1I_SHIFT]
    for block in range(first_block, len(blocks)):
        fact = blocks[block]
        first = np.int64(fact["first_instruction"])
        length = np.int64(fact["n_instructions"])
        first_line = np.int64(fact["pc"]) >> shift
        stores = np.uint64(0)
        access = 0
        for index in range(first, first + length):
            instruction = instructions[index]
            op_class = np.int64(instruction["op_class"])
            flags = np.int64(instruction["access"])
            latency = timing[op_class, 1]
            if flags & ACCESS_HIDDEN:
                flags = np.int64(0)
                latency = longs[P_LOAD_LATENCY]
            last_byte = np.int64(instruction["pc"]) + np.int64(instruction["length_bytes"]) - 1
            op = longs[P_OPS] + index * OP_COLUMNS
            words[op + OP_REGISTERS] = (
                np.int64(instruction["rs1"])
                | np.int64(instruction["rs2"]) << 8
                | np.int64(instruction["rs3"]) << 16
                | np.int64(instruction["rd"]) << 24
            )
            words[op + OP_UNIT] = timing[op_class, 0] | flags << 8
            words[op + OP_TIMING] = latency | timing[op_class, 2] << 16
            words[op + OP_LINE] = (last_byte >> shift) - first_line
            if flags:
                if flags & ACCESS_STORE:
                    stores |= np.uint64(1) << np.uint64(access)
                access += 1
        row = longs[P_BLOCKS] + block * BLOCK_COLUMNS
        words[row + PC] = fact["pc"]
        words[row + END_PC] = fact["end_pc"]
        words[row + LENGTH] = length
        words[row + ACCESSES] = fact["n_accesses"]
        words[row + TERMINATOR] = fact["terminator"]
        words[row + TARGET_PC] = fact["target_pc"] if fact["target_known"] else NO_TARGET
        words[row + STORES_LOW] = stores & np.uint64(0xFFFFFFFF)
        words[row + STORES_HIGH] = stores >> np.uint64(32)
        words[row + FIRST_OP] = first
        words[row + EXECUTIONS] = 0
        words[row + SEEN_STATE] = NO_STATE
        words[row + LAST_PC] = instructions[first + length - 1]["pc"] if length > 0 else fact["pc"]
        words[row + LAST_LINE] = (np.int64(fact["end_pc"]) - 1) >> shift


@kernel
def add_static_events(longs: np.ndarray, words: np.ndarray, ledger: Ledger) -> None:
    """Add the static events of the blocks executed since the last call to the counters."""
    for index in range(longs[S_TOUCHED]):
        block = np.int64(ledger.touched[index])
        row = longs[P_BLOCKS] + block * BLOCK_COLUMNS
        executions = np.int64(words[row + EXECUTIONS])
        words[row + EXECUTIONS] = 0
        for event in range(N_STATIC):
            longs[COUNTS + FIRST_STATIC + event] += executions * ledger.static[block, event]
    longs[S_TOUCHED] = 0
    longs[COUNTS + CYCLES] = longs[S_CYCLE]


@inline_kernel
def clear_delays(longs: np.ndarray, lines: int, accesses: int) -> None:
    """Set the delays of the block's fetch lines and accesses to zero."""
    for line in range(lines):
        longs[LINE_DELAYS + line] = 0
    for access in range(accesses):
        longs[WALK_DELAYS + access] = 0
        longs[MISS_DELAYS + access] = 0


@inline_kernel
def is_outstanding(longs: np.ndarray, line: int) -> bool:
    """Whether an MSHR has this data line, whose miss may still be outstanding."""
    found = False
    for port in range(longs[P_OUTSTANDING]):
        found |= longs[MISS_LINE + port] == line
    return found


# In registers during a run: log2 of the bytes of a line of the L1I, of the L1D, and of a page; whether there is an
# ITLB, and a DTLB.
Geometry = tuple[Any, Any, Any, Any, Any]


@inline_kernel
def fetch_block(
    longs: np.ndarray, words: np.ndarray, geometry: Geometry, row: Integer, pc: Integer, last_line: Integer,
    fetch_page: Integer,
) -> tuple[Any, Any, Any, Any, Any]:  # fmt: skip
    """Fetch the lines of the block at ``pc`` with facts at ``row``. Returns the delay before its first instruction,
    whether other lines are late (their delays are in ``longs``), the last line and page fetched, and the number of
    fetches."""
    fetch_shift, _, page_shift, has_itlb, _ = geometry
    delay = np.int64(0)
    delayed = 0
    fetches = np.int64(0)
    first_line, end_line = pc >> fetch_shift, np.int64(words[row + LAST_LINE])
    for line in range(first_line, end_line + 1):
        if line == last_line:
            continue
        last_line = line
        fetches += 1
        late = fetch_line(longs, words, line)
        page = line >> (page_shift - fetch_shift)
        if has_itlb and page != fetch_page:
            fetch_page = page
            late += translate_fetch(longs, words, page)
        if late > 0:
            if line == first_line:
                delay += late
            else:
                if not delayed:
                    delayed = 1
                    clear_delays(longs, end_line - first_line + 1, np.int64(words[row + ACCESSES]))
                longs[LINE_DELAYS + line - first_line] = late
    return delay, delayed, last_line, fetch_page, fetches


@inline_kernel
def access_block(
    longs: np.ndarray, words: np.ndarray, geometry: Geometry, row: Integer, stream: np.ndarray, first: Integer,
    data_page: Integer, delayed: Integer,
) -> tuple[Any, Any]:  # fmt: skip
    """Make the accesses of the block with facts at ``row``, whose addresses are in ``stream`` from ``first`` on.
    Returns the last page accessed, and ``delayed``, or 1 where accesses are late: their delays are in ``longs``."""
    fetch_shift, data_shift, page_shift, _, has_dtlb = geometry
    accesses = np.int64(words[row + ACCESSES])
    stores = np.int64(words[row + STORES_LOW]) | np.int64(words[row + STORES_HIGH]) << 32
    misses_outstanding = longs[S_LINES_UNTIL] > longs[S_CYCLE]
    for access in range(accesses):
        address = np.int64(stream[first + access])
        is_store = stores >> access & 1
        walked = np.int64(0)
        page = address >> page_shift
        if has_dtlb and page != data_page:
            data_page = page
            walked = translate_data(longs, words, page)
        missed = access_data(longs, words, address, is_store)
        if walked | missed or (misses_outstanding and is_outstanding(longs, address >> data_shift)):
            if not delayed:
                delayed = 1
                first_line = np.int64(words[row + PC]) >> fetch_shift
                clear_delays(longs, np.int64(words[row + LAST_LINE]) - first_line + 1, accesses)
            longs[WALK_DELAYS + access] = walked
            longs[MISS_DELAYS + access] = missed
    return data_page, delayed


@kernel
def run(longs: np.ndarray, words: np.ndarray, ledger: Ledger, stream: np.ndarray) -> None:
    """Simulate the record ``stream``."""
    blocks = longs[P_BLOCKS]
    geometry = longs[P_L1I_SHIFT], longs[P_L1D_SHIFT], longs[P_PAGE_SHIFT], longs[P_ITLB], longs[P_DTLB]
    previous = longs[S_PREVIOUS]
    last_line = longs[S_FETCH_LINE]
    fetch_page, data_page = longs[S_FETCH_PAGE], longs[S_DATA_PAGE]
    fetches = np.int64(0)
    stalls = np.int64(0)
    frontend_stalls = np.int64(0)
    position = np.int64(0)
    while position < len(stream):
        block = np.int64(stream[position])
        row = blocks + block * BLOCK_COLUMNS
        pc = np.int64(words[row + PC])
        accesses = np.int64(words[row + ACCESSES])
        delay = np.int64(0)  # before the first instruction

        # Resolve the control transfer of the previous block, whose successor is known now.
        if previous >= 0:
            terminator = np.int64(words[blocks + previous * BLOCK_COLUMNS + TERMINATOR])
            if terminator >= FIRST_TRANSFER and terminator <= LAST_TRANSFER:
                delay = resolve(longs, words, previous, pc)
        previous = block

        # Fetch.
        late, delayed, last_line, fetch_page, n = fetch_block(longs, words, geometry, row, pc, last_line, fetch_page)
        delay += late
        fetches += n

        # Data.
        if accesses > 0:
            data_page, delayed = access_block(longs, words, geometry, row, stream, position + 1, data_page, delayed)

        # Issue.
        if delay > 0:
            elapse(longs, words, delay)
            stalls += delay
            frontend_stalls += delay
        if delayed or longs[S_WALKING]:
            if longs[S_WALKING] == 0:
                start_walking(longs, words)
            walk(longs, words, block, stream, position + 1, delayed)
            stop_walking(longs, words)
        elif np.int64(words[row + SEEN_STATE]) == longs[S_STATE]:
            longs[S_CYCLE] += np.int64(words[row + SEEN_CYCLES])
            longs[S_STATE] = np.int64(words[row + SEEN_NEXT])
            stalls += np.int64(words[row + SEEN_STALLS])
        else:
            issue_by_transition(longs, words, block, stream, position + 1)

        # Count.
        executions = words[row + EXECUTIONS]
        if executions == 0:
            ledger.touched[longs[S_TOUCHED]] = block
            longs[S_TOUCHED] += 1
        words[row + EXECUTIONS] = executions + np.uint32(1)
        position += 1 + accesses

    longs[L1I_ACCESSES] += fetches
    longs[STALL_CYCLES] += stalls
    longs[FRONTEND_STALL_CYCLES] += frontend_stalls
    longs[S_PREVIOUS] = previous
    longs[S_FETCH_LINE] = last_line
    longs[S_FETCH_PAGE] = fetch_page
    longs[S_DATA_PAGE] = data_page
    add_static_events(longs, words, ledger)


@kernel
def resolve_last(longs: np.ndarray, words: np.ndarray, pc: int, takes_time: int) -> None:
    """Let the predictors learn the control transfer of the last block, which was to ``pc``. If it ``takes_time``, that
    is the time that it would take before the next block."""
    block = longs[S_PREVIOUS]
    if block >= 0:
        terminator = np.int64(words[longs[P_BLOCKS] + block * BLOCK_COLUMNS + TERMINATOR])
        if terminator >= FIRST_TRANSFER and terminator <= LAST_TRANSFER:
            delay = resolve(longs, words, block, pc)
            if takes_time and delay > 0:
                elapse(longs, words, delay)
                longs[STALL_CYCLES] += delay
                longs[FRONTEND_STALL_CYCLES] += delay
                longs[COUNTS + CYCLES] = longs[S_CYCLE]
        longs[S_PREVIOUS] = -1


@kernel
def train_predictors(longs: np.ndarray, words: np.ndarray, stream: np.ndarray, skipped: int) -> None:
    """Train the predictors on the control transfers of ``stream``, without those in its first ``skipped`` words."""
    blocks = longs[P_BLOCKS]
    previous = np.int64(-1)
    position = np.int64(0)
    while position < len(stream):
        block = np.int64(stream[position])
        row = blocks + block * BLOCK_COLUMNS
        if previous >= 0 and position >= skipped:
            terminator = np.int64(words[blocks + previous * BLOCK_COLUMNS + TERMINATOR])
            if terminator >= FIRST_TRANSFER and terminator <= LAST_TRANSFER:
                resolve(longs, words, previous, np.int64(words[row + PC]))
        previous = block
        position += 1 + np.int64(words[row + ACCESSES])
