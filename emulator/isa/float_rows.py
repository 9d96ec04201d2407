"""Instruction rows of F and D: Volume I (20240411), chapters 20 and 21."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from emulator.events import ACCESS_LOAD, ACCESS_STORE, OpClass
from emulator.isa.algebra import F32, F64, Machine
from emulator.isa.rows import Semantics, row

# --- F and D: floating point -------------------------------------------------------------------------------
# `m.rf*` unbox a single (a value that is not NaN-boxed reads as the canonical NaN), `m.wf` NaN-boxes it.
FP_ADD, FP_MUL, FP_FMA = OpClass.FP_ADD, OpClass.FP_MUL, OpClass.FP_FMA

row("flw", "imm12 rs1 010 rd 0000111", OpClass.FP_LOAD,
     lambda m: m.wf_bits(F32, m.load(m.rs1(), m.imm(), 4, False)), "fx--", ACCESS_LOAD, 4)  # fmt: skip
row("fld", "imm12 rs1 011 rd 0000111", OpClass.FP_LOAD,
     lambda m: m.wf_bits(F64, m.load(m.rs1(), m.imm(), 8, False)), "fx--", ACCESS_LOAD, 8)  # fmt: skip
row("fsw", "simm7 rs2 rs1 010 simm5 0100111", OpClass.FP_STORE,
     lambda m: m.store(m.rs1(), m.imm(), 4, m.rf2_raw()), "-xf-", ACCESS_STORE, 4)  # fmt: skip
row("fsd", "simm7 rs2 rs1 011 simm5 0100111", OpClass.FP_STORE,
     lambda m: m.store(m.rs1(), m.imm(), 8, m.rf2_raw()), "-xf-", ACCESS_STORE, 8)  # fmt: skip


def _sign_injection(fmt: Any, mode: int) -> Semantics:
    sign = 1 << (fmt.width - 1)

    def semantics(m: Machine) -> None:
        a, b = m.rf1_bits(fmt), m.rf2_bits(fmt)
        if mode == 1:
            b = m.xor(b, m.const(sign))
        elif mode == 2:
            b = m.xor(b, a)
        magnitude = m.and_(a, m.const(sign - 1))
        m.wf_bits(fmt, m.or_(magnitude, m.and_(b, m.const(sign))))

    return semantics


for _fmt, _s, _f in ((F32, ".s", "00"), (F64, ".d", "01")):

    def _fp_r(
        name: str,
        funct5: str,
        op_class: OpClass,
        semantics: Callable[[Machine, Any], None],
        middle: str = "rs2",
        funct3: str = "rm",
        kinds: str = "fff-",
        fmt: Any = _fmt,
        suffix: str = _s,
        code: str = _f,
    ) -> None:
        row(
            name.replace(".fmt", suffix), f"{funct5}{code} {middle} rs1 {funct3} rd 1010011", op_class,
            lambda m: semantics(m, fmt), kinds,
        )  # fmt: skip

    _fp_r("fadd.fmt", "00000", FP_ADD, lambda m, f: m.wf(f, m.fadd(f, m.rf1(f), m.rf2(f))))
    _fp_r("fsub.fmt", "00001", FP_ADD, lambda m, f: m.wf(f, m.fsub(f, m.rf1(f), m.rf2(f))))
    _fp_r("fmul.fmt", "00010", FP_MUL, lambda m, f: m.wf(f, m.fmul(f, m.rf1(f), m.rf2(f))))
    _fp_r("fdiv.fmt", "00011", OpClass.FP_DIV, lambda m, f: m.wf(f, m.fdiv(f, m.rf1(f), m.rf2(f))))
    _fp_r("fsqrt.fmt", "01011", OpClass.FP_SQRT, lambda m, f: m.wf(f, m.fsqrt(f, m.rf1(f))), "00000",
          kinds="ff--")  # fmt: skip
    for _name, _mode in (("fsgnj", 0), ("fsgnjn", 1), ("fsgnjx", 2)):
        row(_name + _s, f"00100{_f} rs2 rs1 {_mode:03b} rd 1010011", FP_ADD, _sign_injection(_fmt, _mode),
             "fff-")  # fmt: skip
    _fp_r("fmin.fmt", "00101", FP_ADD, lambda m, f: m.wf(f, m.fmin(f, m.rf1(f), m.rf2(f))), funct3="000")
    _fp_r("fmax.fmt", "00101", FP_ADD, lambda m, f: m.wf(f, m.fmax(f, m.rf1(f), m.rf2(f))), funct3="001")
    _fp_r("feq.fmt", "10100", FP_ADD, lambda m, f: m.wx(m.flag(m.feq(f, m.rf1(f), m.rf2(f)))),
          funct3="010", kinds="xff-")  # fmt: skip
    _fp_r("flt.fmt", "10100", FP_ADD, lambda m, f: m.wx(m.flag(m.flt(f, m.rf1(f), m.rf2(f)))),
          funct3="001", kinds="xff-")  # fmt: skip
    _fp_r("fle.fmt", "10100", FP_ADD, lambda m, f: m.wx(m.flag(m.fle(f, m.rf1(f), m.rf2(f)))),
          funct3="000", kinds="xff-")  # fmt: skip
    _fp_r("fclass.fmt", "11100", FP_ADD, lambda m, f: m.wx(m.fclass(f, m.rf1_bits(f))), "00000", "001",
          "xf--")  # fmt: skip
    # d = +-(a*b) +- c with one rounding
    for _name, _opcode, _product, _addend in (
        ("fmadd", "1000011", False, False), ("fmsub", "1000111", False, True),
        ("fnmsub", "1001011", True, False), ("fnmadd", "1001111", True, True),
    ):  # fmt: skip
        row(
            _name + _s, f"rs3 {_f} rs2 rs1 rm rd {_opcode}", FP_FMA,
            lambda m, f=_fmt, p=_product, c=_addend: m.wf(  # type: ignore[misc]
                f, m.ffma(f, m.rf1(f), m.rf2(f), m.rf3(f), p, c)
            ),
            "ffff",
        )  # fmt: skip
    for _name, _rs2, _width, _signed in (
        ("w", "00000", 32, True), ("wu", "00001", 32, False),
        ("l", "00010", 64, True), ("lu", "00011", 64, False),
    ):  # fmt: skip
        row(
            f"fcvt.{_name}{_s}", f"11000{_f} {_rs2} rs1 rm rd 1010011", OpClass.FP_CVT,
            lambda m, f=_fmt, w=_width, s=_signed: m.wx(m.fp_to_int(f, m.rf1(f), w, s)),  # type: ignore[misc]
            "xf--",
        )  # fmt: skip
        row(
            f"fcvt{_s}.{_name}", f"11010{_f} {_rs2} rs1 rm rd 1010011", OpClass.FP_CVT,
            lambda m, f=_fmt, w=_width, s=_signed: m.wf(f, m.int_to_fp(f, m.rs1(), w, s)),  # type: ignore[misc]
            "fx--",
        )  # fmt: skip

row("fcvt.s.d", "0100000 00001 rs1 rm rd 1010011", OpClass.FP_CVT,
     lambda m: m.wf(F32, m.fp_convert(F64, F32, m.rf1(F64))), "ff--")  # fmt: skip
row("fcvt.d.s", "0100001 00000 rs1 rm rd 1010011", OpClass.FP_CVT,
     lambda m: m.wf(F64, m.fp_convert(F32, F64, m.rf1(F32))), "ff--")  # fmt: skip
row("fmv.x.w", "1110000 00000 rs1 000 rd 1010011", OpClass.FP_MOVE,
     lambda m: m.wx(m.sext(m.rf1_raw(), 32)), "xf--")  # fmt: skip
row("fmv.w.x", "1111000 00000 rs1 000 rd 1010011", OpClass.FP_MOVE,
     lambda m: m.wf_bits(F32, m.zext(m.rs1(), 32)), "fx--")  # fmt: skip
row("fmv.x.d", "1110001 00000 rs1 000 rd 1010011", OpClass.FP_MOVE,
     lambda m: m.wx(m.rf1_raw()), "xf--")  # fmt: skip
row("fmv.d.x", "1111001 00000 rs1 000 rd 1010011", OpClass.FP_MOVE,
     lambda m: m.wf_bits(F64, m.rs1()), "fx--")  # fmt: skip
