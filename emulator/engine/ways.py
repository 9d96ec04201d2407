"""Where computed jumps lead inside a region: returns to the sites of calls whose callees are in it, too, and switches
to their cases.

Which ones are told decides what is fast and nothing else: a jump that goes elsewhere leaves through the table of entry
points, as do those of which nothing is told.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.engine.blocks import Block
from emulator.engine.emit import Emitter
from emulator.events import OpClass

Ways = Mapping[
    int, tuple[int, ...]
]  # where the call or computed jump that ends a block may lead, ascending; by pc

_FEW = 4  # targets that are compared one after the other
_NO_WAY_ON = (OpClass.JUMP, OpClass.INDIRECT_JUMP, OpClass.RETURN)
_LEADS_SOMEWHERE = (OpClass.JUMP, OpClass.BRANCH)


def cases_among(blocks: NDArray[np.void]) -> tuple[NDArray[np.uint32], int]:
    """Of a function's ``blocks`` (rows of `BlockFacts`): addresses of those that none of them leads to directly, which
    some computed jump must, ascending; and how many of them end with one."""
    kind = blocks["terminator"]
    direct = blocks["target_pc"][np.isin(kind, _LEADS_SOMEWHERE) & (blocks["target_known"] != 0)]
    behind = blocks["end_pc"][~np.isin(kind, _NO_WAY_ON)]
    cases = np.setdiff1d(blocks["pc"], np.concatenate([direct, behind]))
    return cases, int(np.count_nonzero(kind == OpClass.INDIRECT_JUMP))


def ways_of_calls(blocks: Mapping[int, Block], callees: Collection[int]) -> dict[int, set[int]]:
    """Where calls of ``callees``, which are among the ``blocks``, lead, and for each return the sites that it may
    return to."""
    returns: dict[int, list[int]] = {}  # of functions, by where those begin
    ways: dict[int, set[int]] = {}
    for block in blocks.values():
        start = block.call_target
        if start not in callees or start is None or block.end_pc not in blocks:
            continue
        ways[block.pc] = {start}
        if start not in returns:
            returns[start] = _returns_from(start, blocks)
        for pc in returns[start]:
            ways.setdefault(pc, set()).add(block.end_pc)
    return ways


def _returns_from(start: int, blocks: Mapping[int, Block]) -> list[int]:
    """The returns that are reached from ``start`` without entering callees."""
    seen: set[int] = set()
    work = [start]
    while work:
        pc = work.pop()
        if pc not in seen and pc in blocks:
            seen.add(pc)
            work.extend(blocks[pc].successors())
    return [pc for pc in seen if ends_with(blocks[pc], OpClass.RETURN)]


def ends_with(block: Block, op_class: OpClass) -> bool:
    """Whether it ends with a transfer of control of that class."""
    return block.transfers and block.last.op_class == op_class


def branch_to(emitter: Emitter, target: Any, ways: Sequence[int], labels: Sequence[str], other: str) -> str:
    """Branch to the one of ``labels`` whose address of ``ways`` the value ``target`` is, and to ``other`` if none.

    A host has one prediction for an indirect jump and many for a tree of comparisons, so many ways are told apart by a
    map from the address to their number, whose text is returned: a constant of the module. ``ways`` ascend.
    """
    if len(ways) <= _FEW:
        cases = " ".join(f"i64 {pc}, label %{label}" for pc, label in zip(ways, labels, strict=True))
        emitter.say(f"switch i64 {target}, label %{other} [ {cases} ]")
        return ""
    low, n_places = ways[0], (ways[-1] - ways[0] >> 1) + 1
    numbers = [0] * n_places
    for number, pc in enumerate(ways, 1):
        numbers[pc - low >> 1] = number
    name = emitter.fresh_label("ways")
    place = emitter.let(f"lshr i64 {emitter.let(f'sub i64 {target}, {low}')}, 1")
    inside = emitter.let(f"icmp ult i64 {place}, {n_places}")
    look, never = emitter.fresh_label("look"), emitter.fresh_label("never")
    emitter.say(f"br i1 {inside}, label %{look}, label %{other}")
    emitter.start(look)
    pointer = emitter.let(f"getelementptr i8, ptr @{name}, i64 {place}")
    known = emitter.let(f"load i8, ptr {pointer}")
    all_labels = enumerate([other, *labels])
    cases = " ".join(f"i8 {n}, label %{label}" for n, label in all_labels)
    emitter.say(f"switch i8 {known}, label %{never} [ {cases} ]")
    emitter.start(never)
    emitter.say("unreachable")
    values = ", ".join(f"i8 {number}" for number in numbers)
    return f"@{name} = private unnamed_addr constant [{n_places} x i8] [{values}]\n"
