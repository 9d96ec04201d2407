"""The machine: the emulator's interface to users, and its composition root, which alone imports all parts.

It connects a hart and its engines to guest memory and a Linux kernel, and the record to its consumers (timing core,
counters, probes). The parts of running are in `emulator.execution`.

Virtual time is simulated cycles over the machine's clock frequency; without a timing core one instruction is
one cycle of a 1 GHz clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from emulator.engine.hart_state import Hart
from emulator.engine.instrument.followed_lines import FollowedLines
from emulator.engine.oracle import Hooks
from emulator.engine.translator import OPTIMISE_EXECUTIONS, Translator
from emulator.errors import RestoreError
from emulator.events import FIRST_PROGRAM, NOTHING, BlockFacts, Consumer, TraceSelection
from emulator.execution.address_space import AddressSpace
from emulator.execution.counter_totals import CounterTotals
from emulator.execution.deadlines import Deadlines
from emulator.execution.environment import CounterFile, GuestEnvironment
from emulator.execution.guest import Guest
from emulator.execution.guest_events import GuestEvents
from emulator.execution.observers import Observers
from emulator.execution.oracle_runner import OracleRunner
from emulator.execution.run_loop import Ending, RunLoop
from emulator.execution.translated_runner import TranslatedRunner
from emulator.execution.virtual_time import TimingCore, VirtualTime
from emulator.linux.linux_kernel import LinuxKernel
from emulator.linux.loader.elf import ElfImage, load_image
from emulator.linux.loader.process_image import Layout, ProcessImage, build_process
from emulator.linux.vfs.files import VirtualFiles
from emulator.memory import GuestMemory

if TYPE_CHECKING:
    from emulator.engine.instrument.held_directions import HeldDirections, StaticDirections
    from emulator.engine.instrument.held_targets import HeldTargets
    from emulator.execution.intervals import Intervals, IntervalWatcher
    from emulator.execution.snapshot import Snapshot
    from emulator.linux.kernel.signals import SignalInfo
    from emulator.linux.kernel.tasks import Process

DEFAULT_CLOCK_HZ = 1_000_000_000


class Machine:
    """One guest on one machine: a process with all its threads, and the processes that it starts.

    The guest ends with the first process. ``process``: addresses of the parts of the current process; ``image``:
    ELF file of the current process; ``kernel``: Linux, as the guest sees it; ``memory``: memory of the current process;
    ``hart``: registers of the running task; ``files``: the files that the guest sees; ``facts``: static facts of the
    blocks of the current process.

    ``core``: a timing core, for cycles; ``consumers``: further observers of the record; ``counters``: what the guest
    reads as performance counters; ``clock_hz``: cycles a second of the guest's time.
    ``engine``: "translated", or "oracle" for the slow reference. Same inputs, same record, to the bit.
    ``background``: compile in another thread; ``templates``: False interprets code until it is optimised, for
    comparison; ``optimise_executions``: the hotness threshold.
    ``keep_translations``: begin with the translations that earlier processes saved for this program
    (`save_translations`).
    ``name``: by which the guest is started, its first argument; default: the path, and "program" for bytes.
    Raises `GuestImageError` for a file that is not a program for this machine.

    ```python
    from emulator import Machine, load_machine
    from emulator.timing.inorder import InOrderCore

    config = load_machine("configs/machines/strongarm.yaml")
    core = InOrderCore(config, seed=1)
    with Machine("program", core=core, clock_hz=config.clock_hz) as machine:
        machine.run()
        print(machine.cycles / machine.instructions)
    ```
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
        name: str | None = None,
    ) -> None:
        self.files = files or VirtualFiles()
        if name is None:
            name = "program" if isinstance(program, bytes) else self.files.guest_path(Path(program)) or str(program)
        image: ElfImage = replace(load_image(program), name=name)
        self.files.add_if_missing(name, image.data)
        if "/" not in name:  # what a shell starts by such a name is in the PATH, where a program may look for itself
            self.files.add_if_missing(f"/bin/{name}", image.data)
        memory = GuestMemory()
        process = build_process(memory, image, [name, *arguments], environment, layout, self.files.contents)
        self.hart = Hart()
        self.core = core
        self.counters = counters
        self.clock_hz = clock_hz
        space = AddressSpace(memory)
        self.facts: BlockFacts = space.cache.facts
        self._events = events = GuestEvents()
        self._observers = Observers(self.hart, self.facts, core, consumers, events)
        self._time = time = VirtualTime(core, clock_hz, self._observers.drain)
        kernel = LinuxKernel(
            memory, process, self.files, time.nanoseconds, seed=seed, timer_phase=timer_phase,
            instructions=lambda: time.timed_instructions,
        )  # fmt: skip
        self._guest = Guest(self.hart, space, kernel, events)
        self._deadlines = Deadlines(self._guest, time, self._observers, limit_instructions)
        environs = GuestEnvironment(self._guest, time, counters, self._observers.drain)
        oracle = OracleRunner(self._guest, self._observers, time, environs)
        self._translated: TranslatedRunner | None = None
        if engine == "translated":
            make_translator = partial(
                Translator, self.hart, background=background, templates=templates,
                optimise_executions=optimise_executions,
            )  # fmt: skip
            self._translated = TranslatedRunner(
                self._guest, self._observers, time, oracle, make_translator, keep_translations
            )
        elif engine != "oracle":
            raise ValueError(f"engine {engine!r}: expected 'translated' or 'oracle'")
        events.attach(self._guest, self._translated or oracle)
        self._run_loop = RunLoop(
            self._guest, self._observers, time, self._deadlines, oracle, self._translated, self.files.write_back
        )

    def close(self) -> None:
        """Release memory and the background compiler; the results stay readable."""
        try:
            self._guest.address_spaces.close()
        finally:
            if self._translated is not None:
                self._translated.close()
                self._translated = None
                self._run_loop.leave_translations()
            self.files.close()

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def save_translations(self) -> None:
        """Save the translations on disk for later processes; does nothing without ``keep_translations``."""
        if self._translated is not None:
            self._translated.save()

    # --- the process that runs
    @property
    def process(self) -> ProcessImage:
        return self._guest.program

    @property
    def programs(self) -> dict[int, ProcessImage]:
        """The programs that processes have begun, by the numbers that ``program`` of block facts has: the first one,
        and all that begin from the first use of this on; a live view."""
        return self._guest.address_spaces.programs()

    def program_of(self, process: Process) -> int:
        """The number of the program that ``process``, which has not ended, executes."""
        space = self._guest.address_spaces.get(process.memory)
        return FIRST_PROGRAM if space is None else space.program

    @property
    def image(self) -> ElfImage:
        return self._guest.program.image

    @property
    def kernel(self) -> LinuxKernel:
        return self._guest.kernel

    @property
    def memory(self) -> GuestMemory:
        return self._guest.memory

    @property
    def translator(self) -> Translator | None:
        """The translator of the current address space; None with the oracle."""
        return None if self._translated is None else self._translated.translator

    @property
    def limit_instructions(self) -> int | None:
        """Instructions that the guest may run in all, None for no limit; may be set while the guest does not run."""
        return self._deadlines.limit_instructions

    @limit_instructions.setter
    def limit_instructions(self, value: int | None) -> None:
        self._deadlines.limit_instructions = value

    # --- observers that come and go
    def observe(self, selection: TraceSelection, consumers: Sequence[Consumer] = ()) -> None:
        """Replace the consumers of the record, and let translations emit ``selection`` beside the consumers'
        selections. Takes microseconds when the same selection was in force before."""
        self._observers.observe(selection, consumers)

    @property
    def consumers(self) -> tuple[Consumer, ...]:
        """The consumers of the record without the timing core."""
        return self._observers.consumers

    @property
    def selection(self) -> TraceSelection:
        """The union of the selections of consumers, of hooks, and of `observe`."""
        return self._observers.selection

    def call_hooks(self, hooks: Hooks | None, where: TraceSelection = NOTHING) -> None:
        """Call ``hooks`` before and after each instruction of the blocks with a selected hook, from the next block on.

        ``where``: selects hooks beside those that observers select. The hooks themselves may call this method.
        """
        self._observers.call_hooks(hooks, where)

    def watch_signals(self, watcher: Callable[[SignalInfo], bool] | None) -> None:
        """Call ``watcher`` before each signal that the guest handles, or that ends it, is delivered to the running
        thread; it returns whether to deliver it. None: no watcher."""
        self._events.signal_watcher = watcher

    def drain(self) -> None:
        """Pass the record so far to the consumers, who may call `observe` meanwhile."""
        self._observers.drain()

    @property
    def block_counts(self) -> NDArray[np.int64]:
        """Executions of each block while ``counts`` was selected, ``(n_blocks,)``; a view, complete until the guest
        goes on."""
        self.hart.add_up_counters()
        return self.hart.counts[: self.facts.n_blocks]

    def follow_lines(self, line_bits: tuple[int, int]) -> FollowedLines:
        """Tables of the lines that first-level caches hold, for a selection whose ``followed_lines`` are ``line_bits``;
        to be connected with what missing lines are passed on to before that is selected."""
        return self._observers.follow_lines(line_bits)

    def hold_directions(self, entries: int, history_bits: int) -> HeldDirections:
        """Counters of a branch predictor for the directions of branches: ``entries``, a power of two, by address and
        ``history_bits`` outcomes. Translations keep them up to date while its ``call`` is in a selection's
        ``inline``."""
        from emulator.engine.instrument.held_directions import HeldDirections

        return HeldDirections(self.hart, entries, history_bits)

    def hold_static_directions(self, backward_taken: bool) -> StaticDirections:
        """A count of the branches that a static predictor mispredicts, of which those backward are predicted taken, or
        none. Translations count while its ``call`` is in a selection's ``inline``."""
        from emulator.engine.instrument.held_directions import StaticDirections

        return StaticDirections(self.hart, backward_taken)

    def hold_targets(self, entries: int) -> HeldTargets:
        """A table of the targets of indirect jumps and calls, with ``entries``, a power of two. Translations keep it up
        to date while its ``call`` is in a selection's ``inline``."""
        from emulator.engine.instrument.held_targets import HeldTargets

        return HeldTargets(self.hart, entries)

    def counter_totals(self, addresses: Sequence[int]) -> CounterTotals:
        """Totals of 64-bit counters at these guest addresses of the current program, over the current process and all
        processes that it starts from here on."""
        totals = CounterTotals(addresses, self.memory, self.image.data)
        self._guest.address_spaces.totals.append(totals)
        return totals

    # --- time
    @property
    def instructions(self) -> int:
        """Instructions executed so far. If a fault has ended the guest in an optimised region and nothing is selected,
        those since the region was entered are missing; selected `block_counts` and the record have them."""
        return self._time.instructions

    @instructions.setter
    def instructions(self, value: int) -> None:
        self._time.instructions = value

    @property
    def timed_instructions(self) -> int:
        """Instructions so far that took time: all, but for those that a counterfactual core does not see."""
        return self._time.timed_instructions

    @property
    def cycles(self) -> int:
        """Simulated cycles so far; the instructions executed when there is no timing core."""
        return self._time.cycles

    # --- running
    @property
    def ending(self) -> Ending | None:
        """How the guest ended; None while it has not. After setting it to None, a guest ended by a fault may go on."""
        return self._run_loop.ending

    @ending.setter
    def ending(self, value: Ending | None) -> None:
        self._run_loop.ending = value

    def run(self) -> Ending:
        """Run to the end of the guest. Raises `InstructionLimit` at the limit."""
        while self.ending is None:
            self.advance(1 << 62)
        return self.ending

    def advance_to_instructions(self, target: int) -> bool:
        """Run to the first block boundary at or after ``target`` instructions in all; False when the guest has
        ended."""
        return self._run_loop.advance_to_instructions(target)

    def advance_to_cycles(self, target: int, tolerance_cycles: int) -> bool:
        """Run until ``target`` cycles, give or take ``tolerance_cycles``; False when the guest has ended.

        The core lags behind the guest, so the machine steps towards the target in ever smaller batches; a
        burst of misses in the last batch may overshoot the target by more.
        """
        return self._run_loop.advance_to_cycles(target, tolerance_cycles)

    def advance(self, instructions: int) -> None:
        """Run about ``instructions`` more (exactly, to the next block boundary, with ``exact_stop``)."""
        self._run_loop.advance(instructions)

    def run_intervals(
        self, length_instructions: int, at_most: int = 256, watcher: IntervalWatcher | None = None
    ) -> Intervals:
        """Run up to ``at_most`` intervals, each to the first block boundary at or after the next multiple of
        ``length_instructions`` from where the first one began; fewer if ``watcher``, which looks at each, ends the
        series. A series goes on with the multiples of the one before, if that had this length and ended here.

        Gives the block executions of each, if they are selected; the first interval counts from the
        end of the last interval that was run. The last interval of a program may be shorter.
        """
        return self._run_loop.run_intervals(length_instructions, at_most, watcher)

    def count_from_here(self) -> None:
        """Let the next interval of `run_intervals` begin here, without the instructions since the last one."""
        self._run_loop.count_from_here()

    # --- going back
    def snapshot(self) -> Snapshot:
        """The guest's state, to `restore`; takes a few milliseconds for each 10 MB of mapped memory.

        Raises `RestoreError` for a guest that uses the host's files or streams.
        """
        from emulator.execution.snapshot import take_snapshot

        self.drain()
        self._must_be_one_process()
        without = [self.memory, self.image, self.process]
        return take_snapshot(
            self.memory, self.hart, self.facts.n_blocks,
            [self.kernel, self.files], without, self.instructions, self._run_loop.interval_place,
        )  # fmt: skip

    def restore(self, saved: Snapshot) -> None:
        """Go back to a snapshot. Observers and a timing core keep their state."""
        from emulator.execution.snapshot import restore_snapshot

        self.drain()
        self._must_be_one_process()
        restore_snapshot(saved, self.memory, self.hart, self.facts.n_blocks)
        self.instructions = saved.instructions
        self._run_loop.go_back(saved.interval_place)
        self.ending = None
        self._guest.changed()

    def _must_be_one_process(self) -> None:
        if self._guest.address_spaces.were_several:
            raise RestoreError("a guest that has started processes cannot go back to an earlier state")
