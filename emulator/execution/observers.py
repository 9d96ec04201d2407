"""The observers of a guest: consumers of the record, hooks on instructions, line timestamps; and the union of their
selections."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from emulator.engine.hart_state import Hart
from emulator.engine.instrument.held_lines import HeldLines
from emulator.engine.instrument.line_timestamps import LineTimestamps
from emulator.engine.oracle import Hooks
from emulator.engine.reuse_counts import TOUCH_EPOCH
from emulator.events import NOTHING, BlockFacts, Consumer, FollowsTasks, TraceSelection
from emulator.execution.record import Record
from emulator.listeners import GuestListener
from emulator.memory import MAPPED, PAGE_SHIFT, GuestMemory


class Observers:
    """The observers of one guest.

    ``core``: the timing core, a consumer that `observe` does not replace; ``facts``: of the blocks in the record.
    ``selection``: the union of all selections, of whose changes ``listener`` gets a report; ``line_timestamps``: None
    until they are selected; ``held_lines``: None until `hold_lines`.
    """

    def __init__(
        self, hart: Hart, facts: BlockFacts, core: Consumer | None, consumers: Sequence[Consumer],
        listener: GuestListener,
    ) -> None:  # fmt: skip
        self.record = Record(hart)
        self.line_timestamps: LineTimestamps | None = None
        self.held_lines: HeldLines | None = None
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

    def hold_lines(self, line_bits: tuple[int, int]) -> HeldLines:
        """New tables of held lines, for selections whose ``fills`` are ``line_bits``."""
        self.held_lines = HeldLines(self._hart, line_bits)
        return self.held_lines

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

    def touched_lines(
        self, instructions: int, memory: GuestMemory, at_most: int
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint32]]:
        """`Machine.touched_lines`, after ``instructions`` of a guest with ``memory``."""
        from emulator.execution.line_ages_kernel import recent_lines

        addresses, ages, written = (np.zeros(at_most, np.uint32) for _ in range(3))
        if self.line_timestamps is None:
            return addresses[:0], ages[:0], written[:0]
        bits, (touches, writes) = self.line_timestamps.line_bits, self.line_timestamps.times
        found = recent_lines(
            touches, writes, memory.perm.view(np.uint64), memory.unmapped.view(np.uint64), MAPPED,
            1 << (PAGE_SHIFT - bits),
            (instructions + TOUCH_EPOCH) & 0xFFFFFFFF, addresses, ages, written, np.empty(len(memory.perm), np.int64),
        )  # fmt: skip
        return addresses[:found] << np.uint32(bits), ages[:found], written[:found]

    def _set_consumers(self, selection: TraceSelection, consumers: Sequence[Consumer]) -> None:
        """Set the consumers and the selection, and allocate line timestamps if they are selected."""
        self._consumers = [*consumers] if self._core is None else [self._core, *consumers]
        for consumer in self._consumers:
            selection |= consumer.selection
        self._consumer_selection = selection
        self.selection = selection | self._hook_selection
        self.record.select(self.selection)
        fills = self.selection.fills
        if any(fills) and (self.held_lines is None or self.held_lines.line_bits != fills):
            raise ValueError(f"fills of lines {fills} are selected, but nothing was prepared by hold_lines for them")
        self._hart.set("set_mask", self.selection.set_mask)
        bits = self.selection.line_bits
        if bits and (self.line_timestamps is None or self.line_timestamps.line_bits != bits):
            self.line_timestamps = LineTimestamps(self._hart, bits)
            self._hart.reuses[:] = 0
