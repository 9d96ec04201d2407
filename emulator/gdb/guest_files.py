"""vFile packets: read access to the guest's files, where gdb finds the symbols of programs and libraries.

The debugger sees the same files as the guest, read-only, and no other files of the host. Source: "Debugging with
GDB", appendix E, "Host I/O Packets" (vFile), and "File-I/O Remote Protocol Extension" for the reply to fstat.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable

from emulator.gdb.packets import MAX_PACKET_BYTES
from emulator.linux.vfs.files import VirtualFiles
from emulator.linux.vfs.open_files import FileStatus, OpenFile

# The protocol has its own error numbers; most of those that occur here equal Linux's.
_ERRORS = {errno.ENAMETOOLONG: 91}
_OTHER_ERROR = 9999
_ACCESS = 3  # bits of the flags of an open


class GuestFiles:
    """The files that the debugger has opened; ``files`` returns the files of the running process."""

    def __init__(self, files: Callable[[], VirtualFiles]) -> None:
        self._files = files
        self._open: dict[int, OpenFile] = {}

    def answer(self, packet: bytes) -> bytes:
        """The reply to a packet, of which ``packet`` is the part after ``vFile:``; empty for unknown operations."""
        name, _, rest = packet.partition(b":")
        operation = _OPERATIONS.get(name)
        if operation is None:
            return b""
        try:
            return operation(self, rest.split(b","))
        except OSError as error:
            number = error.errno or errno.EIO
            known = number if number < 35 else _OTHER_ERROR
            return b"F-1,%x" % _ERRORS.get(number, known)

    def close(self) -> None:
        """Close the files that the debugger has not closed."""
        for descriptor in list(self._open):
            self._close([b"%x" % descriptor])

    def _set_file_system(self, arguments: list[bytes]) -> bytes:
        return b"F0"  # all processes share one file system

    def _open_file(self, arguments: list[bytes]) -> bytes:
        path, flags = os.fsdecode(bytes.fromhex(arguments[0].decode())), int(arguments[1], 16)
        if flags & _ACCESS != os.O_RDONLY:
            raise OSError(errno.EROFS, "the debugger can only read files")
        files = self._files()
        file = files.open(files.absolute(path), os.O_RDONLY, 0)
        descriptor = next(number for number in range(len(self._open) + 1) if number not in self._open)
        self._open[descriptor] = file
        return b"F%x" % descriptor

    def _file(self, descriptor: bytes) -> OpenFile:
        try:
            return self._open[int(descriptor, 16)]
        except KeyError:
            raise OSError(errno.EBADF, "descriptor") from None

    def _close(self, arguments: list[bytes]) -> bytes:
        file = self._file(arguments[0])
        del self._open[int(arguments[0], 16)]
        if file.references == 0:
            file.close()
        return b"F0"

    def _read(self, arguments: list[bytes]) -> bytes:
        count, offset = (int(one, 16) for one in arguments[1:3])
        # Every byte may have to be escaped.
        data = self._file(arguments[0]).read_at(min(count, MAX_PACKET_BYTES // 2 - 32), offset)
        return b"F%x;" % len(data) + data

    def _status(self, arguments: list[bytes]) -> bytes:
        status = self._file(arguments[0]).status()
        return b"F%x;" % _STATUS.size + _packed(status)

    def _link(self, arguments: list[bytes]) -> bytes:
        files = self._files()
        target = os.fsencode(files.read_link(files.absolute(os.fsdecode(bytes.fromhex(arguments[0].decode())))))
        return b"F%x;" % len(target) + target


_STATUS = struct.Struct(">7I3Q3I")


def _packed(status: FileStatus) -> bytes:
    blocks = (status.size_bytes + 511) // 512
    return _STATUS.pack(
        0, status.inode & 0xFFFFFFFF, status.mode, status.links, 0, 0, 0, status.size_bytes, 4096, blocks, 0, 0, 0
    )  # fmt: skip


_OPERATIONS: dict[bytes, Callable[[GuestFiles, list[bytes]], bytes]] = {
    b"setfs": GuestFiles._set_file_system, b"open": GuestFiles._open_file, b"close": GuestFiles._close,
    b"pread": GuestFiles._read, b"fstat": GuestFiles._status, b"readlink": GuestFiles._link,
}  # fmt: skip
