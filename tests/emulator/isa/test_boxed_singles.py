"""Optimised loops expect singles in registers that they read as such; what comes with something else is right, too."""

from __future__ import annotations

import pytest

from emulator.engine.emit.dataflow import Dataflow, nan_boxed_read, writes_nan_boxed
from emulator.events import NOTHING
from emulator.isa.decode import Instruction
from emulator.isa.table import TABLE
from emulator.machine import Machine
from tests.emulator.isa.kernels import ENGINE_NAMES, engine_named
from tests.emulator.isa.reference_encoding import encode
from tests.fuzz.programs import elf

EXIT, ROUNDS, UNBOXED_ROUNDS = 93, 40, 3
ONE, DOUBLE = 0x3F800, 0x40093  # upper 20 bits of 1.0f and of a double whose upper half is not all ones
# x9 counts rounds, x10 the loop; in the last rounds f2 has a double, which as a single is a NaN.
PROGRAM = [
    encode("addi", 9, 0, imm=ROUNDS),
    encode("lui", 5, imm=ONE << 12),
    encode("lui", 6, imm=DOUBLE << 12),
    encode("slli", 6, 6, imm=32),
    # round:
    encode("addi", 10, 0, imm=20),
    encode("fmv.w.x", 1, 5),
    encode("fmv.w.x", 2, 5),
    encode("slti", 7, 9, imm=UNBOXED_ROUNDS + 1),
    encode("beq", 0, 7, 0, 8),
    encode("fmv.d.x", 2, 6),
    # loop:
    encode("fadd.s", 1, 1, 2),
    encode("addi", 10, 10, imm=-1),
    encode("bne", 0, 10, 0, -8),
    encode("fmv.x.w", 11, 1),
    encode("add", 12, 12, 11),
    encode("fmv.x.d", 13, 2),
    encode("add", 12, 12, 13),
    encode("addi", 9, 9, imm=-1),
    encode("bne", 0, 9, 0, -4 * 14),
    encode("addi", 17, 0, imm=EXIT),
    encode("ecall"),
]


def outcome(engine: str) -> tuple[int, list[int], list[int], int]:
    chosen = engine_named(engine)
    code = b"".join(word.to_bytes(4, "little") for word in PROGRAM)
    with Machine(
        elf(code, bytes(64)), engine=chosen.kind, background=False, templates=chosen.templates,
        optimise_executions=chosen.optimise_executions, limit_instructions=100_000,
    ) as machine:  # fmt: skip
        machine.run()
        hart = machine.hart
        if engine == "optimised":
            assert machine.translator is not None
            for region in machine.translator.tier.regions:
                targets = region.indirect_targets
                dataflow = Dataflow(region.blocks, region.entries, targets, NOTHING, False, False)
                if any(dataflow.nan_boxed_in[pc] for pc in region.entries):
                    break
            else:
                raise AssertionError("no region expects a single at an entry")
        return machine.instructions, hart.x.tolist(), hart.f.tolist(), hart.fcsr


@pytest.mark.parametrize("engine", ENGINE_NAMES[1:])
def test_a_double_where_a_loop_expects_a_single(engine: str) -> None:
    instructions, x, f, fcsr = outcome(engine)
    assert (instructions, x, f, fcsr) == outcome("oracle")
    assert f[1] == 0xFFFFFFFF_7FC00000  # of the last round: a NaN
    boxed, unboxed = ROUNDS - UNBOXED_ROUNDS, UNBOXED_ROUNDS
    sums = boxed * 0x41A80000 + unboxed * 0x7FC00000  # 21.0f, and the canonical NaN
    registers = boxed * (0xFFFFFFFF_00000000 | ONE << 12) + unboxed * (DOUBLE << 44)
    assert x[12] == (sums + registers) % (1 << 64)


def test_which_instructions_read_and_write_singles() -> None:
    fields = {"word": 0, "length_bytes": 4, "rd": 1, "rs1": 2, "rs2": 3, "rs3": 4, "imm": 0, "rm": 7}
    found = {}
    for row in TABLE:
        one = Instruction(
            row=row, op_class=row.op_class, slow=False, ends=False, static_rounding=False, variant=7, **fields
        )
        found[row.mnemonic] = writes_nan_boxed(one), len(nan_boxed_read(one))
    expected = {
        "flw": (True, 0), "fsw": (False, 0), "fld": (False, 0), "fsd": (False, 0), "fadd.s": (True, 2),
        "fadd.d": (False, 0), "fmadd.s": (True, 3), "fsqrt.s": (True, 1), "fsgnj.s": (True, 2), "feq.s": (False, 2),
        "fclass.s": (False, 1), "fcvt.w.s": (False, 1), "fcvt.s.w": (True, 0), "fcvt.s.d": (True, 0),
        "fcvt.d.s": (False, 1), "fmv.x.w": (False, 0), "fmv.w.x": (True, 0),
        "fmv.x.d": (False, 0), "fmv.d.x": (False, 0),
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected
