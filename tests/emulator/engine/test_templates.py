"""Templates: code laid by the kernel against a naive twin, what it refuses, and which blocks get one."""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emulator.engine.address_tables import GUEST_SPACE, Table
from emulator.engine.decode.operations import (
    DESCRIPTOR_DTYPE,
    FALL_THROUGH,
    HANDLERS,
    OPERATION_DTYPE,
    RESTORE_ROUNDING,
    SET_ROUNDING,
    SLOW,
)
from emulator.engine.entry.entry import Entry
from emulator.engine.hart_state import MAX_BLOCKS
from emulator.engine.stencils import templates as module
from emulator.engine.stencils.stencil_layout import HEAD, HOLES, N_STENCILS, PROLOGUE
from emulator.engine.stencils.stencil_set import ABSENT, ENDS, GOES_ON, StencilSet, stencils_for
from emulator.engine.stencils.templates import Templates
from emulator.events import NOTHING, TraceSelection
from emulator.execution.translated_runner import TranslatedRunner
from emulator.isa.decode import DYNAMIC_ROUNDING
from emulator.isa.table import TABLE
from emulator.machine import Machine
from instrumenter.building.program_build import build_program

FALLBACK = 0x5550_0000
FULL = TraceSelection(blocks=True, addresses=True)


class Laid:
    """Templates with tables of their own, and what the twin makes of the same."""

    def __init__(self, selection: TraceSelection = NOTHING) -> None:
        compiler = Entry.get().compiler
        self.dispatch_table, self.index = Table(GUEST_SPACE * 4), Table(GUEST_SPACE * 2)
        self.table = Table(MAX_BLOCKS * DESCRIPTOR_DTYPE.itemsize)
        self.descriptors = self.table.view("u1").view(DESCRIPTOR_DTYPE)
        self.stencils = stencils_for(compiler, selection)
        self.templates = Templates(
            compiler, self.stencils, FALLBACK, self.table.address, self.index.address, self.dispatch_table.address
        )
        self.blocks: list[np.ndarray[Any, np.dtype[np.void]]] = []

    def add(self, operations: list[tuple[int, ...]], published: bool = True) -> None:
        rows = np.array(operations, OPERATION_DTYPE)
        self.blocks.append(rows)
        number, place = len(self.blocks), int(rows["pc"][0]) >> 1
        pc, end_pc = int(rows["pc"][0]), int(rows["next_pc"][-1])
        self.descriptors[number] = (rows.ctypes.data, 0, len(rows), number, 0, pc, len(rows), end_pc, 0)
        self.index.view("u4")[place] = number
        self.dispatch_table.view("u8")[place] = FALLBACK if published else 0x1234

    def values(self, number: int, operation: np.void) -> dict[str, int]:
        pc, following = int(operation["pc"]), int(operation["next_pc"])
        branch_target = pc + int(operation["imm"])
        constant = self.templates._values
        return {
            **{name: 8 * int(operation[name]) for name in ("rd", "rs1", "rs2", "rs3")},
            "length": int(self.descriptors[number]["n_instructions"]),
            "moment": int(operation["moment"]), "imm": int(operation["imm"]), "pc": pc, "next_pc": following,
            "branch_target": branch_target, "far_branch_target": branch_target,
            "next_entry": self.dispatch_table.address + 4 * following,
            "branch_target_entry": self.dispatch_table.address + 4 * branch_target,
            "descriptor": self.table.address + number * DESCRIPTOR_DTYPE.itemsize,
            **{
                name: int(constant[HOLES[name]])
                for name in ("code_area", "prologue_bytes", "exit_stub", "fault_stub", "constants")
            },
        }  # fmt: skip

    def twin(self, number: int, at: int) -> bytes | None:
        """The code of a block at ``at``; None for a block that is left to the interpreter."""
        rows = self.blocks[number - 1]
        code = b""
        for handler, row in [
            (PROLOGUE, rows[0]),
            (HEAD, rows[0]),
            *((int(row["handler"]), row) for row in rows),
        ]:
            part = fill(self.stencils, handler, self.values(number, row), at + len(code))
            if part is None:
                return None
            code += part
            if self.stencils.stencils["kind"][handler] == ENDS:
                break
        return code


def fill(stencils: StencilSet, stencil: int, values: dict[str, int], at: int) -> bytes | None:
    offset, size, first, end, kind = stencils.stencils[stencil].tolist()
    if kind == ABSENT:
        return None
    code = bytearray(stencils.code[offset : offset + size].tobytes())
    names = {place: name for name, place in HOLES.items()}
    for where, which, wide, relative, addend in stencils.holes[first:end].tolist():
        name = names[which]
        value = at + size if name == "next" else values[name]
        if name == "branch_target" and not 0 <= value < 1 << 31:
            return None
        value += addend - (at + where if relative else 0)
        if wide:
            code[where : where + 8] = (value & (1 << 64) - 1).to_bytes(8, "little")
        elif -(1 << 31) <= value < 1 << 31:
            code[where : where + 4] = (value & (1 << 32) - 1).to_bytes(4, "little")
        else:
            return None
    return bytes(code)


def every_operation() -> list[list[tuple[int, ...]]]:
    """A block for each handler: it, and what ends the block."""
    blocks: list[list[tuple[int, ...]]] = []
    pc = 0x10000
    numbers = [*HANDLERS.values(), SET_ROUNDING, RESTORE_ROUNDING, SLOW, FALL_THROUGH]
    for number in numbers:
        fields = (number % 31 + 1, number % 29 + 1, number % 23 + 33, 40, number % 5)
        blocks.append(
            [
                (number, *fields, (-1) ** number * number * 8, pc, pc + 4),
                (FALL_THROUGH, 0, 0, 0, 0, 0, 0, pc, pc + 4),
            ]
        )
        pc += 64
    return blocks


