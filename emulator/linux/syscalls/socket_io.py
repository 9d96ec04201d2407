"""System calls on sockets.

Every public function handles the system call of that name. The sockets themselves are in `sockets`.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass

from emulator.linux.abi.numbers import signed
from emulator.linux.kernel.task import Task
from emulator.linux.kernel.waits import Wait
from emulator.linux.syscalls.socket_control import (
    datagram_values,
    parse_control,
    received_files,
    received_values,
)
from emulator.linux.syscalls.socket_options import IPPROTO_TCP, IPPROTO_UDP, IPPROTO_UDPLITE, socket_of
from emulator.linux.syscalls.transfers import accessible_bytes, gather, install_both, io_vectors, write_out
from emulator.linux.vfs.descriptor_table import MAX_DESCRIPTORS
from emulator.linux.vfs.open_files import OpenFile, WouldBlock
from emulator.linux.vfs.socket_names import (
    AF_INET,
    AF_UNIX,
    DATAGRAM,
    FAMILIES,
    LOOPBACK_4,
    LOOPBACK_6,
    SEQUENCED,
    STREAM,
    Address,
    Internet,
    internet_address,
)
from emulator.linux.vfs.sockets import BoundSocket, Message, Socket, drop_files, join
from emulator.memory import WRITE

_KIND = 15
_MSG_PEEK, _MSG_CTRUNC, _MSG_TRUNC, _MSG_DONTWAIT, _MSG_WAITALL = 2, 8, 0x20, 0x40, 0x100
_MSG_EOR, _MSG_NOSIGNAL, _MSG_MORE, _MSG_CMSG_CLOEXEC = 0x80, 0x4000, 0x8000, 0x4000_0000
_SEND_FLAGS = _MSG_DONTWAIT | _MSG_EOR | _MSG_NOSIGNAL | _MSG_MORE
_RECEIVE_FLAGS = _MSG_PEEK | _MSG_TRUNC | _MSG_DONTWAIT | _MSG_WAITALL | _MSG_CMSG_CLOEXEC | _MSG_NOSIGNAL
_SOCK_RAW = 3
_DATAGRAM_PROTOCOLS = (IPPROTO_UDP, IPPROTO_UDPLITE)
_ADDRESS_BYTES = 128
_PATH_BYTES = 108


def socket(task: Task, family: int, kind: int, protocol: int) -> int:
    made = _make(task, family, kind, protocol)
    return task.descriptors.install(made, close_on_exec=bool(kind & os.O_CLOEXEC))


def socketpair(task: Task, family: int, kind: int, protocol: int, address: int) -> int:
    if family != AF_UNIX:
        raise OSError(errno.EOPNOTSUPP, "socketpair")
    if not task.memory.valid_range(address, 8, WRITE):
        raise OSError(errno.EFAULT, "socketpair")
    one, other = _make(task, family, kind, protocol), _make(task, family, kind, protocol)
    join(one, other)
    return install_both(task, address, (one, other), bool(kind & os.O_CLOEXEC))


def _make(task: Task, family: int, kind: int, protocol: int) -> Socket:
    known = (STREAM, DATAGRAM, SEQUENCED) if family == AF_UNIX else (STREAM, DATAGRAM)
    if family not in FAMILIES or kind & _KIND not in known:
        task.report(f"a socket of family {family} and type {kind & _KIND}")
        known_type = family in FAMILIES and kind & _KIND in (STREAM, DATAGRAM, _SOCK_RAW, SEQUENCED)
        raise OSError(errno.ESOCKTNOSUPPORT if known_type else errno.EAFNOSUPPORT, "socket")
    choices = {AF_UNIX: (0, AF_UNIX)}.get(family, (IPPROTO_TCP,) if kind & _KIND == STREAM else _DATAGRAM_PROTOCOLS)
    number = signed(protocol, 32)
    if number and number not in choices:
        raise OSError(errno.EPROTONOSUPPORT, "protocol")
    flags = kind & os.O_NONBLOCK
    made = Socket(family, kind & _KIND, flags, task.files.new_inode(), task.files.names)
    made.process, made.protocol = (
        task.process.pid,
        choices[0] if not number or family == AF_UNIX else number,
    )
    return made


# Addresses


def bind(task: Task, fd: int, address: int, length: int) -> int:
    one = socket_of(task, fd)
    if one.address and one.family == AF_UNIX:
        raise OSError(errno.EINVAL, "bound")
    name = _read_address(task, one, address, length, errno.EADDRNOTAVAIL)
    if isinstance(name, Internet) and isinstance(one.address, Internet) and one.address.port:
        raise OSError(errno.EINVAL, "bound")
    if isinstance(name, bytes) and name and name[0]:
        try:
            task.files.make_special(task.files.absolute(os.fsdecode(name)), BoundSocket(one, 0o777))
        except FileExistsError:
            raise OSError(errno.EADDRINUSE, "path") from None
        one.address = name
    else:
        one.bind(name if name else task.files.names.free_name())
    return 0


def listen(task: Task, fd: int, backlog: int) -> int:
    socket_of(task, fd).listen(signed(backlog, 32))
    return 0


def connect(task: Task, fd: int, address: int, length: int) -> int:
    one = socket_of(task, fd)
    if length >= 2 and not task.memory.read_int(address, 2):
        one.peer = one.peer_address = None  # AF_UNSPEC dissolves the connection
        return 0
    name = _read_address(task, one, address, length)
    one.connect(_find(task, one, name), name, task.files.new_inode)
    return 0


def accept(task: Task, fd: int, address: int, length: int) -> int:
    return accept4(task, fd, address, length, 0)


def accept4(task: Task, fd: int, address: int, length: int, flags: int) -> int:
    if flags & ~(os.O_NONBLOCK | os.O_CLOEXEC):
        raise OSError(errno.EINVAL, "accept4")
    accepted = socket_of(task, fd).accept()
    accepted.flags |= flags & os.O_NONBLOCK
    if address:
        _write_address(task, accepted, accepted.peer_address, address, length)
    return task.descriptors.install(accepted, close_on_exec=bool(flags & os.O_CLOEXEC))


def getsockname(task: Task, fd: int, address: int, length: int) -> int:
    one = socket_of(task, fd)
    _write_address(task, one, one.address, address, length)
    return 0


def getpeername(task: Task, fd: int, address: int, length: int) -> int:
    one = socket_of(task, fd)
    if not one.is_connected:
        raise OSError(errno.ENOTCONN, "not connected")
    _write_address(task, one, one.peer_address, address, length)
    return 0


def _find(task: Task, one: Socket, name: Address) -> Socket | None:
    """The socket bound to the address, or None. Raises OSError for a path without a file."""
    if not isinstance(name, bytes) or not name or not name[0]:
        return task.files.names.find(one, name)
    path = task.files.absolute(os.fsdecode(name))
    special = task.files.special(path)
    if special is None:
        task.files.status(path)
    return special.socket if isinstance(special, BoundSocket) and special.socket.references else None


def _read_address(task: Task, one: Socket, address: int, length: int, elsewhere: int = errno.ENETUNREACH) -> Address:
    """The socket address at ``address``; ``elsewhere``: the error number for an address outside of the guest.

    Raises OSError."""
    if not 2 <= length <= _ADDRESS_BYTES:
        raise OSError(errno.EINVAL, "address")
    raw = task.memory.read(address, length)
    if int.from_bytes(raw[:2], "little") != one.family:
        raise OSError(errno.EAFNOSUPPORT, "address")
    if one.family == AF_UNIX:
        name = raw[2 : 2 + _PATH_BYTES]
        return name if not name or not name[0] else name.split(b"\0", 1)[0]
    if length < (16 if one.family == AF_INET else 28):
        raise OSError(errno.EINVAL, "address")
    host = raw[4:8] if one.family == AF_INET else raw[8:24]
    found = internet_address(one.family, host, int.from_bytes(raw[2:4], "big"))
    is_own = found.is_any or found.host == LOOPBACK_6 or found.host[:13] == LOOPBACK_4[:13]
    if not is_own:
        if elsewhere == errno.ENETUNREACH:
            task.report("the network: the guest has a loopback of its own and nothing else")
        raise OSError(elsewhere, "there is no network")
    return found


def _write_sender(task: Task, one: Socket, message: Message, address: int, length: int) -> None:
    """Write the sender's address; length 0 for a TCP stream and for a socket without a name."""
    sender = message.sender if one.kind == DATAGRAM else b"" if one.family != AF_UNIX else one.peer_address
    if sender:
        _write_address(task, one, sender, address, length)
    else:
        task.memory.write_int(length, 4, 0)


