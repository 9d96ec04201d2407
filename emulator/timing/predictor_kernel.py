"""Branch prediction kernels: predict a control transfer, train on its outcome, return its penalty.

Directions: static, bimodal (Smith, ISCA 1981), gshare (McFarling, WRL TN-36, 1993), with two-bit saturating
counters. Targets: a direct-mapped, fully tagged branch target buffer, and a circular return-address stack.
All are trained at once: in an in-order core the outcome is known before the next prediction matters.
"""

from __future__ import annotations

import numpy as np

from emulator.events import OpClass
from emulator.kernels.jit import inline_kernel
from emulator.timing.layout import (
    BLOCK_COLUMNS,
    COUNTS,
    END_PC,
    LAST_PC,
    P_BLOCKS,
    P_BTB,
    P_BTB_MASK,
    P_DIRECTIONS,
    P_HISTORY_MASK,
    P_MISPREDICT,
    P_PREDICTOR,
    P_PREDICTOR_MASK,
    P_REDIRECT,
    P_STACK,
    P_STACK_ENTRIES,
    P_TAKEN_BUBBLE,
    PREDICT_BACKWARD_TAKEN,
    PREDICT_GSHARE,
    PREDICT_NOT_TAKEN,
    S_HISTORY,
    S_STACK_TOP,
    TARGET_PC,
    TERMINATOR,
)
from emulator.timing.machine_events import Event

BRANCH, CALL, RETURN = int(OpClass.BRANCH), int(OpClass.CALL), int(OpClass.RETURN)
INDIRECT_JUMP, INDIRECT_CALL = int(OpClass.INDIRECT_JUMP), int(OpClass.INDIRECT_CALL)
BRANCHES_TAKEN = COUNTS + Event.BRANCHES_TAKEN
BRANCHES_MISPREDICTED = COUNTS + Event.BRANCHES_MISPREDICTED
TARGETS_MISPREDICTED = COUNTS + Event.TARGETS_MISPREDICTED
BTB_MISSES = COUNTS + Event.BTB_MISSES


@inline_kernel
def lookup_btb(longs: np.ndarray, words: np.ndarray, pc: int, target: int) -> bool:
    """Whether the BTB predicts ``target`` for the transfer at ``pc``; stores ``target`` there."""
    mask = longs[P_BTB_MASK]
    if mask < 0:
        return False
    entry = longs[P_BTB] + ((pc >> 1) & mask) * 2
    known = words[entry] == pc and words[entry + 1] == target
    words[entry] = pc
    words[entry + 1] = target
    return known


@inline_kernel
def predict_direction(longs: np.ndarray, words: np.ndarray, pc: int, target: int, taken: int) -> int:
    """Predict a conditional branch and train on its outcome; returns the prediction (0 or 1)."""
    kind = longs[P_PREDICTOR]
    if kind == PREDICT_NOT_TAKEN:
        return 0
    if kind == PREDICT_BACKWARD_TAKEN:
        return 1 if target <= pc else 0
    index = pc >> 1
    if kind == PREDICT_GSHARE:
        history = longs[S_HISTORY]
        index ^= history
        longs[S_HISTORY] = (history << 1 | taken) & longs[P_HISTORY_MASK]
    index = longs[P_DIRECTIONS] + (index & longs[P_PREDICTOR_MASK])
    counter = np.int64(words[index])
    if taken:
        if counter < 3:
            words[index] = counter + 1
    elif counter > 0:
        words[index] = counter - 1
    return 1 if counter >= 2 else 0


@inline_kernel
def push_return(longs: np.ndarray, words: np.ndarray, address: int) -> None:
    """Push a return address; a full stack loses its oldest entry."""
    entries = longs[P_STACK_ENTRIES]
    if entries > 0:
        top = longs[S_STACK_TOP] + 1
        if top == entries:
            top = 0
        longs[S_STACK_TOP] = top
        words[longs[P_STACK] + top] = address


@inline_kernel
def resolve(longs: np.ndarray, words: np.ndarray, block: int, next_pc: int) -> int:
    """Resolve the control transfer at the end of ``block`` to ``next_pc``; returns the empty cycles after it."""
    row = longs[P_BLOCKS] + block * BLOCK_COLUMNS
    kind = np.int64(words[row + TERMINATOR])
    pc = np.int64(words[row + LAST_PC])
    target = np.int64(words[row + TARGET_PC])
    end_pc = np.int64(words[row + END_PC])
    if kind == BRANCH:
        # A branch to the next instruction, whose outcome no record tells, counts as not taken, as in a batch.
        taken = 1 if next_pc == target and target != end_pc else 0
        predicted = predict_direction(longs, words, pc, target, taken)
        longs[BRANCHES_TAKEN] += taken
        known = taken == 1 and lookup_btb(longs, words, pc, next_pc)
        if predicted != taken:
            longs[BRANCHES_MISPREDICTED] += 1
            return longs[P_MISPREDICT]
        if taken == 0:
            return 0
    elif kind in (RETURN, INDIRECT_JUMP, INDIRECT_CALL):
        entries = longs[P_STACK_ENTRIES]
        if kind == RETURN and entries > 0:
            top = longs[S_STACK_TOP]
            right = words[longs[P_STACK] + top] == next_pc
            longs[S_STACK_TOP] = (top if top > 0 else entries) - 1
        else:
            right = lookup_btb(longs, words, pc, next_pc)
        if kind == INDIRECT_CALL:
            push_return(longs, words, end_pc)
        if not right:
            longs[TARGETS_MISPREDICTED] += 1
            return longs[P_MISPREDICT]
        return longs[P_TAKEN_BUBBLE]
    else:
        known = lookup_btb(longs, words, pc, next_pc)
        if kind == CALL:
            push_return(longs, words, end_pc)
    if known:
        return longs[P_TAKEN_BUBBLE]
    if longs[P_BTB_MASK] >= 0:
        longs[BTB_MISSES] += 1
    return longs[P_TAKEN_BUBBLE] + longs[P_REDIRECT]