@pytest.mark.parametrize("selection", [NOTHING, FULL], ids=["untraced", "traced"])
def test_the_kernel_lays_what_a_naive_twin_does(selection: TraceSelection) -> None:
    laid = Laid(selection)
    for operations in every_operation():
        laid.add(operations)
    laid.templates.emit(len(laid.blocks))
    assert laid.templates.n_emitted == len(laid.blocks)
    for number in range(1, len(laid.blocks) + 1):
        at = int(laid.templates.entries[number])
        expected = laid.twin(number, at)
        assert (expected is None) == (at == 0)
        if expected is None:
            continue
        assert laid.templates.covers(at)
        assert ctypes.string_at(at, len(expected)) == expected, number
        assert laid.dispatch_table.view("u8")[laid.blocks[number - 1]["pc"][0] >> 1] == at


def test_this_host_has_every_stencil() -> None:
    stencils = stencils_for(Entry.get().compiler, NOTHING)
    assert len(stencils.stencils) == N_STENCILS
    assert (stencils.stencils["kind"] != ABSENT).all()
    kinds = {number: stencils.stencils["kind"][number] for number in HANDLERS.values()}
    for (index, _), number in HANDLERS.items():
        leaves = TABLE[index].ends_block and not TABLE[index].slow
        assert kinds[number] == (ENDS if leaves else GOES_ON), TABLE[index].mnemonic


def test_addresses_outside_the_address_space_are_left_to_the_interpreter() -> None:
    laid = Laid()
    (jump,) = (n for (index, _), n in HANDLERS.items() if TABLE[index].mnemonic == "jal")
    for pc, imm in ((0x1000, -0x2000), (0x7FFF_F000, 0x1000), (0x2000, 0x100)):
        laid.add([(jump, 1, 0, 0, 0, 0, imm, pc, pc + 4)])
    laid.templates.emit(3)
    assert (laid.templates.entries[1:4] > 0).tolist() == [False, False, True]
    assert laid.dispatch_table.view("u8")[0x1000 >> 1] == FALLBACK


def test_a_template_runs_only_what_its_runner_is_to_run() -> None:
    laid = Laid()
    add = next(n for (i, rm), n in HANDLERS.items() if TABLE[i].mnemonic == "add" and rm == DYNAMIC_ROUNDING)
    end = (FALL_THROUGH, 0, 0, 0, 0, 0, 0, 0x3004, 0x3004)
    laid.add([(add, 1, 2, 3, 0, 0, 0, 0x3000, 0x3004), end], published=False)
    laid.add([(add, 1, 2, 3, 0, 0, 0, 0x4000, 0x4004), end])
    laid.index.view("u4")[0x4000 >> 1] = 0  # the guest has changed it
    laid.templates.emit(2)
    assert (laid.templates.entries[1:3] > 0).all()
    assert laid.dispatch_table.view("u8")[0x3000 >> 1] == 0x1234
    assert laid.dispatch_table.view("u8")[0x4000 >> 1] == FALLBACK


def test_when_there_is_no_room_the_interpreter_goes_on() -> None:
    laid = Laid()
    laid.templates._words[module._LIMIT] = laid.templates._words[module._OUT]
    laid.add([(FALL_THROUGH, 0, 0, 0, 0, 0, 0, 0x3000, 0x3004)])
    laid.templates.emit(1)
    assert laid.templates.entries[1] == 0
    assert laid.dispatch_table.view("u8")[0x3000 >> 1] == FALLBACK


@pytest.fixture(scope="module")
def mixture() -> Path:
    return build_program([Path(__file__).parents[1] / "guest" / "mixture.c"], ["-O2"], libraries=["-lm"]).elf_path


def test_a_host_that_lets_nobody_write_code_interprets(mixture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = mmap.mmap

    def refusing(*arguments: Any, **options: Any) -> mmap.mmap:
        if options.get("prot", 0) & mmap.PROT_EXEC:
            raise PermissionError(1, "not permitted")
        return real(*arguments, **options)

    with Machine(mixture, ["1"], background=False) as machine:
        machine.run()
        expected = machine.files.output(1), machine.instructions
        assert machine.translator is not None
        assert machine.translator.tier.templates
    monkeypatch.setattr(module.mmap, "mmap", refusing)
    with Machine(mixture, ["1"], background=False) as machine:
        machine.run()
        assert (machine.files.output(1), machine.instructions) == expected
        assert machine.translator is not None
        assert not machine.translator.tier.templates


def test_new_blocks_are_laid_soon_and_seldom_interrupt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop of many instructions without a system call, in code that nothing is known of."""
    source = tmp_path / "loop.c"
    source.write_text(
        "int main(int n, char **v) { volatile int x = 0; for (int i = 0; i < 3000000; i++) x = x * 3 + i; return 0; }"
    )
    stretches: list[int] = []
    run = TranslatedRunner._run_slice

    def noted(runner: TranslatedRunner, budget: int) -> tuple[int, int]:
        before = runner._time.instructions
        told = run(runner, budget)
        stretches.append(runner._time.instructions - before)
        if sum(stretches) > 1_000_000:
            templates = runner.translator.tier.templates
            assert templates is not None
            assert templates.n_emitted == len(runner.translator.block_table)
        return told

    monkeypatch.setattr(TranslatedRunner, "_run_slice", noted)
    elf = build_program([source], ["-O1"]).elf_path
    with Machine(elf, optimise_executions=1 << 30) as machine:
        machine.run()
        assert machine.instructions > 10_000_000
    assert max(stretches[:3]) < 300_000
    assert len(stretches) < 100
