"""The observers of a guest: consumers of the record, hooks on instructions, followed lines; and the union of their
selections."""

from __future__ import annotations

from collections.abc import Sequence

from emulator.engine.hart_state import Hart
from emulator.engine.instrument.followed_lines import FollowedLines
from emulator.engine.oracle import Hooks
from emulator.events import NOTHING, BlockFacts, Consumer, FollowsTasks, TraceSelection
from emulator.execution.record import Record
from emulator.listeners import GuestListener


class Observers:
    """The observers of one guest.

    ``core``: the timing core, a consumer that `observe` does not replace; ``facts``: of the blocks in the record.
    ``selection``: the union of all selections, of whose changes ``listener`` gets a report; ``followed_lines``: None
    until `follow_lines`.
    """

    def __init__(
        self, hart: Hart, facts: BlockFacts, core: Consumer | None, consumers: Sequence[Consumer],
        listener: GuestListener,
    ) -> None:  # fmt: skip
        self.record = Record(hart)
        self.followed_lines: FollowedLines | None = None
        self.hooks: Hooks | None = None
        self._listener = listener
        self._hart = hart
        self._facts = facts
        self._core = core
        self._hook_selection = NOTHING
        self._set_consumers(NOTHING, consumers)

    @property
    def consumers(self) -> tuple[Consumer, ...]:
        """The consumers of the record without the timing core."""
        return tuple(consumer for consumer in self._consumers if consumer is not self._core)

    @property
    def is_unobserved(self) -> bool:
        """Whether the guest runs without observers: without record, hooks and inline functions."""
        return not (self._consumers or self.selection.hooks or self.selection.inline or self.record.is_limited)

    def observe(self, selection: TraceSelection, consumers: Sequence[Consumer]) -> None:
        """Replace the consumers of the record, and select ``selection`` beside their selections."""
        self.drain()
        self._set_consumers(selection, consumers)
        self._listener.selection_changed()

    def call_hooks(self, hooks: Hooks | None, where: TraceSelection) -> None:
        """Set the hooks; ``where`` selects their instructions beside the hooks of the consumers' selections."""
        self.hooks, self._hook_selection = hooks, where
        self.selection = self._consumer_selection | where
        self._listener.selection_changed()

    def follow_lines(self, line_bits: tuple[int, int]) -> FollowedLines:
        """New tables of followed lines, for selections whose ``followed_lines`` are ``line_bits``."""
        self.followed_lines = FollowedLines(self._hart, line_bits)
        return self.followed_lines

    def drain(self) -> None:
        """Pass the record so far to the consumers, who may call `observe` meanwhile."""
        self.record.pass_on(self._facts, self._consumers)

    def interrupted(self, pc: int) -> None:
        """The guest, which went to ``pc``, goes on in a signal handler or in another task."""
        followers = [one for one in self._consumers if isinstance(one, FollowsTasks) and one.follows_tasks]
        if followers:
            self.drain()
        for consumer in followers:
            consumer.interrupted(pc)

    def _set_consumers(self, selection: TraceSelection, consumers: Sequence[Consumer]) -> None:
        """Set the consumers and the selection."""
        self._consumers = [*consumers] if self._core is None else [self._core, *consumers]
        for consumer in self._consumers:
            selection |= consumer.selection
        self._consumer_selection = selection
        self.selection = selection | self._hook_selection
        self.record.select(self.selection)
        lines = self.selection.followed_lines
        if any(lines) and (self.followed_lines is None or self.followed_lines.line_bits != lines):
            raise ValueError(
                f"lines of {lines} bits are to be followed, but follow_lines has prepared nothing for them"
            )