def _write_address(task: Task, one: Socket, name: Address | None, address: int, length: int) -> None:
    if isinstance(name, Internet):
        packed = struct.pack("<H", one.family) + name.port.to_bytes(2, "big")
        if one.family == AF_INET:
            packed += name.host[12:] + bytes(8)
        else:
            packed += bytes(4) + name.host + bytes(4)
    else:
        path = name or b""
        packed = struct.pack("<H", one.family) + path + (b"\0" if path and path[0] else b"")
    room = task.memory.read_int(length, 4)
    if room >> 31:
        raise OSError(errno.EINVAL, "length")
    task.memory.write(address, packed[:room])
    task.memory.write_int(length, 4, len(packed))


# Sending


def sendto(task: Task, fd: int, address: int, count: int, flags: int, name: int, length: int) -> int | Wait:
    one = socket_of(task, fd)
    return _send(task, one, task.memory.read(address, count), [], flags, name, length)


def sendmsg(task: Task, fd: int, message: int, flags: int) -> int | Wait:
    one = socket_of(task, fd)
    name, length, vectors, count, control, n_control, _ = _header(task, message)
    files, values = parse_control(task, one, task.memory.read(control, n_control) if control else b"")
    return _send(task, one, gather(task, vectors, count), files, flags, name, length, values)


