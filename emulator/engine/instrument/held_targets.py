"""Held targets: where each indirect jump and call went last, kept by translations as a branch target buffer keeps it.

How often targets are mispredicted is in no signature of code: an interpreter may come to the same handlers in runs, or
by turns. So an inline function looks the transfer up in a direct-mapped table, and counts where it went elsewhere than
last. Direct transfers, which share a real buffer, and returns are left out.
"""

from __future__ import annotations

from emulator.engine.hart_state import Hart
from emulator.engine.instrument.held_state import COUNT_AND_RETURN, TABLE, HeldState
from emulator.events import OpClass

_TEXT = f"""define internal void @NAME(ptr %st, ptr %mem, ptr %state, i64 %f0, i64 %f1) alwaysinline nounwind {{{{
%address = lshr i64 %f0, 1
%index = and i64 %address, {{entry_mask}}
%entries = getelementptr i8, ptr %state, i64 {TABLE}
%place = getelementptr i64, ptr %entries, i64 %index
%high = shl i64 %f0, 32
%low = and i64 %f1, 4294967295
%word = or i64 %high, %low
%last = load i64, ptr %place
store i64 %word, ptr %place
%wrong = icmp ne i64 %last, %word
%one = zext i1 %wrong to i64
{COUNT_AND_RETURN}
}}}}"""


class HeldTargets(HeldState):
    """A table of ``entries``, a power of two; a transfer that is not in it is mispredicted, too."""

    def __init__(self, hart: Hart, entries: int) -> None:
        kinds = OpClass.INDIRECT_JUMP, OpClass.INDIRECT_CALL
        super().__init__(hart, _TEXT.format(entry_mask=entries - 1), ("pc", "target"), kinds, 8 * entries)
