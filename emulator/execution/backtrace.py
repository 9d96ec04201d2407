"""Where the guest is, and who called that: places in its code as text, for messages about its end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from emulator.engine.hart_state import Hart
from emulator.errors import EmulatorError
from emulator.events import OpClass
from emulator.isa.decode import Instruction, decode
from emulator.linux.linux_kernel import LinuxKernel
from emulator.linux.loader.call_frames import RETURN_ADDRESS, STACK_POINTER, Registers
from emulator.linux.loader.elf import ElfImage, Symbol, load_library
from emulator.memory import MemoryFault

_SHORTEST_CALL_BYTES = 2
_MOST_INSTRUCTIONS_LOOKED_AT = 64
_MOST_CALLERS = 64  # of which `_MOST_LINES` are told
_MOST_LINES = 10
_MOST_WORDS_LOOKED_AT = 1 << 16


class Places:
    """Places in the code of the current process of ``kernel``."""

    def __init__(self, kernel: LinuxKernel) -> None:
        self._kernel = kernel
        self._libraries: dict[tuple[str, int, int], ElfImage | None] = {}  # by path, address and offset

    def text(self, pc: int, *, returns: bool = False) -> str:
        """A code address, with its function, and its source line or the file from which it is mapped.

        ``returns``: a function that was called returns to ``pc``: the line is that of the call.
        """
        image, at = self._image_at(pc), pc - returns * _SHORTEST_CALL_BYTES
        function = image.function_at(at) if image is not None else None
        line = image.source_line(at) if image is not None else None
        found = [f"{pc:#x}"]
        if function is not None and image is not None:
            # A call that never returns may be a function's last instruction: no offset, which would be in the next.
            found.append(image.symbolize(function.address if returns else pc))
        if line is not None:
            found.append(f"({line[0]}:{line[1]})")
        elif function is None or image is not self._kernel.process.program.image:
            mapped = self._kernel.mappings.file_at(pc) or ""
            found.append(f"({mapped})" if function is not None and mapped else mapped)
        return " ".join(filter(None, found))

    def callers(self, return_addresses: Iterable[int]) -> list[str]:
        """A line for each function that has called another, from the innermost to the outermost one that is known."""
        found: list[tuple[str, int]] = []
        for returns_to in return_addresses:
            text = self.text(returns_to, returns=True)
            if found and found[-1][0] == text:
                found[-1] = text, found[-1][1] + 1
            else:
                found.append((text, 1))
            if len(found) > _MOST_LINES:
                break
        return [text + (f", {times} times" if times > 1 else "") for text, times in found[:_MOST_LINES]]

    def return_addresses(self, hart: Hart) -> Iterator[int]:
        """Where functions return to that have called another, from the innermost to the outermost one that is known."""
        registers: Registers = {number: int(hart.x[number]) for number in range(1, 32)}
        pc = hart.pc
        for depth in range(_MOST_CALLERS):
            image, is_last = self._image_at(pc), False
            at = pc - _SHORTEST_CALL_BYTES if depth else pc
            caller = image.caller(at, registers, self._word_at) if image is not None else None
            if caller is None and depth == 0:
                caller, is_last = self._caller_without_information(pc, registers)
            if caller is None or not self._may_have_called(caller[RETURN_ADDRESS], at):
                return
            registers, pc = caller, caller[RETURN_ADDRESS]
            yield pc
            if is_last:
                return

    def return_addresses_on_stack(self, pc: int, address: int) -> Iterator[int]:
        """Those that the stack holds from ``address`` upwards, by their values alone: for an overflow of the stack at
        ``pc`` where the registers are not known. Nothing below ``address`` was ever written, so few of them are old."""
        at, found = address & -8, 0
        for _ in range(_MOST_WORDS_LOOKED_AT):
            try:
                word = self._word_at(at)
            except LookupError:  # the gap below the stack
                word = 0
            if self._may_have_called(word, pc):
                yield word
                pc, found = word - _SHORTEST_CALL_BYTES, found + 1
                if found == _MOST_CALLERS:
                    return
            at += 8

    def _may_have_called(self, returns_to: int, pc: int) -> bool:
        """Whether before ``returns_to`` is a call that may be one of the function around ``pc``.

        Compilers do not always say right where a function has its return address: LLVM, where only one path through it
        saves that. So a direct call must be one of this function, which leaves out callers of functions that jumped to
        it, too.
        """
        if self._image_at(returns_to) is None:
            return False
        last, before = self._instruction_at(returns_to - 4), self._instruction_at(returns_to - 8)
        target = None
        if last is not None and last.length_bytes == 4 and last.op_class == OpClass.CALL:
            target = returns_to - 4 + last.imm
        elif last is not None and last.length_bytes == 4 and last.op_class == OpClass.INDIRECT_CALL:
            if before is not None and before.row.mnemonic == "auipc" and before.rd == last.rs1:
                target = returns_to - 8 + before.imm + last.imm
        else:
            short = self._instruction_at(returns_to - 2)
            return short is not None and short.length_bytes == 2 and short.op_class == OpClass.INDIRECT_CALL
        called = self._function_at(target) if target is not None else None
        return called is None or called.address != target or called is self._function_at(pc)

    def _caller_without_information(self, pc: int, registers: Registers) -> tuple[Registers | None, bool]:
        """The caller of a function of which nothing is known, or of the jump to ``pc`` where no code is; and whether
        its own caller cannot be known, since the function may have moved the stack pointer.

        A call from within the function would have left a return address in it. So one that is elsewhere is that of the
        call of the function.
        """
        function = self._function_at(pc)
        if function is None:
            return registers, False
        if self._function_at(registers[RETURN_ADDRESS]) is function:
            return None, True
        at = function.address
        for _ in range(_MOST_INSTRUCTIONS_LOOKED_AT):
            if at >= pc:
                return registers, False
            instruction = self._instruction_at(at)
            if instruction is None or instruction.rd == STACK_POINTER:
                break
            at += instruction.length_bytes
        return registers, True

    def _function_at(self, pc: int) -> Symbol | None:
        image = self._image_at(pc)
        return image.function_at(pc) if image is not None else None

    def _instruction_at(self, address: int) -> Instruction | None:
        memory = self._kernel.memory
        try:
            low = memory.read_int(address, 2)
            return decode(low | memory.read_int(address + 2, 2) << 16 if low & 3 == 3 else low)
        except MemoryFault:
            return None

    def _word_at(self, address: int) -> int:
        try:
            return self._kernel.memory.read_int(address, 8)
        except MemoryFault as fault:
            raise LookupError from fault

    def _image_at(self, pc: int) -> ElfImage | None:
        """The program or library that has the code at ``pc``; None without one that can be read."""
        program = self._kernel.process.program
        for image in (program.image, program.interpreter):
            if image is not None and image.start <= pc < image.end:
                return image
        found = self._kernel.mappings.mapping_at(pc)
        if found is None:
            return None
        if found not in self._libraries:
            self._libraries[found] = mapped_library(self._kernel, *found)
        return self._libraries[found]


def mapped_library(kernel: LinuxKernel, path: str, address: int, offset: int) -> ElfImage | None:
    """The library of which the byte at ``offset`` is mapped at ``address``; None if its file was removed, or is another
    kind of file."""
    try:
        return load_library(kernel.files.for_observer().contents(path), path, address, offset)
    except (EmulatorError, OSError):
        return None
