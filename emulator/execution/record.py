"""The dynamic record and columns on their way from the hart, which writes them, to their consumers."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from emulator.engine.hart_state import Hart
from emulator.engine.instrument.columns import ROOM, Events
from emulator.events import BlockFacts, ColumnConsumer, Consumer, TraceSelection

RECORD_WORDS = 1 << 18
# A block of n instructions writes at most 1 + n words, and a stop comes at most one block late.
BATCH_INSTRUCTIONS = RECORD_WORDS // 2 - 128
# Passing the record on costs some 10 us, and the guest goes on with cold host caches. Larger batches gain nothing
# (measured: 2**13 to 2**18 events of 8 to 47 bytes).
BATCH_EVENTS = 1 << 17
_UNLIMITED = 1 << 62


class Record:
    """The record of one hart. ``instructions``: executed since the record was passed on; it has to be passed on when
    they reach ``limit``."""

    def __init__(self, hart: Hart) -> None:
        self._hart = hart
        self._words = np.zeros(RECORD_WORDS, np.uint32)
        self._events: tuple[Events, ...] = ()
        self._has_blocks = False
        self.instructions = 0
        self.limit = _UNLIMITED
        self._begin = self._words.ctypes.data
        hart.set("record", self._begin)

    def select(self, selection: TraceSelection) -> None:
        """Set what is recorded from now on; events not passed on yet are lost."""
        self._events = tuple(Events(one.state) for one in selection.columns)
        self._has_blocks = selection.blocks
        for events in self._events:
            events.clear()
        self._set_limit(BATCH_EVENTS)

    def _set_limit(self, for_events: int) -> None:
        """Set ``limit``. ``for_events``: instructions after which columns have to be passed on."""
        self.limit = BATCH_INSTRUCTIONS if self._has_blocks else _UNLIMITED
        if self._events:
            self.limit = min(self.limit, for_events, ROOM)

    @property
    def is_limited(self) -> bool:
        """Whether something is recorded that has to be passed on."""
        return self.limit != _UNLIMITED

    # --- for the oracle, which runs blocks one by one
    @property
    def end(self) -> int:
        """The host address of the next word; may be set back to take words back."""
        return self._hart.get("record")

    @end.setter
    def end(self, value: int) -> None:
        self._hart.set("record", value)

    def append(self, word: int) -> None:
        """Append a word, as a translation does."""
        position = self._hart.get("record")
        ctypes.c_uint32.from_address(position).value = word
        self._hart.set("record", position + 4)

    def begin_events(self) -> None:
        """Begin a block, or the rest of one: events that were not committed are lost."""
        for events in self._events:
            events.begin_block()

    def commit_events(self) -> None:
        """Make the events so far count."""
        for events in self._events:
            events.commit()

    # --- for a block that a fault has cut short
    def keep(self, block: int, n_addresses: int) -> None:
        """Append ``block``, with the ``n_addresses`` words that are there already."""
        self.append(block)
        self.end += 4 * n_addresses

    def keep_events(self, place: int, n: int) -> None:
        """Make the first ``n`` events of the block count, of the selected column set at ``place``."""
        self._events[place].keep(n)

    # --- to the consumers
    def pass_on(self, facts: BlockFacts, consumers: Sequence[Consumer]) -> None:
        """Pass record and columns to ``consumers``, and empty them."""
        executed, self.instructions = self.instructions, 0
        n_events = max([events.n for events in self._events], default=0)
        if self._events and executed >= self.limit:
            # The instructions of a batch follow from the share of instructions that were selected in the last one.
            self._set_limit(BATCH_EVENTS * executed // n_events if n_events else ROOM)
        stream: NDArray[np.uint32] | None = None
        end = self.end
        if end != self._begin:
            stream = self._words[: (end - self._begin) >> 2]
            self.end = self._begin
        for consumer in tuple(consumers):
            if stream is not None:
                consumer.consume(facts, stream)
            if n_events and consumer.selection.columns:
                cast(ColumnConsumer, consumer).consume_columns()
