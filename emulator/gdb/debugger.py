"""Stops a guest where a debugger wants it, and answers what the debugger asks there.

The machine calls hooks before and after instructions of chosen blocks, with all registers and memory as they are at
that moment; a stop is such a call that does not return until the debugger lets the guest go on. So blocks, record and
virtual time are the same with a debugger as without one, to the bit. What a stop costs: while a debugger is there, the
guest is interpreted, so that registers are exact wherever it faults; blocks with a breakpoint in them, and all blocks
while it steps or watches memory, are executed by the oracle (some 100,000 instructions a second).

Watchpoints see what instructions load and store, not what system calls read and write. What is asked of a
stopped guest is in `answers`.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from emulator.engine.blocks import Block
from emulator.events import NOTHING, TraceSelection, merged
from emulator.gdb import target
from emulator.gdb.answers import Answers, Left
from emulator.gdb.packets import Connection, ConnectionLost
from emulator.isa.decode import Instruction
from emulator.isa.table import TABLE
from emulator.linux.abi import Signal
from emulator.linux.open_files import Stream
from emulator.memory import EXEC

if TYPE_CHECKING:
    from emulator.machine import Machine

_ALL = tuple(sorted(row.mnemonic for row in TABLE))
_ACCESSES = tuple(sorted(row.mnemonic for row in TABLE if row.access))
# How often the debugger is asked for an interrupt.
_SLICE_SECONDS = 0.1
_FIRST_SLICE_INSTRUCTIONS, _LAST_SLICE_INSTRUCTIONS = 10_000, 1 << 28
_SLICE_BLOCKS = 1000  # by the oracle


class Killed(Exception):
    """The debugger has ended the guest: leaves whatever the machine is doing."""


class _Moved(Exception):
    """The debugger has changed the pc: what the machine is doing is done no more."""


class Debugger(Answers):
    """One debugger at ``machine``; the machine calls the hooks.

    Either `run` runs the machine until the debugger leaves. Or the machine's owner does, as without a debugger: it
    calls `begin`, then `look` between stretches of running, and `finish` when the guest has ended or is to be left.
    """

    def __init__(self, machine: Machine, connection: Connection) -> None:
        super().__init__(machine, connection)
        self._pending: tuple[int, str] | None = None  # a stop that comes before the next instruction
        self._passing: int | None = None  # where the guest goes on: no reason to stop there again
        self._block: Block | None = None  # the last one that the oracle was given
        self._is_called = False  # whether the stop is in a call from the machine
        self._blocks = 0  # since the debugger was asked for an interrupt
        self._streams: list[Stream] = []  # of the host, where a guest may wait for ever

    def run(self) -> Left:
        """Wait for the debugger's commands with the guest stopped, and go on so until one of them leaves.

        Raises what `Machine.advance` raises.
        """
        machine = self.machine
        try:
            self._begin()
            slice_instructions = _FIRST_SLICE_INSTRUCTIONS
            while self.left is None:
                start = time.monotonic()
                try:
                    machine.advance(slice_instructions)
                except _Moved:
                    self._passing, self._is_called = machine.hart.pc, False
                    continue
                if time.monotonic() - start > _SLICE_SECONDS:
                    slice_instructions = max(slice_instructions // 2, _FIRST_SLICE_INSTRUCTIONS)
                else:
                    slice_instructions = min(slice_instructions * 2, _LAST_SLICE_INSTRUCTIONS)
                if machine.ending is not None:
                    self._end()
                else:
                    self.look()
        except Killed:
            pass
        finally:
            self._leave()
        assert self.left is not None
        return self.left

    def begin(self) -> None:
        """Do what the debugger wants done before the guest goes on; from then on its owner runs the machine, and what
        runs is what would run without a debugger: it cannot go on elsewhere. Raises `Killed`, then and from whatever
        runs the machine."""
        self.is_on_course = True
        self._begin()

    def look(self) -> None:
        """Stop here if the debugger asks for it. Raises `Killed`."""
        if self._is_interrupted():
            self._stop(Signal.SIGINT)
            self._passing = self.machine.hart.pc

    def finish(self) -> Left:
        """Tell the debugger how the guest ended if it has, leave the machine and close the connection."""
        try:
            if self.left is None and self.machine.ending is not None:
                with suppress(Killed, ConnectionLost):
                    self._end()
        finally:
            self._leave()
            self.connection.close()
        return self.left or Left.DETACHED

    def _begin(self) -> None:
        for _, file in self.machine.files.descriptors.items():
            if isinstance(file, Stream) and file.is_host and file.readable:
                file.before_reading = self._wait_for_input
                self._streams.append(file)
        self._wait_for_commands()
        self._passing = self.machine.hart.pc

    def _leave(self) -> None:
        for stream in self._streams:
            stream.before_reading = None
        self._streams = []
        self.files.close()
        self.machine.call_hooks(None)

    # --- what the machine calls
    def enter(self, block: Block) -> None:
        self._block = block
        self._blocks += 1
        if self._blocks >= _SLICE_BLOCKS:
            self._blocks = 0
            if self._is_interrupted():
                self._pending = int(Signal.SIGINT), ""
        self._arrive(block.pc, is_inside=False)

    def before(self, pc: int, instruction: Instruction) -> None:
        block = self._block
        assert block is not None
        if pc != block.pc:
            self._arrive(pc, is_inside=True)
        if self.watches and instruction.row.access:
            self._look_at(instruction)

    def after(self, pc: int, instruction: Instruction) -> None:
        """Stops come before the next instruction: nothing to do here."""

    def _arrive(self, pc: int, is_inside: bool) -> None:
        """The guest is about to execute the instruction at ``pc``, the first one of a block or inside it."""
        if self.left is not None:
            return
        passing, self._passing = self._passing, None
        signal, why = self._pending or (int(Signal.SIGTRAP), "")
        stops = passing != pc and (pc in self.breakpoints or self._has_stepped())
        if self._pending is not None or stops:
            self._pending = None
            self._is_called, self.is_inside = True, is_inside
            self._stop(signal, why)
            self._is_called = self.is_inside = False

    def _wait_for_input(self, host: int) -> None:
        """The guest is about to read from the host, which may take for ever: stop inside the call if asked to."""
        with suppress(ConnectionLost):
            while self.left is None:
                if self._is_interrupted():
                    before, self.is_on_course = self.is_on_course, True
                    self._stop(Signal.SIGINT)
                    self.is_on_course = before
                elif self.left is None and self.connection.wait_or(host):
                    return

    def _is_interrupted(self) -> bool:
        try:
            return self.left is None and self.connection.is_interrupted()
        except ConnectionLost:
            self.left = Left.DETACHED
            return False

    def _has_stepped(self) -> bool:
        thread = self.stepping
        if thread is None or thread is target.running_thread(self.machine):
            return thread is not None
        return thread not in thread.process.threads  # it has ended

    def _look_at(self, instruction: Instruction) -> None:
        """Ask for a stop after an access that is watched."""
        row = instruction.row
        offset = instruction.imm if {"imm12", "simm7"} & row.fields else 0
        address = (int(self.machine.hart.x[instruction.rs1]) + offset) & 0xFFFF_FFFF_FFFF_FFFF
        for watch in self.watches:
            if (
                watch.access & row.access
                and address < watch.start + watch.n_bytes
                and watch.start < address + row.access_bytes
            ):
                self._pending = int(Signal.SIGTRAP), f"{watch.name}:{max(address, watch.start):x};"
                return

    # --- stopped
    def _stop(self, signal: int, why: str = "") -> None:
        """Tell the debugger, and do as it says until the guest is to go on."""
        self.stopped_for = int(signal), why
        self._wait_for_commands(self.stop_reply())

    def _wait_for_commands(self, first: bytes | None = None) -> None:
        hart = self.machine.hart
        pc = hart.pc
        self.stepping, self.thread, self.resumed = None, None, False
        try:
            if first is not None:
                self.connection.send(first)
            while not self.resumed and self.left is None:
                reply = self.answer(self.connection.receive())
                if reply is not None:
                    self.connection.send(reply)
        except ConnectionLost:
            self.left = Left.DETACHED
        if self.left is Left.KILLED:
            raise Killed
        self.machine.call_hooks(None if self.left else self, self._where(), precise=self.left is None)
        if hart.pc != pc and self._is_called:
            if self.is_inside:  # the rest of the block is not executed
                assert self._block is not None
                self.machine.instructions -= len(self._block.pcs) - self._block.pcs.index(pc)
                self.is_inside = False
            raise _Moved

    def _end(self) -> None:
        """The guest has ended: of a signal, the debugger may look at what it left."""
        machine = self.machine
        ending = machine.ending
        assert ending is not None
        if machine.hart.pc in self.breakpoints and not machine.memory.valid_range(machine.hart.pc, 2, EXEC):
            # Where a function returns to that the debugger has called: a place that only a breakpoint makes good.
            machine.ending = None
            self._stop(Signal.SIGTRAP)
            self._passing = machine.hart.pc
            return
        if ending.signal is not None:
            self._stop(ending.signal)
        if self.left is None:
            kind = b"W%02x" % (ending.status & 0xFF) if ending.signal is None else b"X%02x" % ending.signal
            self.connection.send(kind)
            self.left = Left.ENDED

    def _where(self) -> TraceSelection:
        """Which blocks the oracle is to execute."""
        if self.left is not None:
            return NOTHING
        if self.stepping is not None or (self.watches and self.breakpoints):
            return TraceSelection(hooks=_ALL)
        if self.watches:
            return TraceSelection(hooks=_ACCESSES)
        if self.breakpoints:
            return TraceSelection(hooks=_ALL, hook_ranges=merged([(pc, pc + 1) for pc in self.breakpoints]))
        return NOTHING
