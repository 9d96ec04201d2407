"""The calling convention between translated functions.

Every translated function is ``preserve_none`` and leaves by a tail call to the next one, so the host's stack
never grows and a handful of guest registers stay in host registers from one translation to the next. The
others live in the state buffer between translations. Functions return to Python only through `Exit` reasons.
"""

from __future__ import annotations

# The guest registers passed in host registers: return address, stack pointer, frame pointer, the first arguments.
PINNED = (1, 2, 8, 10, 11, 12, 13)
CONVENTION = "preserve_nonecc"
PARAMETERS = ", ".join(["ptr %st", "ptr %mem", "i64 %budget", "ptr %rec", *(f"i64 %p{n}" for n in PINNED)])


def arguments(budget: str, record: str, pinned: dict[int, str]) -> str:
    """The argument list of a tail call."""
    return ", ".join(["ptr %st", "ptr %mem", f"i64 {budget}", f"ptr {record}", *(f"i64 {pinned[n]}" for n in PINNED)])
