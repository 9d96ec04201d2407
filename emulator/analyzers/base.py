"""What an analyzer is: a small class that says what it wants to know, and is told.

    class Widths(Analyzer):
        '''How large stored values are.'''
        selection = "class=store fields=value"
        def begin(self, guest):
            self.bits = np.zeros(65, np.int64)
        def consume(self, batch):
            self.bits += np.bincount(np.frexp(batch.value.astype(float))[1], minlength=65)
        def report(self):
            return f"{self.bits.argmax()} bits are most frequent"

Translations write the fields that an analyzer selects, of the instructions that it selects, into columns of its own
(`emulator.engine.columns`), and `consume` gets them where they lie: nothing is copied or worked out in between. So a
field costs the store of it, what is static (pc, word, opcode, class) a store for several instructions, an analyzer that
selects few places or kinds makes translations write little, and analyzers see the same whatever engine runs. What
needs no order costs less still: `trace` asks for what is counted beside running (executions of blocks, reuse of lines).

Everything an analyzer overrides is called; what it does not override is not paid for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from emulator.analyzers.batch import Batch
from emulator.analyzers.selection import Selection
from emulator.events import NOTHING, BlockFacts, TraceSelection

if TYPE_CHECKING:
    import numpy as np

    from emulator.analyzers.session import Moment, Session
    from emulator.intervals import Intervals
    from emulator.machine import Machine


class Analyzer:
    """Base of analyzers; every method may be left as it is. Options are the keyword arguments of ``__init__``.

    ``selection``: which events `consume` gets, as text or `Selection`; "" for none. ``function``: a numba function
    ``function(state, *columns)`` that is called with each batch instead of `consume`; ``state``: its first argument.
    ``inline``: instructions for which `inline_before` and `inline_after` are called in the middle of translations, and
    the fields that they get: numba functions ``f(state, *fields)`` of numbers (uint64), of which the first gets no
    field that is known only afterwards (value, taken, target, rd). Fields may be ``registers`` (of the guest, to read
    and write: uint64, x0 to x31, then f0 to f31) and ``memory`` (of the guest, uint8), too. ``state`` is then a numpy
    array. ``trace``: what is counted beside running. ``calls``: which instructions `before` and `after` are called
    for, one by one: for rare events. ``interval_instructions``: how often `interval` is called; 0 for never.
    """

    selection: str | Selection = ""
    function: Callable[..., Any] | None = None
    state: Any = None
    trace: TraceSelection = NOTHING
    inline: str | Selection = ""
    inline_before: Callable[..., Any] | None = None
    inline_after: Callable[..., Any] | None = None
    calls: str | Selection = ""
    interval_instructions: int = 0
    session: Session

    @property
    def machine(self) -> Machine:
        """The machine that runs the program: its registers, memory, symbols and counts."""
        return self.session.machine

    def begin(self) -> None:
        """The program is about to run."""

    def consume(self, batch: Batch) -> None:
        """Selected events, in execution order."""

    def consume_blocks(self, facts: BlockFacts, blocks: NDArray[np.uint32]) -> None:
        """Numbers of executed blocks (rows of ``facts``), in order. Overriding this asks for them."""

    def before(self, moment: Moment) -> None:
        """An instruction of `calls` is about to execute. Registers and memory may be changed, not the pc."""

    def after(self, moment: Moment) -> None:
        """It has executed. What raises a fault or ends the program does not come here."""

    def interval(self, intervals: Intervals) -> None:
        """One or more intervals have ended; events up to there have been delivered."""

    def end(self) -> None:
        """The program has ended, or nobody wants to run it further."""

    def report(self) -> str:
        """What was found, as text for people."""
        return ""

    def choose(self, text: str) -> None:
        """Restrict the analyzer to the selection that a user wrote; it goes on getting the fields that it needs."""
        own = self.selection if isinstance(self.selection, Selection) else Selection.parse(self.selection)
        given = Selection.parse(text, own)
        self.selection = replace(given, fields=tuple({*own.fields, *given.fields}))

    # --- while the program runs
    def select(self, selection: str | Selection) -> None:
        """Change what `consume` gets, from the next block on that is not recorded yet; "" for nothing.

        Translations for the former selection stay and are used again when it comes back.
        """
        self.selection = selection
        self.session.changed()
