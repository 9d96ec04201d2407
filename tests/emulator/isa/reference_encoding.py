"""How instructions are encoded, a second time: numbers from the instruction listings of the manual (Volume I, 20240411,
chapter 35), by format. Nothing here knows the instruction table; the tests hold one against the other.
"""

from __future__ import annotations

from dataclasses import dataclass

OP, OP_IMM, OP_32, OP_IMM_32, LOAD, STORE, BRANCH = 0x33, 0x13, 0x3B, 0x1B, 0x03, 0x23, 0x63
LOAD_FP, STORE_FP, OP_FP, AMO, SYSTEM, MISC_MEM = 0x07, 0x27, 0x53, 0x2F, 0x73, 0x0F
_F7, _RS2, _F3, _OPCODE = 0x7F << 25, 0x1F << 20, 7 << 12, 0x7F
_DYNAMIC = 7


@dataclass(frozen=True)
class Encoding:
    """``mask`` and ``match``: the fixed bits. ``kind``: which fields there are, by the manual's formats and ours:
    R, R4, I, S, B, U, J, shift (6 bits), shiftw (5 bits), unary (no rs2), amo, csr, fence, none; with ``rounded``,
    an rm
    field."""

    kind: str
    mask: int
    match: int
    rounded: bool = False


def _r(opcode: int, f3: int, f7: int) -> Encoding:
    return Encoding("R", _F7 | _F3 | _OPCODE, f7 << 25 | f3 << 12 | opcode)


def _i(opcode: int, f3: int, kind: str = "I") -> Encoding:
    return Encoding(kind, _F3 | _OPCODE, f3 << 12 | opcode)


def _unary(opcode: int, f3: int, f12: int) -> Encoding:
    return Encoding("unary", 0xFFF << 20 | _F3 | _OPCODE, f12 << 20 | f3 << 12 | opcode)


def _shift(f6: int, f3: int, opcode: int = OP_IMM) -> Encoding:
    return Encoding("shift", 0x3F << 26 | _F3 | _OPCODE, f6 << 26 | f3 << 12 | opcode)


def _shiftw(f7: int, f3: int) -> Encoding:
    return Encoding("shiftw", _F7 | _F3 | _OPCODE, f7 << 25 | f3 << 12 | OP_IMM_32)


def _fixed(word: int) -> Encoding:
    return Encoding("none", 0xFFFFFFFF, word)


ENCODINGS: dict[str, Encoding] = {
    "lui": Encoding("U", _OPCODE, 0x37), "auipc": Encoding("U", _OPCODE, 0x17), "jal": Encoding("J", _OPCODE, 0x6F),
    "jalr": _i(0x67, 0), "ecall": _fixed(0x73), "ebreak": _fixed(0x00100073),
    "fence": _i(MISC_MEM, 0, "fence"), "fence.i": _i(MISC_MEM, 1, "fence"),
    "slli": _shift(0x00, 1), "srli": _shift(0x00, 5), "srai": _shift(0x10, 5), "rori": _shift(0x18, 5),
    "bclri": _shift(0x12, 1), "bexti": _shift(0x12, 5), "binvi": _shift(0x1A, 1), "bseti": _shift(0x0A, 1),
    "slli.uw": _shift(0x02, 1, OP_IMM_32),
    "slliw": _shiftw(0x00, 1), "srliw": _shiftw(0x00, 5), "sraiw": _shiftw(0x20, 5), "roriw": _shiftw(0x30, 5),
    "clz": _unary(OP_IMM, 1, 0x600), "ctz": _unary(OP_IMM, 1, 0x601), "cpop": _unary(OP_IMM, 1, 0x602),
    "sext.b": _unary(OP_IMM, 1, 0x604), "sext.h": _unary(OP_IMM, 1, 0x605),
    "clzw": _unary(OP_IMM_32, 1, 0x600), "ctzw": _unary(OP_IMM_32, 1, 0x601), "cpopw": _unary(OP_IMM_32, 1, 0x602),
    "rev8": _unary(OP_IMM, 5, 0x6B8), "orc.b": _unary(OP_IMM, 5, 0x287), "zext.h": _unary(OP_32, 4, 0x080),
}  # fmt: skip
for _n, _name in enumerate(("beq", "bne", None, None, "blt", "bge", "bltu", "bgeu")):
    if _name:
        ENCODINGS[_name] = _i(BRANCH, _n, "B")
