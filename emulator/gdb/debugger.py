"""gdb session with a machine: breakpoints, watchpoints, single steps and interrupts.

The machine calls hooks before and after instructions of selected blocks, with exact registers and memory. A stop is a
hook that does not return until the debugger resumes the guest. So blocks, record and virtual time are the same with a
debugger as without one, to the bit. The cost: while a debugger is connected, translations store all registers wherever
they may fault, and the oracle (some 100,000 instructions a second) executes the blocks with breakpoints, and all blocks
while the debugger steps or has watchpoints.

Before a signal is delivered that the guest handles, or that ends it, the guest stops, unless the debugger has said that
it passes this signal. The debugger resumes it with the signal, with another one, or without, which discards it.

Breakpoints, watchpoints and signals are those of the program that the guest began with, also in its forks: processes
that execute another program, at the same addresses, do not stop.

Watchpoints see loads and stores of instructions, not accesses of system calls. The packets that read and change a
stopped guest are in `answers`.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from emulator.engine.blocks import Block
from emulator.events import FIRST_PROGRAM, NOTHING, TraceSelection, merged
from emulator.gdb import target
from emulator.gdb.answers import PacketCommands, SessionEnd
from emulator.gdb.killed import Killed
from emulator.gdb.packets import Connection, ConnectionLost
from emulator.gdb.signal_numbers import gdb_number
from emulator.isa.decode import Instruction
from emulator.isa.table import TABLE
from emulator.linux.abi.numbers import Signal
from emulator.linux.kernel.signals import SignalInfo, sent_by_user
from emulator.linux.vfs.open_files import Stream
from emulator.memory import EXEC

if TYPE_CHECKING:
    from emulator.machine import Machine

_ALL = tuple(sorted(row.mnemonic for row in TABLE))
_ACCESSES = tuple(sorted(row.mnemonic for row in TABLE if row.access))
# How often the connection is polled for an interrupt.
_SLICE_SECONDS = 0.1
_FIRST_SLICE_INSTRUCTIONS, _LAST_SLICE_INSTRUCTIONS = 10_000, 1 << 28
_SLICE_BLOCKS = 1000  # executed by the oracle


class _PcChanged(Exception):
    """The debugger has changed the pc; the exception leaves the machine's run loop."""