def sendmmsg(task: Task, fd: int, messages: int, count: int, flags: int) -> int | Wait:
    """Send the messages that need no waiting; wait for the first one."""
    return _for_each_message(task, sendmsg, fd, messages, count, flags)


def _for_each_message(
    task: Task,
    one: Callable[[Task, int, int, int], int | Wait],
    fd: int,
    messages: int,
    count: int,
    flags: int,
) -> int | Wait:
    """Call ``one`` for an array of messages until it would wait or fails; write the bytes of each, and return the
    number of messages."""
    for index in range(min(count, MAX_DESCRIPTORS)):
        message = messages + 64 * index
        try:
            n_bytes = one(task, fd, message, flags if index == 0 else flags | _MSG_DONTWAIT)
        except OSError:
            if index == 0:
                raise
            return index
        if isinstance(n_bytes, Wait):  # only for the first message, which is sent in parts
            return Wait(
                _finish_first,
                task,
                n_bytes,
                message,
                if_interrupted=_interrupt_first,
                deadlock=n_bytes.deadlock,
            )
        task.memory.write_int(message + 56, 4, n_bytes)
    return min(count, MAX_DESCRIPTORS)


def _finish_first(task: Task, first: Wait, message: int) -> int | None:
    """The result of a call for several messages whose first message waits: 1 when that is finished."""
    n_bytes = first.result()
    assert not isinstance(n_bytes, Wait)
    return _write_first_length(task, n_bytes, message)


def _interrupt_first(task: Task, first: Wait, message: int) -> int | None:
    return _write_first_length(task, first.result_if_interrupted(), message)


def _write_first_length(task: Task, n_bytes: int | None, message: int) -> int | None:
    if n_bytes is None:
        return None
    task.memory.write_int(message + 56, 4, n_bytes)
    return 1


def _send(
    task: Task, one: Socket, data: bytes, files: list[OpenFile], flags: int, name: int, length: int,
    given: dict[int, int] | None = None,
) -> int | Wait:  # fmt: skip
    _known_flags(task, flags, _SEND_FLAGS, "sending")
    target = None
    if name and one.kind != STREAM:
        address = _read_address(task, one, name, length)
        target = _find(task, one, address)
        if isinstance(address, Internet):
            one.bind_free_port()
            if target is None:
                return len(data)  # the datagram has no receiver and is lost
        elif target is None or target.kind != DATAGRAM:
            raise OSError(errno.ECONNREFUSED, "no socket has the address")
    waits = not one.non_blocking and not flags & _MSG_DONTWAIT
    sending = _Sending(one, list(files), target, datagram_values(one, given or {}))
    try:
        signals = not flags & _MSG_NOSIGNAL and one.kind != DATAGRAM
        return write_out(task, sending.write, data, waits and one.kind == STREAM, signals)
    except WouldBlock:
        if waits:
            raise
        raise OSError(errno.EAGAIN, "no room") from None


@dataclass
class _Sending:
    """A message that is being sent, perhaps in parts. ``target``: None for the peer; ``values``: by control message."""

    socket: Socket
    files: list[OpenFile]
    target: Socket | None
    values: dict[int, int]

    def write(self, data: bytes) -> int:
        """Send ``data``; the files go with the first byte."""
        n_sent = self.socket.send(data, list(self.files), self.target, self.values)
        self.files.clear()
        return n_sent


# Receiving


def recvfrom(task: Task, fd: int, address: int, count: int, flags: int, name: int, length: int) -> int | Wait:
    one = socket_of(task, fd)
    count = accessible_bytes(task, address, count, WRITE) if count else 0

    return _receive(task, one, count, flags, _ToBuffer(task, one, flags, address, name, length))