for _n, _name in enumerate(("lb", "lh", "lw", "ld", "lbu", "lhu", "lwu")):
    ENCODINGS[_name] = _i(LOAD, _n)
for _n, _name in enumerate(("sb", "sh", "sw", "sd")):
    ENCODINGS[_name] = _i(STORE, _n, "S")
for _n, _name in enumerate(("addi", None, "slti", "sltiu", "xori", None, "ori", "andi")):
    if _name:
        ENCODINGS[_name] = _i(OP_IMM, _n)
ENCODINGS["addiw"] = _i(OP_IMM_32, 0)
for _n, _name in enumerate(("csrrw", "csrrs", "csrrc", None, "csrrwi", "csrrsi", "csrrci"), 1):
    if _name:
        ENCODINGS[_name] = _i(SYSTEM, _n, "csr")
for _name, _f3, _f7 in (
    ("add", 0, 0), ("sub", 0, 0x20), ("sll", 1, 0), ("slt", 2, 0), ("sltu", 3, 0), ("xor", 4, 0), ("srl", 5, 0),
    ("sra", 5, 0x20), ("or", 6, 0), ("and", 7, 0), ("mul", 0, 1), ("mulh", 1, 1), ("mulhsu", 2, 1), ("mulhu", 3, 1),
    ("div", 4, 1), ("divu", 5, 1), ("rem", 6, 1), ("remu", 7, 1), ("sh1add", 2, 0x10), ("sh2add", 4, 0x10),
    ("sh3add", 6, 0x10), ("andn", 7, 0x20), ("orn", 6, 0x20), ("xnor", 4, 0x20), ("max", 6, 5), ("maxu", 7, 5),
    ("min", 4, 5), ("minu", 5, 5), ("rol", 1, 0x30), ("ror", 5, 0x30), ("bclr", 1, 0x24), ("bext", 5, 0x24),
    ("binv", 1, 0x34), ("bset", 1, 0x14),
):  # fmt: skip
    ENCODINGS[_name] = _r(OP, _f3, _f7)
for _name, _f3, _f7 in (
    ("addw", 0, 0), ("subw", 0, 0x20), ("sllw", 1, 0), ("srlw", 5, 0), ("sraw", 5, 0x20), ("mulw", 0, 1),
    ("divw", 4, 1), ("divuw", 5, 1), ("remw", 6, 1), ("remuw", 7, 1), ("add.uw", 0, 4), ("sh1add.uw", 2, 0x10),
    ("sh2add.uw", 4, 0x10),
    ("sh3add.uw", 6, 0x10), ("rolw", 1, 0x30), ("rorw", 5, 0x30),
):  # fmt: skip
    ENCODINGS[_name] = _r(OP_32, _f3, _f7)
for _name, _f5 in (
    ("lr", 2), ("sc", 3), ("amoswap", 1), ("amoadd", 0), ("amoxor", 4), ("amoand", 12), ("amoor", 8), ("amomin", 16),
    ("amomax", 20), ("amominu", 24), ("amomaxu", 28),
):  # fmt: skip
    for _suffix, _f3 in ((".w", 2), (".d", 3)):
        ENCODINGS[_name + _suffix] = Encoding(
            "amo", 0x1F << 27 | _F3 | _OPCODE | (_RS2 if _name == "lr" else 0), _f5 << 27 | _f3 << 12 | AMO
        )
