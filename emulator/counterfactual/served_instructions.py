"""Finds the instructions that only serve given accesses: without them nothing would use their results.

For counters these are the increments with the formation of their addresses and the expressions that they add,
wherever the compiler has put them: code is followed over a function's whole control flow. An instruction serves the
accesses if it is dead without them and alive with them, by strong liveness (a value is alive when something alive uses
it; Giegerich, Moencke and Wilhelm, "Invariance of approximative semantics with respect to program transformations",
1981). Values that pass through memory, such as spilled addresses, count as used.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from emulator.events import ACCESS_STORE, OpClass
from emulator.isa.decode import Instruction, decode

ReadCode = Callable[[int, int], bytes]
_DEEPEST_CALL = 4  # calls of callees that are followed to see which arguments they use
_LINK, _STACK = 1, 2
_ARGUMENTS = sum(1 << n for n in (*range(10, 18), *range(32 + 10, 32 + 18)))
_FIRST_RESULTS = 1 << 10 | 1 << 32 + 10
_RESULTS = _FIRST_RESULTS | 1 << 11 | 1 << 32 + 11  # the second ones, of results of two words, begin in the function
_PRESERVED = sum(1 << n for n in (2, 3, 4, 8, 9, *range(18, 28), 32 + 8, 32 + 9, *range(32 + 18, 32 + 28)))
_EVERYTHING = (1 << 64) - 2


@dataclass(frozen=True)
class _Step:
    """One instruction for the analysis. ``defines``, ``uses``: bit sets of registers, f registers from 32 on;
    ``effect``: whether it does more than define; ``clobbers``: registers without a value afterwards; ``next``: indices
    of successors; ``exit_uses``: registers that are used where control leaves the function; ``anywhere``: whether it
    may jump to any place of the function."""

    pc: int
    defines: int
    uses: int
    effect: bool
    clobbers: int
    next: tuple[int, ...]
    exit_uses: int
    anywhere: bool


def served_instructions(
    read: ReadCode,
    functions: Iterable[tuple[int, int]],
    accesses: Collection[int],
    without_result: Collection[int] = (),
) -> set[int]:
    """Addresses of the instructions in ``functions`` that only serve ``accesses``, which are included.

    ``read(address, size)``: the program's code; ``functions``: half-open ranges of addresses; ``accesses``: addresses
    of loads and stores; ``without_result``: addresses of functions that return nothing, where the result registers
    hold what happens to be in them. Functions without such an access are skipped.
    """
    found: set[int] = set()
    arguments = _Arguments(read, functions, without_result)
    for low, high in arguments.functions.items():
        own = {pc for pc in accesses if low <= pc < high}
        if own:
            steps = _steps(read, low, high, arguments, 0)
            inside = own & {step.pc for step in steps}
            found |= inside | (_dead(steps, inside) - _dead(steps, set()))
    return found


class _Arguments:
    """The argument registers that functions use, all of them where that is not known; and which return nothing."""

    def __init__(
        self, read: ReadCode, functions: Iterable[tuple[int, int]], without_result: Collection[int]
    ) -> None:  # fmt: skip
        self.functions = dict(sorted(functions))
        self.without_result = frozenset(without_result)
        self._read = read
        self._used: dict[int, int] = {}

    def used_at(self, target: int | None, depth: int) -> int:
        """The argument registers that the function at ``target`` may read, as a bit set."""
        high = None if target is None else self.functions.get(target)
        if target is None or high is None or depth >= _DEEPEST_CALL:
            return self._used.get(target, _ARGUMENTS) if target is not None else _ARGUMENTS
        if target not in self._used:
            self._used[target] = _ARGUMENTS  # what a recursive call of it is taken to use
            live = _live_in(_steps(self._read, target, high, self, depth + 1), set())
            self._used[target] = (live[0] if live else _EVERYTHING) & _ARGUMENTS
        return self._used[target]


def instructions_of(read: ReadCode, low: int, high: int) -> list[tuple[int, Instruction]]:
    """The instructions of a function with their addresses; it ends where the code does."""
    found = []
    pc = low
    while pc < high:
        half = int.from_bytes(read(pc, 2), "little")
        raw = int.from_bytes(read(pc, 4), "little") if half & 3 == 3 else half
        instruction = decode(raw)
        if instruction is None:
            break
        found.append((pc, instruction))
        pc += instruction.length_bytes
    return found


def _steps(read: ReadCode, low: int, high: int, arguments: _Arguments, depth: int) -> list[_Step]:
    """The function's instructions for the analysis; ``depth``: of calls that led here."""
    code = instructions_of(read, low, high)
    index = {pc: n for n, (pc, _) in enumerate(code)}
    steps = []
    for n, (pc, one) in enumerate(code):
        kinds = one.row.register_kinds
        numbers = [0 if kind == "-" else number + (32 if kind == "f" else 0)
                   for kind, number in zip(kinds, (one.rd, one.rs1, one.rs2, one.rs3), strict=True)]  # fmt: skip
        defines = 1 << numbers[0] & ~1
        uses = sum({1 << number for number in numbers[1:]}) & ~1
        op = one.op_class
        after: tuple[int, ...] = (n + 1,) if n + 1 < len(code) else ()
        effect = bool(one.row.access & ACCESS_STORE) or op >= OpClass.CSR or one.slow
        clobbers = exit_uses = 0
        anywhere = False
        if op == OpClass.BRANCH:
            effect = True
            target = index.get(pc + one.imm)
            after += (target,) if target is not None else ()
            exit_uses = 0 if target is not None else _EVERYTHING
        elif op == OpClass.JUMP:
            effect = True
            target = index.get(pc + one.imm)
            after = (target,) if target is not None else ()
            leaving = arguments.used_at(pc + one.imm, depth) | _PRESERVED | 1 << _LINK
            exit_uses = 0 if target is not None else leaving
        elif op in (OpClass.CALL, OpClass.INDIRECT_CALL):
            effect = True
            uses |= arguments.used_at(_target(code, n), depth) | 1 << _STACK
            clobbers = _EVERYTHING & ~_PRESERVED
        elif op == OpClass.RETURN:
            results = 0 if low in arguments.without_result else _RESULTS if depth == 0 else _FIRST_RESULTS
            effect, after, exit_uses = True, (), results | _PRESERVED
        elif op == OpClass.INDIRECT_JUMP:
            effect, after, anywhere, exit_uses = True, (), True, _ARGUMENTS | _PRESERVED | 1 << _LINK
        elif op == OpClass.SYSTEM:
            uses |= _EVERYTHING
        steps.append(_Step(pc, defines, uses, effect, clobbers, after, exit_uses, anywhere))
    return steps


