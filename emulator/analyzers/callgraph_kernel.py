"""numba kernels that reconstruct calls and returns from the sequence of executed blocks."""

from __future__ import annotations

from typing import Any

from emulator.events import OpClass
from emulator.kernels.numba_jit import numba_kernel

BRANCH, JUMP, INDIRECT_JUMP = int(OpClass.BRANCH), int(OpClass.JUMP), int(OpClass.INDIRECT_JUMP)
CALL, RETURN, INDIRECT_CALL = int(OpClass.CALL), int(OpClass.RETURN), int(OpClass.INDIRECT_CALL)
DEPTH, NOW, LAST = range(3)  # elements of ``job``: frames, instructions so far, the previous block (-1: none)
RETURNS_TO, EDGE, CALLEE, SINCE, IS_TAIL = range(5)  # columns of the stack
PC, END, LENGTH, KIND, FUNCTION, IS_ENTRY = range(6)  # columns of the blocks
MAX_DEPTH, MAX_EDGES = 1 << 16, 1 << 16


@numba_kernel
def walk(job: Any, stack: Any, blocks: Any, active: Any, edges: Any, inclusive: Any, ids: Any) -> bool:
    """Process the executed blocks ``ids``; False if ``edges`` is full.

    ``blocks``: per block pc, end, instructions, class of its last instruction, function, and whether the block is the
    function's entry. ``edges``: hash table with rows caller << 32 | callee + 1, calls, inclusive instructions."""
    for n in range(len(ids)):
        block, last = ids[n], job[LAST]
        if last >= 0 and not transfer(
            job, stack, blocks, active, edges, inclusive, blocks[block, PC], blocks[block, FUNCTION],
            blocks[block, IS_ENTRY],
        ):  # fmt: skip
            return False
        job[NOW] += blocks[block, LENGTH]
        job[LAST] = block
    return True


@numba_kernel
def transfer(
    job: Any, stack: Any, blocks: Any, active: Any, edges: Any, inclusive: Any, pc: int, callee: int, is_entry: int
) -> bool:
    """Process the control transfer of the last block, which was to ``pc`` in the function ``callee``; ``is_entry``:
    whether that is where it begins. False if ``edges`` is full."""
    last = job[LAST]
    kind, caller = blocks[last, KIND], blocks[last, FUNCTION]
    if kind in (CALL, INDIRECT_CALL):
        edge = count(edges, caller, callee)
        if edge < 0:
            return False
        push(job, stack, active, edge, callee, blocks[last, END], 0)
    elif kind == RETURN:
        found = job[DEPTH] - 1
        while found >= 0 and stack[found, RETURNS_TO] != pc:
            found -= 1
        while found > 0 and stack[found, IS_TAIL]:
            found -= 1
        if found < 0 and callee != caller:  # longjmp, or the landing pad of an exception
            frame = job[DEPTH] - 1
            while frame >= 0 and stack[frame, CALLEE] != callee:
                frame -= 1
            found = frame + 1 if frame >= 0 else -1
        if found >= 0:
            unwind(job, stack, active, edges, inclusive, found)
    elif is_entry and callee != caller and kind in (BRANCH, JUMP, INDIRECT_JUMP):
        edge = count(edges, caller, callee)
        if edge < 0:
            return False
        # Functions that tail-call each other in turns have only one frame each.
        frame = job[DEPTH] - 1
        while frame >= 0 and stack[frame, IS_TAIL] and stack[frame, CALLEE] != callee:
            frame -= 1
        if frame >= 0 and stack[frame, CALLEE] == callee:
            unwind(job, stack, active, edges, inclusive, frame + 1)
        else:
            returns_to = stack[job[DEPTH] - 1, RETURNS_TO] if job[DEPTH] else -1
            push(job, stack, active, edge, callee, returns_to, 1)
    return True


@numba_kernel
def call_handler(job: Any, stack: Any, active: Any, edges: Any, function: int, handler: int, returns_to: int) -> bool:
    """A signal has interrupted ``function``; its ``handler`` is a callee that returns to ``returns_to``."""
    edge = count(edges, function, handler)
    if edge >= 0:
        push(job, stack, active, edge, handler, returns_to, 0)
    return edge >= 0


@numba_kernel
def count(edges: Any, caller: int, callee: int) -> int:
    """Count a call in ``edges`` and return its row; -1 if the table is full."""
    key = caller << 32 | callee + 1
    place = (key * 0x9E3779B97F4A7C1) >> 40 & (MAX_EDGES - 1)
    for _ in range(MAX_EDGES):
        if edges[place, 0] in (key, 0):
            edges[place, 0] = key
            edges[place, 1] += 1
            return place
        place = (place + 1) & (MAX_EDGES - 1)
    return -1


@numba_kernel
def push(job: Any, stack: Any, active: Any, edge: int, callee: int, returns_to: int, is_tail: int) -> None:
    """Push a frame for the callee; beyond MAX_DEPTH its instructions count for its caller."""
    top = job[DEPTH]
    if top < MAX_DEPTH:
        stack[top, RETURNS_TO], stack[top, EDGE], stack[top, CALLEE] = returns_to, edge, callee
        stack[top, SINCE], stack[top, IS_TAIL] = job[NOW], is_tail
        active[callee] += 1
        job[DEPTH] = top + 1


@numba_kernel
def unwind(job: Any, stack: Any, active: Any, edges: Any, inclusive: Any, depth: int) -> None:
    """Pop the frames above ``depth`` and add their inclusive instructions."""
    while job[DEPTH] > depth:
        job[DEPTH] -= 1
        top = job[DEPTH]
        callee, spent = stack[top, CALLEE], job[NOW] - stack[top, SINCE]
        active[callee] -= 1
        if active[callee] == 0:
            inclusive[callee] += spent
            edges[stack[top, EDGE], 2] += spent
