"""System calls on credentials: user and group ids, and capabilities.

Every public function handles the system call of that name.
There is one user and one group; processes cannot change them and have no capabilities.
"""

from __future__ import annotations

import errno
import struct

from emulator.linux.abi.numbers import GID, MASK_64, UID
from emulator.linux.kernel.task import Task

_CAPABILITY_VERSIONS = {0x1998_0330: 1, 0x2007_1026: 2, 0x2008_0522: 2}
_LATEST_CAPABILITY_VERSION = 0x2008_0522


def getuid(task: Task) -> int:
    return UID


def geteuid(task: Task) -> int:
    return UID


def getgid(task: Task) -> int:
    return GID


def getegid(task: Task) -> int:
    return GID


def getgroups(task: Task) -> int:
    return 0


def setgroups(task: Task) -> int:
    raise OSError(errno.EPERM, "groups")


def sethostname(task: Task) -> int:
    raise OSError(errno.EPERM, "the host's name")


def setdomainname(task: Task) -> int:
    raise OSError(errno.EPERM, "the domain's name")


def setuid(task: Task, user: int) -> int:
    return _same(user, UID)


def setgid(task: Task, group: int) -> int:
    return _same(group, GID)


def setresuid(task: Task, real: int, effective: int, saved: int) -> int:
    return max(_same(user, UID) for user in (real, effective, saved))


def setresgid(task: Task, real: int, effective: int, saved: int) -> int:
    return max(_same(group, GID) for group in (real, effective, saved))


def getresuid(task: Task, real: int, effective: int, saved: int) -> int:
    for address in (real, effective, saved):
        task.memory.write_int(address, 4, UID)
    return 0


def getresgid(task: Task, real: int, effective: int, saved: int) -> int:
    for address in (real, effective, saved):
        task.memory.write_int(address, 4, GID)
    return 0


def setreuid(task: Task, real: int, effective: int) -> int:
    return max(_same(user, UID) for user in (real, effective))


def setregid(task: Task, real: int, effective: int) -> int:
    return max(_same(group, GID) for group in (real, effective))


def setfsuid(task: Task) -> int:
    return UID


def setfsgid(task: Task) -> int:
    return GID


def capget(task: Task, header: int, data: int) -> int:
    words = _capability_words(task, header)
    if data:
        task.memory.write(data, bytes(12 * words))
    return 0


def capset(task: Task, header: int, data: int) -> int:
    words = _capability_words(task, header)
    if any(task.memory.read(data, 12 * words)):
        raise OSError(errno.EPERM, "capabilities")
    return 0


def _capability_words(task: Task, header: int) -> int:
    """Words of each capability set in the header's version. For an unknown version, writes the latest one to the
    header and raises OSError(EINVAL)."""
    version, _ = struct.unpack("<Ii", task.memory.read(header, 8))
    if version not in _CAPABILITY_VERSIONS:
        task.memory.write_int(header, 4, _LATEST_CAPABILITY_VERSION)
        raise OSError(errno.EINVAL, "version")
    return _CAPABILITY_VERSIONS[version]


def _same(number: int, allowed: int) -> int:
    if number & 0xFFFF_FFFF not in (allowed, MASK_64 & 0xFFFF_FFFF):
        raise OSError(errno.EPERM, "another user")
    return 0
