"""What the compiler decided otherwise in the instrumented program, from the two binaries.

Both programs' functions are compared without the counters' instructions: which functions exist, whom they call, how
many loops and stack accesses they have, and their sizes. RV64GC has no vector instructions, so that vectorisation
cannot differ.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from common.cplusplus_symbols import readable_names
from common.library_sources import is_library_source
from emulator.counterfactual.served_instructions import instructions_of
from emulator.events import ACCESS_NONE, OpClass
from emulator.linux.loader.elf import ElfImage, Symbol
from measure.explanation.explanation_types import Decision
from measure.program_code.code_layout import functions_of
from measure.program_code.counter_code import program_image, read_code

_STACK = 2
_SOURCES = (".c", ".cpp", ".s", ".S", ".zig")  # endings of the names of sources; headers have none, or others
_SMALLEST_SIZE_CHANGE_BYTES = 4


@dataclass(frozen=True)
class FunctionFacts:
    """A function without the counters' instructions. ``calls``: number of call sites by callee; ``loops``: targets of
    backward branches; ``stack_accesses``: loads and stores on the stack; ``n_bytes``: size; ``place``:
    ``file:line``; ``is_apart``: whether it is from a source of a library, which cannot be inlined into the program;
    ``calls_apart``: those that it calls of these."""

    calls: Counter[str]
    loops: int
    stack_accesses: int
    n_bytes: int
    place: str
    is_apart: bool
    calls_apart: frozenset[str]


def function_facts(program: Path, without: Collection[int] = ()) -> dict[str, FunctionFacts]:
    """Facts on each function of a program; ``without``: addresses of instructions that do not count."""
    return dict(_facts_of(program, frozenset(without)))


@functools.lru_cache(maxsize=4)  # of a variant's two programs: all that look for decisions ask for the same
def _facts_of(program: Path, without: frozenset[int]) -> dict[str, FunctionFacts]:
    image = program_image(program)
    return {name: _facts(image, function, without) for name, function in functions_of(image).items()}


def _facts(image: ElfImage, function: Symbol, without: frozenset[int]) -> FunctionFacts:
    low, high = function.address, function.address + function.size_bytes
    code = instructions_of(lambda at, size: read_code(image, at, size), low, high)
    calls: Counter[str] = Counter()
    loops, calls_apart = set(), set()
    stack = n_bytes = 0
    for n, (pc, one) in enumerate(code):
        if pc in without:
            continue
        n_bytes += one.length_bytes
        stack += one.row.access != ACCESS_NONE and one.rs1 == _STACK
        target = None
        if one.op_class in (OpClass.CALL, OpClass.JUMP, OpClass.BRANCH):
            target = pc + one.imm
        elif one.op_class in (OpClass.INDIRECT_CALL, OpClass.INDIRECT_JUMP) and n:
            before_pc, before = code[n - 1]
            if before.row.mnemonic == "auipc" and before.rd == one.rs1:
                target = (before_pc + before.imm + one.imm) & ~1
        if target is None:
            continue
        if low <= target <= pc and one.op_class in (OpClass.BRANCH, OpClass.JUMP):
            loops.add(target)
        elif not low <= target < high or (one.op_class == OpClass.CALL and target == low):
            callee = image.function_at(target)
            if callee is not None:
                calls[callee.name] += 1
                if _is_apart(image.source_line(callee.address)):
                    calls_apart.add(callee.name)
    line = image.source_line(low)
    place = f"{Path(line[0]).name}:{line[1]}" if line is not None else ""
    return FunctionFacts(calls, len(loops), stack, n_bytes, place, _is_apart(line), frozenset(calls_apart))


def _is_apart(line: tuple[str, int] | None) -> bool:
    """Whether the source line of a function is in a source of a library."""
    return line is not None and is_library_source(line[0]) and Path(line[0]).suffix in _SOURCES


def compare_decisions(
    plain: Path,
    instrumented: Path,
    counter_instructions: Collection[int],
    entries: Mapping[str, int] | None = None,
) -> tuple[Decision, ...]:
    """What differs beside the counters; inlining first, then spills, loops and sizes, larger differences first.

    ``entries``: see `CounterCode.entries`; functions that the run never entered are left out, since what the compiler
    decided about them changed nothing. Functions of C++ are named as people write them.
    """
    before, after = function_facts(plain), function_facts(instrumented, counter_instructions)
    shown = _shown_names(before, after)
    idle = set() if entries is None else _with_a_unique_name(program_image(instrumented)) - entries.keys()
    found: list[tuple[int, int, Decision]] = []
    for name in sorted({*before, *after} - idle):
        old, new = before.get(name), after.get(name)
        if (old is None or new is None) and any(one is not None and one.is_apart for one in (old, new)):
            continue  # it is linked because something calls it, which is told of the caller
        if old is None and new is not None:
            text = f"{shown[name]} has a body of its own; in the plain program all of its calls are inlined"
            found.append((0, new.n_bytes, Decision("inlining", shown[name], new.place, text)))
        elif new is None and old is not None:
            text = f"{shown[name]} has no body; in the plain program it is called"
            found.append((0, old.n_bytes, Decision("inlining", shown[name], old.place, text)))
        elif old is not None and new is not None:
            found += _differences(shown[name], old, new, shown)
    return tuple(decision for _, _, decision in sorted(found, key=lambda item: (item[0], -item[1], item[2].function)))


def _with_a_unique_name(image: ElfImage) -> set[str]:
    """The names that one function of a program alone has."""
    names = Counter(symbol.name for symbol in image.symbols if symbol.is_function)
    return {name for name, number in names.items() if number == 1}


def _shown_names(*programs: Mapping[str, FunctionFacts]) -> dict[str, str]:
    """The name to show for each function and callee: ``main::lambda@12``; a number after the symbol, ``#2``, stays."""
    lines: dict[str, int] = {}
    names: set[str] = set()
    for functions in programs:
        for name, facts in functions.items():
            line = facts.place.rpartition(":")[2]
            if line:
                lines.setdefault(name, int(line))
            names.update((name, *facts.calls))
    symbols = readable_names(sorted({name.partition("#")[0] for name in names}), lines.get)
    return {name: symbols[symbol] + sharp + number for name in names for symbol, sharp, number in [name.partition("#")]}


