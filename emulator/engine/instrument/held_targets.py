"""Held targets: where each indirect jump and call went last, kept by translations as a branch target buffer keeps it.

How often targets are mispredicted is in no signature of code: an interpreter may come to the same handlers in runs, or
by turns. So an inline function (`inline_functions`) looks the transfer up in a direct-mapped table, and counts where it
went elsewhere than last. Direct transfers, which share a real buffer, and returns are left out.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from emulator.engine.instrument.inline_functions import FUNCTIONS, InlineFunction
from emulator.events import InlineCall, OpClass

_ENTRIES = 64  # where the table begins in the state [bytes]; mispredictions are at its beginning
_FIELDS = ("pc", "target")
_TEXT = """define internal void @NAME(ptr %st, ptr %mem, ptr %state, i64 %f0, i64 %f1) alwaysinline nounwind {{
%address = lshr i64 %f0, 1
%index = and i64 %address, {entry_mask}
%entries = getelementptr i8, ptr %state, i64 {entries}
%place = getelementptr i64, ptr %entries, i64 %index
%high = shl i64 %f0, 32
%low = and i64 %f1, 4294967295
%word = or i64 %high, %low
%last = load i64, ptr %place
store i64 %word, ptr %place
%wrong = icmp ne i64 %last, %word
%one = zext i1 %wrong to i64
%before = load i64, ptr %state
%after = add i64 %before, %one
store i64 %after, ptr %state
ret void
}}"""


class HeldTargets:
    """A table of ``entries``, a power of two. ``mispredicted``: (1,) int64, transfers that went elsewhere than last
    time, or were not in the table, since it was set to 0.

    ``call``: what a selection needs in ``inline``; the object has to stay as long as it is selected.
    """

    def __init__(self, entries: int) -> None:
        self._state = np.zeros(_ENTRIES // 8 + entries, np.int64)
        self.mispredicted: NDArray[np.int64] = self._state[:1]
        text = _TEXT.format(entry_mask=entries - 1, entries=_ENTRIES)
        name = f"targets_{hashlib.sha256(text.encode()).hexdigest()[:24]}"
        FUNCTIONS.setdefault(name, InlineFunction(name, text.replace("NAME", name), len(_FIELDS), uses_floats=False))
        self.call = InlineCall(
            place=-1, fields=_FIELDS, kinds=(int(OpClass.INDIRECT_JUMP), int(OpClass.INDIRECT_CALL)), mnemonics=(),
            ranges=(), function=name, after=True, state=self._state.ctypes.data,
        )  # fmt: skip
