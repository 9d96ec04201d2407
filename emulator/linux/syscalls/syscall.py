"""A row of the table of system calls."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from enum import Enum
from functools import cached_property

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
    """A row of the table.

    ``place``: the handler, as "MODULE.FUNCTION" of this package; its module is loaded at the first call, because most
    programs use few of them. ``note``: what is not supported, or why the call has no effect; empty for full support.
    """

    def __init__(self, name: str, place: str, support: Support = FULL, note: str = "") -> None:
        self.name = name
        self.place = place
        self.support = support
        self.note = note

    @cached_property
    def handler(self) -> Handler:
        module, _, function = self.place.rpartition(".")
        found: Handler = getattr(importlib.import_module(f"{__package__}.{module}"), function)
        return found

    @cached_property
    def n_arguments(self) -> int:
        # `inspect.signature` would take ten times as long
        return self.handler.__code__.co_argcount - 1
