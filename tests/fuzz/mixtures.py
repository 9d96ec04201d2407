"""Random programs of one kind of instruction: floating-point ones on hard operands, and compressed ones."""

from __future__ import annotations

import numpy as np

from emulator.isa.decode import assemble
from emulator.isa.table import ROWS
from tests.fuzz.programs import (
    BODY,
    BRANCHES,
    CODE,
    COUNTER,
    FLOATING,
    INTEGERS,
    MIDDLE,
    STACK,
    WINDOW,
    Item,
    Program,
    compressed_item,
    free_register,
    plain_word,
    random_float,
    random_item,
)

_FFLAGS, _FRM, _FCSR = 1, 2, 3
_ROUNDED = [row for row in FLOATING if "rm" in row.fields]
_LOADS = ("fld", "fld", "flw")


def float_program(seed: int, length: int = 40) -> Program:
    """Operations on numbers at the edges of both formats, loaded all the time lest everything becomes a NaN; flags are
    looked at, and rounding modes changed, in between."""
    rng = np.random.default_rng([seed, 3])
    items = tuple(_float_item(rng) for _ in range(int(rng.integers(3, length + 1))))
    return _program(rng, items, seed, floats=True)


def compressed_program(seed: int, length: int = 60) -> Program:
    """Mostly 16-bit instructions, so that others begin at odd multiples of two bytes."""
    rng = np.random.default_rng([seed, 4])
    items = tuple(
        compressed_item(rng) if rng.random() < 0.75 else random_item(rng, 0.3, 0.0)
        for _ in range(int(rng.integers(3, length + 1)))
    )
    return _program(rng, items, seed, floats=bool(rng.random() < 0.5))


def _float_item(rng: np.random.Generator) -> Item:
    draw, skip = rng.random(), int(rng.integers(4))
    if draw < 0.30:
        name = _LOADS[rng.integers(len(_LOADS))]
        return Item("code", assemble(name, int(rng.integers(32)), WINDOW, imm=4 * int(rng.integers(-500, 500))))
    if draw < 0.36:
        word = ROWS["csrrw"].match | free_register(rng) << 7 | _FFLAGS << 20  # the flags so far, which are cleared
        return Item("code", word)
    if draw < 0.42:
        mode = int(rng.integers(5)) if rng.random() < 0.98 else int(rng.integers(8))
        return Item("code", ROWS["csrrwi"].match | mode << 15 | _FRM << 20)
    if draw < 0.44:
        return Item("code", ROWS["csrrs"].match | free_register(rng) << 7 | _FCSR << 20)
    if draw < 0.48:
        name = ("fsd", "fsw")[rng.integers(2)]
        offset = 4 * int(rng.integers(-500, 500))
        return Item("code", assemble(name, rs1=WINDOW, rs2=int(rng.integers(32)), imm=offset))
    if draw < 0.52:
        row = BRANCHES[rng.integers(len(BRANCHES))]
        rs1, rs2 = (int(n) for n in rng.integers(0, 32, 2))
        return Item("branch", row.match | rs1 << 15 | rs2 << 20, skip)
    rows = _ROUNDED if rng.random() < 0.7 else FLOATING
    return Item("code", plain_word(rng, rows[rng.integers(len(rows))]))


def _program(rng: np.random.Generator, items: tuple[Item, ...], seed: int, floats: bool) -> Program:
    x = [int(INTEGERS[rng.integers(len(INTEGERS))]) for _ in range(32)]
    rounds = int(rng.integers(4, 12))
    x[0], x[WINDOW], x[STACK], x[COUNTER], x[BODY] = 0, MIDDLE, MIDDLE, rounds, CODE
    f = tuple(random_float(rng) for _ in range(32))
    fcsr = int(rng.integers(5)) << 5 | int(rng.integers(32))
    return Program(items, tuple(x), f, fcsr, rounds, seed, floats=floats)
