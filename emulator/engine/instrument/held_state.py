"""Held state: what an inline function (`inline_functions`) learns of the transfers that fast execution comes by.

It lies behind the state of the hart, where translations reach it without another pointer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from emulator.engine.hart_state import Hart
from emulator.engine.instrument.inline_functions import FUNCTIONS, InlineFunction
from emulator.events import InlineCall, OpClass

TABLE = 64  # where the table begins in the state [bytes]
HISTORY, MISPREDICTED = 0, 8  # where these words are
COUNT_AND_RETURN = f"""%total = getelementptr i8, ptr %state, i64 {MISPREDICTED}
%before = load i64, ptr %total
%after = add i64 %before, %one
store i64 %after, ptr %total
ret void"""
"""The end of a function: adds ``%one`` to the mispredictions."""


class HeldState:
    """A state with a table of ``table_bytes`` for the function with the LLVM IR ``text``, which gets two ``fields`` of
    the transfers of some ``kinds``, the second known after these. Raises `EmulatorError` if a hart has no room for it.

    ``mispredicted``: (1,) int64, mispredictions since it was set to 0; ``call``: what a selection needs in ``inline``.
    """

    def __init__(
        self, hart: Hart, text: str, fields: tuple[str, str], kinds: Sequence[OpClass], table_bytes: int
    ) -> None:
        place = hart.reserve(TABLE + table_bytes)
        state = hart.everything[place.offset : place.offset + place.size]
        self._history: NDArray[np.int64] = state[HISTORY:MISPREDICTED].view(np.int64)
        self.mispredicted: NDArray[np.int64] = state[MISPREDICTED : MISPREDICTED + 8].view(np.int64)
        self._table = state[TABLE : TABLE + table_bytes]
        name = f"{fields[1]}_{hashlib.sha256(text.encode()).hexdigest()[:24]}"
        FUNCTIONS.setdefault(name, InlineFunction(name, text.replace("NAME", name), len(fields), uses_floats=False))
        self.call = InlineCall(
            place=-1, fields=fields, kinds=tuple(int(kind) for kind in kinds), mnemonics=(), ranges=(), function=name,
            after=True, state=state.ctypes.data, offset=place.offset,
        )  # fmt: skip
