"""The dynamic record on its way from the hart, which writes it, to its consumers."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from emulator.engine.state import Hart
from emulator.events import MAX_VALUES, BlockFacts, Consumer, ValueConsumer

RECORD_WORDS = 1 << 18
# A block of n instructions writes at most 1 + n words, and a stop comes at most one block late.
BATCH_INSTRUCTIONS = RECORD_WORDS // 2 - 128


class Record:
    """``instructions``: executed since the record was passed on; there is room for `BATCH_INSTRUCTIONS`."""

    def __init__(self, hart: Hart) -> None:
        self._hart = hart
        self._words = np.zeros(RECORD_WORDS, np.uint32)
        self._values = np.zeros(0, np.uint64)
        self.instructions = 0
        hart.set("record", self._words.ctypes.data)

    def make_room_for_values(self) -> None:
        """There will be values, too."""
        if not len(self._values):
            self._values = np.zeros(MAX_VALUES * RECORD_WORDS // 2, np.uint64)
            self._hart.set("values", self._values.ctypes.data)

    @property
    def end(self) -> tuple[int, int]:
        """Where the next word and the next value go; may be set to an earlier one."""
        return self._hart.get("record"), self._hart.get("values")

    @end.setter
    def end(self, value: tuple[int, int]) -> None:
        self._hart.set("record", value[0])
        self._hart.set("values", value[1])

    def append(self, word: int) -> None:
        """As a translation would."""
        position = self._hart.get("record")
        ctypes.c_uint32.from_address(position).value = word
        self._hart.set("record", position + 4)

    def append_value(self, word: int) -> None:
        position = self._hart.get("values")
        ctypes.c_uint64.from_address(position).value = word
        self._hart.set("values", position + 8)

    def pass_on(self, facts: BlockFacts, consumers: Sequence[Consumer]) -> None:
        """Give it to ``consumers`` and begin anew."""
        begin = self._words.ctypes.data, self._values.ctypes.data
        end = self.end
        self.instructions = 0
        n_words = (end[0] - begin[0]) >> 2
        if not n_words:
            return
        stream: NDArray[np.uint32] = self._words[:n_words]
        values = self._values[: (end[1] - begin[1]) >> 3]
        self.end = begin
        for consumer in tuple(consumers):
            if consumer.selection.values:
                cast(ValueConsumer, consumer).consume_values(facts, stream, values)
            else:
                consumer.consume(facts, stream)
