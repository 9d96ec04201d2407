"""System calls on sockets. Every public method is the call of that name. The sockets themselves are in `sockets`."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable

from emulator.linux.abi.numbers import signed
from emulator.linux.kernel.socket_control import ControlMessages
from emulator.linux.kernel.tasks import Wait
from emulator.linux.syscalls.socket_options import IPPROTO_TCP, IPPROTO_UDP, IPPROTO_UDPLITE
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


class SocketCalls(ControlMessages):
    def socket(self, family: int, kind: int, protocol: int) -> int:
        made = self._make(family, kind, protocol)
        return self._table.install(made, close_on_exec=bool(kind & os.O_CLOEXEC))

    def socketpair(self, family: int, kind: int, protocol: int, address: int) -> int:
        if family != AF_UNIX:
            raise OSError(errno.EOPNOTSUPP, "socketpair")
        if not self._memory.valid_range(address, 8, WRITE):
            raise OSError(errno.EFAULT, "socketpair")
        one, other = self._make(family, kind, protocol), self._make(family, kind, protocol)
        join(one, other)
        return self._install_both(address, (one, other), bool(kind & os.O_CLOEXEC))

    def _make(self, family: int, kind: int, protocol: int) -> Socket:
        known = (STREAM, DATAGRAM, SEQUENCED) if family == AF_UNIX else (STREAM, DATAGRAM)
        if family not in FAMILIES or kind & _KIND not in known:
            self._scheduler.report(f"a socket of family {family} and type {kind & _KIND}")
            known_type = family in FAMILIES and kind & _KIND in (STREAM, DATAGRAM, _SOCK_RAW, SEQUENCED)
            raise OSError(errno.ESOCKTNOSUPPORT if known_type else errno.EAFNOSUPPORT, "socket")
        choices = {AF_UNIX: (0, AF_UNIX)}.get(
            family, (IPPROTO_TCP,) if kind & _KIND == STREAM else _DATAGRAM_PROTOCOLS
        )
        number = signed(protocol, 32)
        if number and number not in choices:
            raise OSError(errno.EPROTONOSUPPORT, "protocol")
        flags = kind & os.O_NONBLOCK
        made = Socket(family, kind & _KIND, flags, self._files.new_inode(), self._files.names)
        made.process, made.protocol = (
            self._owner.pid,
            choices[0] if not number or family == AF_UNIX else number,
        )
        return made

    # Addresses

    def bind(self, fd: int, address: int, length: int) -> int:
        one = self._socket(fd)
        if one.address and one.family == AF_UNIX:
            raise OSError(errno.EINVAL, "bound")
        name = self._read_address(one, address, length, errno.EADDRNOTAVAIL)
        if isinstance(name, Internet) and isinstance(one.address, Internet) and one.address.port:
            raise OSError(errno.EINVAL, "bound")
        if isinstance(name, bytes) and name and name[0]:
            try:
                self._files.make_special(self._files.absolute(os.fsdecode(name)), BoundSocket(one, 0o777))
            except FileExistsError:
                raise OSError(errno.EADDRINUSE, "path") from None
            one.address = name
        else:
            one.bind(name if name else self._files.names.free_name())
        return 0

    def listen(self, fd: int, backlog: int) -> int:
        self._socket(fd).listen(signed(backlog, 32))
        return 0

    def connect(self, fd: int, address: int, length: int) -> int:
        one = self._socket(fd)
        if length >= 2 and not self._memory.read_int(address, 2):
            one.peer = one.peer_address = None  # AF_UNSPEC dissolves the connection
            return 0
        name = self._read_address(one, address, length)
        one.connect(self._find(one, name), name, self._files.new_inode)
        return 0

    def accept(self, fd: int, address: int, length: int) -> int:
        return self.accept4(fd, address, length, 0)

    def accept4(self, fd: int, address: int, length: int, flags: int) -> int:
        if flags & ~(os.O_NONBLOCK | os.O_CLOEXEC):
            raise OSError(errno.EINVAL, "accept4")
        accepted = self._socket(fd).accept()
        accepted.flags |= flags & os.O_NONBLOCK
        if address:
            self._write_address(accepted, accepted.peer_address, address, length)
        return self._table.install(accepted, close_on_exec=bool(flags & os.O_CLOEXEC))

    def getsockname(self, fd: int, address: int, length: int) -> int:
        one = self._socket(fd)
        self._write_address(one, one.address, address, length)
        return 0

    def getpeername(self, fd: int, address: int, length: int) -> int:
        one = self._socket(fd)
        if not one.is_connected:
            raise OSError(errno.ENOTCONN, "not connected")
        self._write_address(one, one.peer_address, address, length)
        return 0

    def _find(self, one: Socket, name: Address) -> Socket | None:
        """The socket bound to the address, or None. Raises OSError for a path without a file."""
        if not isinstance(name, bytes) or not name or not name[0]:
            return self._files.names.find(one, name)
        path = self._files.absolute(os.fsdecode(name))
        special = self._files.special(path)
        if special is None:
            self._files.status(path)
        return special.socket if isinstance(special, BoundSocket) and special.socket.references else None

    def _read_address(
        self, one: Socket, address: int, length: int, elsewhere: int = errno.ENETUNREACH
    ) -> Address:
        """The socket address at ``address``; ``elsewhere``: the error number for an address outside of the guest.

        Raises OSError."""
        if not 2 <= length <= _ADDRESS_BYTES:
            raise OSError(errno.EINVAL, "address")
        raw = self._memory.read(address, length)
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
                self._scheduler.report("the network: the guest has a loopback of its own and nothing else")
            raise OSError(elsewhere, "there is no network")
        return found

    def _write_sender(self, one: Socket, message: Message, address: int, length: int) -> None:
        """Write the sender's address; length 0 for a TCP stream and for a socket without a name."""
        sender = (
            message.sender if one.kind == DATAGRAM else b"" if one.family != AF_UNIX else one.peer_address
        )
        if sender:
            self._write_address(one, sender, address, length)
        else:
            self._memory.write_int(length, 4, 0)

    def _write_address(self, one: Socket, name: Address | None, address: int, length: int) -> None:
        if isinstance(name, Internet):
            packed = struct.pack("<H", one.family) + name.port.to_bytes(2, "big")
            if one.family == AF_INET:
                packed += name.host[12:] + bytes(8)
            else:
                packed += bytes(4) + name.host + bytes(4)
        else:
            path = name or b""
            packed = struct.pack("<H", one.family) + path + (b"\0" if path and path[0] else b"")
        room = self._memory.read_int(length, 4)
        if room >> 31:
            raise OSError(errno.EINVAL, "length")
        self._memory.write(address, packed[:room])
        self._memory.write_int(length, 4, len(packed))

    # Sending

    def sendto(self, fd: int, address: int, count: int, flags: int, name: int, length: int) -> int:
        one = self._socket(fd)
        return self._send(one, self._memory.read(address, count), [], flags, name, length)

    def sendmsg(self, fd: int, message: int, flags: int) -> int:
        one = self._socket(fd)
        name, length, vectors, count, control, n_control, _ = self._header(message)
        files, values = self._control(one, self._memory.read(control, n_control) if control else b"")
        return self._send(one, self._gather(vectors, count), files, flags, name, length, values)

    def sendmmsg(self, fd: int, messages: int, count: int, flags: int) -> int:
        """Send the messages that need no waiting; wait for the first one."""
        return self._for_each_message(self.sendmsg, fd, messages, count, flags)

    def _for_each_message(
        self, one: Callable[[int, int, int], int], fd: int, messages: int, count: int, flags: int
    ) -> int:
        """Call ``one`` for an array of messages until it would wait or fails; write the bytes of each, and return the
        number of messages."""
        for index in range(min(count, MAX_DESCRIPTORS)):
            message = messages + 64 * index
            try:
                n_bytes = one(fd, message, flags if index == 0 else flags | _MSG_DONTWAIT)
            except OSError:
                if index == 0:
                    raise
                return index
            except Wait as wait:  # only for the first message, which is sent in parts
                raise self._wait_for_first(wait, message) from None
            self._memory.write_int(message + 56, 4, n_bytes)
        return min(count, MAX_DESCRIPTORS)

    def _wait_for_first(self, wait: Wait, message: int) -> Wait:
        """The wait of a call for several messages whose first message waits: its result is then 1."""

        def write_length(n_bytes: int | None) -> int | None:
            if n_bytes is None:
                return None
            self._memory.write_int(message + 56, 4, n_bytes)
            return 1

        interrupted = wait.interrupted
        return Wait(
            lambda: write_length(wait.ready()),
            interrupted=None if interrupted is None else lambda: write_length(interrupted()),
            deadlock=wait.deadlock,
        )

    def _send(
        self, one: Socket, data: bytes, files: list[OpenFile], flags: int, name: int, length: int,
        given: dict[int, int] | None = None,
    ) -> int:  # fmt: skip
        self._known_flags(flags, _SEND_FLAGS, "sending")
        target = None
        if name and one.kind != STREAM:
            address = self._read_address(one, name, length)
            target = self._find(one, address)
            if isinstance(address, Internet):
                one.bind_free_port()
                if target is None:
                    return len(data)  # the datagram has no receiver and is lost
            elif target is None or target.kind != DATAGRAM:
                raise OSError(errno.ECONNREFUSED, "no socket has the address")
        waits = not one.non_blocking and not flags & _MSG_DONTWAIT
        values = self._datagram_values(one, given or {})

        def write(rest: bytes) -> int:
            sent = one.send(rest, list(files), target, values)
            files.clear()  # files are passed with the first byte
            return sent

        try:
            signals = not flags & _MSG_NOSIGNAL and one.kind != DATAGRAM
            return self._write_out(write, data, waits and one.kind == STREAM, signals)
        except WouldBlock:
            if waits:
                raise
            raise OSError(errno.EAGAIN, "no room") from None

    # Receiving

    def recvfrom(self, fd: int, address: int, count: int, flags: int, name: int, length: int) -> int:
        one = self._socket(fd)
        count = self._accessible(address, count, WRITE) if count else 0

        def deliver(message: Message, whole: int) -> int:
            drop_files(message)
            self._memory.write(address, message.data)
            if name:
                self._write_sender(one, message, name, length)
            return whole if flags & _MSG_TRUNC else len(message.data)

        return self._receive(one, count, flags, deliver)

    def recvmsg(self, fd: int, header: int, flags: int) -> int:
        one = self._socket(fd)
        name, _, vectors, count, control, n_control, _ = self._header(header)
        buffers = self._vectors(vectors, count)

        def deliver(message: Message, whole: int) -> int:
            rest = message.data
            for where, length in buffers:
                self._memory.write(where, rest[:length])
                rest = rest[length:]
            result_flags = _MSG_TRUNC if whole > len(message.data) and one.kind != STREAM else 0
            if name:
                self._write_sender(one, message, name, header + 8)
            room = n_control if control else 0
            packed, lost = self._received_files(message, room, flags)
            if not packed and message.ancillary:
                packed, lost = self._received_values(one, message, room)
            if packed:
                self._memory.write(control, packed)
            result_flags |= _MSG_CTRUNC if lost else 0
            self._memory.write(header + 40, struct.pack("<Qi", len(packed), result_flags))
            return whole if flags & _MSG_TRUNC else len(message.data)

        return self._receive(one, sum(length for _, length in buffers), flags, deliver)

    def recvmmsg(self, fd: int, messages: int, count: int, flags: int) -> int:
        """Receive the messages that need no waiting; wait for the first one."""
        return self._for_each_message(self.recvmsg, fd, messages, count, flags)

    def _receive(self, one: Socket, count: int, flags: int, deliver: Callable[[Message, int], int]) -> int:
        """Receive a message and return the result of ``deliver(message, bytes of the whole message)``."""
        self._known_flags(flags, _RECEIVE_FLAGS, "receiving")
        waits, peeks = not one.non_blocking and not flags & _MSG_DONTWAIT, bool(flags & _MSG_PEEK)
        whole = one.next_length() if one.kind != STREAM else 0
        message = one.receive(count, peeks, waits)
        if flags & _MSG_WAITALL and waits and one.kind == STREAM and not peeks and not message.files:
            return self._receive_all(one, count, message, deliver)
        return deliver(message, max(whole, len(message.data)))

    @staticmethod
    def _receive_all(
        one: Socket, count: int, message: Message, deliver: Callable[[Message, int], int]
    ) -> int:
        """MSG_WAITALL: wait for the rest of ``count`` bytes; a signal or the end of the stream ends the wait early."""

        def ready() -> int | None:
            while len(message.data) < count:
                try:
                    more = one.receive(count - len(message.data))
                except WouldBlock:
                    return None
                if not more.data:
                    break
                message.data += more.data
                message.files += more.files
            return deliver(message, len(message.data))

        result = ready()
        if result is not None:
            return result
        raise Wait(
            ready,
            interrupted=lambda: deliver(message, len(message.data)),
            deadlock="the guest waits for ever: it reads more from a socket than other tasks send to it",
        )

    def _header(self, address: int) -> tuple[int, ...]:
        """The fields of ``struct msghdr``: name, its length, vectors, their count, control data, its length, flags."""
        return struct.unpack("<QI4xQQQQi", self._memory.read(address, 52))

    def _known_flags(self, flags: int, known: int, what: str) -> None:
        if flags & ~known & 0xFFFF_FFFF:
            self._scheduler.report(f"{what} with flags {flags & ~known & 0xFFFF_FFFF:#x}")
            raise OSError(errno.EOPNOTSUPP, "flags")
