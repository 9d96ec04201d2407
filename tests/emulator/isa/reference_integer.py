"""What integer instructions do, a second time, on Python integers: written from the manual's prose, one line each.

Operands are unsigned 64-bit register values, results are masked by who asks. Nothing here knows the instruction table.
"""

from __future__ import annotations

from collections.abc import Callable

M64 = (1 << 64) - 1


def s64(a: int) -> int:
    """The two's-complement reading of 64 bits."""
    return a - (1 << 64) if a >= 1 << 63 else a


def u32(a: int) -> int:
    return a % (1 << 32)


def s32(a: int) -> int:
    """The two's-complement reading of the low 32 bits."""
    return (a + (1 << 31)) % (1 << 32) - (1 << 31)


def _towards_zero(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def divide(a: int, b: int) -> int:
    """All ones for a division by 0; the one overflow, the least number by -1, comes out by itself."""
    return -1 if b == 0 else _towards_zero(a, b)


def remainder(a: int, b: int) -> int:
    """The dividend for a division by 0."""
    return a if b == 0 else a - b * _towards_zero(a, b)


def _bits(a: int, width: int) -> str:
    return format(a % (1 << width), f"0{width}b")


def rotate_right(a: int, amount: int, width: int) -> int:
    text = _bits(a, width)
    amount %= width
    return int(text[width - amount :] + text[: width - amount], 2)


def rotate_left(a: int, amount: int, width: int) -> int:
    text = _bits(a, width)
    amount %= width
    return int(text[amount:] + text[:amount], 2)


def _leading(a: int, width: int) -> int:
    return width - len(_bits(a, width).lstrip("0"))


def _trailing(a: int, width: int) -> int:
    return width - len(_bits(a, width).rstrip("0"))


def _bytes(a: int) -> bytes:
    return a.to_bytes(8, "little")


BINARY: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "sll": lambda a, b: a << b % 64,
    "slt": lambda a, b: int(s64(a) < s64(b)), "sltu": lambda a, b: int(a < b), "xor": lambda a, b: a ^ b,
    "srl": lambda a, b: a >> b % 64, "sra": lambda a, b: s64(a) >> b % 64, "or": lambda a, b: a | b,
    "and": lambda a, b: a & b, "addw": lambda a, b: s32(a + b), "subw": lambda a, b: s32(a - b),
    "sllw": lambda a, b: s32(a << b % 32), "srlw": lambda a, b: s32(u32(a) >> b % 32),
    "sraw": lambda a, b: s32(a) >> b % 32,
    "mul": lambda a, b: a * b, "mulh": lambda a, b: s64(a) * s64(b) >> 64, "mulhsu": lambda a, b: s64(a) * b >> 64,
    "mulhu": lambda a, b: a * b >> 64, "mulw": lambda a, b: s32(a * b),
    "div": lambda a, b: divide(s64(a), s64(b)), "divu": lambda a, b: divide(a, b),
    "rem": lambda a, b: remainder(s64(a), s64(b)), "remu": lambda a, b: remainder(a, b),
    "divw": lambda a, b: s32(divide(s32(a), s32(b))), "divuw": lambda a, b: s32(divide(u32(a), u32(b))),
    "remw": lambda a, b: s32(remainder(s32(a), s32(b))), "remuw": lambda a, b: s32(remainder(u32(a), u32(b))),
    "sh1add": lambda a, b: 2 * a + b, "sh2add": lambda a, b: 4 * a + b, "sh3add": lambda a, b: 8 * a + b,
    "sh1add.uw": lambda a, b: 2 * u32(a) + b, "sh2add.uw": lambda a, b: 4 * u32(a) + b,
    "sh3add.uw": lambda a, b: 8 * u32(a) + b, "add.uw": lambda a, b: u32(a) + b,
    "andn": lambda a, b: a & ~b, "orn": lambda a, b: a | ~b, "xnor": lambda a, b: ~(a ^ b),
    "max": lambda a, b: max(s64(a), s64(b)), "maxu": max, "min": lambda a, b: min(s64(a), s64(b)), "minu": min,
    "ror": lambda a, b: rotate_right(a, b, 64), "rol": lambda a, b: rotate_left(a, b, 64),
    "rorw": lambda a, b: s32(rotate_right(a, b, 32)), "rolw": lambda a, b: s32(rotate_left(a, b, 32)),
    "bclr": lambda a, b: a & ~(1 << b % 64), "bext": lambda a, b: int(_bits(a, 64)[63 - b % 64]),
    "binv": lambda a, b: a ^ 1 << b % 64, "bset": lambda a, b: a | 1 << b % 64,
}  # fmt: skip

