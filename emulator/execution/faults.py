"""Guest faults: made from memory faults and host faults, and explained in messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from emulator.engine.hart_state import Hart
from emulator.errors import GuestFault, misaligned_text
from emulator.events import OpClass
from emulator.execution.backtrace import Places
from emulator.isa.decode import decode
from emulator.isa.disassemble import disassemble
from emulator.linux.abi.numbers import Signal, signal_name
from emulator.linux.loader.process_image import ProcessImage
from emulator.memory import ADDRESS_SPACE_BYTES, EXEC, PAGE_SHIFT, READ, GuestMemory, MemoryFault

_SEGV_MAPERR, _SEGV_ACCERR, _ILL_ILLOPC, _TRAP_BRKPT, _BUS_ADRALN = 1, 2, 1, 1, 1
_SYSTEM_CALL, _SENDING = 17, (129, 130, 131, 135)  # the register of its number; kill, tkill, tgkill, rt_sigprocmask
_KINDS = {READ: "load from", EXEC: "jump to"}


def fault_of(fault: MemoryFault, pc: int) -> GuestFault:
    """The guest fault for a `MemoryFault` that `GuestMemory` raised in Python; ``pc``: the guest's instruction."""
    why = "not allowed there" if fault.mapped else "nothing is mapped there"
    text = f"{_KINDS.get(fault.access, 'store to')} {fault.address:#x}: {why}"
    found = GuestFault(text, Signal.SIGSEGV, pc, fault.address)
    found.mapped = fault.mapped
    return found


def reported_fault(
    hart: Hart, memory: GuestMemory, fetch: Callable[[int], int], guest_pc_of: Callable[[int], int | None],
    is_exact: Callable[[int], bool],
) -> GuestFault:  # fmt: skip
    """The fault that a translation or the interpreter left in the state of ``hart``; sets the hart's pc if known."""
    host_pc, address = hart.get("host_pc"), hart.get("fault_address")
    pc: int | None = hart.get("fault_pc")
    if host_pc:
        hart.set("host_pc", 0)
        pc = guest_pc_of(host_pc)
    mapped = address < ADDRESS_SPACE_BYTES and bool(memory.perm[address >> PAGE_SHIFT])
    kind = "access to"
    if pc is not None:
        hart.pc = pc
        instruction = decode(fetch(pc))
        if instruction is not None:
            kind = "store to" if instruction.row.access & 2 else "load from"
            size = instruction.row.access_bytes
            if instruction.op_class == OpClass.ATOMIC and address % size:
                return GuestFault(misaligned_text(address, size), Signal.SIGBUS, pc, address)
    why = "the page does not allow it" if mapped else "nothing is mapped there"
    fault = GuestFault(f"{kind} {address:#x}: {why}", Signal.SIGSEGV, hart.pc if pc is None else pc, address)
    fault.mapped = mapped
    fault.exact = not host_pc or is_exact(host_pc)
    return fault


def signal_code(fault: GuestFault) -> int:
    """``si_code`` of the signal that the guest gets for the fault."""
    return {Signal.SIGILL: _ILL_ILLOPC, Signal.SIGTRAP: _TRAP_BRKPT, Signal.SIGBUS: _BUS_ADRALN}.get(
        Signal(fault.signal), _SEGV_ACCERR if fault.mapped else _SEGV_MAPERR
    )


def explain(fault: GuestFault, hart: Hart, process: ProcessImage, fetch: Callable[[int], int], places: Places) -> str:
    """The message of a fault that ends the guest: what happened, where, at which instruction, and who called that."""
    try:
        code = disassemble(fetch(fault.pc), fault.pc)
    except MemoryFault:
        code = "(no code there)"
    what = str(fault)
    callers = places.return_addresses(hart) if fault.exact else iter(())
    if fault.address is not None and process.is_stack_overflow(fault.address):
        if not fault.exact:
            callers = places.return_addresses_on_stack(fault.pc, fault.address)
        what += (
            f"; the stack of {process.layout.stack_bytes >> 20} MiB has overflowed "
            "(endless recursion, or a large local array)"
        )
    return f"{signal_name(fault.signal)}: {what}\n  at {places.text(fault.pc)}: {code}{_called(places, callers)}"


def explain_abort(signal: int, hart: Hart, places: Places) -> str:
    """The message of a signal that has ended the guest, with the place if the guest sent it to itself to abort."""
    what = f"ended by signal {signal} ({signal_name(signal)})"
    if signal != Signal.SIGABRT or hart.x[_SYSTEM_CALL] not in _SENDING:
        return what
    return f"{what}\n  at {places.text(hart.pc)}{_called(places, places.return_addresses(hart))}"


def _called(places: Places, return_addresses: Iterator[int]) -> str:
    """Lines that say who called the function where the guest is."""
    return "".join(f"\n  called from {place}" for place in places.callers(return_addresses))
