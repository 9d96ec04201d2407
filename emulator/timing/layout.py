"""Layout of a core's state for the kernels: the meaning of each element of two flat arrays.

There are only two arrays because an array is passed as its address and its lengths: with one array for each table, the
calls between kernels would cost more than the work. ``longs`` (int64) holds parameters, scalars, counters, the
scoreboard, pipeline states and time stamps; ``words`` (uint32) the contents of caches and predictors and the decoded
block facts. `emulator.timing.core_arrays` makes the arrays; the ``*_kernel.py`` files work on them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from emulator.events import MAX_BLOCK_INSTRUCTIONS
from emulator.timing.machine_events import N_EVENTS

# ``words``: one row of 16 (a line of the host's cache) a block, from longs[P_BLOCKS] on.
PC, END_PC, LENGTH, ACCESSES, TERMINATOR, TARGET_PC, STORES_LOW, STORES_HIGH = range(8)
FIRST_OP = 8  # number of its first instruction
EXECUTIONS = 9  # executions since its static events were added to the counters
# The last timing transition taken from this block: pipeline state before, cycles, empty cycles, state after.
SEEN_STATE, SEEN_CYCLES, SEEN_STALLS, SEEN_NEXT = 10, 11, 12, 13
LAST_PC = 14  # address of the last instruction
LAST_LINE = 15  # fetch line of the last byte
BLOCK_COLUMNS = 16
NO_STATE = 0xFFFFFFFF
NO_TARGET = 0xFFFFFFFF  # odd: never an address of an instruction

# ``words``: one row of 4 an instruction, from longs[P_OPS] on.
OP_REGISTERS = 0  # rs1 | rs2 << 8 | rs3 << 16 | rd << 24
OP_UNIT = 1  # unit | ACCESS_* flags << 8
OP_TIMING = 2  # latency | interval << 16 [cycles]
OP_LINE = 3  # fetch line of its last byte, counted from the first line of the block
OP_COLUMNS = 4

# Functional units, numbered after the registers in the scoreboard.
N_REGISTERS = 64
UNIT_ALU, UNIT_INT_MULTIPLIER, UNIT_MEMORY, UNIT_BRANCH, UNIT_FP_ADDER, UNIT_FP_MULTIPLIER, UNIT_SYSTEM = range(
    N_REGISTERS, N_REGISTERS + 7
)
SCOREBOARD = N_REGISTERS + 8

# ``longs``: parameters of the machine.
(
    P_WIDTH,
    P_MISPREDICT,
    P_REDIRECT,
    P_TAKEN_BUBBLE,
    P_LOAD_LATENCY,
    P_OUTSTANDING,
    P_L2_LATENCY,  # 0: no L2
    P_MEMORY_LATENCY,
    P_PAGE_SHIFT,
    P_L1I_SHIFT,
    P_L1D_SHIFT,
    P_L2_SHIFT,
    P_WRITE_BACK,
    P_WRITE_ALLOCATE,
    P_ITLB,  # 0: no ITLB
    P_ITLB_PENALTY,
    P_DTLB,
    P_DTLB_PENALTY,
    P_PREDICTOR,
    P_PREDICTOR_MASK,
    P_HISTORY_MASK,
    P_BTB_MASK,  # -1: no BTB
    P_STACK_ENTRIES,
    P_FRAMES,  # index in ``words``: physical page of each virtual page
    P_DIRECTIONS,  # index in ``words``: two-bit counters
    P_BTB,  # index in ``words``: pairs (address of the transfer, target)
    P_STACK,  # index in ``words``: the return-address stack
    P_BLOCKS,  # index in ``words``: block rows
    P_OPS,  # index in ``words``: instruction rows
) = range(29)
PREDICT_NOT_TAKEN, PREDICT_BACKWARD_TAKEN, PREDICT_BIMODAL, PREDICT_GSHARE = range(4)

# ``longs``: scalars that persist between calls.
SCALARS = 32
(
    S_CYCLE,  # the next cycle in which an instruction can issue
    S_STATE,  # pipeline state, when the scoreboard is not in use
    S_WALKING,  # 1: the scoreboard is valid, 0: the pipeline state S_STATE is
    S_HORIZON,  # cycle from which no result in the scoreboard is pending
    S_PREVIOUS,  # the last block, whose control transfer is not resolved yet; -1: none
    S_FETCH_LINE,
    S_FETCH_PAGE,
    S_DATA_PAGE,
    S_HISTORY,
    S_STACK_TOP,
    S_STATES,  # pipeline states known
    S_TRANSITIONS,  # transitions known
    S_TOUCHED,  # blocks with EXECUTIONS > 0
    S_LOADS_UNTIL,  # cycle from which no value of a load that missed is pending
    S_LINES_UNTIL,  # cycle from which no miss is outstanding
) = range(SCALARS, SCALARS + 15)

# ``longs``: one section of scalars per cache or TLB; the constant of a cache is the index of its section.
(
    M_BASE,  # index in ``words`` of its tags; their stamps have the same distance from STAMPS
    M_WAYS,
    M_SET_MASK,
    M_POLICY,
    M_CLOCK,  # the latest stamp
    M_RANDOM,  # state of the generator
    M_VICTIM,  # the last dirty line that was evicted
    M_HINTS,  # index in ``words`` of its hints: the index in ``words`` where a line was last found
    M_HINT_MASK,
) = range(9)
SECTION = 12  # scalars of one cache or TLB
L1I, L1D, L2, ITLB, DTLB = range(64, 64 + 5 * SECTION, SECTION)
POLICY_LRU, POLICY_FIFO, POLICY_RANDOM = range(3)
INVALID_TAG = 0xFFFFFFFE  # clean, and a line number that no address has
FOREIGN_LINE = 1 << 29  # line numbers from here on belong to no page of the guest

# ``longs``: arrays.
COUNTS = 128  # (N_EVENTS,): the counters, by Event
READY = COUNTS + N_EVENTS  # (SCOREBOARD,): cycle at which a register or unit is ready
MAX_OUTSTANDING = 8
MISS_UNTIL = READY + SCOREBOARD  # (MAX_OUTSTANDING,): cycle at which the line of an MSHR arrives
MISS_LINE = MISS_UNTIL + MAX_OUTSTANDING  # (MAX_OUTSTANDING,): the line of an MSHR
MAX_BLOCK_LINES = 32  # 64 instructions of 4 bytes in lines of 16 bytes, not aligned: at most 17
LINE_DELAYS = MISS_LINE + MAX_OUTSTANDING  # (MAX_BLOCK_LINES,): delays of the block's fetch lines [cycles]
WALK_DELAYS = LINE_DELAYS + MAX_BLOCK_LINES  # (MAX_BLOCK_INSTRUCTIONS,): page walks of its accesses [cycles]
MISS_DELAYS = WALK_DELAYS + MAX_BLOCK_INSTRUCTIONS  # (MAX_BLOCK_INSTRUCTIONS,): misses of its accesses [cycles]

# ``longs``: pipeline states and transitions.
MAX_STATES = 4096
STATE_SLOTS = 4 * MAX_STATES
TRANSITION_SLOTS = 1 << 17
MAX_TRANSITIONS = TRANSITION_SLOTS * 3 // 4
MAX_DECAY = 16
OFFSETS = MISS_DELAYS + MAX_BLOCK_INSTRUCTIONS  # (MAX_STATES, SCOREBOARD): cycles until each item is ready
HORIZONS = OFFSETS + MAX_STATES * SCOREBOARD  # (MAX_STATES,): the largest of them
STATES = HORIZONS + MAX_STATES  # (STATE_SLOTS,): open addressing, at most a quarter full; -1: empty
TRANSITION_KEYS = STATES + STATE_SLOTS  # (TRANSITION_SLOTS,): block << 16 | state; -1: empty
TRANSITIONS = TRANSITION_KEYS + TRANSITION_SLOTS  # cycles << 40 | empty cycles << 16 | state after
DECAYS = TRANSITIONS + TRANSITION_SLOTS  # (MAX_STATES, MAX_DECAY): state after so many idle cycles; -1: unknown

STAMPS = DECAYS + MAX_STATES * MAX_DECAY  # ``longs``, to its end: when each line was last used (LRU) or filled


class Ledger(NamedTuple):
    """The arrays with which the kernels add up static events."""

    static: NDArray[np.uint8]  # (capacity of blocks, N_STATIC)
    touched: NDArray[np.uint32]  # (capacity of blocks,): the S_TOUCHED blocks with EXECUTIONS > 0
