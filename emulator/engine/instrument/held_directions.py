"""Held directions: the counters by which a branch predictor predicts directions, kept up to date by translations.

A predictor learns from every conditional branch, and a large one from millions of them: it cannot be trained in short.
So an inline function (`inline_functions`) moves the two-bit counter of each branch that fast execution comes by,
by address, or by address and global history, and counts mispredictions. This costs some fifteen operations a branch.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from emulator.engine.instrument.inline_functions import FUNCTIONS, InlineFunction
from emulator.events import InlineCall, OpClass

_COUNTERS = 64  # where the counters begin in the state [bytes]; the history and mispredictions are at its beginning
_FIELDS = ("pc", "taken")
_TEXT = """define internal void @NAME(ptr %st, ptr %mem, ptr %state, i64 %f0, i64 %f1) alwaysinline nounwind {{
%address = lshr i64 %f0, 1
%history = load i64, ptr %state
%hashed = xor i64 %address, %history
%index = and i64 %hashed, {entry_mask}
%counters = getelementptr i8, ptr %state, i64 {counters}
%place = getelementptr i8, ptr %counters, i64 %index
%counter = load i8, ptr %place
%taken = icmp ne i64 %f1, 0
%more = add i8 %counter, 1
%more.3 = call i8 @llvm.umin.i8(i8 %more, i8 3)
%less = call i8 @llvm.usub.sat.i8(i8 %counter, i8 1)
%next = select i1 %taken, i8 %more.3, i8 %less
store i8 %next, ptr %place
%predicted = icmp uge i8 %counter, 2
%wrong = xor i1 %predicted, %taken
%one = zext i1 %wrong to i64
%total = getelementptr i8, ptr %state, i64 8
%before = load i64, ptr %total
%after = add i64 %before, %one
store i64 %after, ptr %total
{update}ret void
}}
declare i8 @llvm.umin.i8(i8, i8)
declare i8 @llvm.usub.sat.i8(i8, i8)"""
_HISTORY = """%older = shl i64 %history, 1
%outcome = zext i1 %taken to i64
%both = or i64 %older, %outcome
%kept = and i64 %both, {history_mask}
store i64 %kept, ptr %state
"""


class HeldDirections:
    """A predictor's counters. ``counters``: (entries,) uint8, two-bit counters by address xor history; ``history``:
    (1,) int64, the last outcomes, the last one in the lowest bit; always 0 with ``history_bits`` 0; ``mispredicted``:
    (1,) int64, mispredictions since it was set to 0.

    ``call``: what a selection needs in ``inline``; the object has to stay as long as it is selected.
    """

    def __init__(self, entries: int, history_bits: int) -> None:
        self._state = np.zeros(_COUNTERS + entries, np.uint8)
        self.history: NDArray[np.int64] = self._state[:8].view(np.int64)
        self.mispredicted: NDArray[np.int64] = self._state[8:16].view(np.int64)
        self.counters = self._state[_COUNTERS:]
        self.counters[:] = 1  # weakly not taken, as in a core before the first branch
        update = _HISTORY.format(history_mask=(1 << history_bits) - 1) if history_bits else ""
        text = _TEXT.format(entry_mask=entries - 1, counters=_COUNTERS, update=update)
        name = f"directions_{hashlib.sha256(text.encode()).hexdigest()[:24]}"
        FUNCTIONS.setdefault(name, InlineFunction(name, text.replace("NAME", name), len(_FIELDS), uses_floats=False))
        self.call = InlineCall(
            place=-1, fields=_FIELDS, kinds=(int(OpClass.BRANCH),), mnemonics=(), ranges=(), function=name,
            after=True, state=self._state.ctypes.data,
        )  # fmt: skip
