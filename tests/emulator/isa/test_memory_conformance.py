"""Loads, stores and atomics against the manual's prose, on every engine, at every alignment."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any

import pytest

from tests.emulator.isa.kernels import (
    ENGINE_NAMES,
    OPERANDS,
    POINTER,
    SCRATCH,
    Kernel,
    engine_named,
    registers,
    wrong,
)
from tests.emulator.isa.reference_encoding import encode
from tests.emulator.isa.reference_integer import ATOMICS, LOADS, STORES

WORDS = [
    0,
    0x0123456789ABCDEF,
    0x8081828384858687,
    0xFFFFFFFF7FFFFFFF,
    0x00000000FFFFFFFF,
    (1 << 64) - 2,
    1 << 63,
]
OFFSETS = (0, 2047, -2047)
A, B, C, D = OPERANDS
BOX = 0xFFFFFFFF << 32


class Group:
    """Kernels in the making."""

    def __init__(self) -> None:
        self.kernels: list[Kernel] = []

    def registers(self) -> tuple[int, int, int, int]:
        return registers(len(self.kernels))

    def new(self, name: str, kinds: str, words: list[int]) -> Kernel:
        self.kernels.append(Kernel(name, words, kinds, len(self.kernels)))
        return self.kernels[-1]


def at(place: int, imm: int) -> list[int]:
    """SCRATCH such that SCRATCH + imm is ``place`` bytes into the case."""
    return [encode("addi", SCRATCH, POINTER, imm=place), encode("addi", SCRATCH, SCRATCH, imm=-imm)]


@cache
def loads() -> list[Kernel]:
    """From any byte of the second and third operand."""
    group = Group()
    everything = {name: ("x", *what) for name, what in LOADS.items()}
    everything |= {"flw": ("f", 4, False), "fld": ("f", 8, False)}
    for (name, (kind, size, signed)), skew in product(everything.items(), range(8)):
        rd, *_ = group.registers()
        imm = OFFSETS[len(group.kernels) % 3]
        words = [*at(B + skew, imm), encode(name, rd, SCRATCH, imm=imm)]
        kernel = group.new(f"{name} {imm} {skew}", kind + "xx", words)
        for low, high in zip(WORDS, WORDS[1:] + WORDS[:1], strict=True):
            window = low.to_bytes(8, "little") + high.to_bytes(8, "little")
            value = int.from_bytes(window[skew : skew + size], "little", signed=signed)
            for first in (0, low):
                kernel.cases.append((first, low, high, 0))
                kernel.expected.append(((value | BOX if name == "flw" else value) % (1 << 64), None))
    return group.kernels


@cache
def stores() -> list[Kernel]:
    """To any byte of the third operand and what follows; both are read back."""
    group = Group()
    everything = {name: ("x", size) for name, size in STORES.items()} | {"fsw": ("f", 4), "fsd": ("f", 8)}
    for (name, (kind, size)), skew, half in product(everything.items(), range(8), (C, D)):
        rd, rs1, *_ = group.registers()
        imm = OFFSETS[len(group.kernels) % 3]
        words = [*at(C + skew, imm), encode(name, 0, SCRATCH, rs1, imm), encode("ld", rd, POINTER, imm=half)]
        kernel = group.new(f"{name} {imm} {skew}", f"x{kind}-", words)
        for value, before in product(WORDS[1:4], WORDS[:2]):
            window = bytearray(before.to_bytes(8, "little") * 2)
            window[skew : skew + size] = (value % (1 << 8 * size)).to_bytes(size, "little")
            kernel.cases.append((value, 0, before, before))
            place = half - C
            kernel.expected.append((int.from_bytes(window[place : place + 8], "little"), None))
    return group.kernels


def _width(suffix: str) -> tuple[int, int]:
    """Bytes and bits."""
    return (4, 32) if suffix == ".w" else (8, 64)


def _extended(value: int, bits: int) -> int:
    value %= 1 << bits
    return (value - (value >> bits - 1 << bits)) % (1 << 64)


@cache
def atomics() -> list[Kernel]:
    """What is returned, sign-extended, and what is in memory afterwards, with all four orderings and without a result;
    words in both halves of a double word, the other one untouched."""
    group = Group()
    for (name, update), suffix in product(ATOMICS.items(), (".w", ".d")):
        size, bits = _width(suffix)
        for upper, look in product((0, 4) if size == 4 else (0,), ("result", "memory")):
            rd, rs1, rs2, _ = group.registers()
            ordering = len(group.kernels) % 4
            words = [encode("sd", 0, POINTER, rs1, C), encode("addi", SCRATCH, POINTER, imm=C + upper)]
            words.append(encode(name + suffix, rd if look == "result" else 0, SCRATCH, rs2, ordering))
            if look == "memory":
                words.append(encode("ld", rd, POINTER, imm=C))
            kernel = group.new(f"{name}{suffix} +{upper} {look}", "xxx", words)
            for before, operand in product(WORDS, WORDS):
                old = before >> 8 * upper & (1 << bits) - 1
                new = update(old, operand % (1 << bits), bits - 1) % (1 << bits)
                after = before & ~((1 << bits) - 1 << 8 * upper) | new << 8 * upper
                kernel.add((before, operand), _extended(old, bits) if look == "result" else after)
    return group.kernels


@cache
def reservations() -> list[Kernel]:
    """lr loads; sc stores and returns 0 after an lr of the same address, and otherwise returns 1 and stores nothing."""
    group = Group()
    for suffix in (".w", ".d"):
        _, bits = _width(suffix)
        for reserve, address, look in product(("lr", "none", "other", "twice"), (C, D), ("result", "memory")):
            rd, rs1, rs2, _ = group.registers()
            elsewhere, ordering = C + D - address, len(group.kernels) % 4
            words = [encode("sd", 0, POINTER, rs1, address), encode("addi", SCRATCH, POINTER, imm=elsewhere)]
            if reserve == "other":
                words.append(encode("lr" + suffix, 0, SCRATCH, imm=ordering))
            words.append(encode("addi", SCRATCH, POINTER, imm=address))
            if reserve in ("lr", "twice"):
                words.append(encode("lr" + suffix, rd, SCRATCH, imm=ordering))
            if reserve == "twice":  # the first one stores what is there already
                words.append(encode("sc" + suffix, 0, SCRATCH, rd, ordering))
            words.append(encode("sc" + suffix, rd, SCRATCH, rs2, ordering))
            if look == "memory":
                words.append(encode("ld", rd, POINTER, imm=address))
            kernel = group.new(f"sc{suffix} {reserve} {address} {look}", "xxx", words)
            for before, value in product(WORDS[:5], WORDS[:5]):
                mask = (1 << bits) - 1
                after = before & ~mask | value & mask if reserve == "lr" else before
                kernel.add((before, value), int(reserve != "lr") if look == "result" else after)
        rd, rs1, *_ = group.registers()
        words = [encode("addi", SCRATCH, POINTER, imm=A), encode("lr" + suffix, rd, SCRATCH)]
        kernel = group.new("lr" + suffix, "xx-", words)
        for value in WORDS:
            kernel.add((value,), _extended(value, bits))
    return group.kernels


@pytest.mark.parametrize("engine", ENGINE_NAMES)
@pytest.mark.parametrize("group", [loads, stores, atomics, reservations], ids=lambda group: group.__wrapped__.__name__)
def test_results(group: Callable[..., Any], engine: str) -> None:
    assert wrong(group(), engine_named(engine)) == []