class Debugger(PacketCommands):
    """One debugger connected to ``machine``; the machine calls the hooks.

    Either `run` runs the machine until the debugger disconnects. Or the machine's owner runs it, as without a debugger:
    it calls `begin`, then `poll` between runs, and `finish` when the guest has ended or the session ends.
    """

    def __init__(self, machine: Machine, connection: Connection) -> None:
        super().__init__(machine, connection)
        self._pending: tuple[int, str] | None = None  # signal and detail of a stop before the next instruction
        self._resume_pc: int | None = None  # pc of the last stop: the guest does not stop there again at once
        self._block: Block | None = None  # the block that the oracle executes
        self._is_own = True  # whether it is of the program
        self._given: list[int] = []  # signals that the debugger has sent: they need no stop
        self._ended_with = 0  # the signal that ends the guest, if the debugger knows of it
        self._is_in_hook = False  # whether the guest is stopped in a hook
        self._blocks = 0  # blocks executed since the connection was polled for an interrupt
        self._streams: list[Stream] = []  # passed-through host streams, whose reads may block for ever

    def run(self) -> SessionEnd:
        """Serve the debugger, beginning with the guest stopped, until the session ends.

        Raises what `Machine.advance` raises.
        """
        machine = self.machine
        try:
            self._begin()
            slice_instructions = _FIRST_SLICE_INSTRUCTIONS
            while self.session_end is None:
                start = time.monotonic()
                try:
                    machine.advance(slice_instructions)
                except _PcChanged:
                    self._resume_pc, self._is_in_hook = machine.hart.pc, False
                    continue
                if time.monotonic() - start > _SLICE_SECONDS:
                    slice_instructions = max(slice_instructions // 2, _FIRST_SLICE_INSTRUCTIONS)
                else:
                    slice_instructions = min(slice_instructions * 2, _LAST_SLICE_INSTRUCTIONS)
                if machine.ending is not None:
                    self._end()
                else:
                    self.poll()
        except Killed:
            pass
        finally:
            self._leave()
        assert self.session_end is not None
        return self.session_end

    def begin(self) -> None:
        """Serve the debugger until it resumes the guest; from then on the owner runs the machine.

        The debugger cannot change the pc, so the execution is the same as without it. Raises `Killed`, as does every
        later run of the machine."""
        self.is_pc_fixed = True
        self._begin()

    def poll(self) -> None:
        """Stop if the debugger has sent an interrupt. Raises `Killed`."""
        if self._is_interrupted():
            self._stop(Signal.SIGINT)
            self._resume_pc = self.machine.hart.pc

    def finish(self) -> SessionEnd:
        """Report the end of the guest if it has ended, disconnect from the machine and close the connection."""
        try:
            if self.session_end is None and self.machine.ending is not None:
                with suppress(Killed, ConnectionLost):
                    self._end()
        finally:
            self._leave()
            self.connection.close()
        return self.session_end or SessionEnd.DETACHED

    def _begin(self) -> None:
        self.machine.watch_signals(self._before_signal)
        for _, file in self.machine.files.descriptors.items():
            if isinstance(file, Stream) and file.is_host and file.readable:
                file.before_reading = self._wait_for_input
                self._streams.append(file)
        self._wait_for_commands()
        self._resume_pc = self.machine.hart.pc

    def _leave(self) -> None:
        for stream in self._streams:
            stream.before_reading = None
        self._streams = []
        self.files.close()
        self.machine.call_hooks(None)
        self.machine.watch_signals(None)

    # --- hooks that the machine calls
    def enter(self, block: Block) -> None:
        self._block = block
        self._is_own = self.machine.facts.blocks["program"][block.number] == FIRST_PROGRAM
        self._blocks += 1
        if self._blocks >= _SLICE_BLOCKS:
            self._blocks = 0
            if self._is_interrupted():
                self._pending = int(Signal.SIGINT), ""
        self._before_instruction(block.pc, is_inside=False)

    def before(self, pc: int, instruction: Instruction) -> None:
        block = self._block
        assert block is not None
        if pc != block.pc:
            self._before_instruction(pc, is_inside=True)
        if self.watchpoints and self._is_own and instruction.row.access:
            self._check_watchpoints(instruction)

    def after(self, pc: int, instruction: Instruction) -> None:
        """Nothing: all stops come before the next instruction."""

    def _before_instruction(self, pc: int, is_inside: bool) -> None:
        """Stop if there is a reason before the instruction at ``pc``; ``is_inside``: not the first one of its block."""
        if self.session_end is not None:
            return
        resume_pc, self._resume_pc = self._resume_pc, None
        signal, detail = self._pending or (int(Signal.SIGTRAP), "")
        is_breakpoint = self._is_own and pc in self.breakpoints
        stops = resume_pc != pc and (is_breakpoint or self._has_stepped())
        if self._pending is not None or stops:
            self._pending = None
            self._is_in_hook, self.is_inside = True, is_inside
            self._stop(signal, detail)
            self._is_in_hook = self.is_inside = False

    def _before_signal(self, info: SignalInfo) -> bool:
        """Called before a signal is delivered: stop, unless the debugger passes it. Whether to deliver it."""
        machine, signal = self.machine, info.signal
        if self.session_end is not None or machine.program_of(machine.kernel.process) != FIRST_PROGRAM:
            return True
        self._ended_with = 0
        is_wanted = signal in self._given or signal in self.passed_signals
        if signal in self._given:
            self._given.remove(signal)
        if not is_wanted:
            is_wanted = self._stop_before(info)
        if is_wanted and not machine.kernel.signals.is_caught(signal):
            self._ended_with = signal
        return is_wanted

    def _stop_before(self, info: SignalInfo) -> bool:
        """Stop before the delivery of a signal; whether the debugger wants it delivered."""
        machine = self.machine
        # A system call that the signal interrupts may go on after it.
        before, self.due = self.is_pc_fixed, info
        self.is_pc_fixed |= target.running_thread(machine).restart is not None
        try:
            self._stop(info.signal)
        finally:
            self.is_pc_fixed, self.due = before, None
        self._resume_pc = machine.hart.pc
        return self.session_end is not None or self.resumed_with == info.signal

    def _wait_for_input(self, host: int) -> None:
        """Called before the guest reads from a host stream, which may block for ever: serve interrupts meanwhile."""
        with suppress(ConnectionLost):
            while self.session_end is None:
                if self._is_interrupted():
                    before, self.is_pc_fixed = self.is_pc_fixed, True
                    self._stop(Signal.SIGINT)
                    self.is_pc_fixed = before
                elif self.session_end is None and self.connection.wait_or(host):
                    return

    def _is_interrupted(self) -> bool:
        try:
            return self.session_end is None and self.connection.is_interrupted()
        except ConnectionLost:
            self.session_end = SessionEnd.DETACHED
            return False

    def _has_stepped(self) -> bool:
        thread = self.stepping
        if thread is None or thread is target.running_thread(self.machine):
            return thread is not None
        return thread not in thread.process.threads  # it has ended

    def _check_watchpoints(self, instruction: Instruction) -> None:
        """Have the guest stop after ``instruction`` if it accesses a watched range."""
        row = instruction.row
        offset = instruction.imm if {"imm12", "simm7"} & row.fields else 0
        address = (int(self.machine.hart.x[instruction.rs1]) + offset) & 0xFFFF_FFFF_FFFF_FFFF
        for one in self.watchpoints:
            if one.access & row.access and address < one.start + one.n_bytes and one.start < address + row.access_bytes:
                self._pending = int(Signal.SIGTRAP), f"{one.name}:{max(address, one.start):x};"
                return

    # --- stopped
    def _stop(self, signal: int, detail: str = "") -> None:
        """Report a stop, and serve the debugger until it resumes the guest."""
        self.stopped_for = int(signal), detail
        self._wait_for_commands(self.stop_reply())

    def _wait_for_commands(self, first: bytes | None = None) -> None:
        hart = self.machine.hart
        pc = hart.pc
        self.stepping, self.thread, self.resumed, self.resumed_with = None, None, False, 0
        try:
            if first is not None:
                self.connection.send(first)
            while not self.resumed and self.session_end is None:
                reply = self.answer(self.connection.receive())
                if reply is not None:
                    self.connection.send(reply)
        except ConnectionLost:
            self.session_end = SessionEnd.DETACHED
        if self.session_end is SessionEnd.KILLED:
            raise Killed
        if self.resumed_with and (self.due is None or self.resumed_with != self.due.signal):
            self._give(self.resumed_with)
        self.machine.call_hooks(None if self.session_end else self, self._hook_selection())
        if hart.pc != pc and self._is_in_hook:
            if self.is_inside:  # the rest of the block is not executed
                assert self._block is not None
                self.machine.instructions -= len(self._block.pcs) - self._block.pcs.index(pc)
                self.is_inside = False
            raise _PcChanged

    def _give(self, signal: int) -> None:
        """Send the running thread a signal of the debugger's."""
        signals = self.machine.kernel.signals
        before = signals.arrivals
        signals.send(sent_by_user(signal), signals.thread)
        if signals.arrivals != before:  # not one that the guest ignores
            self._given.append(signal)

    def _end(self) -> None:
        """Report the end of the guest; if a signal ended it, stop first, so that the debugger can inspect it."""
        machine = self.machine
        ending = machine.ending
        assert ending is not None
        if machine.hart.pc in self.breakpoints and not machine.memory.valid_range(machine.hart.pc, 2, EXEC):
            # A function that the debugger called returns to a breakpoint at an address that is not executable.
            machine.ending = None
            self._stop(Signal.SIGTRAP)
            self._resume_pc = machine.hart.pc
            return
        if ending.signal is not None and ending.signal != self._ended_with:
            self._stop(ending.signal)
        if self.session_end is None:
            kind = b"W%02x" % (ending.status & 0xFF) if ending.signal is None else b"X%02x" % gdb_number(ending.signal)
            self.connection.send(kind)
            self.session_end = SessionEnd.ENDED

    def _hook_selection(self) -> TraceSelection:
        """The selection of blocks that the oracle executes with hooks; all others have exact registers at faults."""
        if self.session_end is not None:
            return NOTHING
        if self.stepping is not None or (self.watchpoints and self.breakpoints):
            return TraceSelection(hooks=_ALL, exact_faults=True)
        if self.watchpoints:
            return TraceSelection(hooks=_ACCESSES, exact_faults=True)
        ranges = merged([(pc, pc + 1) for pc in self.breakpoints])
        return TraceSelection(hooks=_ALL if ranges else (), hook_ranges=ranges, exact_faults=True)
