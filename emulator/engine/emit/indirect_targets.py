"""Indirect-branch targets inside a region: return sites of calls whose callees are in it, and cases of switches.

The targets decide only what is fast: a jump to another address, or without known targets, leaves the region through the
dispatch table.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.engine.blocks import Block
from emulator.engine.emit.emitter import Emitter
from emulator.events import OpClass

# By pc of a block: the targets of the call or computed jump that ends it, ascending.
IndirectTargets = Mapping[int, tuple[int, ...]]

_FEW = 4  # up to so many targets are compared one after the other
_NO_FALL_THROUGH = (OpClass.JUMP, OpClass.INDIRECT_JUMP, OpClass.RETURN)
_HAS_DIRECT_TARGET = (OpClass.JUMP, OpClass.BRANCH)


def cases_among(blocks: NDArray[np.void]) -> tuple[NDArray[np.uint32], int]:
    """Addresses of a function's ``blocks`` (rows of `BlockFacts`) that none of them branches to or falls into: a
    computed jump must lead there; ascending. And the number of blocks that end with a computed jump."""
    kind = blocks["terminator"]
    direct = blocks["target_pc"][np.isin(kind, _HAS_DIRECT_TARGET) & (blocks["target_known"] != 0)]
    behind = blocks["end_pc"][~np.isin(kind, _NO_FALL_THROUGH)]
    cases = np.setdiff1d(blocks["pc"], np.concatenate([direct, behind]))
    return cases, int(np.count_nonzero(kind == OpClass.INDIRECT_JUMP))


def return_targets(blocks: Mapping[int, Block], callees: Collection[int]) -> dict[int, set[int]]:
    """The targets of calls of ``callees``, which are among ``blocks``, and of the callees' returns; by pc of the block
    that ends with the call or return."""
    returns: dict[int, list[int]] = {}  # pcs of the blocks that return, by start of the function
    targets: dict[int, set[int]] = {}
    for block in blocks.values():
        start = block.call_target
        if start not in callees or start is None or block.end_pc not in blocks:
            continue
        targets[block.pc] = {start}
        if start not in returns:
            returns[start] = _returns_from(start, blocks)
        for pc in returns[start]:
            targets.setdefault(pc, set()).add(block.end_pc)
    return targets


def _returns_from(start: int, blocks: Mapping[int, Block]) -> list[int]:
    """The blocks ending with a return that are reached from ``start`` without entering callees."""
    seen: set[int] = set()
    work = [start]
    while work:
        pc = work.pop()
        if pc not in seen and pc in blocks:
            seen.add(pc)
            work.extend(blocks[pc].successors())
    return [pc for pc in seen if ends_with(blocks[pc], OpClass.RETURN)]


def ends_with(block: Block, op_class: OpClass) -> bool:
    """Whether the block ends with a control transfer of that class."""
    return block.transfers and block.last.op_class == op_class


def branch_to(emitter: Emitter, target: Any, targets: Sequence[int], labels: Sequence[str], other: str) -> str:
    """Emit a branch to the label whose address in ``targets`` (ascending) equals ``target``, or to ``other``.

    Few targets are compared. More are looked up in a byte map from address to number, a constant of the module whose
    text is returned ("" for none): an indirect jump takes one prediction of the host, a tree of comparisons many.
    """
    if len(targets) <= _FEW:
        cases = " ".join(f"i64 {pc}, label %{label}" for pc, label in zip(targets, labels, strict=True))
        emitter.say(f"switch i64 {target}, label %{other} [ {cases} ]")
        return ""
    low, n_places = targets[0], (targets[-1] - targets[0] >> 1) + 1
    numbers = [0] * n_places
    for number, pc in enumerate(targets, 1):
        numbers[pc - low >> 1] = number
    name = emitter.fresh_label("targets")
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
