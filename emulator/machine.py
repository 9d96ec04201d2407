"""The machine: composition root of the emulator, the only file that knows everyone.

It ties a hart and its engines to guest memory and a Linux kernel, passes the dynamic record to the consumers
(timing core, counters, probes), keeps virtual time, and stops the guest where somebody asked it to.

Virtual time is simulated cycles over the machine's clock frequency; without a timing core one instruction is
one cycle of a 1 GHz clock.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from emulator.engine.archive import Archive
from emulator.engine.entry import Entry
from emulator.engine.flow import MAX_UNCHECKED_INSTRUCTIONS
from emulator.engine.inline import execute as execute_with_calls
from emulator.engine.lines import LineTable, noted
from emulator.engine.oracle import Hooks, Oracle
from emulator.engine.state import CANONICAL_EMPTY_RESERVATION, TOUCH_EPOCH, Exit, Hart
from emulator.engine.translator import OPTIMISE_EXECUTIONS, Translator, is_hooked
from emulator.errors import EmulatorError, GuestFault, InstructionLimit
from emulator.events import (
    MAX_BLOCK_INSTRUCTIONS,
    NOTHING,
    BlockFacts,
    Consumer,
    TraceSelection,
)
from emulator.faults import explain, fault_of, place_of, reported_fault, signal_code
from emulator.isa.decode import Instruction, decode
from emulator.linux.abi import Signal, signal_name
from emulator.linux.elf import ElfImage, load_image
from emulator.linux.files import VirtualFiles
from emulator.linux.hart import GuestExit
from emulator.linux.process import Layout, build_process
from emulator.linux.syscalls import LinuxKernel
from emulator.memory import (
    ADDRESS_SPACE_BYTES,
    MAPPED,
    PAGE_SHIFT,
    GuestMemory,
    MemoryFault,
)
from emulator.record import Record
from emulator.spaces import Space, Spaces

if TYPE_CHECKING:
    from emulator.intervals import Intervals, IntervalWriter
    from emulator.snapshot import Snapshot

UNTRACED_BATCH_INSTRUCTIONS = 1 << 30
# What a translation may run beyond its budget.
LONGEST_PATH = MAX_UNCHECKED_INSTRUCTIONS + MAX_BLOCK_INSTRUCTIONS
DEFAULT_CLOCK_HZ = 1_000_000_000

_CYCLE, _TIME, _INSTRET, _CONTROL = 0xC00, 0xC01, 0xC02, 0x800


class TimingCore(Consumer, Protocol):
    """What the machine asks of a timing core beside consuming the record."""

    @property
    def cycles(self) -> int: ...


class CounterFile(Protocol):
    """Counters that the guest reads and controls through CSRs; None means that there is no such CSR."""

    def read_csr(self, number: int) -> int | None: ...
    def write_control(self, value: int) -> None: ...


class Ending(NamedTuple):
    """How a guest ended: ``status`` as a shell shows it; a message when a fault or signal ended it."""

    status: int
    signal: int | None
    message: str | None


class Machine:
    """One guest on one machine: a process with all its threads, and the processes that it starts.

    ``memory``, ``image``, ``process`` and ``kernel`` are those of the process that runs; the guest ends with the first
    process.

    ``core``: a timing core, for cycles; ``consumers``: further observers of the record.
    ``engine``: "translated", or "oracle" for the slow reference. Same inputs, same record, to the bit.
    ``templates``: False has code interpreted until it is optimised, for comparison.
    ``keep_translations``: begin with the translations that an earlier process left on disk for this program
    (`save_translations`); blocks then keep the numbers they had in that process.
    Raises `GuestImageError` for a file that is not a program for this machine.
    """

    def __init__(
        self,
        program: str | Path | bytes,
        arguments: Sequence[str] = (),
        *,
        environment: Mapping[str, str] | None = None,
        files: VirtualFiles | None = None,
        layout: Layout | None = None,
        core: TimingCore | None = None,
        consumers: Sequence[Consumer] = (),
        counters: CounterFile | None = None,
        clock_hz: int = DEFAULT_CLOCK_HZ,
        seed: int = 0,
        timer_phase: float = 0.0,
        limit_instructions: int | None = None,
        engine: str = "translated",
        background: bool = True,
        templates: bool = True,
        optimise_executions: int = OPTIMISE_EXECUTIONS,
        keep_translations: bool = False,
    ) -> None:
        self.files = files or VirtualFiles()
        name = (
            "program" if isinstance(program, bytes) else self.files.guest_path(Path(program)) or str(program)
        )
        self.image: ElfImage = replace(load_image(program), name=name)
        self.files.show(name, self.image.data)
        self.memory = GuestMemory()
        self.process = build_process(
            self.memory, self.image, [name, *arguments], environment, layout, self.files.contents
        )
        self.kernel = LinuxKernel(
            self.memory, self.process, self.files, self._nanoseconds, seed=seed, timer_phase=timer_phase,
            instructions=lambda: self.instructions,
        )  # fmt: skip
        self._scheduler = self.kernel.scheduler
        self._scheduler.on_fork, self._scheduler.on_switch = self._forked, self._switched
        self.core = core
        self.counters = counters
        self.clock_hz = clock_hz
        self.limit_instructions = limit_instructions
        self.instructions = 0
        self.ending: Ending | None = None
        self._consumers: list[Consumer] = [*consumers] if core is None else [core, *consumers]
        self.selection: TraceSelection = NOTHING
        for consumer in self._consumers:
            self.selection |= consumer.selection
        self._observed, self._hooked = self.selection, NOTHING
        self.hart = Hart()
        self.hart.pc = self.process.entry
        self.hart.x[2] = self.process.stack_pointer
        self._space = Space(self.memory)
        self._spaces = Spaces(self._space)
        self._cache = self._space.cache
        self._record = Record(self.hart)
        self._exactly = False  # whether the tier that stops exactly is in force
        self._until_exactly: int | None = None  # instructions to another thread's turn or a timer, if known
        self._look = False  # whether there was a system call since somebody looked after the guest
        self._lines: LineTable | None = None
        self._intervals: IntervalWriter | None = None
        self._space.enter(self.hart)
        self._oracle = Oracle(self.hart, self.memory, self)
        self._oracle_record: list[int] | None = None
        self._prepare()
        if engine == "oracle":
            self._oracle_record = []
            self._oracle.on_access = self._oracle_record.append
        elif engine != "translated":
            raise ValueError(f"engine {engine!r}: expected 'translated' or 'oracle'")
        self._entry: Entry | None = None
        self._hooks: Hooks | None = None
        self._selected = False  # whether the translator knows the selection: it learns it when the guest runs
        if engine == "translated":
            self._entry = Entry.get()
            place = self._entry.register(self.hart.address)
            # Whoever forgets `close` must not leave a state behind in which faults of later machines are noted.
            self._unregister = weakref.finalize(self, _unregister, self._entry, place, self.hart)
            self._keeps = keep_translations
            self._make_translator = lambda space, archive: Translator(
                self.hart, space.cache, background=background, templates=templates,
                optimise_executions=optimise_executions, archive=archive, source=space,
            )  # fmt: skip
            self._space.translate(self.hart, self._make_translator(self._space, self._archive()))
            assert self._space.translator is not None
            self._translator: Translator = self._space.translator

    def close(self) -> None:
        """Release memory and the background compiler; the results stay readable."""
        try:
            self._spaces.close()
        finally:
            if self._entry is not None:
                self._unregister()
                self._entry = None
            self.files.close()

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def save_translations(self) -> None:
        """Leave the translations to the next process, with ``keep_translations``."""
        if self._entry is not None:
            self._spaces.save()

    # --- observers that come and go
    def observe(self, selection: TraceSelection, consumers: Sequence[Consumer] = ()) -> None:
        """From now on let ``consumers`` have the record, and translations emit ``selection`` beside what they
        want. Takes microseconds when the same selection was in force before."""
        self.drain()
        self._consumers = [*consumers] if self.core is None else [self.core, *consumers]
        for consumer in self._consumers:
            selection |= consumer.selection
        self._observed = selection
        self.selection = selection | self._hooked
        self._prepare()
        self._selected = False

    @property
    def consumers(self) -> tuple[Consumer, ...]:
        """Who has the record, beside the timing core."""
        return tuple(consumer for consumer in self._consumers if consumer is not self.core)

    def call_hooks(self, hooks: Hooks | None, where: TraceSelection = NOTHING) -> None:
        """Call ``hooks`` before and after each instruction of the blocks that have one of the selection's.

        ``where``: which ones beside those that observers select, from the next block on; may be called by the hooks.
        """
        self._hooks, self._hooked = hooks, where
        self.selection = self._observed | where
        self._selected = False

    @property
    def block_counts(self) -> NDArray[np.int64]:
        """Executions of each block while ``counts`` was selected, ``(n_blocks,)``; a live view."""
        return self.hart.counts[: self._cache.facts.n_blocks]

    @property
    def reuse_times(self) -> NDArray[np.int64]:
        """Accesses while ``reuse_times`` was selected, by the bits of the instructions since their line was touched
        last, ``(REUSE_BINS,)``: entry b counts times from 2**(b - 1) to 2**b - 1."""
        return self.hart.reuses.sum(axis=0)[::-1]

    def touched_lines(self, at_most: int = 1 << 20) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """Addresses of the lines touched last while ``line_bits`` was selected, (n,), and instructions since, (n,).

        All that were touched within a power of two instructions, the largest with which there are not more than
        ``at_most``; in mapped memory, in no order.
        """
        from emulator.lines_kernel import recent_lines

        addresses, ages = np.zeros(at_most, np.uint32), np.zeros(at_most, np.uint32)
        if self._lines is None:
            return addresses[:0], ages[:0]
        bits = self._lines.line_bits
        found = recent_lines(
            self._lines.times, self.memory.perm.view(np.uint64), MAPPED, 1 << (PAGE_SHIFT - bits),
            (self.instructions + TOUCH_EPOCH) & 0xFFFFFFFF, addresses, ages, np.empty(len(self.memory.perm), np.int64),
        )  # fmt: skip
        return addresses[:found] << np.uint32(bits), ages[:found]

    # --- time
    @property
    def facts(self) -> BlockFacts:
        return self._cache.facts

    @property
    def cycles(self) -> int:
        """Simulated cycles so far; the instructions executed when there is no timing core."""
        if self.core is None:
            return self.instructions
        self.drain()
        return self.core.cycles

    def _nanoseconds(self) -> int:
        return self.cycles * 1_000_000_000 // self.clock_hz

    # --- running
    def run(self) -> Ending:
        """Run to the end of the guest. Raises `InstructionLimit` when it goes on beyond the limit."""
        while self.ending is None:
            self.advance(1 << 62)
        return self.ending

    def advance_to_instructions(self, target: int) -> bool:
        """Run to the first block boundary at or after ``target`` instructions in all; False when the guest has
        ended."""
        exact = self._entry is None or self.selection.exact_stop
        while self.ending is None and self.instructions < target:
            remaining = target - self.instructions
            if exact:
                self.advance(remaining)
            elif remaining > LONGEST_PATH:
                self.advance(remaining - LONGEST_PATH)
            else:
                if not self._selected:
                    self._select()
                self._step_exactly(True)
                self.advance(remaining)
                self._step_exactly(False)
        return self.ending is None

    def advance_to_cycles(self, target: int, tolerance_cycles: int) -> bool:
        """Run until ``target`` cycles, give or take ``tolerance_cycles``; False when the guest has ended.

        The core lags behind the guest, so the machine steps towards the target in ever smaller batches; a
        burst of misses in the last one may carry it over by more.
        """
        while self.ending is None:
            remaining = target - self.cycles
            if remaining <= tolerance_cycles:
                break
            cycles_each = self.cycles / self.instructions if self.instructions else 1.0
            self.advance(max(1, int(remaining / (1.3 * max(cycles_each, 0.25)))))
        return self.ending is None

    def advance(self, instructions: int) -> None:
        """Run about ``instructions`` more (exactly, to the next block boundary, with ``exact_stop``)."""
        if self.ending is None:
            self._guarded(self._advance, instructions)

    def run_intervals(self, length_instructions: int, at_most: int = 256) -> Intervals:
        """Run up to ``at_most`` intervals, each to the first block boundary at or after ``length_instructions``, and
        tell what ran in each of them: block executions and reuse times, as far as they are selected and counted from
        the end of the last interval that was run so. The last one of a program is as short as it comes out.
        """
        from emulator.intervals import IntervalWriter  # as below: a plain run starts without it

        writer, facts = self._intervals, self._cache.facts
        if writer is None:
            writer = self._intervals = IntervalWriter(self.hart)
        writer.begin(at_most, self.instructions, length_instructions)
        chosen = self.selection
        if self._entry is None or chosen.delivers or chosen.exact_stop or chosen.hooks:
            end = self.instructions
            for _ in range(at_most):
                self.advance_to_instructions(self.instructions + length_instructions)
                if self.instructions > end:
                    writer.close(self.instructions, facts.n_blocks)
                end = self.instructions
                if self.ending is not None:
                    break
        else:
            self._guarded(self._run_intervals, writer, length_instructions)
            self._step_exactly(False)
            if self.ending is not None and writer.is_open:
                writer.close(self.instructions, facts.n_blocks)
        return writer.taken()

    # --- going back
    def snapshot(self) -> Snapshot:
        """The guest's state, to `restore`; a few milliseconds for each 10 MB that it has mapped.

        Raises `EmulatorError` for a guest that uses the host's files or streams.
        """
        from emulator.snapshot import take_snapshot

        self.drain()
        self._must_be_one_process()
        without = [self, self.memory, self.image, self.process, self.hart, self.core, self.counters]
        return take_snapshot(
            self.memory, self.hart, self.facts.n_blocks, self._lines, [self.kernel, self.files], without,
            self.instructions,
        )  # fmt: skip

    def restore(self, saved: Snapshot) -> None:
        """Go back. Observers keep what they have seen; a timing core keeps its state."""
        from emulator.snapshot import return_to

        self.drain()
        self._must_be_one_process()
        return_to(saved, self.memory, self.hart, self.facts.n_blocks, self._lines)
        self.instructions = saved.instructions
        self.ending = None
        self._selected = False

    def _must_be_one_process(self) -> None:
        if self._spaces.were_several:
            raise EmulatorError("a guest that has started processes cannot go back to an earlier state")

    def count_from_here(self) -> None:
        """Let the next interval of `run_intervals` begin here, whatever ran since the last one."""
        if self._intervals is not None:
            self._intervals.forget()

    def _guarded(self, action: Callable[..., None], *arguments: Any) -> None:
        """Run the guest; note how it ended if it did."""
        try:
            action(*arguments)
        except GuestExit as exit_:
            message = None
            if exit_.signal is not None:
                message = f"ended by signal {exit_.signal} ({signal_name(exit_.signal)})"
            self.ending = Ending(exit_.status, exit_.signal, message)
        except GuestFault as fault:
            self.ending = Ending(
                128 + fault.signal, fault.signal, explain(fault, self.process, self._fetch, self._file_at)
            )
        if self.ending is not None:
            self.drain()
            self.files.write_back()

    def _advance(self, instructions: int) -> None:
        end = self.instructions + instructions
        while self.instructions < end:
            budget = min(end - self.instructions, self._until_look())
            if self._record.instructions >= self._record.limit:
                self.drain()
            budget = min(budget, self._record.limit - self._record.instructions)
            self._run_up_to(budget)
            self._look_after_guest()

    def _run_up_to(self, budget: int) -> None:
        """Run for about ``budget``, or exactly up to where another thread's turn or a timer comes before that."""
        if self._entry is None:
            self._run_oracle(budget)
            return
        if not self.hart.host_rounding:
            self._leave_rounding_mode(budget)
            return
        exact = self._until_exactly
        if exact is None or self._exactly or self.selection.exact_stop:
            self._run_translated(budget)
        elif exact > LONGEST_PATH:
            self._run_translated(min(budget, exact - LONGEST_PATH))
        elif self._may_enter():
            self._step_exactly(True)
            self._run_translated(min(budget, exact))
            self._step_exactly(False)

    def _step_exactly(self, on: bool) -> None:
        self._exactly = on
        if self._selected:
            self._translator.step_exactly(on)

    def _run_intervals(self, writer: IntervalWriter, length: int) -> None:
        while not writer.is_full:
            stop = self.instructions + self._until_look()
            if not self.hart.host_rounding:
                self._leave_rounding_mode(stop - self.instructions)
            elif self._may_enter():
                assert self._entry is not None
                self._translator.discover_nothing()  # the writer has to know all blocks of an interval
                self.instructions, exactly, reason = writer.run(
                    self._entry.enter_address, self._translator.fast_and_exact(), LONGEST_PATH, length, stop,
                    self._cache.facts.n_blocks,
                )  # fmt: skip
                self._step_exactly(exactly)
                self._react(reason)
            self._look_after_guest()

    def _look_after_guest(self) -> None:
        """Timers, turns of threads, and signals, between stretches of running."""
        self._look = False
        if self.selection.inline and self.hart.get("inline_failed"):
            raise EmulatorError(
                "an inline function of an analyzer has raised an exception; expected it to raise none"
            )
        deadline = self.kernel.next_timer_deadline_nanoseconds()
        if deadline is not None and self._nanoseconds() >= deadline:
            self.kernel.fire_timers()
        self._scheduler.look(self.hart)
        while self.kernel.pending_signal() is not None:
            self.kernel.deliver(self.hart)

    def _until_look(self) -> int:
        """Instructions to run before looking after the guest again. Raises `InstructionLimit`."""
        most = UNTRACED_BATCH_INSTRUCTIONS
        limit = self.limit_instructions
        if limit is not None:
            if self.instructions >= limit:
                raise InstructionLimit(
                    f"the program did not end within {limit} instructions; it is now at "
                    f"{place_of(self.process, self.hart.pc, self._file_at)}. Raise the limit or give it less work"
                )
            most = min(most, limit - self.instructions)
        turn = self._scheduler.until_turn_ends()
        deadline = self._scheduler.next_deadline()
        self._until_exactly = turn
        if turn is not None:
            most = min(most, turn)
        if deadline is not None:
            until = self._until(deadline)
            most = min(most, until)
            if self.core is None:  # with one, when it comes is known only about
                self._until_exactly = until if turn is None else min(turn, until)
        return most

    def _until(self, deadline: int) -> int:
        cycles = self.cycles
        remaining = -(-deadline * self.clock_hz // 1_000_000_000) - cycles
        if self.core is None:
            return max(1, remaining)
        cycles_each = cycles / self.instructions if self.instructions else 1.0
        return max(1, int(remaining / (1.3 * max(cycles_each, 0.25))))

    def _run_translated(self, budget: int) -> None:
        hart = self.hart
        hart.budget = budget
        hart.set("touch_time", TOUCH_EPOCH + self.instructions + budget)
        if not self._may_enter():
            return
        assert self._entry is not None
        self._translator.begin()
        self._entry.enter(hart.address)
        self._translator.end()
        executed = budget - hart.budget
        self.instructions += executed
        self._record.instructions += executed
        self._react(hart.get("reason"))

    def _may_enter(self) -> bool:
        """Make the code at pc known; False when the guest's handler is to run first."""
        translator, pc = self._translator, self.hart.pc
        if not self._selected:
            self._select()
        if self._space.is_in_doubt:
            self._space.settle()
        if not 0 <= pc < ADDRESS_SPACE_BYTES:
            raise GuestFault(f"jump to {pc:#x}, outside the address space", Signal.SIGSEGV, pc, pc)
        return translator.is_known(pc) or self._signalled(translator.discover, pc)

    def _react(self, reason: int) -> None:
        """Do what translated code came back for."""
        if reason == Exit.SLOW:
            self._oracle.hooks = None
            self._signalled(self._execute_slow)
        elif reason == Exit.HOOK:
            self._run_oracle(1)
        elif reason == Exit.HOT:
            self._translator.heat(self.hart.pc)
        elif reason == Exit.FAULT:
            self._signalled(self._raise_fault)

    def _execute_slow(self) -> None:
        word = self._fetch(self.hart.pc)
        instruction = decode(word)
        assert instruction is not None
        self._record.begin_events()
        self._execute(instruction, instruction.op_class, word, self.selection)

    def _execute(self, instruction: Instruction, op_class: int, word: int, selection: TraceSelection) -> None:
        """Let the oracle execute it, with the inline functions that are called for it."""
        if not selection.inline:
            self._oracle.execute(instruction)
            return
        compiler = Entry.get().compiler
        calls, memory = selection.inline, self.memory.base
        if instruction.slow:  # the record may be passed on meanwhile
            self._record.commit_events()
        try:
            execute_with_calls(self._oracle, instruction, op_class, word, calls, compiler, memory)
        finally:
            if instruction.slow:
                self._record.commit_events()

    def _leave_rounding_mode(self, budget: int) -> None:
        """The host cannot round like this: the oracle runs until the guest chooses another mode."""
        end = self.instructions + budget
        while not self.hart.host_rounding and not self._look and self.instructions < end:
            self._run_oracle(1)

    def _run_oracle(self, budget: int) -> None:
        hart, oracle = self.hart, self._oracle
        record = self._oracle_record if self._oracle_record is not None else []
        start = self.instructions
        while self.instructions - start < budget:
            begin: int | None = None  # of the block in the record, while it is not whole
            try:
                if self._space.is_in_doubt:
                    self._space.settle()
                block = self._cache.get(hart.pc)
                time = TOUCH_EPOCH + self.instructions
                oracle.hooks = None
                if self._hooks is not None and is_hooked(self.selection, block):
                    self._hooks.enter(block)
                    oracle.hooks = self._hooks
                if self.selection.counts:
                    self.hart.counts[block.number] += 1
                recorded = self.selection.blocks
                if recorded:
                    begin = self._record.end
                    self._record.append(block.number)
                self._record.begin_events()
                selection = self.selection
                self.instructions += len(block.instructions)
                self._record.instructions += len(block.instructions)
                places = noted(block.instructions) if self.selection.line_bits else []
                first = int(self.facts.blocks["first_instruction"][block.number])
                for place, instruction in enumerate(block.instructions):
                    record.clear()
                    if instruction.slow:
                        begin = None
                    if self._oracle_record is None:
                        oracle.on_access = record.append
                    try:
                        told = self.facts.instructions["op_class"][first + place]
                        self._execute(instruction, told, block.words[place], selection)
                    finally:
                        if recorded and self.selection.addresses:
                            for address in record:
                                self._record.append(address & 0xFFFFFFFF)
                        if self._lines is not None and record and places and places[place]:
                            self._lines.touch(record[0], time + place, self.selection.reuse_times)
                        if self._oracle_record is None:
                            oracle.on_access = None
                self._record.commit_events()
            except (MemoryFault, GuestFault) as fault:
                if begin is not None:
                    self._record.end = begin
                self._deliver_or_raise(fault_of(fault, hart.pc) if isinstance(fault, MemoryFault) else fault)
            if (
                self._look
                or self._record.instructions >= self._record.limit
                or self.kernel.pending_signal() is not None
            ):
                return

    def drain(self) -> None:
        """Pass the record so far to the consumers, who may call `observe` meanwhile."""
        self._record.pass_on(self._cache.facts, self._consumers)

    def _prepare(self) -> None:
        """Make room for what is selected."""
        self._record.select(self.selection)
        bits = self.selection.line_bits
        if bits and (self._lines is None or self._lines.line_bits != bits):
            self._lines = LineTable(self.hart, bits)
            self.hart.reuses[:] = 0

    def _select(self) -> None:
        catches = self.kernel.signals.is_caught(Signal.SIGSEGV) or self.kernel.signals.is_caught(
            Signal.SIGBUS
        )
        selection = replace(self.selection, exact_faults=True) if catches else self.selection
        self._translator.select(selection)
        self._selected = True
        if self._exactly:
            self._translator.step_exactly(True)

    # --- processes
    def _forked(self, memory: GuestMemory, copy: GuestMemory) -> None:
        """A process has got a copy of another one's memory."""
        self._spaces.fork(memory, copy)

    def _switched(self) -> None:
        """Another thread has got the hart, or the one that has it runs another program."""
        self.hart.set("reservation", CANONICAL_EMPTY_RESERVATION)
        self._look = True
        self.kernel = self._scheduler.current.kernel
        self.process, self.image = self.kernel.process, self.kernel.process.image
        self._selected = False
        if self.kernel.memory is not self.memory:
            self._enter_space(self.kernel.memory)

    def _enter_space(self, memory: GuestMemory) -> None:
        space, archive = self._spaces.get(memory), None
        if space is None:
            space, archive = self._spaces.begin(memory, self._space), self._archive()
        if self._entry is not None and space.translator is None:
            space.translate(self.hart, self._make_translator(space, archive))
        self._space, self._cache, self.memory = space, space.cache, memory
        self._oracle.memory = memory
        if space.translator is not None:
            self._translator = space.translator
        space.enter(self.hart)
        used = {process.kernel.memory for process in self._scheduler.processes.values() if process.threads}
        self._spaces.keep_only(used)

    def _archive(self) -> Archive | None:
        """Where translations of the program that begins now are kept."""
        if self._entry is None or not self._keeps:
            return None
        process = self.process
        layout = f"{process.brk_start} {process.mmap_high}" if process.interpreter is not None else ""
        return Archive(self.image.data, self._entry.compiler.host, layout)

    # --- code
    def _file_at(self, address: int) -> str | None:
        return self.kernel.memory_calls.file_at(address)

    def _fetch(self, pc: int) -> int:
        return self._space.fetch(pc)

    # --- the oracle's environment
    def ecall(self) -> None:
        kernel = self.kernel
        before = kernel.signals.is_caught(Signal.SIGSEGV), kernel.signals.is_caught(Signal.SIGBUS)
        self._look = True
        kernel.syscall(self.hart)
        after = kernel.signals.is_caught(Signal.SIGSEGV), kernel.signals.is_caught(Signal.SIGBUS)
        if before != after:
            self._selected = False

    def read_csr(self, number: int) -> int | None:
        if self.counters is not None:
            self.drain()
            value = self.counters.read_csr(number)
            if value is not None:
                return value
        if number == _CYCLE:
            return self.cycles
        if number == _TIME:
            return self._nanoseconds()
        return self.instructions if number == _INSTRET else None

    def write_csr(self, number: int, value: int) -> bool:
        if self.counters is None or number != _CONTROL:
            return False
        self.drain()
        self.counters.write_control(value)
        return True

    def instruction_fence(self) -> None:
        self._space.doubt_all()

    # --- faults
    def _signalled(self, action: Callable[..., None], *arguments: int) -> bool:
        """Call ``action``; a fault goes to the guest's handler if it has one. False when there was a fault."""
        try:
            action(*arguments)
        except MemoryFault as fault:
            self._deliver_or_raise(fault_of(fault, self.hart.pc))
        except GuestFault as fault:
            self._deliver_or_raise(fault)
        else:
            return True
        return False

    def _raise_fault(self) -> None:
        raise reported_fault(self.hart, self.memory, self._fetch, self._translator.guest_pc_of)

    def _deliver_or_raise(self, fault: GuestFault) -> None:
        self.hart.pc = fault.pc
        code, address = signal_code(fault), fault.address or fault.pc
        if not self.kernel.deliver_fault(self.hart, fault.signal, code, address):
            if self.kernel.owner.parent is None:
                raise fault
            self.kernel.end(self.hart, GuestExit(128 + fault.signal, fault.signal))


def _unregister(entry: Entry, place: int, hart: Hart) -> None:
    """Forget a machine; its ``hart``'s memory is there until then."""
    entry.unregister(place)
