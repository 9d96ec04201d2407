"""System V IPC: keys, identifiers and permissions of shared memory, semaphores and message queues.

The objects are visible to the guest's processes only. All belong to the guest's one user.
"""

from __future__ import annotations

import errno
import struct
from typing import Generic, TypeVar

from emulator.linux.abi.numbers import GID, UID, signed
from emulator.linux.kernel.clock import NANOSECONDS
from emulator.linux.kernel.system import System

IPC_CREAT, IPC_EXCL, IPC_NOWAIT = 0o1000, 0o2000, 0o4000
IPC_RMID, IPC_SET, IPC_STAT, IPC_INFO = range(4)
READ_ACCESS, WRITE_ACCESS, EXECUTE_ACCESS = 4, 2, 1
PERMISSION_BYTES = 48
"""``struct ipc64_perm`` of asm-generic."""

_INDICES = 1 << 15  # IPCMNI: an identifier is an index and, above it, a sequence number
_SEQUENCES = 1 << 16


class IpcObject:
    """A System V object. ``key``: 0 for a private object, and for a segment that is removed after its last use."""

    def __init__(self, key: int, mode: int, now: int) -> None:
        self.key = key
        self.mode = mode & 0o777
        self.user, self.group = UID, GID
        self.sequence = 0
        self.changed_seconds = now
        self.is_removed = False

    def check(self, access: int) -> None:
        """Raises OSError(EACCES) unless the owner has ``access``, which has the bits of a mode's last digit."""
        if access & ~(self.mode >> 6):
            raise OSError(errno.EACCES, "permissions")

    def permissions(self, more_mode: int = 0) -> bytes:
        """``struct ipc64_perm``; ``more_mode``: further bits of its mode."""
        return struct.pack(
            "<iIIIIIHH4xQQ", self.key, self.user, self.group, UID, GID, self.mode | more_mode,
            self.sequence & 0xFFFF, 0, 0, 0,
        )  # fmt: skip

    def set_permissions(self, packed: bytes, now: int) -> None:
        """Set owner and mode from a ``struct ipc64_perm``. Raises OSError(EINVAL)."""
        _, user, group, _, _, mode = struct.unpack_from("<iIIIII", packed)
        if 0xFFFF_FFFF in (user, group):
            raise OSError(errno.EINVAL, "owner")
        self.user, self.group, self.mode = user, group, mode & 0o777
        self.changed_seconds = now


Kind = TypeVar("Kind", bound=IpcObject)


class IpcTable(Generic[Kind]):
    """All objects of a kind, at most ``limit``. Identifiers are assigned as in Linux."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._objects: dict[int, Kind] = {}  # by index
        self._last_index = -1
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._objects)

    def objects(self) -> list[Kind]:
        return list(self._objects.values())

    def known(self, key: int, flags: int) -> tuple[int, Kind] | None:
        """Identifier and object of a key; None if the caller has to create one. Raises OSError."""
        key = signed(key, 32)
        found = next(((index, one) for index, one in self._objects.items() if key and one.key == key), None)
        if found is None:
            if key and not flags & IPC_CREAT:
                raise OSError(errno.ENOENT, "no such key")
            return None
        if flags & IPC_CREAT and flags & IPC_EXCL:
            raise OSError(errno.EEXIST, "exists")
        return self._identifier(*found), found[1]

    @staticmethod
    def check_mode(one: IpcObject, flags: int) -> None:
        """Raises OSError(EACCES) if the flags of a get call request permissions that the object does not grant."""
        one.check((flags >> 6 | flags >> 3 | flags) & 7)

    def add(self, one: Kind) -> int:
        """Add an object and return its identifier. Raises OSError(ENOSPC)."""
        if len(self._objects) >= self._limit:
            raise OSError(errno.ENOSPC, "too many")
        index = next(number for number in range(_INDICES) if number not in self._objects)
        if index <= self._last_index:
            self._sequence = (self._sequence + 1) % _SEQUENCES
        self._last_index, one.sequence = index, self._sequence
        self._objects[index] = one
        return self._identifier(index, one)

    def get(self, identifier: int) -> Kind:
        """The object of an identifier. Raises OSError: EINVAL, and EIDRM if another object has its index now."""
        number = signed(identifier, 32)
        found = self._objects.get(number % _INDICES)
        if number < 0 or found is None:
            raise OSError(errno.EINVAL, "no such identifier")
        if number // _INDICES != found.sequence:
            raise OSError(errno.EIDRM, "removed")
        return found

    def at(self, index: int) -> tuple[int, Kind]:
        """Identifier and object at an index, for the STAT commands. Raises OSError(EINVAL)."""
        found = self._objects.get(signed(index, 32) % _INDICES)
        if found is None:
            raise OSError(errno.EINVAL, "nothing at that index")
        return self._identifier(signed(index, 32) % _INDICES, found), found

    def highest(self) -> int:
        """The highest index in use; 0 without any."""
        return max(self._objects, default=0)

    def remove(self, one: Kind) -> None:
        one.is_removed = True
        self._objects = {index: other for index, other in self._objects.items() if other is not one}

    @staticmethod
    def _identifier(index: int, one: IpcObject) -> int:
        return one.sequence * _INDICES + index


def now_seconds(system: System) -> int:
    """The wall-clock time that the objects' fields for times get."""
    return system.clock.wall() // NANOSECONDS
