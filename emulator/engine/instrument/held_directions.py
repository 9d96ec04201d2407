"""Held directions: the counters by which a branch predictor predicts directions, kept up to date by translations.

A predictor learns from every conditional branch, and a large one from millions of them: it cannot be trained in short.
So an inline function moves the two-bit counter of each branch that fast execution comes by, by address, or by address
and global history, and counts mispredictions. This costs some twelve operations a branch.

A predictor that learns nothing is wrong where a branch goes against its encoding: only mispredictions are counted.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.engine.hart_state import Hart
from emulator.engine.instrument.held_state import COUNT_AND_RETURN, HISTORY, TABLE, HeldState
from emulator.events import OpClass

_WITHOUT_HISTORY = "%index = and i64 %address, {entry_mask}"
_WITH_HISTORY = """%history = load i64, ptr %state
%low = and i64 %address, {entry_mask}
%index = xor i64 %low, %history
%older = shl i64 %history, 1
%both = or i64 %older, %f1
%kept = and i64 %both, {history_mask}
store i64 %kept, ptr %state"""
# The counter goes to 2 x taken - 1 + counter, which its own fourth brings back from -1 to 0 and from 4 to 3.
_TEXT = f"""define internal void @NAME(ptr %st, ptr %mem, ptr %state, i64 %f0, i64 %f1) alwaysinline nounwind {{{{
%address = lshr i64 %f0, 1
{{index}}
%counters = getelementptr i8, ptr %state, i64 {TABLE}
%place = getelementptr i8, ptr %counters, i64 %index
%loaded = load i8, ptr %place
%counter = zext i8 %loaded to i32
%taken = trunc i64 %f1 to i32
%twice = shl i32 %taken, 1
%sum = add i32 %counter, %twice
%moved = add i32 %sum, -1
%beyond = ashr i32 %moved, 2
%next = sub i32 %moved, %beyond
%stored = trunc i32 %next to i8
store i8 %stored, ptr %place
%predicted = lshr i32 %counter, 1
%wrong = xor i32 %predicted, %taken
%one = zext i32 %wrong to i64
{COUNT_AND_RETURN}
}}}}"""
assert HISTORY == 0
# A branch goes backward, or to itself, where its offset is negative or 0: bit 31 of the instruction is the sign, and
# bits 31:25 and 11:7 are the offset; of a compressed one bit 12, and bits 12:10 and 6:2.
_BACKWARD = f"""%width = and i64 %f0, 3
%long = icmp eq i64 %width, 3
%sign = select i1 %long, i64 {1 << 31}, i64 {1 << 12}
%offset = select i1 %long, i64 {0xFE000F80}, i64 {0x1C7C}
%signed = and i64 %f0, %sign
%distance = and i64 %f0, %offset
%negative = icmp ne i64 %signed, 0
%none = icmp eq i64 %distance, 0
%predicted = or i1 %negative, %none"""
_FORWARD = "%predicted = and i1 0, 0"
_FIXED = f"""define internal void @NAME(ptr %st, ptr %mem, ptr %state, i64 %f0, i64 %f1) alwaysinline nounwind {{{{
{{predicted}}
%taken = icmp ne i64 %f1, 0
%wrong = xor i1 %predicted, %taken
%one = zext i1 %wrong to i64
{COUNT_AND_RETURN}
}}}}"""


class HeldDirections(HeldState):
    """A predictor's counters. ``counters``: (entries,) uint8, two-bit counters by address xor history; ``history``:
    (1,) int64, the last outcomes, the last one in the lowest bit; always 0 with ``history_bits`` 0, at most log2 of
    ``entries``."""

    def __init__(self, hart: Hart, entries: int, history_bits: int) -> None:
        index = _WITH_HISTORY if history_bits else _WITHOUT_HISTORY
        index = index.format(entry_mask=entries - 1, history_mask=(1 << history_bits) - 1)
        super().__init__(hart, _TEXT.format(index=index), ("pc", "taken"), [OpClass.BRANCH], entries)
        self.history: NDArray[np.int64] = self._history
        self.counters = self._table
        self.counters[:] = 1  # weakly not taken, as in a core before the first branch


class StaticDirections(HeldState):
    """Counts the branches that a predictor that learns nothing mispredicts: it takes those backward for taken, or, with
    ``backward_taken`` false, none."""

    def __init__(self, hart: Hart, backward_taken: bool) -> None:
        text = _FIXED.format(predicted=_BACKWARD if backward_taken else _FORWARD)
        super().__init__(hart, text, ("word", "taken"), [OpClass.BRANCH], 0)
