"""Ancillary data of sockets: passed file descriptors (SCM_RIGHTS) and IPv6 datagram values (RFC 3542)."""

from __future__ import annotations

import errno
import struct

from emulator.linux.kernel.task import Task
from emulator.linux.vfs.open_files import OpenFile
from emulator.linux.vfs.socket_names import AF_INET6, IPPROTO_IPV6
from emulator.linux.vfs.sockets import Message, Socket

_SOL_SOCKET, _SCM_RIGHTS = 1, 1
_MSG_CMSG_CLOEXEC = 0x4000_0000
_IPV6_UNICAST_HOPS, _IPV6_HOPLIMIT, _IPV6_TCLASS = 16, 52, 67
# Values of IPv6 datagrams: the receiver's option, the control message type, the sender's option, the default.
_DATAGRAM_VALUES = ((51, _IPV6_HOPLIMIT, _IPV6_UNICAST_HOPS, 64), (66, _IPV6_TCLASS, _IPV6_TCLASS, 0))
_MAX_FILES = 253


"""Helpers of the system calls that send and receive messages: parse and build control messages."""


def parse_control(task: Task, one: Socket, control: bytes) -> tuple[list[OpenFile], dict[int, int]]:
    """Parse control messages: the passed files, and the IPv6 values by type. Raises OSError."""
    files: list[OpenFile] = []
    values: dict[int, int] = {}
    while len(control) >= 16:
        length, level, kind = struct.unpack_from("<Qii", control)
        if not 16 <= length <= len(control):
            raise OSError(errno.EINVAL, "control message")
        if (level, kind) == (_SOL_SOCKET, _SCM_RIGHTS):
            numbers = struct.unpack_from(f"<{(length - 16) // 4}i", control, 16)
            files += [task.file(number) for number in numbers]
        elif one.family == AF_INET6 and level == IPPROTO_IPV6 and kind in (_IPV6_HOPLIMIT, _IPV6_TCLASS):
            value = struct.unpack_from("<i", control, 16)[0] if length == 20 else -2
            if not -1 <= value <= 255:
                raise OSError(errno.EINVAL, "control message")
            values |= {} if value < 0 else {kind: value}
        else:
            task.report(f"a control message of level {level} and type {kind}")
            raise OSError(errno.EINVAL, "control message")
        control = control[length + 7 & -8 :]
    if len(files) > _MAX_FILES:
        raise OSError(errno.EINVAL, "too many files at once")
    return files, values


def datagram_values(one: Socket, given: dict[int, int]) -> dict[int, int]:
    """Header values of an IPv6 socket's datagram, by type; ``given``: the values given by control messages."""
    found = {}
    for _, kind, option, default in _DATAGRAM_VALUES if one.family == AF_INET6 else ():
        value = one.options.get((IPPROTO_IPV6, option), b"")
        chosen = struct.unpack("<i", value)[0] if len(value) == 4 else -1
        found[kind] = given.get(kind, chosen if chosen >= 0 else default)
    return found


def received_values(one: Socket, message: Message, room_bytes: int) -> tuple[bytes, bool]:
    """The control messages that an IPv6 socket has enabled, and whether some were truncated."""
    packed, is_cut = b"", False
    for option, kind, _, _ in _DATAGRAM_VALUES:
        if kind not in message.ancillary or not one.has_option(IPPROTO_IPV6, option):
            continue
        room = room_bytes - len(packed)
        length = min(20, room)
        is_cut |= length < 20
        if length >= 16:
            head = struct.pack("<Qiii4x", length, IPPROTO_IPV6, kind, message.ancillary[kind])
            packed += head[: min(length if length < 20 else 24, room)]
    return packed, is_cut


def received_files(task: Task, message: Message, room_bytes: int, flags: int) -> tuple[bytes, bool]:
    """Install the passed files; their SCM_RIGHTS control message, and whether it was truncated."""
    numbers: list[int] = []
    room = max(0, room_bytes - 16) // 4
    files, message.files = message.files, []
    for index, file in enumerate(files):
        if index < room:
            try:
                numbers.append(task.descriptors.install(file, close_on_exec=bool(flags & _MSG_CMSG_CLOEXEC)))
            except OSError:
                room = 0
        file.references -= 1
        if file.references == 0:
            file.close()
    if not numbers:
        return b"", bool(files)
    head = struct.pack("<Qii", 16 + 4 * len(numbers), _SOL_SOCKET, _SCM_RIGHTS)
    return head + struct.pack(f"<{len(numbers)}i", *numbers), len(numbers) < len(files)
