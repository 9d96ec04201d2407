"""System calls on credentials: user and group ids, and capabilities. Every public method is the call of that name.

There is one user and one group; processes cannot change them and have no capabilities.
"""

from __future__ import annotations

import errno
import struct

from emulator.linux.abi.numbers import GID, MASK_64, UID
from emulator.linux.syscalls.base import KernelCalls

_CAPABILITY_VERSIONS = {0x1998_0330: 1, 0x2007_1026: 2, 0x2008_0522: 2}
_LATEST_CAPABILITY_VERSION = 0x2008_0522


class CredentialCalls(KernelCalls):
    def getuid(self) -> int:
        return UID

    def geteuid(self) -> int:
        return UID

    def getgid(self) -> int:
        return GID

    def getegid(self) -> int:
        return GID

    def getgroups(self) -> int:
        return 0

    def setgroups(self) -> int:
        raise OSError(errno.EPERM, "groups")

    def sethostname(self) -> int:
        raise OSError(errno.EPERM, "the host's name")

    def setdomainname(self) -> int:
        raise OSError(errno.EPERM, "the domain's name")

    def setuid(self, user: int) -> int:
        return self._same(user, UID)

    def setgid(self, group: int) -> int:
        return self._same(group, GID)

    def setresuid(self, real: int, effective: int, saved: int) -> int:
        return max(self._same(user, UID) for user in (real, effective, saved))

    def setresgid(self, real: int, effective: int, saved: int) -> int:
        return max(self._same(group, GID) for group in (real, effective, saved))

    def getresuid(self, real: int, effective: int, saved: int) -> int:
        for address in (real, effective, saved):
            self._memory.write_int(address, 4, UID)
        return 0

    def getresgid(self, real: int, effective: int, saved: int) -> int:
        for address in (real, effective, saved):
            self._memory.write_int(address, 4, GID)
        return 0

    def setreuid(self, real: int, effective: int) -> int:
        return max(self._same(user, UID) for user in (real, effective))

    def setregid(self, real: int, effective: int) -> int:
        return max(self._same(group, GID) for group in (real, effective))

    def setfsuid(self) -> int:
        return UID

    def setfsgid(self) -> int:
        return GID

    def capget(self, header: int, data: int) -> int:
        words = self._capability_words(header)
        if data:
            self._memory.write(data, bytes(12 * words))
        return 0

    def capset(self, header: int, data: int) -> int:
        words = self._capability_words(header)
        if any(self._memory.read(data, 12 * words)):
            raise OSError(errno.EPERM, "capabilities")
        return 0

    def _capability_words(self, header: int) -> int:
        """Words of each capability set in the header's version. For an unknown version, writes the latest one to the
        header and raises OSError(EINVAL)."""
        version, _ = struct.unpack("<Ii", self._memory.read(header, 8))
        if version not in _CAPABILITY_VERSIONS:
            self._memory.write_int(header, 4, _LATEST_CAPABILITY_VERSION)
            raise OSError(errno.EINVAL, "version")
        return _CAPABILITY_VERSIONS[version]

    @staticmethod
    def _same(number: int, allowed: int) -> int:
        if number & 0xFFFF_FFFF not in (allowed, MASK_64 & 0xFFFF_FFFF):
            raise OSError(errno.EPERM, "another user")
        return 0
