"""A row of the table of system calls, and the optional groups of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from emulator.linux.kernel.waits import Result, Wait

Handler = Callable[..., Result | Wait]
"""A function of the calling `Task` and up to six arguments (unsigned 64-bit integers). It returns the result, None if
the registers hold it already, or a `Wait`. OSError becomes the negative error number, `MemoryFault` EFAULT and
`MemoryLimit` ENOMEM; after `WouldBlock` the call is tried again until it does not block."""


class Support(Enum):
    """How much of a system call is supported: all of it; some of it; accepted without any effect, which a correct
    program cannot tell from Linux; or refused with the error that Linux gives an unprivileged process."""

    FULL = "full"
    PARTIAL = "partial"
    NO_EFFECT = "no effect"
    REFUSED = "refused"


FULL, PARTIAL, NO_EFFECT, REFUSED = Support


class Syscall:
    """A row of the table. ``note``: what is not supported, or why the call has no effect; empty for full support."""

    __slots__ = ("handler", "n_arguments", "name", "note", "support")

    def __init__(self, name: str, handler: Handler, support: Support = FULL, note: str = "") -> None:
        self.name = name
        self.handler = handler
        self.support = support
        self.note = note
        # `inspect.signature` would take ten times as long at every start of the emulator
        self.n_arguments = handler.__code__.co_argcount - 1


@dataclass(frozen=True)
class Group:
    """An optional group of system calls, which nothing else in the kernel needs. ``name``: as listings show it."""

    name: str
    table: Mapping[int, Syscall]


GROUPS: dict[str, Group] = {}
"""The groups that have registered themselves, by name."""


def register(group: Group) -> None:
    """Add a group; each module of `syscalls.optional` does this for its own when it is imported."""
    GROUPS[group.name] = group
