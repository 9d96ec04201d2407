"""Opens a directory that is many components below another by a few calls, as long as none of them is a link.

The kernel goes through the components (openat2, since Linux 5.6): programs that go down thousands of directories
otherwise take a call for each at every use of a path.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Iterator, Sequence
from typing import Any

_OPENAT2 = 437  # on all processors
_NO_SYMLINKS, _BENEATH = 0x04, 0x08
_MOST_BYTES = 4000  # of a path in one call: PATH_MAX


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


@functools.cache
def _system_call() -> Any:
    return ctypes.CDLL(None, use_errno=True).syscall


def open_below(directory: int, names: Sequence[str]) -> int | None:
    """A path descriptor of the directory ``names`` below the open ``directory``; None if one of them is a link or no
    directory, or the kernel cannot tell. ``names``: without ``..``."""
    how = _How(os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, 0, _NO_SYMLINKS | _BENEATH)
    found = directory
    for part in _parts(os.fsencode("/".join(names))):
        arguments = (ctypes.c_long(_OPENAT2), ctypes.c_long(found), part, ctypes.byref(how))
        below = _system_call()(*arguments, ctypes.c_size_t(ctypes.sizeof(how)))
        if found != directory:
            os.close(found)
        if below < 0:
            return None
        found = below
    return found if found != directory else None


def _parts(path: bytes) -> Iterator[bytes]:
    """``path`` in parts that the kernel takes; none of one that it takes for another."""
    while path and b"\0" not in path:
        end = len(path) if len(path) <= _MOST_BYTES else path.rfind(b"/", 0, _MOST_BYTES)
        if end < 0:
            yield path  # a name that is too long
            return
        yield path[:end]
        path = path[end + 1 :]