for _n, (_s, _letter) in enumerate(((".s", "w"), (".d", "d"))):
    ENCODINGS["fl" + _letter], ENCODINGS["fs" + _letter] = _i(LOAD_FP, 2 + _n), _i(STORE_FP, 2 + _n, "S")
    for _name, _f5 in (("fadd", 0), ("fsub", 1), ("fmul", 2), ("fdiv", 3)):
        ENCODINGS[_name + _s] = Encoding("R", _F7 | _OPCODE, _f5 << 27 | _n << 25 | OP_FP, True)
    ENCODINGS["fsqrt" + _s] = Encoding("unary", _F7 | _RS2 | _OPCODE, 0x0B << 27 | _n << 25 | OP_FP, True)
    for _name, _f5, _f3 in (
        ("fsgnj", 4, 0), ("fsgnjn", 4, 1), ("fsgnjx", 4, 2), ("fmin", 5, 0), ("fmax", 5, 1), ("fle", 20, 0),
        ("flt", 20, 1), ("feq", 20, 2),
    ):  # fmt: skip
        ENCODINGS[_name + _s] = _r(OP_FP, _f3, _f5 << 2 | _n)
    ENCODINGS["fclass" + _s] = _unary(OP_FP, 1, (0x1C << 2 | _n) << 5)
    for _name, _opcode in (("fmadd", 0x43), ("fmsub", 0x47), ("fnmsub", 0x4B), ("fnmadd", 0x4F)):
        ENCODINGS[_name + _s] = Encoding("R4", 3 << 25 | _OPCODE, _n << 25 | _opcode, True)
    for _rs2, _integer in enumerate(("w", "wu", "l", "lu")):
        for _name, _f5 in ((f"fcvt.{_integer}{_s}", 0x18), (f"fcvt{_s}.{_integer}", 0x1A)):
            _match = _f5 << 27 | _n << 25 | _rs2 << 20 | OP_FP
            ENCODINGS[_name] = Encoding("unary", _F7 | _RS2 | _OPCODE, _match, True)
ENCODINGS["fcvt.s.d"] = Encoding("unary", _F7 | _RS2 | _OPCODE, 8 << 27 | 1 << 20 | OP_FP, True)
ENCODINGS["fcvt.d.s"] = Encoding("unary", _F7 | _RS2 | _OPCODE, 8 << 27 | 1 << 25 | OP_FP, True)
for _name, _f7 in (("fmv.x.w", 0x70), ("fmv.x.d", 0x71), ("fmv.w.x", 0x78), ("fmv.d.x", 0x79)):
    ENCODINGS[_name] = _unary(OP_FP, 0, _f7 << 5)


def encode(name: str, rd: int = 0, rs1: int = 0, rs2: int = 0, imm: int = 0, rs3: int = 0, rm: int = _DYNAMIC) -> int:
    """The word of an instruction. ``imm``: an immediate, offset, shift amount, CSR number; for lui and auipc the value
    with its low 12 bits 0; for atomics, aq << 1 | rl."""
    code = ENCODINGS[name]
    word = code.match | (rm << 12 if code.rounded else 0)
    kind = code.kind
    if kind == "none":
        return word
    if kind not in ("S", "B"):
        word |= rd << 7
    if kind not in ("U", "J"):
        word |= rs1 << 15
    if kind in ("R", "R4", "S", "B", "amo"):
        word |= rs2 << 20
    if kind == "R4":
        word |= rs3 << 27
    elif kind in ("I", "csr", "fence"):
        word |= (imm & 0xFFF) << 20
    elif kind in ("shift", "shiftw"):
        word |= imm << 20
    elif kind == "S":
        word |= (imm & 31) << 7 | (imm >> 5 & 127) << 25
    elif kind == "B":
        word |= (imm >> 11 & 1) << 7 | (imm >> 1 & 15) << 8 | (imm >> 5 & 63) << 25 | (imm >> 12 & 1) << 31
    elif kind == "U":
        word |= imm & 0xFFFFF000
    elif kind == "J":
        word |= imm & 0xFF000 | (imm >> 11 & 1) << 20 | (imm >> 1 & 0x3FF) << 21 | (imm >> 20 & 1) << 31
    elif kind == "amo":
        word |= imm << 25
    return word
