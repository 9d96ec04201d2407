"""The oracle against unicorn, another implementation, on random instruction sequences.

unicorn 2.1.4 carries an old QEMU whose minimum and maximum follow the 2008 standard for signalling NaNs, whose
fused multiply-add keeps silent on 0 x inf + quiet NaN, and which does not check NaN boxes: those rows get
operands without such values; soft-float has hand-worked cases for them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emulator.events import OpClass
from tests.emulator.isa.rig import CODE, DATA, DOUBLES, PAGE, PLAIN_ROWS, Rig, instance, random_state

unicorn = pytest.importorskip("unicorn")
riscv = pytest.importorskip("unicorn.riscv_const")

PLAIN_DOUBLES = [bits for bits in DOUBLES if bits & 0x7FF0000000000000 != 0x7FF0000000000000]


def new_unicorn() -> Any:
    machine = unicorn.Uc(unicorn.UC_ARCH_RISCV, unicorn.UC_MODE_RISCV64)
    machine.mem_map(CODE, PAGE)
    machine.mem_map(DATA, PAGE)
    status = machine.reg_read(riscv.UC_RISCV_REG_MSTATUS)
    machine.reg_write(riscv.UC_RISCV_REG_MSTATUS, status | 3 << 13)  # floating point on
    return machine


def supported(machine: Any, word: int) -> bool:
    """Whether this unicorn knows the instruction at all (Zba, Zbb and Zbs came late)."""
    machine.mem_write(CODE, word.to_bytes(4, "little"))
    machine.ctl_remove_cache(CODE, CODE + PAGE)
    machine.reg_write(riscv.UC_RISCV_REG_X0 + 6, DATA + 512)
    try:
        machine.emu_start(CODE, CODE + 4, count=1)
    except unicorn.UcError:
        return False
    return True


FLOATS = (OpClass.FP_ADD, OpClass.FP_MUL, OpClass.FP_FMA, OpClass.FP_DIV, OpClass.FP_SQRT, OpClass.FP_CVT)
INTEGER_ROWS = [row for row in PLAIN_ROWS if not row.ends_block and not row.access and "f" not in row.register_kinds]
DOUBLE_ROWS = [
    row
    for row in PLAIN_ROWS
    if row.op_class in FLOATS and row.mnemonic.endswith(".d") and not row.mnemonic.startswith(("fmin", "fmax"))
]
SINGLE_ROWS = [
    row
    for row in PLAIN_ROWS
    if row.op_class in FLOATS and row.mnemonic.endswith(".s") and not row.mnemonic.startswith(("fmin", "fmax"))
]
MEMORY_ROWS = [row for row in PLAIN_ROWS if row.access and not row.mnemonic.startswith(("lr", "sc"))]


@pytest.mark.parametrize(
    ("rows", "length"),
    [
        (INTEGER_ROWS, 30),
        (DOUBLE_ROWS, 1),
        (SINGLE_ROWS, 1),
        (MEMORY_ROWS, 1),
    ],
    ids=["integer sequences", "double", "single", "memory"],
)
def test_same_state_after_random_instructions(rows: list[Any], length: int) -> None:
    machine = new_unicorn()
    rng = np.random.default_rng(11)
    known = [row for row in rows if length == 1 or supported(machine, instance(row, rng).word)]
    assert len(known) > 0.4 * len(rows), "unicorn knows too few of these instructions to say anything"
    oracle = Rig("oracle")
    compared = 0
    for round_ in range(300):
        chosen = [known[rng.integers(len(known))] for _ in range(length)]
        instructions = [instance(row, rng) for row in chosen]
        words = [i.word for i in instructions]
        oracle.put(CODE, [*words, 0x00100073])
        oracle.forget()
        machine.mem_write(CODE, b"".join(word.to_bytes(4, "little") for word in words))
        machine.ctl_remove_cache(CODE, CODE + PAGE)
        state = random_state(rng, instructions[0], round_ % 4)
        if rows is DOUBLE_ROWS or rows is SINGLE_ROWS:
            boxed = rows is SINGLE_ROWS or "fcvt.d.s" in (row.mnemonic for row in chosen)
            for n in range(32):
                bits = int(rng.choice(PLAIN_DOUBLES))
                state.f[n] = (0xFFFFFFFF00000000 | (bits >> 32)) if boxed else bits
        for n in range(1, 32):
            machine.reg_write(riscv.UC_RISCV_REG_X0 + n, int(state.x[n]))
        for n in range(32):
            machine.reg_write(riscv.UC_RISCV_REG_F0 + n, int(state.f[n]))
        machine.reg_write(riscv.UC_RISCV_REG_FCSR, state.fcsr)
        machine.mem_write(DATA, state.data)
        try:
            machine.emu_start(CODE, CODE + 4 * length, count=length)
        except unicorn.UcError:
            continue  # not known to this unicorn
        expected = oracle.run(state)
        names = [row.mnemonic for row in chosen]
        for n in range(1, 32):
            assert machine.reg_read(riscv.UC_RISCV_REG_X0 + n) == int(expected.x[n]), (n, names)
        if rows is DOUBLE_ROWS or rows is SINGLE_ROWS:
            for n in range(32):
                got, want = machine.reg_read(riscv.UC_RISCV_REG_F0 + n), int(expected.f[n])
                if got != want and want >> 32 == 0xFFFFFFFF:
                    got |= 0xFFFFFFFF00000000  # unicorn leaves the box off
                assert got == want, (n, names, hex(got), hex(want))
            assert machine.reg_read(riscv.UC_RISCV_REG_FCSR) == expected.fcsr, names
        assert bytes(machine.mem_read(DATA, PAGE)) == expected.data, names
        compared += 1
    oracle.close()
    assert compared > 100
