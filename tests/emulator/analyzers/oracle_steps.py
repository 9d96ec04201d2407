"""What a guest does, told by the oracle one instruction at a time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from emulator.events import ACCESS_LOAD, OpClass
from emulator.isa.decode import Instruction
from emulator.machine import Machine
from emulator.memory import MemoryFault


@dataclass(frozen=True)
class Step:
    """An executed instruction and all that an analyzer can ask about it, found without the record."""

    pc: int
    instruction: Instruction
    fields: dict[str, int]

    @property
    def mnemonic(self) -> str:
        return self.instruction.row.mnemonic

    @property
    def op_class(self) -> OpClass:
        return OpClass(self.fields["class"])


def steps_of(program: Path, *arguments: str) -> list[Step]:
    """The instructions that the program executes, without accesses that fault."""
    steps: list[Step] = []
    with Machine(program, arguments, engine="oracle") as machine:
        hart, memory, execute = machine.hart, machine.memory, machine._run_loop._oracle.oracle.execute

        def register(kind: str, number: int) -> int:
            return 0 if kind == "-" else int(hart.f[number] if kind == "f" else hart.x[number])

        def note(instruction: Instruction) -> None:
            row, pc = instruction.row, hart.pc
            found = dict.fromkeys(("address", "value", "taken", "target", "rd"), 0)
            operands = zip(("rs1", "rs2", "rs3"), (instruction.rs1, instruction.rs2, instruction.rs3), strict=True)
            for place, (name, number) in enumerate(operands):
                found[name] = register(row.register_kinds[1 + place], number)
            if row.access:
                offset = 0 if instruction.op_class == OpClass.ATOMIC else instruction.imm
                found["address"] = (found["rs1"] + offset) % 2**64
            if row.access & ACCESS_LOAD:
                found["value"] = memory.read_int(found["address"], row.access_bytes)
            found["pc"], found["opcode"] = pc, row.index
            found["word"] = memory.read_int(pc, instruction.length_bytes)
            found["class"] = int(instruction.op_class)
            before = steps[-1] if steps else None
            if (
                row.mnemonic == "jalr"
                and before is not None
                and before.mnemonic == "auipc"
                and before.pc + before.instruction.length_bytes == pc
                and before.instruction.rd == instruction.rs1
            ):
                # Compilers write direct calls so; observers are told what they are.
                paired = {OpClass.INDIRECT_CALL: OpClass.CALL, OpClass.INDIRECT_JUMP: OpClass.JUMP}
                found["class"] = int(paired.get(instruction.op_class, instruction.op_class))
            steps.append(Step(pc, instruction, found))
            try:
                execute(instruction)
            except MemoryFault:
                steps.pop()
                raise
            if row.access and not row.access & ACCESS_LOAD:
                found["value"] = memory.read_int(found["address"], row.access_bytes)
            if row.register_kinds[0] != "-":
                found["rd"] = register(row.register_kinds[0], instruction.rd)
            if OpClass.BRANCH <= instruction.op_class <= OpClass.INDIRECT_CALL:
                found["target"] = hart.pc
                found["taken"] = int(hart.pc != pc + instruction.length_bytes)

        machine._run_loop._oracle.oracle.execute = note  # type: ignore[method-assign]
        machine.run()
    return steps
