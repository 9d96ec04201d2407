"""The base class of analyzers: a class that selects events of the guest and processes them.

    class Widths(Analyzer):
        '''How large stored values are.'''
        selection = "class=store fields=value"
        def begin(self, guest):
            self.bits = np.zeros(65, np.int64)
        def consume(self, batch):
            self.bits += np.bincount(np.frexp(batch.value.astype(float))[1], minlength=65)
        def report(self):
            return f"{self.bits.argmax()} bits are most frequent"

Translations write the selected fields of the selected instructions into the analyzer's own columns
(`emulator.engine.instrument.columns`), and `consume` gets views of them: nothing is copied or computed in between. So a
dynamic field costs one store, static fields (pc, word, opcode, class) one store for several instructions, and an
analyzer that selects few addresses or classes costs little. All engines deliver the same events. Data that needs no
order costs still less: `trace` selects counts that the machine keeps (block executions).

Only overridden methods are called; the others cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from numpy.typing import NDArray

from emulator.analyzers.batch import Batch
from emulator.analyzers.event_selection import Selection
from emulator.events import NOTHING, BlockFacts, TraceSelection

if TYPE_CHECKING:
    import numpy as np

    from emulator.analyzers.hook_context import HookContext
    from emulator.analyzers.objects import Objects
    from emulator.events import Ranges
    from emulator.execution.intervals import Intervals
    from emulator.machine import Machine


class AnalysisContext(Protocol):
    """The part of `emulator.analyzers.analysis_session.Session` that analyzers use."""

    machine: Machine
    objects: Objects

    def ranges_of(self, selection: Selection) -> Ranges:
        """The address ranges that ``selection`` selects in the mapped code; () for all addresses."""
        ...

    def block_counts(self) -> NDArray[np.int64]:
        """Executions of each block while the analyzers were active, (n_blocks,)."""
        ...

    def changed(self) -> None:
        """Update the machine's selection after an analyzer has changed its own."""
        ...


class Analyzer:
    """Base class of analyzers; overriding is optional for every method. Options are the keyword arguments of
    ``__init__``.

    ``selection``: the events that `consume` gets, as text or `Selection`; "" for none. ``function``: a numba function
    ``function(state, *columns)`` that is called with each batch instead of `consume`; ``state``: its first argument.
    ``first_program``: whether events of the program that the guest began with are enough, without those of programs
    that its processes execute; what `selection` and the others select by address is of that program in any case.
    ``inline``: the instructions at which translations call `inline_before` and `inline_after`, and the fields that
    these get; ``inline_before``, ``inline_after``: numba functions ``f(state, *fields)`` of uint64 numbers;
    `inline_before` does not get the fields that are known only after execution (value, taken, target, rd). Further
    fields are ``registers`` (of the guest, to read and write: uint64, x0 to x31, then f0 to f31) and ``memory`` (of the
    guest, uint8). ``state`` is then a numpy array. ``trace``: counts that the machine keeps. ``calls``: the
    instructions for which `before` and `after` are called, one by one: for rare events. ``interval_instructions``: the
    interval of calls to `interval`; 0: never; ``session``: what the analyzer may ask while the program runs, known from
    `begin` on.

    ```python
    from emulator import Analyzer, Machine
    from emulator.analyzers.analysis_session import Session

    class Loads(Analyzer):
        selection = "class=load fields=address"

        def begin(self):
            self.pages = set()

        def consume(self, batch):
            self.pages.update(batch.address >> 12)

    with Machine("program") as machine:
        loads = Loads()
        session = Session(machine, [loads])
        session.run()
        session.finish()
        print(len(loads.pages), "pages were read")
    ```
    """

    selection: str | Selection = ""
    function: Callable[..., Any] | None = None
    state: Any = None
    first_program: bool = False
    trace: TraceSelection = NOTHING
    inline: str | Selection = ""
    inline_before: Callable[..., Any] | None = None
    inline_after: Callable[..., Any] | None = None
    calls: str | Selection = ""
    interval_instructions: int = 0
    session: AnalysisContext

    @property
    def machine(self) -> Machine:
        """The machine that runs the program: its registers, memory, symbols and counts."""
        return self.session.machine

    def begin(self) -> None:
        """Called before the program runs."""

    def consume(self, batch: Batch) -> None:
        """Process selected events, in execution order."""

    def interrupted(self, pc: int) -> None:
        """What was executed so far has been consumed, and went to ``pc``; a signal handler or another task is next."""

    def consume_blocks(self, facts: BlockFacts, blocks: NDArray[np.uint32]) -> None:
        """Process the numbers of executed blocks (rows of ``facts``), in order. Overriding this method selects them."""

    def before(self, context: HookContext) -> None:
        """Called before an instruction of `calls`. It may change registers and memory, not the pc."""

    def after(self, context: HookContext) -> None:
        """Called after an instruction of `calls`, unless it faults or ends the program."""

    def interval(self, intervals: Intervals) -> None:
        """Called after one or more intervals; all events up to their end were delivered."""

    def end(self) -> None:
        """Called when the program has ended or the session is finished."""

    def report(self) -> str:
        """The results as text."""
        return ""

    def restrict(self, text: str) -> None:
        """Restrict the analyzer to a user's selection; it keeps the fields that it needs."""
        own = self.selection if isinstance(self.selection, Selection) else Selection.parse(self.selection)
        given = Selection.parse(text, own)
        self.selection = replace(given, fields=tuple({*own.fields, *given.fields}))

    # --- while the program runs
    def select(self, selection: str | Selection) -> None:
        """Change the events that `consume` gets, from the next block on that is not recorded yet; "" for none.

        Translations for the old selection are kept and used again if it is selected again.
        """
        self.selection = selection
        self.session.changed()