@dataclass(frozen=True)
class _ToBuffer:
    """Where recvfrom puts a message: the data at ``address``; the sender at ``name`` unless that is 0."""

    task: Task
    socket: Socket
    flags: int
    address: int
    name: int
    length: int

    def deliver(self, message: Message, whole_bytes: int) -> int:
        """Write a message and return the call's result. ``whole_bytes``: its length before it was truncated."""
        drop_files(message)
        self.task.memory.write(self.address, message.data)
        if self.name:
            _write_sender(self.task, self.socket, message, self.name, self.length)
        return whole_bytes if self.flags & _MSG_TRUNC else len(message.data)


def recvmsg(task: Task, fd: int, header: int, flags: int) -> int | Wait:
    one = socket_of(task, fd)
    name, _, vectors, count, control, n_control, _ = _header(task, header)
    buffers = io_vectors(task, vectors, count)

    target = _ToVectors(task, one, flags, header, name, tuple(buffers), control, n_control if control else 0)
    return _receive(task, one, sum(length for _, length in buffers), flags, target)


@dataclass(frozen=True)
class _ToVectors:
    """Where recvmsg puts a message: the data in ``buffers`` (address, bytes), control messages at ``control``, the rest
    in ``struct msghdr`` at ``header``."""

    task: Task
    socket: Socket
    flags: int
    header: int
    name: int
    buffers: tuple[tuple[int, int], ...]
    control: int
    control_bytes: int

    def deliver(self, message: Message, whole_bytes: int) -> int:
        """As `_ToBuffer.deliver`."""
        memory, rest = self.task.memory, message.data
        for where, length in self.buffers:
            memory.write(where, rest[:length])
            rest = rest[length:]
        is_cut = whole_bytes > len(message.data) and self.socket.kind != STREAM
        if self.name:
            _write_sender(self.task, self.socket, message, self.name, self.header + 8)
        packed, lost = received_files(self.task, message, self.control_bytes, self.flags)
        if not packed and message.ancillary:
            packed, lost = received_values(self.socket, message, self.control_bytes)
        if packed:
            memory.write(self.control, packed)
        result_flags = (_MSG_TRUNC if is_cut else 0) | (_MSG_CTRUNC if lost else 0)
        memory.write(self.header + 40, struct.pack("<Qi", len(packed), result_flags))
        return whole_bytes if self.flags & _MSG_TRUNC else len(message.data)


def recvmmsg(task: Task, fd: int, messages: int, count: int, flags: int) -> int | Wait:
    """Receive the messages that need no waiting; wait for the first one."""
    return _for_each_message(task, recvmsg, fd, messages, count, flags)


def _receive(task: Task, one: Socket, count: int, flags: int, target: _ToBuffer | _ToVectors) -> int | Wait:
    """Receive a message, deliver it to ``target`` and return the result."""
    _known_flags(task, flags, _RECEIVE_FLAGS, "receiving")
    waits, peeks = not one.non_blocking and not flags & _MSG_DONTWAIT, bool(flags & _MSG_PEEK)
    whole_bytes = one.next_length() if one.kind != STREAM else 0
    message = one.receive(count, peeks, waits)
    if flags & _MSG_WAITALL and waits and one.kind == STREAM and not peeks and not message.files:
        result = _receive_rest(target, message, count)
        if result is not None:
            return result
        return Wait(
            _receive_rest, target, message, count,
            if_interrupted=_deliver_part,
            deadlock="the guest waits for ever: it reads more from a socket than other tasks send to it",
        )  # fmt: skip
    return target.deliver(message, max(whole_bytes, len(message.data)))


def _receive_rest(target: _ToBuffer | _ToVectors, message: Message, count: int) -> int | None:
    """MSG_WAITALL: receive the rest of ``count`` bytes; None if they are not there and the stream has not ended."""
    while len(message.data) < count:
        try:
            more = target.socket.receive(count - len(message.data))
        except WouldBlock:
            return None
        if not more.data:
            break
        message.data += more.data
        message.files += more.files
    return target.deliver(message, len(message.data))


def _deliver_part(target: _ToBuffer | _ToVectors, message: Message, count: int) -> int:
    return target.deliver(message, len(message.data))


def _header(task: Task, address: int) -> tuple[int, ...]:
    """The fields of ``struct msghdr``: name, its length, vectors, their count, control data, its length, flags."""
    return struct.unpack("<QI4xQQQQi", task.memory.read(address, 52))


def _known_flags(task: Task, flags: int, known: int, what: str) -> None:
    if flags & ~known & 0xFFFF_FFFF:
        task.report(f"{what} with flags {flags & ~known & 0xFFFF_FFFF:#x}")
        raise OSError(errno.EOPNOTSUPP, "flags")
