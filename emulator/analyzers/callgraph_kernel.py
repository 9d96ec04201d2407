"""Following calls and returns through the record, as numba kernels."""

from __future__ import annotations

from typing import Any

from emulator.events import OpClass
from emulator.jit import kernel

CALL, RETURN, INDIRECT_CALL = int(OpClass.CALL), int(OpClass.RETURN), int(OpClass.INDIRECT_CALL)
DEPTH, NOW, LAST = range(
    3
)  # of ``job``: frames on the stack, instructions so far, the block before (-1: none)
RETURNS_TO, EDGE, CALLEE, SINCE = range(4)  # columns of the stack
MAX_DEPTH, MAX_EDGES = 1 << 16, 1 << 16


@kernel
def walk(job: Any, stack: Any, blocks: Any, active: Any, edges: Any, inclusive: Any, ids: Any) -> bool:
    """Follow the blocks ``ids``. ``blocks``: per block pc, end, instructions, kind of its end, function. ``edges``:
    hash table of caller << 32 | callee + 1, calls and inclusive instructions. False when it is full."""
    for n in range(len(ids)):
        block, last = ids[n], job[LAST]
        if last >= 0:
            kind = blocks[last, 3]
            if kind in (CALL, INDIRECT_CALL):
                callee = blocks[block, 4]
                key = blocks[last, 4] << 32 | callee + 1
                place = (key * 0x9E3779B97F4A7C1) >> 40 & (MAX_EDGES - 1)
                tries = 0
                while edges[place, 0] != key and edges[place, 0] != 0:
                    place = (place + 1) & (MAX_EDGES - 1)
                    tries += 1
                    if tries == MAX_EDGES:
                        return False
                edges[place, 0] = key
                edges[place, 1] += 1
                if job[DEPTH] < MAX_DEPTH:
                    top = job[DEPTH]
                    stack[top, RETURNS_TO], stack[top, EDGE] = blocks[last, 1], place
                    stack[top, CALLEE], stack[top, SINCE] = callee, job[NOW]
                    active[callee] += 1
                    job[DEPTH] = top + 1
            elif kind == RETURN:
                found = job[DEPTH] - 1
                while found >= 0 and stack[found, RETURNS_TO] != blocks[block, 0]:
                    found -= 1
                if found >= 0:
                    unwind(job, stack, active, edges, inclusive, found)
        job[NOW] += blocks[block, 2]
        job[LAST] = block
    return True


@kernel
def unwind(job: Any, stack: Any, active: Any, edges: Any, inclusive: Any, depth: int) -> None:
    """End the calls above ``depth``."""
    while job[DEPTH] > depth:
        job[DEPTH] -= 1
        top = job[DEPTH]
        callee, spent = stack[top, CALLEE], job[NOW] - stack[top, SINCE]
        active[callee] -= 1
        if active[callee] == 0:
            inclusive[callee] += spent
            edges[stack[top, EDGE], 2] += spent
