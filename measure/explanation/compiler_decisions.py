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
from typing import NamedTuple

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
_MADE = ("memcpy", "memset", "memmove", "memcmp", "bcmp", "memchr", "strlen", "strcpy", "stpcpy", "strchr")
"""Functions of which compilers make calls in the place of loops, copies and other calls."""
_PRINTS = {"puts": "printf", "putchar": "printf", "fwrite": "fprintf", "fputc": "fprintf"}
"""Functions of which compilers make calls in the place of a call of another one."""
_MOST_PASSES = 8  # over functions that are inlined in inlined functions


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
    Decisions on calls are sorted by how often the run calls the function; those on calls that it never makes come last.

    ``entries``: see `CounterCode.entries`; functions that the run never entered are left out, since what the compiler
    decided about them changed nothing. Functions of C++ are named as people write them.
    """
    before, after = function_facts(plain), function_facts(instrumented, counter_instructions)
    shown = _shown_names(before, after)
    idle = set() if entries is None else _with_a_unique_name(program_image(instrumented)) - entries.keys()
    called = _Callees(program_image(instrumented), entries)
    changed = _changed_calls(before, after)
    found: list[_Found] = []
    for name in sorted({*before, *after} - idle):
        old, new = before.get(name), after.get(name)
        if (old is None or new is None) and any(one is not None and one.is_apart for one in (old, new)):
            continue  # it is linked because something calls it, which is told of the caller
        if old is None and new is not None:
            text = f"{shown[name]} has a body of its own; in the plain program all of its calls are inlined"
            decision = Decision("inlining", shown[name], new.place, text)
            found.append(_Found(0, decision, new.n_bytes, called.executions(name)))
        elif new is None and old is not None:
            text = f"{shown[name]} has no body; in the plain program it is called"
            decision = Decision("inlining", shown[name], old.place, text)
            found.append(_Found(0, decision, old.n_bytes, called.executions(name)))
        elif old is not None and new is not None:
            found += _calls(shown[name], old, new, changed[name], shown, called)
            found += _differences(shown[name], old, new)
    return tuple(one.decision for one in sorted(found, key=lambda one: one.key))


class _Found(NamedTuple):
    """A decision with what it is sorted by. ``kind``: order of kinds; ``size``: of the difference; ``executions``: of
    the call that it is about, 0 if they are not known."""

    kind: int
    decision: Decision
    size: int
    executions: int = 0

    @property
    def key(self) -> tuple[bool, int, int, int, str]:
        """Smallest first."""
        return self.decision.is_idle, self.kind, -self.executions, -self.size, self.decision.function


class _Callees:
    """How often functions are called in a run. ``image``: of the program; ``entries``: see `compare_decisions`."""

    def __init__(self, image: ElfImage, entries: Mapping[str, int] | None) -> None:
        self._entries, self._unique = entries, _with_a_unique_name(image)

    def executions(self, name: str) -> int:
        """Calls of the function ``name``, 0 if they are not known."""
        return 0 if self._entries is None else self._entries.get(name, 0)

    def is_idle(self, name: str) -> bool:
        """Whether ``name`` is known to be never called."""
        return self._entries is not None and name in self._unique and name not in self._entries


def _changed_calls(before: Mapping[str, FunctionFacts], after: Mapping[str, FunctionFacts]) -> dict[str, Counter[str]]:
    """By function of both programs, how many more calls it has in the second one of each callee of which the number
    differs; without callees whose calls only moved with a function that is inlined otherwise: the calls in that one's
    body left its caller, or came to it."""
    raw = {name: Counter(after[name].calls) for name in before.keys() & after.keys()}
    for name, calls in raw.items():
        calls.subtract(before[name].calls)
    found = raw
    for _ in range(_MOST_PASSES):
        moved = {name: Counter(calls) for name, calls in raw.items()}
        for name, calls in found.items():
            for callee, more in calls.items():
                body = (after if more > 0 and callee in after else before).get(callee) or after.get(callee)
                if more and body is not None and not body.is_apart and callee != name:
                    for inner, number in body.calls.items():
                        moved[name][inner] += more * number
        if moved == found:
            break
        found = moved
    return {
        name: Counter(
            {callee: min(more, found[name][callee], key=abs) for callee, more in calls.items()
             if more * found[name][callee] > 0}
        )
        for name, calls in raw.items()
    }  # fmt: skip


def _calls(
    name: str, old: FunctionFacts, new: FunctionFacts, changed: Mapping[str, int], shown: Mapping[str, str],
    called: _Callees,
) -> list[_Found]:  # fmt: skip
    """Decisions about what the function that is shown as ``name`` calls. ``changed``: see `_changed_calls`."""
    found = []
    for callee, change in sorted(changed.items()):
        numbers = f"{old.calls[callee]} calls of {{}} before, {new.calls[callee]} now"
        if callee not in old.calls_apart | new.calls_apart:
            how = "no longer inlines" if change > 0 else "now inlines"
            text = f"{name} {how} {shown[callee]}: {numbers.format('it')}"
            decision = Decision("inlining", name, new.place, text, called.is_idle(callee))
        elif _is_made(callee, changed):
            text = (
                f"{name} has {numbers.format(shown[callee])}: the compiler puts such calls in the place of loops and "
                "copies"
            )
            decision = Decision("library calls", name, new.place, text, called.is_idle(callee))
        else:
            continue
        found.append(_Found(0, decision, abs(change), called.executions(callee)))
    return found


def _is_made(callee: str, changed: Mapping[str, int]) -> bool:
    """Whether the compiler made, or no longer makes, calls of the library's function ``callee``."""
    name = callee.partition("#")[0].strip("_")
    instead = _PRINTS.get(name)
    return name in _MADE or (instead is not None and changed[callee] * changed.get(instead, 0) < 0)


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


def _differences(name: str, old: FunctionFacts, new: FunctionFacts) -> list[_Found]:
    """Differences of the code of the function that is shown as ``name``."""
    found = []
    stack = new.stack_accesses - old.stack_accesses
    if stack:
        text = f"{name} has {abs(stack)} {'more' if stack > 0 else 'fewer'} loads and stores on the stack"
        found.append(_Found(1, Decision("spills", name, new.place, text), abs(stack)))
    if new.loops != old.loops:
        text = f"{name} has {new.loops} loops in machine code, {old.loops} before"
        found.append(_Found(2, Decision("loops", name, new.place, text), abs(new.loops - old.loops)))
    size = new.n_bytes - old.n_bytes
    if abs(size) >= _SMALLEST_SIZE_CHANGE_BYTES:
        text = (
            f"{name} is {abs(size)} bytes {'larger' if size > 0 else 'smaller'} "
            f"than the plain {old.n_bytes}, counters left out"
        )
        found.append(_Found(3, Decision("size", name, new.place, text), abs(size)))
    return found
