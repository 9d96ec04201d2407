"""Who is told what of the guest: the consumers of the record, who is called for instructions, and when lines were
touched; and what they select, all together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from emulator.engine.lines import LineTable
from emulator.engine.oracle import Hooks
from emulator.engine.state import TOUCH_EPOCH, Hart
from emulator.events import NOTHING, BlockFacts, Consumer, TraceSelection
from emulator.memory import MAPPED, PAGE_SHIFT
from emulator.record import Record


class Observers:
    """``core``: the consumer that no `observe` sends away; ``facts``: of the blocks in the record.

    ``selection``: what everybody selects; ``hooks``: who is called; ``lines``: None until they are selected.
    """

    def __init__(
        self, hart: Hart, facts: BlockFacts, core: Consumer | None, consumers: Sequence[Consumer]
    ) -> None:
        self.record = Record(hart)
        self.lines: LineTable | None = None
        self.hooks: Hooks | None = None
        self.on_change: Callable[[], None] | None = None
        """Called when something else is selected."""
        self._hart = hart
        self._facts = facts
        self._core = core
        self._hooked = NOTHING
        self._listen(NOTHING, consumers)

    @property
    def consumers(self) -> tuple[Consumer, ...]:
        """Who has the record, beside the timing core."""
        return tuple(consumer for consumer in self._consumers if consumer is not self._core)

    @property
    def is_alone(self) -> bool:
        """Whether the guest runs without observers: there is no record, and nothing is called while it runs."""
        return not (
            self._consumers or self.selection.hooks or self.selection.inline or self.record.is_limited
        )

    def observe(self, selection: TraceSelection, consumers: Sequence[Consumer]) -> None:
        """From now on let ``consumers`` have the record, and select ``selection`` beside what they want."""
        self.drain()
        self._listen(selection, consumers)
        self._changed()

    def call_hooks(self, hooks: Hooks | None, where: TraceSelection) -> None:
        """Call ``hooks`` for the blocks that ``where`` selects beside those of the consumers."""
        self.hooks, self._hooked = hooks, where
        self.selection = self._observed | where
        self._changed()

    def drain(self) -> None:
        """Pass the record so far to the consumers, who may call `observe` meanwhile."""
        self.record.pass_on(self._facts, self._consumers)

    def touched_lines(
        self, instructions: int, perm: NDArray[np.uint8], at_most: int
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint32]]:
        """`Machine.touched_lines`, after ``instructions``, with the page table ``perm``."""
        from emulator.lines_kernel import recent_lines

        addresses, ages, written = (np.zeros(at_most, np.uint32) for _ in range(3))
        if self.lines is None:
            return addresses[:0], ages[:0], written[:0]
        bits = self.lines.line_bits
        found = recent_lines(
            self.lines.times[0], self.lines.times[1], perm.view(np.uint64), MAPPED, 1 << (PAGE_SHIFT - bits),
            (instructions + TOUCH_EPOCH) & 0xFFFFFFFF, addresses, ages, written, np.empty(len(perm), np.int64),
        )  # fmt: skip
        return addresses[:found] << np.uint32(bits), ages[:found], written[:found]

    def _listen(self, selection: TraceSelection, consumers: Sequence[Consumer]) -> None:
        """Take the consumers and make room for what is selected."""
        self._consumers = [*consumers] if self._core is None else [self._core, *consumers]
        for consumer in self._consumers:
            selection |= consumer.selection
        self._observed = selection
        self.selection = selection | self._hooked
        self.record.select(self.selection)
        bits = self.selection.line_bits
        if bits and (self.lines is None or self.lines.line_bits != bits):
            self.lines = LineTable(self._hart, bits)
            self._hart.reuses[:] = 0

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change()