UNARY: dict[str, Callable[[int], int]] = {
    "clz": lambda a: _leading(a, 64), "ctz": lambda a: _trailing(a, 64), "cpop": lambda a: _bits(a, 64).count("1"),
    "clzw": lambda a: _leading(a, 32), "ctzw": lambda a: _trailing(a, 32), "cpopw": lambda a: _bits(a, 32).count("1"),
    "sext.b": lambda a: int.from_bytes(_bytes(a)[:1], "little", signed=True),
    "sext.h": lambda a: int.from_bytes(_bytes(a)[:2], "little", signed=True),
    "zext.h": lambda a: int.from_bytes(_bytes(a)[:2], "little"), "rev8": lambda a: int.from_bytes(_bytes(a), "big"),
    "orc.b": lambda a: int.from_bytes(bytes(255 if byte else 0 for byte in _bytes(a)), "little"),
}  # fmt: skip

# By immediate: the same as by register, with the immediate sign-extended or as a shift amount.
IMMEDIATE: dict[str, Callable[[int, int], int]] = {
    name: BINARY[other]
    for name, other in (
        ("addi", "add"), ("slti", "slt"), ("sltiu", "sltu"), ("xori", "xor"), ("ori", "or"), ("andi", "and"),
        ("addiw", "addw"), ("slli", "sll"), ("srli", "srl"), ("srai", "sra"), ("slliw", "sllw"), ("srliw", "srlw"),
        ("sraiw", "sraw"), ("rori", "ror"), ("roriw", "rorw"), ("bclri", "bclr"), ("bexti", "bext"),
        ("binvi", "binv"), ("bseti", "bset"),
    )
} | {"slli.uw": lambda a, b: u32(a) << b}  # fmt: skip

BRANCHES: dict[str, Callable[[int, int], bool]] = {
    "beq": lambda a, b: a == b, "bne": lambda a, b: a != b, "blt": lambda a, b: s64(a) < s64(b),
    "bge": lambda a, b: s64(a) >= s64(b), "bltu": lambda a, b: a < b, "bgeu": lambda a, b: a >= b,
}  # fmt: skip

# Size in bytes, and whether the value is sign-extended.
LOADS = {
    "lb": (1, True), "lh": (2, True), "lw": (4, True), "ld": (8, True), "lbu": (1, False), "lhu": (2, False),
    "lwu": (4, False),
}  # fmt: skip
STORES = {"sb": 1, "sh": 2, "sw": 4, "sd": 8}

# What an atomic operation leaves in memory, from what is there and the operand, both unsigned of the width; the signed
# ones get the sign as a third argument, the number of the sign's bit.
ATOMICS: dict[str, Callable[[int, int, int], int]] = {
    "amoswap": lambda old, new, sign: new, "amoadd": lambda old, new, sign: old + new,
    "amoxor": lambda old, new, sign: old ^ new, "amoand": lambda old, new, sign: old & new,
    "amoor": lambda old, new, sign: old | new,
    "amomin": lambda old, new, sign: min(old, new, key=lambda v: v - (v >> sign << sign + 1)),
    "amomax": lambda old, new, sign: max(old, new, key=lambda v: v - (v >> sign << sign + 1)),
    "amominu": lambda old, new, sign: min(old, new), "amomaxu": lambda old, new, sign: max(old, new),
}  # fmt: skip
