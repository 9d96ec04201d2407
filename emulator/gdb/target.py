"""The guest as a gdb target: register access by number, memory, threads, and the target description in XML.

Register numbers are those of gdb's standard features for RISC-V ("Debugging with GDB", section G.5.12): x0-x31, pc,
f0-f31, fflags, frm, fcsr. Running the guest is left to `debugger`.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from emulator.isa.disassemble import F_NAMES, X_NAMES
from emulator.linux.kernel.tasks import Registers, Thread
from emulator.memory import (
    ADDRESS_SPACE_BYTES,
    MAPPED,
    PAGE_BYTES,
    PAGE_SHIFT,
    READ,
    WRITE,
    GuestMemory,
    page_floor,
)

if TYPE_CHECKING:
    from emulator.machine import Machine

PC, F0, FFLAGS, FRM, FCSR = 32, 33, 65, 66, 67
N_REGISTERS = 68
_MASK = (1 << 64) - 1


def register_bytes(number: int) -> int:
    """The size of register ``number`` in bytes: 4 for fflags, frm and fcsr, 8 for all others."""
    return 4 if number >= FFLAGS else 8


@cache
def description() -> str:
    """The target's description in XML."""
    types = {"sp": "data_ptr", "gp": "data_ptr", "tp": "data_ptr", "s0": "data_ptr", "ra": "code_ptr"}
    lines = [
        '<?xml version="1.0"?>',
        '<!DOCTYPE target SYSTEM "gdb-target.dtd">',
        '<target version="1.0">',
        "<architecture>riscv:rv64</architecture>",
        "<osabi>GNU/Linux</osabi>",
        '<feature name="org.gnu.gdb.riscv.cpu">',
    ]
    for number, name in enumerate(X_NAMES):
        lines.append(_register("fp" if name == "s0" else name, 64, types.get(name, "int"), number))
    lines += [_register("pc", 64, "code_ptr", PC), "</feature>", '<feature name="org.gnu.gdb.riscv.fpu">']
    lines.append(
        '<union id="riscv_double"><field name="float" type="ieee_single"/>'
        '<field name="double" type="ieee_double"/></union>'
    )
    lines += [_register(name, 64, "riscv_double", F0 + n) for n, name in enumerate(F_NAMES)]
    lines += [_register(name, 32, "int", FFLAGS + n) for n, name in enumerate(("fflags", "frm", "fcsr"))]
    return "\n".join([*lines, "</feature>", "</target>", ""])


def _register(name: str, bits: int, kind: str, number: int) -> str:
    return f'<reg name="{name}" bitsize="{bits}" type="{kind}" regnum="{number}"/>'


def read_register(registers: Registers, number: int) -> int:
    """The value of register ``number``, unsigned."""
    if number < PC:
        return registers.values[number]
    if number == PC:
        return registers.pc
    if number < FFLAGS:
        return registers.values[32 + number - F0]
    return {FFLAGS: registers.fcsr & 31, FRM: registers.fcsr >> 5 & 7}.get(number, registers.fcsr)


def with_register(registers: Registers, number: int, value: int) -> Registers:
    """A copy of ``registers`` with ``value`` in register ``number``; x0 stays zero."""
    if number < PC:
        return registers.with_x(number, value if number else 0)
    if number == PC:
        return registers._replace(pc=value & _MASK)
    if number < FFLAGS:
        return registers.with_x(32 + number - F0, value)
    fcsr = registers.fcsr
    if number == FFLAGS:
        return registers._replace(fcsr=fcsr & ~31 | value & 31)
    if number == FRM:
        return registers._replace(fcsr=fcsr & 31 | (value & 7) << 5)
    return registers._replace(fcsr=value & 0xFF)


def read_memory(memory: GuestMemory, address: int, n_bytes: int) -> bytes:
    """The bytes at ``address``, up to the first one that the guest cannot read."""
    found = bytearray()
    end = min(address + n_bytes, ADDRESS_SPACE_BYTES)
    while address + len(found) < end:
        here = address + len(found)
        size = min(page_floor(here) + PAGE_BYTES, end) - here
        if not memory.valid_range(here, size, READ):
            break
        found += memory.read(here, size)
    return bytes(found)


def write_memory(memory: GuestMemory, address: int, data: bytes) -> bool:
    """Write to mapped pages, also read-only ones; False, with nothing written, if a page is not mapped."""
    end = address + len(data)
    if not data:
        return True
    if end > ADDRESS_SPACE_BYTES or not memory.is_mapped(*_pages(address, end)):
        return False
    position = address
    while position < end:
        page = page_floor(position)
        size = min(page + PAGE_BYTES, end) - position
        before = int(memory.perm[page >> PAGE_SHIFT]) & ~MAPPED
        if not before & WRITE:
            memory.protect(page, PAGE_BYTES, before | READ | WRITE)
        memory.write(position, data[position - address : position - address + size])
        if not before & WRITE:
            memory.protect(page, PAGE_BYTES, before)
        position += size
    return True


def _pages(start: int, end: int) -> tuple[int, int]:
    first = page_floor(start)
    return first, (end + PAGE_BYTES - 1 & -PAGE_BYTES) - first


def threads(machine: Machine) -> dict[int, Thread]:
    """The threads of the running process by tid; the running thread first."""
    current = running_thread(machine)
    others = [thread for thread in current.process.threads if thread is not current]
    return {thread.tid: thread for thread in (current, *others)}


def running_thread(machine: Machine) -> Thread:
    return machine.kernel.scheduler.current


def registers_of(machine: Machine, thread: Thread) -> Registers:
    """The registers of a thread: the hart's for the running thread, the saved ones for another."""
    if thread is running_thread(machine) or thread.registers is None:
        return Registers.of(machine.hart)
    return thread.registers


def set_registers(machine: Machine, thread: Thread, registers: Registers) -> None:
    if thread is running_thread(machine) or thread.registers is None:
        registers.put(machine.hart)
    else:
        thread.registers = registers