def _target(code: list[tuple[int, Instruction]], n: int) -> int | None:
    """Where the call at index ``n`` leads; None if that is not in the code."""
    pc, call = code[n]
    if call.op_class == OpClass.CALL:
        return pc + call.imm
    if n and code[n - 1][1].row.mnemonic == "auipc" and code[n - 1][1].rd == call.rs1:
        return (code[n - 1][0] + code[n - 1][1].imm + call.imm) & ~1
    return None


def _live_in(steps: list[_Step], without: set[int]) -> list[int]:
    """Registers that are alive before each step, as bit sets, when the steps in ``without`` do nothing."""
    live_in = [0] * len(steps)
    anywhere = 0  # registers alive at any place that a computed jump may reach
    changed = True
    while changed:
        changed = False
        for n in range(len(steps) - 1, -1, -1):
            step = steps[n]
            out = _live_out(step, live_in, anywhere)
            live = out & ~(step.defines | step.clobbers)
            if step.pc not in without and (step.effect or step.defines & out):
                live |= step.uses
            if live != live_in[n]:
                live_in[n] = live
                anywhere |= live
                changed = True
    return live_in


def _live_out(step: _Step, live_in: list[int], anywhere: int) -> int:
    live = step.exit_uses | (anywhere if step.anywhere else 0)
    for successor in step.next:
        live |= live_in[successor]
    return live


def _dead(steps: list[_Step], without: set[int]) -> set[int]:
    """Addresses of instructions whose results nothing uses when those in ``without`` do nothing."""
    live_in = _live_in(steps, without)
    anywhere = functools.reduce(operator.or_, live_in, 0)
    return {
        step.pc for step in steps
        if not step.effect and step.pc not in without and not step.defines & _live_out(step, live_in, anywhere)
    }  # fmt: skip
