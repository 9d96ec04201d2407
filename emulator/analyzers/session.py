"""Analyzers on a machine: what they want becomes one selection, what comes is given to each of them.

The machine calls `consume` and `consume_columns` with what the guest has told; `enter`, `before` and `after` as hooks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from emulator.analyzers.base import Analyzer
from emulator.analyzers.batch import Batch
from emulator.analyzers.objects import Objects
from emulator.analyzers.selection import Selection, SelectionError
from emulator.engine.columns import ColumnMemory
from emulator.errors import EmulatorError
from emulator.events import NOTHING, BlockFacts, InlineCall, OpClass, Ranges, TraceSelection
from emulator.isa.disassemble import format_instruction
from emulator.record import BATCH_EVENTS

if TYPE_CHECKING:
    from emulator.engine.blocks import Block
    from emulator.isa.decode import Instruction
    from emulator.machine import Ending, Machine


@dataclass(frozen=True)
class Moment:
    """One instruction of a running program: ``machine.hart.x`` and ``.f`` are the registers, as they are now."""

    machine: Machine
    pc: int
    instruction: Instruction

    def read(self, address: int, n_bytes: int) -> int:
        """Guest memory, as an unsigned number. Raises `MemoryFault` where there is none."""
        return self.machine.memory.read_int(address, n_bytes)

    def write(self, address: int, n_bytes: int, value: int) -> None:
        """Change guest memory. Raises `MemoryFault` where there is none."""
        self.machine.memory.write_int(address, n_bytes, value)

    def __str__(self) -> str:
        place = self.machine.image.symbolize(self.pc)
        return f"{place}: {format_instruction(self.instruction, self.pc)}"


class _Resumed(Exception):
    """The analyzers watch again: intervals begin here."""


class Session:
    """``analyzers`` watching ``machine``, from now on and beside the consumers that it was made with.

    ``paused``: not yet, but from `resume` on. Raises `SelectionError` for a selection that the program has nothing for.
    What a dynamically linked program has may still come, so there `finish` raises it.
    """

    def __init__(self, machine: Machine, analyzers: Sequence[Analyzer], paused: bool = False) -> None:
        self.machine = machine
        self.analyzers = list(analyzers)
        self.selection: TraceSelection = NOTHING  # of all analyzers, as the machine's consumer
        self._others = list(machine.consumers)
        self._base = machine.selection
        self.objects = Objects(machine)
        self._places: dict[Selection, Ranges] = {}
        self._missing: dict[
            Selection | str, SelectionError | None
        ] = {}  # what has not come yet; None if it has
        self._columns: dict[tuple[int, tuple[str, ...]], ColumnMemory] = {}  # by analyzer and fields
        self._readers: list[tuple[Analyzer, ColumnMemory]] = []
        self._stops: dict[int, Callable[[], None]] = {}
        self._later: dict[str, Callable[[], None]] = {}  # stops at functions that have not come yet
        self._calls: dict[int, list[Analyzer]] = {}  # by pc, of the current block
        self._calling: list[tuple[Analyzer, frozenset[OpClass], tuple[str, ...], Ranges]] = []
        self._stale = False
        self._consuming = False
        self._paused = paused
        self._running = False
        self._counted = np.zeros(0, np.int64)  # executions of blocks before the last pause
        self._counted_from = machine.block_counts.copy()
        self._interval_instructions = self._one_interval()
        for analyzer in self.analyzers:
            analyzer.session = self
            analyzer.begin()
            for text in (analyzer.selection, analyzer.inline, analyzer.calls):
                if text:
                    self.places_of(_parsed(text))
        self._apply()

    # --- running
    def run(self, until_instructions: int = 1 << 62) -> Ending | None:
        """Run the program to its end (how it ended), or to the first block boundary at or after so many instructions
        in all (None), or up to an interval later. Raises `InstructionLimit`."""
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
            # Events up to an interval's end are to be delivered before it: then it is one at a time.
            done = machine.run_intervals(length, 1 if machine.selection.delivers else 256)
            machine.drain()
            for analyzer in self.analyzers:
                if len(done) and analyzer.interval_instructions:
                    analyzer.interval(done)
        self._running = False
        return machine.ending

    def finish(self) -> None:
        """Deliver what is left and let the analyzers end; the machine goes on without them.

        Raises `SelectionError` for names that no library had in the end."""
        self.machine.drain()
        for analyzer in self.analyzers:
            analyzer.end()
        self.machine.call_hooks(None)
        self.machine.observe(self._base, self._others)
        for error in self._missing.values():
            if error is not None:
                raise error

    def pause(self) -> None:
        """Let the analyzers have nothing until `resume`; what translations did for them stays for then."""
        self._counted = self.block_counts()
        self._paused = True
        self.changed()

    def resume(self) -> None:
        """Go on as before `pause`."""
        self._counted_from = self.machine.block_counts.copy()
        self._paused = False
        self.changed()

    def block_counts(self) -> NDArray[np.int64]:
        """Executions of each block while the analyzers watched and ``counts`` was selected, (n_blocks,)."""
        now = self.machine.block_counts.copy()
        if self._paused:
            now[:] = 0
        else:
            now[: len(self._counted_from)] -= self._counted_from
        now[: len(self._counted)] += self._counted
        return now

    def at(self, place: int | str, action: Callable[[], None]) -> None:
        """Call ``action()`` once, before the block that has the instruction at ``place`` (an address or the name of a
        function, in a library that comes later, too), when control comes there next."""
        if isinstance(place, str):
            self._later[place] = action
            self._find_stops()
        else:
            self._stops[place] = action
        self.changed()

    def changed(self) -> None:
        """Analyzers want something else than before."""
        self._stale = True
        if not self._consuming:
            self._apply()

    # --- what the machine calls
    def consume(self, facts: BlockFacts, stream: NDArray[np.uint32]) -> None:
        self._delivering(self._deliver_blocks, facts, stream)

    def consume_columns(self) -> None:
        self._delivering(self._deliver_events)

    def enter(self, block: Block) -> None:
        was_paused = self._paused
        for pc in block.pcs:
            if pc in self._stops:
                self._stops.pop(pc)()
                self._stale = True
        if self._stale:
            self._apply()
        if was_paused and not self._paused and self._running and self._interval_instructions:
            raise _Resumed
        self._calls = {}
        first = int(self.machine.facts.blocks["first_instruction"][block.number])
        for n, (pc, instruction) in enumerate(zip(block.pcs, block.instructions, strict=True)):
            op_class = self.machine.facts.instructions["op_class"][first + n]
            for analyzer, kinds, mnemonics, places in self._calling:
                is_kind = op_class in kinds or instruction.row.mnemonic in mnemonics
                if is_kind and (not places or any(low <= pc < high for low, high in places)):
                    self._calls.setdefault(pc, []).append(analyzer)

    def before(self, pc: int, instruction: Instruction) -> None:
        for analyzer in self._calls.get(pc, ()):
            analyzer.before(Moment(self.machine, pc, instruction))

    def after(self, pc: int, instruction: Instruction) -> None:
        for analyzer in self._calls.get(pc, ()):
            analyzer.after(Moment(self.machine, pc, instruction))

    # --- inside
    def _delivering(self, deliver: Callable[..., None], *what: Any) -> None:
        """What analyzers want to change meanwhile is changed afterwards."""
        self._consuming = True
        try:
            deliver(*what)
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
        """Tell the machine what is wanted now, and get ready to read it."""
        self._stale = False
        wanted: TraceSelection = NOTHING
        readers, self._calling = [], []
        for number, analyzer in enumerate(() if self._paused else self.analyzers):
            wanted |= analyzer.trace
            if _wants_blocks(analyzer):
                wanted |= TraceSelection(blocks=True)
            if analyzer.selection:
                selection = _parsed(analyzer.selection)
                columns = selection.columns(self.places_of(selection), number)
                memory = self._memory(number, columns.fields)
                wanted |= TraceSelection(inline=(replace(columns, state=memory.address),))
                readers.append((analyzer, memory))
            if analyzer.inline:
                wanted |= TraceSelection(inline=tuple(self._inline_calls(analyzer)))
            if analyzer.calls:
                selection = _parsed(analyzer.calls)
                places = self.places_of(selection)
                wanted |= selection.hooks(places)
                self._calling.append((analyzer, selection.kinds(), selection.mnemonics, places))
        objects_change = self.objects.changed_at
        if objects_change is not None and (self._later or any(one.names_places for one in self._places)):
            self._stops[objects_change] = self._look_again
        if self._stops:
            stops = tuple(sorted((pc, pc + 2) for pc in self._stops))
            wanted |= Selection().hooks(stops)
        self.machine.drain()  # to who selected it
        self.selection = wanted
        self.machine.call_hooks(self if self._stops or self._calling else None)
        if wanted.delivers:
            self.machine.observe(self._base, [*self._others, self])
        else:
            self.machine.observe(self._base | wanted, self._others)
        self._readers = readers

    def _inline_calls(self, analyzer: Analyzer) -> Iterator[InlineCall]:
        from emulator.analyzers.inline_kernel import prepare
        from emulator.engine.inline import AFTER

        selection = _parsed(analyzer.inline)
        state = analyzer.state
        if not isinstance(state, np.ndarray) or not state.flags.c_contiguous:
            raise EmulatorError(
                f"{type(analyzer).__name__}.state is {type(state).__name__}, expected a contiguous numpy array for "
                "inline functions to keep what they find in"
            )
        for after, function in ((False, analyzer.inline_before), (True, analyzer.inline_after)):
            if function is not None:
                fields = tuple(name for name in selection.fields if after or name not in AFTER)
                yield InlineCall(
                    function=prepare(function, state, fields), after=after, place=self.analyzers.index(analyzer),
                    fields=fields, kinds=tuple(sorted(map(int, selection.kinds()))),
                    mnemonics=tuple(sorted(selection.mnemonics)), ranges=self.places_of(selection),
                    state=state.ctypes.data,
                )  # fmt: skip

    def _memory(self, number: int, fields: tuple[str, ...]) -> ColumnMemory:
        key = number, fields
        if key not in self._columns:
            self._columns[key] = ColumnMemory(fields)
        return self._columns[key]

    def places_of(self, selection: Selection) -> Ranges:
        """The ranges of addresses that it selects in what is mapped; () for everywhere."""
        if selection not in self._places:
            self.objects.look()
            found, missing = selection.resolve(self.objects.images, self.objects.mapped())
            if missing and not self.objects.may_come:
                raise missing[0]
            self._places[selection] = found
            if not missing:
                self._missing[selection] = None
            elif self._missing.get(selection, missing[0]) is not None:
                self._missing[selection] = missing[0]
        return self._places[selection]

    def _look_again(self) -> None:
        """Libraries have been mapped, or unmapped: what is selected by names may be elsewhere."""
        self.machine.drain()
        wanted, self._places = list(self._places), {}
        for selection in wanted:
            self.places_of(selection)
        self._find_stops()

    def _find_stops(self) -> None:
        """Stop at the functions that have been waited for and are there."""
        self.objects.look()
        for name in list(self._later):
            found, missing = Selection(symbols=(name,)).resolve(self.objects.images, ())
            if not missing:
                self._stops[found[0][0]] = self._later.pop(name)
                self._missing[name] = None
            elif self.objects.may_come:
                self._missing[name] = missing[0]
            else:
                del self._later[name]
                raise missing[0]

    def _one_interval(self) -> int:
        lengths = {a.interval_instructions for a in self.analyzers} - {0}
        if len(lengths) > 1:
            raise EmulatorError(
                f"analyzers want intervals of {' and of '.join(map(str, sorted(lengths)))} instructions, "
                "expected one length"
            )
        return lengths.pop() if lengths else 0


def _parsed(selection: str | Selection) -> Selection:
    return Selection.parse(selection) if isinstance(selection, str) else selection


def _wants_blocks(analyzer: Analyzer) -> bool:
    return type(analyzer).consume_blocks is not Analyzer.consume_blocks
