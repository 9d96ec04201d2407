"""What a debugger asks of a stopped guest, and the answers: one method a packet.

Source of the packets: "Debugging with GDB", appendix E (GDB Remote Serial Protocol). When the guest stops and goes on
is left to `debugger`, which reads here what was asked for; registers and memory are in `target`.
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
from emulator.linux.abi import Signal
from emulator.linux.tasks import Registers, Thread
from emulator.memory import MemoryLimit

if TYPE_CHECKING:
    from emulator.machine import Machine

_OK, _NO, _UNKNOWN = b"OK", b"E01", b""
_BREAKPOINTS = (b"0", b"1")
# Packet digit of a watchpoint: what it is called in a stop, and which accesses it is for.
_WATCHES = {
    b"2": ("watch", ACCESS_STORE),
    b"3": ("rwatch", ACCESS_LOAD),
    b"4": ("awatch", ACCESS_LOAD | ACCESS_STORE),
}


class Left(Enum):
    """Why the debugger is there no more."""

    ENDED = "the guest has ended"
    DETACHED = "the debugger has left the guest to run on"
    KILLED = "the debugger has ended the guest"


@dataclass(frozen=True)
class Watch:
    name: str
    access: int
    start: int
    n_bytes: int


class Answers:
    """The answers of one debugger's session with ``machine``, and what it has asked for.

    ``breakpoints``, ``watches``: where the guest is to stop; ``stepping``: the thread that is to execute one
    instruction; ``resumed``: whether the guest is to go on; ``left``: why the debugger is there no more.
    """

    def __init__(self, machine: Machine, connection: Connection) -> None:
        self.machine = machine
        self.connection = connection
        self.breakpoints: set[int] = set()
        self.watches: list[Watch] = []
        self.stepping: Thread | None = None
        self.resumed = False
        self.left: Left | None = None
        self.stopped_for = (int(Signal.SIGTRAP), "")  # signal, and more about it
        self.is_inside = False  # whether the guest has stopped inside a block
        self.is_on_course = False  # whether the guest has to go on where it stands
        self.thread: Thread | None = None  # whose registers are asked for
        self.files = GuestFiles(lambda: machine.kernel.files.for_onlooker())

    def stop_reply(self) -> bytes:
        signal, why = self.stopped_for
        return f"T{signal:02x}thread:{target.running_thread(self.machine).tid:x};{why}".encode()

    def answer(self, packet: bytes) -> bytes | None:
        """The reply to one packet; None when there is none. What is not known is answered with nothing in it."""
        if packet == INTERRUPT:
            return None  # stopped already
        command = _COMMANDS.get(packet[:1])
        if command is None:
            return _UNKNOWN
        try:
            return command(self, packet[1:])
        except (ValueError, IndexError, KeyError, MemoryLimit):
            return _NO

    def _why(self, rest: bytes) -> bytes:
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
        for number in range(target.FCSR):  # fcsr holds what the two before it hold
            size = target.register_bytes(number)
            part = data[position : position + size]
            if len(part) == size:
                registers = target.with_register(registers, number, int.from_bytes(part, "little"))
            position += size
        return self._set(registers)

    def _read_one(self, rest: bytes) -> bytes:
        number = int(rest, 16)
        if number >= target.N_REGISTERS:
            return _NO
        return _hex(target.read_register(self._registers(), number), number)

    def _write_one(self, rest: bytes) -> bytes:
        number, value = rest.split(b"=")
        if int(number, 16) >= target.N_REGISTERS:
            return _NO
        raw = bytes.fromhex(value.decode())
        return self._set(
            target.with_register(self._registers(), int(number, 16), int.from_bytes(raw, "little"))
        )

    def _set(self, registers: Registers) -> bytes:
        """Refuses another pc where the guest is in the middle of something: a system call, an interval that its owner
        observes, a block whose record would not be true any more."""
        machine = self.machine
        moves = self._chosen() is target.running_thread(machine) and registers.pc != machine.hart.pc
        recorded = self.is_inside and machine.selection.blocks
        if moves and (machine.ending is not None or self.is_on_course or recorded):
            return _NO
        target.set_registers(machine, self._chosen(), registers)
        return _OK

    def _read_memory(self, rest: bytes) -> bytes:
        address, size = (int(part, 16) for part in rest.split(b","))
        found = target.read_memory(self.machine.memory, address, min(size, MAX_PACKET_BYTES // 2 - 16))
        return found.hex().encode() if found or not size else _NO

    def _write_memory(self, rest: bytes) -> bytes:
        place, _, data = rest.partition(b":")
        return self._written(place, bytes.fromhex(data.decode()))

    def _write_binary(self, rest: bytes) -> bytes:
        place, _, data = rest.partition(b":")
        return self._written(place, unescaped(data))

    def _written(self, place: bytes, data: bytes) -> bytes:
        address, size = (int(part, 16) for part in place.split(b","))
        return _OK if size == len(data) and target.write_memory(self.machine.memory, address, data) else _NO

    def _insert(self, rest: bytes) -> bytes:
        kind, address, size = rest.split(b";")[0].split(b",")
        if kind in _BREAKPOINTS:
            self.breakpoints.add(int(address, 16))
            return _OK
        if kind not in _WATCHES:
            return _UNKNOWN
        watch = Watch(*_WATCHES[kind], int(address, 16), int(size, 16))
        if watch not in self.watches:
            self.watches.append(watch)
        return _OK

    def _remove(self, rest: bytes) -> bytes:
        kind, address, size = rest.split(b";")[0].split(b",")
        if kind in _BREAKPOINTS:
            self.breakpoints.discard(int(address, 16))
            return _OK
        if kind not in _WATCHES:
            return _UNKNOWN
        watch = Watch(*_WATCHES[kind], int(address, 16), int(size, 16))
        self.watches = [other for other in self.watches if other != watch]
        return _OK

    def _continue(self, rest: bytes) -> None:
        self.resumed = True

    def _step(self, rest: bytes) -> None:
        self.stepping, self.resumed = self._chosen(), True

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
        for action in rest[5:].split(b";"):
            kind, _, number = action.partition(b":")
            if kind[:1] in (b"s", b"S"):
                self.stepping = self._thread_of(number) or self._chosen()
                break
        self.resumed = True
        return None

    def _kill(self, rest: bytes) -> None:
        self.left = Left.KILLED

    def _detach(self, rest: bytes) -> bytes:
        self.left = Left.DETACHED
        return _OK

    def _choose_thread(self, rest: bytes) -> bytes:
        if rest[:1] == b"g":
            self.thread = self._thread_of(rest[1:])
        return _OK

    def _is_alive(self, rest: bytes) -> bytes:
        return _OK if int(rest, 16) in target.threads(self.machine) else _NO

    def _thread_of(self, number: bytes) -> Thread | None:
        """None stands for the one that runs. Raises KeyError for a thread that is not there."""
        return None if number in (b"", b"0", b"-1") else target.threads(self.machine)[int(number, 16)]

    def _set_option(self, rest: bytes) -> bytes:
        if rest != b"StartNoAckMode":
            return _UNKNOWN
        self.connection.acknowledges = False
        return _OK

    def _query(self, rest: bytes) -> bytes:
        name, _, detail = rest.partition(b":")
        if name == b"Supported":
            return (
                b"PacketSize=%x;QStartNoAckMode+;vContSupported+;qXfer:features:read+;qXfer:auxv:read+;"
                b"qXfer:exec-file:read+" % MAX_PACKET_BYTES
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
            return (
                self._monitor(bytes.fromhex(name.partition(b",")[2].decode()).decode())
                .encode()
                .hex()
                .encode()
            )
        return _UNKNOWN

    def _transfer(self, detail: bytes) -> bytes:
        name, _, _, span = detail.split(b":")
        if name == b"features":
            whole = target.description().encode()
        elif name == b"auxv":
            whole = self.machine.process.auxiliary
        elif name == b"exec-file":
            whole = os.fsencode(self.machine.kernel.files.absolute(self.machine.image.name))
        else:
            return _UNKNOWN
        start, size = (int(part, 16) for part in span.split(b","))
        part = whole[start : start + size]
        return (b"l" if start + size >= len(whole) else b"m") + part

    def _monitor(self, text: str) -> str:
        """What ``monitor TEXT`` prints."""
        machine = self.machine
        if text == "instructions":
            return f"{machine.instructions:,} instructions to the end of this block\n"
        if text == "cycles":
            return f"{machine.cycles:,} cycles to the end of the block before\n"
        return f"monitor {text}: not known, expected 'monitor instructions' or 'monitor cycles'\n"


def _hex(value: int, number: int) -> bytes:
    return value.to_bytes(target.register_bytes(number), "little").hex().encode()


_COMMANDS: dict[bytes, Callable[[Answers, bytes], bytes | None]] = {
    b"?": Answers._why, b"g": Answers._read_all, b"G": Answers._write_all, b"p": Answers._read_one,
    b"P": Answers._write_one, b"m": Answers._read_memory, b"M": Answers._write_memory,
    b"X": Answers._write_binary, b"Z": Answers._insert, b"z": Answers._remove, b"c": Answers._continue,
    b"C": Answers._continue, b"s": Answers._step, b"S": Answers._step, b"v": Answers._verbose,
    b"k": Answers._kill, b"D": Answers._detach, b"H": Answers._choose_thread, b"T": Answers._is_alive,
    b"Q": Answers._set_option, b"q": Answers._query,
}  # fmt: skip
