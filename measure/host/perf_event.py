"""Linux's perf_event_open: opens events on this process, to learn what the processor counts.

Numbers and structures are those of `linux/perf_event.h`.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

HARDWARE, SOFTWARE, CACHE, RAW = 0, 1, 3, 4
CPU_CLOCK = 0
_SYSTEM_CALL = {"x86_64": 298, "aarch64": 241, "riscv64": 241}
_ATTRIBUTE_BYTES = 120
_DISABLED, _WITHOUT_KERNEL, _WITHOUT_HYPERVISOR = 1 << 0, 1 << 5, 1 << 6
_READ_GROUP_AND_TIMES = 0b1011
_CLOSE_ON_EXEC = 8
_ENABLE, _ONLY_GROUP = 0x2400, 1


class Event(NamedTuple):
    """An event as perf_event_open takes it."""

    type: int
    config: int


class EventLayer(Protocol):
    """What asks the kernel; tests put a recorded one in its place."""

    def open_group(self, events: Sequence[Event], without_kernel: bool) -> int:
        """0 if the events can be opened as a group behind a clock, else the kernel's error number."""

    def paranoid(self) -> int | None:
        """The value of `kernel.perf_event_paranoid`; None where there is none."""


class LinuxEvents:
    """The kernel of this machine."""

    def open_group(self, events: Sequence[Event], without_kernel: bool) -> int:
        """See `EventLayer`; opens the group on this process, lets it count, and checks that it does."""
        files: list[int] = []
        try:
            for event in (Event(SOFTWARE, CPU_CLOCK), *events):
                file = _open(event, files[0] if files else -1, without_kernel)
                if file < 0:
                    return -file
                files.append(file)
            fcntl.ioctl(files[0], _ENABLE, _ONLY_GROUP)
            sum(range(20_000))
            _, enabled, running = struct.unpack_from("QQQ", os.read(files[0], 8 * (3 + len(files))))
            return errno.EBUSY if enabled and not running else 0
        except OSError as error:
            return error.errno or errno.EIO
        finally:
            for file in files:
                os.close(file)

    def paranoid(self) -> int | None:
        """See `EventLayer`."""
        try:
            return int(Path("/proc/sys/kernel/perf_event_paranoid").read_text())
        except (OSError, ValueError):
            return None


def _open(event: Event, group: int, without_kernel: bool) -> int:
    """A file of the event, or the kernel's error number below 0."""
    number = _SYSTEM_CALL.get(platform.machine())
    if number is None:
        return -errno.ENOSYS
    flags = _WITHOUT_HYPERVISOR | (_WITHOUT_KERNEL if without_kernel else 0) | (_DISABLED if group < 0 else 0)
    attribute = struct.pack(
        "<IIQQQQQ", event.type, _ATTRIBUTE_BYTES, event.config, 0, 0, _READ_GROUP_AND_TIMES, flags
    ).ljust(_ATTRIBUTE_BYTES, b"\0")
    library = ctypes.CDLL(None, use_errno=True)
    file = library.syscall(
        ctypes.c_long(number), ctypes.create_string_buffer(attribute, _ATTRIBUTE_BYTES), ctypes.c_int(0),
        ctypes.c_int(-1), ctypes.c_int(group), ctypes.c_ulong(_CLOSE_ON_EXEC),
    )  # fmt: skip
    return file if file >= 0 else -ctypes.get_errno()