def _differences(
    name: str, old: FunctionFacts, new: FunctionFacts, shown: Mapping[str, str]
) -> list[tuple[int, int, Decision]]:  # fmt: skip
    """Differences of the function that is shown as ``name``, with an order of kinds and a size."""
    found = []
    for callee in sorted({*old.calls, *new.calls}):
        change = new.calls[callee] - old.calls[callee]
        if change and callee in old.calls_apart | new.calls_apart:
            text = (
                f"{name} has {old.calls[callee]} calls of {shown[callee]} before, {new.calls[callee]} now: the "
                "compiler puts such calls in the place of loops and copies"
            )
            found.append((0, abs(change), Decision("library calls", name, new.place, text)))
        elif change:
            how = "no longer inlines" if change > 0 else "now inlines"
            text = f"{name} {how} {shown[callee]}: {old.calls[callee]} calls of it before, {new.calls[callee]} now"
            found.append((0, abs(change), Decision("inlining", name, new.place, text)))
    stack = new.stack_accesses - old.stack_accesses
    if stack:
        text = f"{name} has {abs(stack)} {'more' if stack > 0 else 'fewer'} loads and stores on the stack"
        found.append((1, abs(stack), Decision("spills", name, new.place, text)))
    if new.loops != old.loops:
        text = f"{name} has {new.loops} loops in machine code, {old.loops} before"
        found.append((2, abs(new.loops - old.loops), Decision("loops", name, new.place, text)))
    size = new.n_bytes - old.n_bytes
    if abs(size) >= _SMALLEST_SIZE_CHANGE_BYTES:
        text = (
            f"{name} is {abs(size)} bytes {'larger' if size > 0 else 'smaller'} "
            f"than the plain {old.n_bytes}, counters left out"
        )
        found.append((3, abs(size), Decision("size", name, new.place, text)))
    return found
