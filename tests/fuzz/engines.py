"""One program on every engine: the oracle says what is right, unicorn and QEMU whether the oracle is."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from emulator.errors import InstructionLimit
from emulator.events import FULL_RECORD, BlockFacts, TraceSelection
from emulator.isa.disassemble import disassemble
from emulator.linux.abi.numbers import Signal
from emulator.linux.kernel.signals import Action
from emulator.machine import Machine
from tests.fuzz import qemu
from tests.fuzz.programs import CODE, DATA, DATA_BYTES, Program

NEVER = 1 << 30
LIMIT_INSTRUCTIONS = 20_000
# Whether there are templates, executions before an optimised translation, and whether the record is compared.
ENGINES: dict[str, tuple[bool, int, bool]] = {
    "interpreter": (False, NEVER, False),
    "interpreter, traced": (False, NEVER, True),
    "templates": (True, NEVER, False),
    "templates, traced": (True, NEVER, True),
    "optimised": (True, 2, False),
    "optimised, traced": (True, 2, True),
}
CASES = Path(__file__).parent.parent / "emulator" / "isa" / "cases"


class Record:
    """A consumer that remembers the record by addresses of blocks."""

    selection: TraceSelection = FULL_RECORD

    def __init__(self) -> None:
        self.words: list[int] = []

    def consume(self, facts: BlockFacts, stream: Any) -> None:
        self.words += stream.tolist()


@dataclass(frozen=True)
class Outcome:
    """How a program ended. ``state``: registers, fcsr, memory; None where it faulted, when registers need not be
    exact (the guest cannot see them)."""

    ending: str
    instructions: int
    state: tuple[Any, ...] | None
    record: tuple[int, ...] | None


def run(program: Program, engine: str) -> Outcome:
    """``engine``: one of ENGINES, or "oracle"."""
    templates, optimise, traced = ENGINES.get(engine, (False, NEVER, True))
    record = Record()
    with Machine(
        program.elf(), engine="oracle" if engine == "oracle" else "translated", background=False,
        templates=templates, optimise_executions=optimise, limit_instructions=LIMIT_INSTRUCTIONS,
        consumers=[record] if traced else [],
    ) as machine:  # fmt: skip
        hart = machine.hart
        hart.x[:] = np.array(program.x, np.uint64)
        hart.f[:] = np.array(program.f, np.uint64)
        hart.fcsr = program.fcsr
        if program.catches:
            machine.kernel.signals.set_action(Signal.SIGSEGV, Action(program.handler))
        try:
            ending = machine.run()
            # What an atomic operation failed in is told one way by the oracle, and the other by the host.
            message = (ending.message or "").replace("store to", "access to").replace("load from", "access to")
            said, faulted = f"{ending.status} {message}", ending.signal is not None
        except InstructionLimit:
            said, faulted = "limit", True
        machine.drain()
        state = (
            *map(int, hart.x), *map(int, hart.f), hart.fcsr, machine.memory.read(DATA, DATA_BYTES)
        )  # fmt: skip
        whole = not faulted
        return Outcome(
            said, machine.instructions if whole else 0, state if whole else None,
            tuple(record.words) if traced and whole else None,
        )  # fmt: skip


def differences(program: Program, engines: tuple[str, ...] = tuple(ENGINES)) -> list[str]:
    """What other engines, and unicorn, do otherwise than the oracle; empty when all is well."""
    right = run(program, "oracle")
    found = []
    for engine in engines:
        other = run(program, engine)
        found += [f"{engine}: {text}" for text in _compared(other, right)]
    return found + _against_unicorn(program, right) + _against_qemu(program, right)


def _compared(other: Outcome, right: Outcome) -> list[str]:
    if other.ending != right.ending:
        return [f"ends with {other.ending!r}, the oracle with {right.ending!r}"]
    found = []
    if other.instructions != right.instructions:
        found.append(f"{other.instructions} instructions, the oracle {right.instructions}")
    if other.state is not None and right.state is not None:
        names = [*(f"x{n}" for n in range(32)), *(f"f{n}" for n in range(32)), "fcsr", "memory"]
        for name, ours, theirs in zip(names, other.state, right.state, strict=True):
            if ours != theirs:
                found.append("memory" if name == "memory" else f"{name} {ours:#x}, the oracle {theirs:#x}")
    if other.record is not None and right.record is not None and other.record != right.record:
        found.append("the record is another one")
    return found


def _against_unicorn(program: Program, right: Outcome) -> list[str]:
    """Integer programs on another implementation; nothing to say without unicorn, or where it knows an instruction
    not at all."""
    if right.state is None or not program.is_integer or program.catches:
        return []
    try:
        import unicorn
        from unicorn import riscv_const as names
    except ImportError:
        return []
    machine = unicorn.Uc(unicorn.UC_ARCH_RISCV, unicorn.UC_MODE_RISCV64)
    machine.mem_map(CODE, 0x10000)
    machine.mem_map(DATA, DATA_BYTES)
    code, end = program.code()
    machine.mem_write(CODE, code)
    machine.mem_write(DATA, program.data)
    for number in range(1, 32):
        machine.reg_write(names.UC_RISCV_REG_X0 + number, program.x[number])
    try:
        machine.emu_start(CODE, CODE + end, count=LIMIT_INSTRUCTIONS)
    except unicorn.UcError:
        return []
    found = []
    for number in range(1, 32):
        theirs, ours = machine.reg_read(names.UC_RISCV_REG_X0 + number), right.state[number]
        if number not in (10, 17) and theirs != ours:  # the exit call's own
            found.append(f"oracle: x{number} {ours:#x}, unicorn {theirs:#x}")
    if bytes(machine.mem_read(DATA, DATA_BYTES)) != right.state[-1]:
        found.append("oracle: memory, unicorn's is another one")
    return found


def _against_qemu(program: Program, right: Outcome) -> list[str]:
    """Any program that QEMU must execute to the same state; nothing to say where it is not installed."""
    if right.ending == "limit" or not qemu.is_comparable(program) or not qemu.is_installed():
        return []
    expected = int(right.ending.split()[0])
    if expected == 128 + Signal.SIGBUS:
        return []  # QEMU 7.2 lets misaligned atomics through
    status, registers, memory = qemu.final_state(program)
    if status != expected:
        return [f"oracle: status {expected}, QEMU {status}"]
    if right.state is None or not registers:
        return []
    names = [*(f"x{n}" for n in range(32)), *(f"f{n}" for n in range(32)), "fcsr"]
    found = [
        f"oracle: {name} {ours:#x}, QEMU {theirs:#x}"
        for name, ours, theirs in zip(names, right.state, registers, strict=False)
        if ours != theirs and name not in ("x10", "x17")  # the exit call's own
    ]
    return found + (["oracle: memory, QEMU's is another one"] if memory != right.state[-1] else [])


def minimise(program: Program, is_wrong: Callable[[Program], bool]) -> Program:
    """A program that is wrong as well, from which nothing can be left out (Zeller, "Yesterday, my program worked",
    section 3: halves first, single items last)."""
    size = max(1, len(program.items) // 2)
    while size:
        start, smaller = 0, False
        while start < len(program.items):
            items = program.items[:start] + program.items[start + size :]
            if is_wrong(program.with_items(items)):
                program, smaller = program.with_items(items), True
            else:
                start += size
        size = size if smaller and size == 1 else size // 2
    return program


def listing(program: Program) -> str:
    """The body in assembly."""
    code, _ = program.code()
    lines, offset = [], 0
    for item in program.items:
        raw = int.from_bytes(code[offset : offset + 4], "little")
        lines.append(f"{CODE + offset:#x}: {disassemble(raw, CODE + offset)}")
        offset += item.n_bytes
    return "\n".join(lines)


def keep(program: Program, why: list[str], folder: Path = CASES) -> Path:
    """Write a case for `test_cases` to run from now on; its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{program.seed}.json"
    about = {"found": why[:4], "listing": listing(program).splitlines(), **program.to_json()}
    path.write_text(json.dumps(about, indent=1) + "\n")
    return path


def load_case(path: Path) -> Program:
    return Program.from_json(json.loads(path.read_text()))
