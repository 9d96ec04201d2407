"""The disassembler: mnemonics, ABI register names, absolute targets."""

from __future__ import annotations

from emulator.isa.decode import DYNAMIC_ROUNDING, Instruction, decode

X_NAMES = (
    "zero", "ra", "sp", "gp", "tp", "t0", "t1", "t2",
    "s0", "s1", "a0", "a1", "a2", "a3", "a4", "a5",
    "a6", "a7", "s2", "s3", "s4", "s5", "s6", "s7",
    "s8", "s9", "s10", "s11", "t3", "t4", "t5", "t6",
)  # fmt: skip
F_NAMES = (
    "ft0", "ft1", "ft2", "ft3", "ft4", "ft5", "ft6", "ft7",
    "fs0", "fs1", "fa0", "fa1", "fa2", "fa3", "fa4", "fa5",
    "fa6", "fa7", "fs2", "fs3", "fs4", "fs5", "fs6", "fs7",
    "fs8", "fs9", "fs10", "fs11", "ft8", "ft9", "ft10", "ft11",
)  # fmt: skip
ROUNDING_NAMES = ("rne", "rtz", "rdn", "rup", "rmm")
CSR_NAMES = {
    0x001: "fflags", 0x002: "frm", 0x003: "fcsr", 0x800: "pmucontrol",
    0xC00: "cycle", 0xC01: "time", 0xC02: "instret", **{0xC00 + n: f"hpmcounter{n}" for n in range(3, 32)},
}  # fmt: skip


def format_instruction(instruction: Instruction, pc: int) -> str:
    """One line of assembly for ``instruction`` at address ``pc``."""
    row = instruction.row
    name = row.mnemonic
    numbers = (instruction.rd, instruction.rs1, instruction.rs2, instruction.rs3)
    registers = [
        (X_NAMES if kind == "x" else F_NAMES)[number]
        for kind, number in zip(row.register_kinds, numbers, strict=True)
        if kind != "-"
    ]
    fields = row.fields
    if row.access and "imm12" in fields:  # load
        return f"{name} {registers[0]}, {instruction.imm}({registers[1]})"
    if row.access and "simm7" in fields:  # store
        return f"{name} {registers[1]}, {instruction.imm}({registers[0]})"
    if row.access:  # atomic
        return f"{name} {', '.join([registers[0], *registers[2:]])}, ({registers[1]})"
    if name == "jalr":
        return f"jalr {registers[0]}, {instruction.imm}({registers[1]})"
    if "csr" in fields:
        number = instruction.imm & 0xFFF
        operand = registers[1] if len(registers) > 1 else str(instruction.rs1)
        return f"{name} {registers[0]}, {CSR_NAMES.get(number, hex(number))}, {operand}"
    if "bimm7" in fields or "jimm20" in fields:
        return f"{name} {', '.join([*registers, hex((pc + instruction.imm) & (1 << 64) - 1)])}"
    if "imm20" in fields:
        return f"{name} {registers[0]}, {instruction.imm >> 12 & 0xFFFFF:#x}"
    if {"imm12", "shamt6", "shamt5"} & fields and registers:
        registers.append(str(instruction.imm))
    if instruction.rm != DYNAMIC_ROUNDING:
        registers.append(ROUNDING_NAMES[instruction.rm])
    return f"{name} {', '.join(registers)}".rstrip()


def disassemble(raw: int, pc: int) -> str:
    """Disassemble the instruction whose bits are ``raw``; unknown bits are shown as data."""
    instruction = decode(raw)
    if instruction is None:
        return f".word {raw & 0xFFFFFFFF:#010x}" if raw & 3 == 3 else f".half {raw & 0xFFFF:#06x}"
    return format_instruction(instruction, pc)
