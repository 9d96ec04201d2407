"""gdb remote protocol commands for a stopped guest: one method a packet, which returns the reply.

Source of the packets: "Debugging with GDB", appendix E (GDB Remote Serial Protocol). Stopping and resuming the guest is
left to `debugger`, which reads the breakpoints, watchpoints and resume requests here; register and memory access is in
`target`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from emulator.events import ACCESS_LOAD, ACCESS_STORE
from emulator.gdb import target
from emulator.gdb.guest_files import GuestFiles
from emulator.gdb.packets import INTERRUPT, MAX_PACKET_BYTES, Connection, unescaped
from emulator.gdb.signal_numbers import gdb_number, linux_number
from emulator.linux.abi.numbers import Signal
from emulator.linux.kernel.tasks import Registers, Thread
from emulator.memory import MemoryLimit

if TYPE_CHECKING:
    from emulator.linux.kernel.signals import SignalInfo
    from emulator.machine import Machine

_OK, _ERROR, _UNKNOWN = b"OK", b"E01", b""
_BREAKPOINTS = (b"0", b"1")
# By packet digit of a watchpoint: its name in a stop reply, and the accesses that it stops at.
_WATCHPOINTS = {
    b"2": ("watch", ACCESS_STORE),
    b"3": ("rwatch", ACCESS_LOAD),
    b"4": ("awatch", ACCESS_LOAD | ACCESS_STORE),
}


class SessionEnd(Enum):
    """How a debugger's session has ended."""

    ENDED = "the guest has ended"
    DETACHED = "the debugger has detached from the guest"
    KILLED = "the debugger has ended the guest"


@dataclass(frozen=True)
class Watchpoint:
    """A watchpoint on ``n_bytes`` bytes at ``start``; ``access``: mask of ACCESS_LOAD and ACCESS_STORE."""

    name: str
    access: int
    start: int
    n_bytes: int


