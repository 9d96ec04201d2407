"""Runs analyzers on a machine: merges their selections into one `TraceSelection`, and delivers events to each of them.

The machine calls `consume` and `consume_columns` with recorded events, and `enter`, `before` and `after` as hooks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from emulator.analyzers.analyzer import Analyzer
from emulator.analyzers.batch import Batch
from emulator.analyzers.event_selection import Selection, SelectionError
from emulator.analyzers.hook_context import HookContext
from emulator.analyzers.objects import Objects
from emulator.engine.instrument.columns import ColumnMemory
from emulator.errors import EmulatorError
from emulator.events import FIRST_PROGRAM, NOTHING, BlockFacts, InlineCall, OpClass, Ranges, TraceSelection
from emulator.execution.record import BATCH_EVENTS

if TYPE_CHECKING:
    from emulator.engine.blocks import Block
    from emulator.isa.decode import Instruction
    from emulator.machine import Ending, Machine


class _Resumed(Exception):
    """Raised after `Session.resume` within a run: intervals begin at this block."""


class Session:
    """Attaches ``analyzers`` to ``machine``, in addition to the machine's own consumers.

    ``paused``: the analyzers become active at `resume`. Raises `SelectionError` for a selection with names that the
    program does not have. A dynamically linked program may still load a library with them, so there `finish` raises it.
    """

    def __init__(self, machine: Machine, analyzers: Sequence[Analyzer], paused: bool = False) -> None:
        self.machine = machine
        self.analyzers = list(analyzers)
        self.ended: list[Analyzer] = []
        """The analyzers that `finish` has ended, and so have a report."""
        self.selection: TraceSelection = NOTHING  # the merged selection of all analyzers
        self._others = list(machine.consumers)  # the machine's own consumers
        self._base = machine.selection  # the machine's own selection
        self.objects = Objects(machine)
        self._ranges: dict[Selection, Ranges] = {}  # resolved selections
        self._missing: dict[Selection | str, SelectionError | None] = {}  # errors of unresolved names; None: resolved
        self._columns: dict[tuple[int, tuple[str, ...]], ColumnMemory] = {}  # by analyzer and fields
        self._readers: list[tuple[Analyzer, ColumnMemory]] = []
        self._stops: dict[int, Callable[[], None]] = {}  # actions of `at`, by pc
        self._unresolved_stops: dict[str, Callable[[], None]] = {}  # stops at functions that are not loaded yet
        self._calls: dict[int, list[Analyzer]] = {}  # analyzers to call, by pc of the current block
        self._calling: list[tuple[Analyzer, frozenset[OpClass], tuple[str, ...], Ranges]] = []
        self._stale = False  # whether the machine's selection has to be updated
        self._consuming = False  # whether events are being delivered
        self._paused = paused
        self.was_active = not paused
        """Whether the analyzers got events at some time."""
        self._running = False
        self._counted = np.zeros(0, np.int64)  # executions of blocks before the last pause
        self._counted_from = machine.block_counts.copy()
        self._interval_instructions = self._one_interval()
        for analyzer in self.analyzers:
            analyzer.session = self
            analyzer.begin()
            for text in (analyzer.selection, analyzer.inline, analyzer.calls):
                if text:
                    self.ranges_of(_parsed(text))
        self._apply()

    # --- running
    def run(self, until_instructions: int = 1 << 62) -> Ending | None:
        """Run the program to its end, which is returned, or to the first block boundary at or after
        ``until_instructions`` instructions in all (returns None); with intervals up to one interval further. Raises
        `InstructionLimit`."""
        machine, length = self.machine, self._interval_instructions
        self._running, began = True, False
        while machine.ending is None and machine.instructions < until_instructions:
            if not length or self._paused:
                with suppress(_Resumed):
                    machine.advance_to_instructions(until_instructions)
                began = False
                continue
            if not began:
                machine.run_intervals(length, 0)
                machine.count_from_here()
                began = True
            # Run one interval at a time if events have to be delivered before the end of each interval.
            left = -(-(until_instructions - machine.instructions) // length)
            done = machine.run_intervals(length, 1 if machine.selection.delivers else min(left, 256))
            machine.drain()
            for analyzer in self.analyzers:
                if len(done) and analyzer.interval_instructions:
                    analyzer.interval(done)
        self._running = False
        return machine.ending

    def finish(self) -> None:
        """Deliver the remaining events, end the analyzers, of which `ended` has those that could, and detach them from
        the machine.

        Raises `SelectionError` for names that no loaded library had, and `EmulatorError` for files that cannot be
        written."""
        self.machine.drain()
        errors: list[EmulatorError] = []
        for analyzer in self.analyzers:
            try:
                analyzer.end()
                self.ended.append(analyzer)
            except EmulatorError as error:
                errors.append(error)
        self.machine.call_hooks(None)
        self.machine.observe(self._base, self._others)
        errors += [error for error in self._missing.values() if error is not None]
        if len(errors) > 1:
            raise EmulatorError("\n".join(map(str, errors)))
        if errors:
            raise errors[0]

    def pause(self) -> None:
        """Deliver no events until `resume`; translations with the analyzers' code are kept."""
        self._counted = self.block_counts()
        self._paused = True
        self.changed()

    def resume(self) -> None:
        """Deliver events again."""
        self._counted_from = self.machine.block_counts.copy()
        self._paused, self.was_active = False, True
        self.changed()

    def block_counts(self) -> NDArray[np.int64]:
        """Executions of each block while the analyzers were active and ``counts`` was selected, (n_blocks,)."""
        now = self.machine.block_counts.copy()
        if self._paused:
            now[:] = 0
        else:
            now[: len(self._counted_from)] -= self._counted_from
        now[: len(self._counted)] += self._counted
        return now

    def at(self, place: int | str, action: Callable[[], None]) -> None:
        """Call ``action()`` once, before the next execution of the block with the instruction at ``place``: an address,
        or the name of a function, which may be in a library that is loaded later."""
        if isinstance(place, str):
            self._unresolved_stops[place] = action
            self._find_stops()
        else:
            self._stops[place] = action
        self.changed()

    def changed(self) -> None:
        """Update the machine's selection after an analyzer has changed its own."""
        self._stale = True
        if not self._consuming:
            self._apply()

    # --- called by the machine
    def consume(self, facts: BlockFacts, stream: NDArray[np.uint32]) -> None:
        self._delivering(self._deliver_blocks, facts, stream)

    def consume_columns(self) -> None:
        self._delivering(self._deliver_events)

    @property
    def follows_tasks(self) -> bool:
        """Whether an analyzer is to be told of signal handlers and switches of tasks."""
        followed = (type(analyzer).interrupted is not Analyzer.interrupted for analyzer in self.analyzers)
        return not self._paused and any(followed)

    def interrupted(self, pc: int) -> None:
        for analyzer in self.analyzers:
            analyzer.interrupted(pc)

    def enter(self, block: Block) -> None:
        was_paused = self._paused
        facts = self.machine.facts
        is_own = facts.blocks["program"][block.number] == FIRST_PROGRAM
        for pc in block.pcs if is_own else ():
            if pc in self._stops:
                self._stops.pop(pc)()
                self._stale = True
        if self._stale:
            self._apply()
        if was_paused and not self._paused and self._running and self._interval_instructions:
            raise _Resumed
        self._calls = {}
        first = int(facts.blocks["first_instruction"][block.number])
        for n, (pc, instruction) in enumerate(zip(block.pcs, block.instructions, strict=True)):
            op_class = facts.instructions["op_class"][first + n]
            for analyzer, kinds, mnemonics, ranges in self._calling:
                is_kind = op_class in kinds or instruction.row.mnemonic in mnemonics
                if is_kind and (not ranges or (is_own and any(low <= pc < high for low, high in ranges))):
                    self._calls.setdefault(pc, []).append(analyzer)

    def before(self, pc: int, instruction: Instruction) -> None:
        for analyzer in self._calls.get(pc, ()):
            analyzer.before(HookContext(self.machine, pc, instruction))

    def after(self, pc: int, instruction: Instruction) -> None:
        for analyzer in self._calls.get(pc, ()):
            analyzer.after(HookContext(self.machine, pc, instruction))

    # --- delivery
    def _delivering(self, deliver: Callable[..., None], *arguments: Any) -> None:
        """Call ``deliver``; changes of selections during the call take effect after it."""
        self._consuming = True
        try:
            deliver(*arguments)
        finally:
            self._consuming = False
        if self._stale:
            self._apply()

    def _deliver_blocks(self, facts: BlockFacts, stream: NDArray[np.uint32]) -> None:
        ids: NDArray[np.uint32] | None = None
        for analyzer in self.analyzers:
            if _wants_blocks(analyzer):
                ids = self._block_ids(facts, stream) if ids is None else ids
                analyzer.consume_blocks(facts, ids)

    def _deliver_events(self) -> None:
        for analyzer, columns, n in [(a, memory.columns, memory.take()) for a, memory in self._readers]:
            for first in range(0, n, BATCH_EVENTS):
                end = min(n, first + BATCH_EVENTS)
                if analyzer.function is not None:
                    analyzer.function(analyzer.state, *[column[first:end] for column in columns.values()])
                else:
                    parts = {name: column[first:end] for name, column in columns.items()}
                    analyzer.consume(Batch(parts, end - first))

    def _block_ids(self, facts: BlockFacts, stream: NDArray[np.uint32]) -> NDArray[np.uint32]:
        from emulator.probes import block_ids

        return block_ids(facts, stream) if self.machine.selection.addresses else stream

    def _apply(self) -> None:
        """Merge the selections of all analyzers, and set the machine's selection, hooks and consumers."""
        self._stale = False
        merged: TraceSelection = NOTHING
        readers, self._calling = [], []
        for number, analyzer in enumerate(() if self._paused else self.analyzers):
            merged |= analyzer.trace
            if _wants_blocks(analyzer):
                merged |= TraceSelection(blocks=True)
            if analyzer.selection:
                selection = _parsed(analyzer.selection)
                columns = selection.columns(self.ranges_of(selection), number)
                memory = self._memory(number, columns.fields)
                columns = replace(columns, first_program=analyzer.first_program, state=memory.address)
                merged |= TraceSelection(inline=(columns,))
                readers.append((analyzer, memory))
            if analyzer.inline:
                merged |= TraceSelection(inline=tuple(self._inline_calls(analyzer)))
            if analyzer.calls:
                selection = _parsed(analyzer.calls)
                ranges = self.ranges_of(selection)
                merged |= selection.hooks(ranges)
                self._calling.append((analyzer, selection.kinds(), selection.mnemonics, ranges))
        load_hook = self.objects.load_hook
        if load_hook is not None and (self._unresolved_stops or any(one.has_names for one in self._ranges)):
            self._stops[load_hook] = self._resolve_again
        if self._stops:
            stops = tuple(sorted((pc, pc + 2) for pc in self._stops))
            merged |= Selection().hooks(stops)
        self.machine.drain()  # under the old selection
        self.selection = merged
        self.machine.call_hooks(self if self._stops or self._calling else None)
        if merged.delivers:
            self.machine.observe(self._base, [*self._others, self])
        else:
            self.machine.observe(self._base | merged, self._others)
        self._readers = readers

    def _inline_calls(self, analyzer: Analyzer) -> Iterator[InlineCall]:
        from emulator.analyzers.inline_kernel import prepare
        from emulator.engine.instrument.inline_functions import AFTER

        selection = _parsed(analyzer.inline)
        state = analyzer.state
        if not isinstance(state, np.ndarray) or not state.flags.c_contiguous:
            raise EmulatorError(
                f"{type(analyzer).__name__}.state is {type(state).__name__}, expected a contiguous numpy array as the "
                "state of inline functions"
            )
        for after, function in ((False, analyzer.inline_before), (True, analyzer.inline_after)):
            if function is not None:
                fields = tuple(name for name in selection.fields if after or name not in AFTER)
                yield InlineCall(
                    function=prepare(function, state, fields), after=after, place=self.analyzers.index(analyzer),
                    fields=fields, kinds=tuple(sorted(map(int, selection.kinds()))),
                    mnemonics=tuple(sorted(selection.mnemonics)), ranges=self.ranges_of(selection),
                    state=state.ctypes.data,
                )  # fmt: skip

    def _memory(self, number: int, fields: tuple[str, ...]) -> ColumnMemory:
        key = number, fields
        if key not in self._columns:
            self._columns[key] = ColumnMemory(fields)
        return self._columns[key]

    def ranges_of(self, selection: Selection) -> Ranges:
        """The address ranges that ``selection`` selects in the mapped code; () for all addresses. Raises
        `SelectionError` for names that the program cannot load any more."""
        if selection not in self._ranges:
            self.objects.refresh()
            found, missing = selection.resolve(self.objects.images, self.objects.mapped())
            if missing and not self.objects.loads_libraries:
                raise missing[0]
            self._ranges[selection] = found
            if not missing:
                self._missing[selection] = None
            elif self._missing.get(selection, missing[0]) is not None:
                self._missing[selection] = missing[0]
        return self._ranges[selection]

    def _resolve_again(self) -> None:
        """Resolve all selections again after libraries were mapped or unmapped."""
        self.machine.drain()
        selections, self._ranges = list(self._ranges), {}
        for selection in selections:
            self.ranges_of(selection)
        self._find_stops()

    def _find_stops(self) -> None:
        """Resolve the stops at functions that are loaded now."""
        self.objects.refresh()
        for name in list(self._unresolved_stops):
            found, missing = Selection(symbols=(name,)).resolve(self.objects.images, ())
            if not missing:
                self._stops[found[0][0]] = self._unresolved_stops.pop(name)
                self._missing[name] = None
            elif self.objects.loads_libraries:
                self._missing[name] = missing[0]
            else:
                del self._unresolved_stops[name]
                raise missing[0]

    def _one_interval(self) -> int:
        lengths = {a.interval_instructions for a in self.analyzers} - {0}
        if len(lengths) > 1:
            raise EmulatorError(
                f"analyzers select intervals of {' and of '.join(map(str, sorted(lengths)))} instructions, "
                "expected one length"
            )
        return lengths.pop() if lengths else 0


def _parsed(selection: str | Selection) -> Selection:
    return Selection.parse(selection) if isinstance(selection, str) else selection


def _wants_blocks(analyzer: Analyzer) -> bool:
    return type(analyzer).consume_blocks is not Analyzer.consume_blocks
