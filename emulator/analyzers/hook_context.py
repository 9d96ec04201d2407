"""The state of the guest at one instruction, as hooks of analyzers get it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from emulator.isa.disassemble import format_instruction

if TYPE_CHECKING:
    from emulator.isa.decode import Instruction
    from emulator.machine import Machine


@dataclass(frozen=True)
class HookContext:
    """The state of the guest at one instruction: ``machine.hart.x`` and ``.f`` are its registers at that point."""

    machine: Machine
    pc: int
    instruction: Instruction

    def read(self, address: int, n_bytes: int) -> int:
        """Read guest memory as an unsigned number. Raises `MemoryFault` for unmapped memory."""
        return self.machine.memory.read_int(address, n_bytes)

    def write(self, address: int, n_bytes: int, value: int) -> None:
        """Write guest memory. Raises `MemoryFault` for unmapped memory."""
        self.machine.memory.write_int(address, n_bytes, value)

    def __str__(self) -> str:
        symbol = self.machine.image.symbolize(self.pc)
        return f"{symbol}: {format_instruction(self.instruction, self.pc)}"
