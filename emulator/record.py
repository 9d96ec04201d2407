"""What the guest tells, on its way from the hart, which writes it, to its consumers: the record and columns."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from emulator.engine.columns import ROOM, Events
from emulator.engine.state import Hart
from emulator.events import BlockFacts, ColumnConsumer, Consumer, TraceSelection

RECORD_WORDS = 1 << 18
# A block of n instructions writes at most 1 + n words, and a stop comes at most one block late.
BATCH_INSTRUCTIONS = RECORD_WORDS // 2 - 128
# A trip to the consumers costs some 10 us, and what comes after it finds the host's caches cold. With more events than
# these nothing more is gained (measured: 2**13 to 2**18, of 8 to 47 bytes).
BATCH_EVENTS = 1 << 17
_UNLIMITED = 1 << 62


class Record:
    """``instructions``: executed since what there was was passed on; it is to be passed on when they are ``limit``."""

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
        """What there is to be from now on."""
        self._events = tuple(Events(one.state) for one in selection.columns)
        self._has_blocks = selection.blocks
        for events in self._events:
            events.clear()
        self._set_limit(BATCH_EVENTS)

    def _set_limit(self, for_events: int) -> None:
        """``for_events``: instructions that columns may wait for."""
        self.limit = BATCH_INSTRUCTIONS if self._has_blocks else _UNLIMITED
        if self._events:
            self.limit = min(self.limit, for_events, ROOM)

    @property
    def is_limited(self) -> bool:
        """Whether there is one, and it has to be passed on."""
        return self.limit != _UNLIMITED

    # --- for who runs blocks one by one
    @property
    def end(self) -> int:
        """Where the next word goes; may be set to an earlier one."""
        return self._hart.get("record")

    @end.setter
    def end(self, value: int) -> None:
        self._hart.set("record", value)

    def append(self, word: int) -> None:
        """As a translation would."""
        position = self._hart.get("record")
        ctypes.c_uint32.from_address(position).value = word
        self._hart.set("record", position + 4)

    def begin_events(self) -> None:
        """A block, or what is left of one, begins: events that were not committed are lost."""
        for events in self._events:
            events.begin_block()

    def commit_events(self) -> None:
        """Events up to here count."""
        for events in self._events:
            events.commit()

    # --- to the consumers
    def pass_on(self, facts: BlockFacts, consumers: Sequence[Consumer]) -> None:
        """Give it to ``consumers`` and begin anew."""
        executed, self.instructions = self.instructions, 0
        n_events = max([events.n for events in self._events], default=0)
        if self._events and executed >= self.limit:
            # How many instructions make a batch depends on how many of the last ones were selected.
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