class PacketCommands:
    """The packet commands of one debugger's session with ``machine``, and the state that they set.

    ``breakpoints``, ``watchpoints``: the stops that the debugger has set; ``stepping``: the thread that executes a
    single step; ``resumed``: whether the debugger has resumed the guest, and ``resumed_with`` which signal, 0 for none;
    ``passed_signals``: the signals at which the guest does not stop; ``session_end``: how the session has ended, or
    None. Signals have their Linux numbers here, and gdb's in packets.
    """

    def __init__(self, machine: Machine, connection: Connection) -> None:
        self.machine = machine
        self.connection = connection
        self.breakpoints: set[int] = set()
        self.watchpoints: list[Watchpoint] = []
        self.stepping: Thread | None = None
        self.resumed = False
        self.resumed_with = 0
        self.passed_signals: frozenset[int] = frozenset()
        self.due: SignalInfo | None = None  # the signal before whose delivery the guest has stopped
        self.session_end: SessionEnd | None = None
        self.stopped_for = (int(Signal.SIGTRAP), "")  # signal and detail of the last stop
        self.is_inside = False  # whether the guest has stopped inside a block
        self.is_pc_fixed = False  # whether the debugger may not change the pc
        self.thread: Thread | None = None  # the thread that register packets refer to; None: the running one
        self.files = GuestFiles(lambda: machine.kernel.files.for_observer())

    def stop_reply(self) -> bytes:
        signal, detail = self.stopped_for
        return f"T{gdb_number(signal):02x}thread:{target.running_thread(self.machine).tid:x};{detail}".encode()

    def answer(self, packet: bytes) -> bytes | None:
        """The reply to one packet; None if it gets no reply. The reply to an unknown packet is empty."""
        if packet == INTERRUPT:
            return None  # the guest is already stopped
        command = _COMMANDS.get(packet[:1])
        if command is None:
            return _UNKNOWN
        try:
            return command(self, packet[1:])
        except (ValueError, IndexError, KeyError, MemoryLimit):
            return _ERROR

    def _stop_reason(self, rest: bytes) -> bytes:
        return self.stop_reply()

    def _chosen(self) -> Thread:
        return self.thread or target.running_thread(self.machine)

    def _registers(self) -> Registers:
        return target.registers_of(self.machine, self._chosen())

    def _read_all(self, rest: bytes) -> bytes:
        registers = self._registers()
        return b"".join(_hex(target.read_register(registers, n), n) for n in range(target.N_REGISTERS))

    def _write_all(self, rest: bytes) -> bytes:
        data, position, registers = bytes.fromhex(rest.decode()), 0, self._registers()
        for number in range(target.FCSR):  # fcsr consists of the two registers before it
            size = target.register_bytes(number)
            part = data[position : position + size]
            if len(part) == size:
                registers = target.with_register(registers, number, int.from_bytes(part, "little"))
            position += size
        return self._set(registers)

    def _read_one(self, rest: bytes) -> bytes:
        number = int(rest, 16)
        if number >= target.N_REGISTERS:
            return _ERROR
        return _hex(target.read_register(self._registers(), number), number)

    def _write_one(self, rest: bytes) -> bytes:
        number, value = rest.split(b"=")
        if int(number, 16) >= target.N_REGISTERS:
            return _ERROR
        raw = bytes.fromhex(value.decode())
        return self._set(target.with_register(self._registers(), int(number, 16), int.from_bytes(raw, "little")))

    def _set(self, registers: Registers) -> bytes:
        """Set the registers of the chosen thread. Refuses to change the pc after the end of the guest, during a system
        call or a run of the machine's owner, and inside a block whose execution is recorded."""
        machine = self.machine
        moves = self._chosen() is target.running_thread(machine) and registers.pc != machine.hart.pc
        recorded = self.is_inside and machine.selection.blocks
        if moves and (machine.ending is not None or self.is_pc_fixed or recorded):
            return _ERROR
        target.set_registers(machine, self._chosen(), registers)
        return _OK

    def _read_memory(self, rest: bytes) -> bytes:
        address, size = (int(part, 16) for part in rest.split(b","))
        found = target.read_memory(self.machine.memory, address, min(size, MAX_PACKET_BYTES // 2 - 16))
        return found.hex().encode() if found or not size else _ERROR

    def _write_memory(self, rest: bytes) -> bytes:
        place, _, data = rest.partition(b":")
        return self._written(place, bytes.fromhex(data.decode()))

    def _write_binary(self, rest: bytes) -> bytes:
        place, _, data = rest.partition(b":")
        return self._written(place, unescaped(data))

    def _written(self, place: bytes, data: bytes) -> bytes:
        address, size = (int(part, 16) for part in place.split(b","))
        return _OK if size == len(data) and target.write_memory(self.machine.memory, address, data) else _ERROR

    def _insert(self, rest: bytes) -> bytes:
        kind, address, size = rest.split(b";")[0].split(b",")
        if kind in _BREAKPOINTS:
            self.breakpoints.add(int(address, 16))
            return _OK
        if kind not in _WATCHPOINTS:
            return _UNKNOWN
        watchpoint = Watchpoint(*_WATCHPOINTS[kind], int(address, 16), int(size, 16))
        if watchpoint not in self.watchpoints:
            self.watchpoints.append(watchpoint)
        return _OK

    def _remove(self, rest: bytes) -> bytes:
        kind, address, size = rest.split(b";")[0].split(b",")
        if kind in _BREAKPOINTS:
            self.breakpoints.discard(int(address, 16))
            return _OK
        if kind not in _WATCHPOINTS:
            return _UNKNOWN
        watchpoint = Watchpoint(*_WATCHPOINTS[kind], int(address, 16), int(size, 16))
        self.watchpoints = [other for other in self.watchpoints if other != watchpoint]
        return _OK

    def _continue(self, rest: bytes) -> None:
        self.resumed = True

    def _continue_with(self, rest: bytes) -> None:
        self.resumed_with, self.resumed = _signal(rest), True

    def _step(self, rest: bytes) -> None:
        self.stepping, self.resumed = self._chosen(), True

    def _step_with(self, rest: bytes) -> None:
        self.resumed_with = _signal(rest)
        self._step(rest)

    def _verbose(self, rest: bytes) -> bytes | None:
        if rest == b"Cont?":
            return b"vCont;c;C;s;S"
        if rest.startswith(b"File:"):
            return self.files.answer(rest[5:])
        if rest.startswith(b"Kill"):
            self.connection.send(_OK)
            self._kill(rest)
            return None
        if not rest.startswith(b"Cont;"):
            return _UNKNOWN
        running = target.running_thread(self.machine)
        parts = [action.partition(b":") for action in rest[5:].split(b";")]
        for kind, thread in [(kind, self._thread_of(number)) for kind, _, number in parts]:
            if kind[:1] in (b"C", b"S") and thread in (None, running) and not self.resumed_with:
                self.resumed_with = _signal(kind[1:])
            if kind[:1] in (b"s", b"S"):
                self.stepping = thread or self._chosen()
                break
        self.resumed = True
        return None

    def _kill(self, rest: bytes) -> None:
        self.session_end = SessionEnd.KILLED

    def _detach(self, rest: bytes) -> bytes:
        self.session_end = SessionEnd.DETACHED
        return _OK

    def _choose_thread(self, rest: bytes) -> bytes:
        if rest[:1] == b"g":
            self.thread = self._thread_of(rest[1:])
        return _OK

    def _is_alive(self, rest: bytes) -> bytes:
        return _OK if int(rest, 16) in target.threads(self.machine) else _ERROR

    def _thread_of(self, number: bytes) -> Thread | None:
        """The thread of a packet's number; None: the running one. Raises KeyError for a thread that does not exist."""
        return None if number in (b"", b"0", b"-1") else target.threads(self.machine)[int(number, 16)]

    def _set_option(self, rest: bytes) -> bytes:
        name, _, detail = rest.partition(b":")
        if name == b"PassSignals":
            numbers = [int(one, 16) for one in detail.split(b";") if one]
            self.passed_signals = frozenset(map(linux_number, numbers))
            return _OK
        if name != b"StartNoAckMode":
            return _UNKNOWN
        self.connection.acknowledges = False
        return _OK

    def _query(self, rest: bytes) -> bytes:
        name, _, detail = rest.partition(b":")
        if name == b"Supported":
            return (
                b"PacketSize=%x;QStartNoAckMode+;QPassSignals+;vContSupported+;qXfer:features:read+;"
                b"qXfer:auxv:read+;qXfer:exec-file:read+;qXfer:siginfo:read+" % MAX_PACKET_BYTES
            )
        if name == b"Xfer":
            return self._transfer(detail)
        if name == b"C":
            return b"QC%x" % target.running_thread(self.machine).tid
        if name == b"fThreadInfo":
            return b"m" + b",".join(b"%x" % tid for tid in target.threads(self.machine))
        if name == b"sThreadInfo":
            return b"l"
        if name == b"Attached":
            return b"0" if self.machine.instructions == 0 else b"1"
        if name == b"Symbol":
            return _OK
        if name.startswith(b"ThreadExtraInfo,"):
            thread = target.threads(self.machine)[int(name.partition(b",")[2], 16)]
            return (thread.name.decode(errors="replace") or "thread").encode().hex().encode()
        if name.startswith(b"Rcmd,"):
            return self._monitor(bytes.fromhex(name.partition(b",")[2].decode()).decode()).encode().hex().encode()
        return _UNKNOWN

    def _transfer(self, detail: bytes) -> bytes:
        name, _, _, span = detail.split(b":")
        if name == b"features":
            whole = target.description().encode()
        elif name == b"auxv":
            whole = self.machine.process.auxiliary
        elif name == b"exec-file":
            whole = os.fsencode(self.machine.kernel.files.absolute(self.machine.image.name))
        elif name == b"siginfo":
            if self.due is None:
                return _ERROR
            whole = self.due.packed()
        else:
            return _UNKNOWN
        start, size = (int(part, 16) for part in span.split(b","))
        part = whole[start : start + size]
        return (b"l" if start + size >= len(whole) else b"m") + part

    def _monitor(self, text: str) -> str:
        """The output of ``monitor TEXT``."""
        machine = self.machine
        if text == "instructions":
            return f"{machine.instructions:,} instructions to the end of this block\n"
        if text == "cycles":
            return f"{machine.cycles:,} cycles to the end of the block before\n"
        return f"monitor {text}: unknown command, expected 'monitor instructions' or 'monitor cycles'\n"


def _signal(text: bytes) -> int:
    """The signal of a packet that resumes the guest with one: gdb's number, and perhaps ``;`` and an address."""
    return linux_number(int(text.partition(b";")[0], 16))


def _hex(value: int, number: int) -> bytes:
    return value.to_bytes(target.register_bytes(number), "little").hex().encode()


_COMMANDS: dict[bytes, Callable[[PacketCommands, bytes], bytes | None]] = {
    b"?": PacketCommands._stop_reason, b"g": PacketCommands._read_all, b"G": PacketCommands._write_all,
    b"p": PacketCommands._read_one, b"P": PacketCommands._write_one, b"m": PacketCommands._read_memory,
    b"M": PacketCommands._write_memory, b"X": PacketCommands._write_binary, b"Z": PacketCommands._insert,
    b"z": PacketCommands._remove, b"c": PacketCommands._continue, b"C": PacketCommands._continue_with,
    b"s": PacketCommands._step, b"S": PacketCommands._step_with, b"v": PacketCommands._verbose,
    b"k": PacketCommands._kill, b"D": PacketCommands._detach, b"H": PacketCommands._choose_thread,
    b"T": PacketCommands._is_alive, b"Q": PacketCommands._set_option, b"q": PacketCommands._query,
}  # fmt: skip
