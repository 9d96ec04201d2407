"""System calls on socket options and shutdown. Every public function handles the system call of that name."""

from __future__ import annotations

import errno
import struct

from emulator.linux.abi.numbers import GID, UID
from emulator.linux.kernel.task import Task
from emulator.linux.vfs.sockets import BUFFER_BYTES, Socket

IPPROTO_TCP, IPPROTO_UDP, IPPROTO_UDPLITE = 6, 17, 136
_SOL_SOCKET = 1
_SO_TYPE, _SO_ERROR, _SO_SNDBUF, _SO_RCVBUF, _SO_PEERCRED = 3, 4, 7, 8, 17
_SO_RCVTIMEO, _SO_SNDTIMEO, _SO_ACCEPTCONN, _SO_PROTOCOL, _SO_DOMAIN = 20, 21, 30, 38, 39
_MAX_OPTION_BYTES = 128


def shutdown(task: Task, fd: int, how: int) -> int:
    if how > 2:
        raise OSError(errno.EINVAL, "shutdown")
    socket_of(task, fd).shut(reading=how != 1, writing=how != 0)
    return 0


def getsockopt(task: Task, fd: int, level: int, option: int, address: int, length: int) -> int:
    one = socket_of(task, fd)
    room = task.memory.read_int(length, 4)
    known = {
        _SO_TYPE: one.kind, _SO_SNDBUF: BUFFER_BYTES, _SO_RCVBUF: BUFFER_BYTES,
        _SO_ACCEPTCONN: int(one.backlog is not None), _SO_DOMAIN: one.family,
        _SO_PROTOCOL: one.protocol,
    }  # fmt: skip
    if (level, option) == (_SOL_SOCKET, _SO_PEERCRED):
        peer = one.peer.process if one.peer is not None else 0
        value = struct.pack("<iII", peer, UID, GID) if peer else struct.pack("<iII", 0, 2**32 - 1, 2**32 - 1)
    elif (level, option) == (_SOL_SOCKET, _SO_ERROR):
        value = struct.pack("<i", one.take_error())
    elif level == _SOL_SOCKET and option in known:
        value = struct.pack("<i", known[option])
    else:
        value = one.options.get((level, option), bytes(16 if option in (_SO_RCVTIMEO, _SO_SNDTIMEO) else 4))
    task.memory.write(address, value[:room])
    task.memory.write_int(length, 4, min(room, len(value)))
    return 0


def setsockopt(task: Task, fd: int, level: int, option: int, address: int, length: int) -> int:
    one = socket_of(task, fd)
    if length > _MAX_OPTION_BYTES:
        raise OSError(errno.EINVAL, "option")
    value = task.memory.read(address, length)
    if (level, option) in ((_SOL_SOCKET, _SO_RCVTIMEO), (_SOL_SOCKET, _SO_SNDTIMEO)) and any(value):
        task.report("a timeout of a socket")
        raise OSError(errno.EDOM, "timeout")
    one.options[level, option] = value
    return 0


def socket_of(task: Task, fd: int) -> Socket:
    file = task.file(fd)
    if not isinstance(file, Socket):
        raise OSError(errno.ENOTSOCK, "socket")
    return file
