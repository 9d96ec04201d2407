"""Sockets between programs of the guest: AF_UNIX, and AF_INET and AF_INET6 on the guest's own loopback.

The guest has no other network. Names of sockets in the file system are in `tmpfs`; the system calls are in
`socket_io`. All errors are `OSError`.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from emulator.linux.vfs.open_files import POLLERR, POLLHUP, POLLIN, POLLOUT, FileStatus, OpenFile
from emulator.linux.vfs.socket_names import (
    AF_INET,
    AF_UNIX,
    ANY_4,
    ANY_6,
    DATAGRAM,
    IPPROTO_IPV6,
    IPV6_V6ONLY,
    LOOPBACK_4,
    LOOPBACK_6,
    MAPPED,
    STREAM,
    Address,
    Internet,
    SocketNames,
)

BUFFER_BYTES = 1 << 16
_POLLRDHUP = 0x2000
_MAX_BACKLOG = 128


@dataclass
class Message:
    """Data sent and not yet received; in a stream, message borders do not matter. ``files``: the files passed with the
    first byte; ``ancillary``: values of IPv6 control messages, by type."""

    data: bytes
    files: list[OpenFile] = field(default_factory=list)
    sender: Address = b""
    ancillary: dict[int, int] = field(default_factory=dict)


class BoundSocket:
    """The name of a socket in the file system."""

    kind = stat.S_IFSOCK

    def __init__(self, listener: Socket, mode: int) -> None:
        self.socket = listener
        self.mode = mode

    def open(self, path: str, flags: int, status: Callable[[], FileStatus]) -> OpenFile:
        raise OSError(errno.ENXIO, "a socket")


class Socket(OpenFile):
    """A socket. ``peer``: the socket that receives the data sent here; ``backlog``: connections not yet accepted, None
    unless the socket listens."""

    def __init__(self, family: int, kind: int, flags: int, inode: int, names: SocketNames[Socket]) -> None:
        status = partial(FileStatus, stat.S_IFSOCK | 0o777, 0, inode)
        super().__init__(f"socket:[{inode}]", flags | os.O_RDWR, status)
        self.family = family
        self.kind = kind
        self.address: Address = b"" if family == AF_UNIX else Internet(ANY_4 if family == AF_INET else ANY_6, 0)
        self.peer: Socket | None = None
        self.peer_address: Address | None = None
        self.backlog: list[Socket] | None = None
        self.options: dict[tuple[int, int], bytes] = {}
        self.protocol = 0
        self.process = 0
        """The pid of the process that created the socket, for SO_PEERCRED."""
        self.waits_for_full_write = kind == STREAM
        self._names = names
        self._max_backlog = _MAX_BACKLOG
        self._inbox: list[Message] = []
        self._write_shut = self._read_shut = False
        self._peer_is_closed = False
        self._error = 0  # error number of a non-blocking connect, until it is read
        self._is_connecting = False  # connected, but connect has not yet reported success
        self._was_reset = False

    def take_error(self) -> int:
        """Return the pending error number and clear it."""
        error, self._error = self._error, 0
        return error

    # Connections

    def bind(self, address: Address) -> None:
        self.address = self._names.bind(self, address)

    def bind_free_port(self, target: Internet | None = None) -> None:
        """Bind to a free port unless bound, and to the local address from which ``target`` is reached."""
        assert isinstance(self.address, Internet)
        if not self.address.port:
            self.bind(self.address)
        if target is not None and self.address.is_any:
            host = LOOPBACK_4 if target.host.startswith(MAPPED) else LOOPBACK_6
            self.address = Internet(host, self.address.port)

    def has_option(self, level: int, option: int) -> bool:
        return any(self.options.get((level, option), b""))

    @property
    def is_v6_only(self) -> bool:
        return self.has_option(IPPROTO_IPV6, IPV6_V6ONLY)

    def accepts_from(self, sender: Socket) -> bool:
        """Whether this socket accepts a datagram or a connection of ``sender``: not a datagram socket that is connected
        to another one, nor a stream socket that does not listen."""
        return self.peer in (None, sender) if self.kind == DATAGRAM else self.backlog is not None

    def listen(self, backlog: int) -> None:
        if self.kind == DATAGRAM:
            raise OSError(errno.EOPNOTSUPP, "listen")
        if self.peer is not None:
            raise OSError(errno.EINVAL, "connected")
        if self.family != AF_UNIX:
            self.bind_free_port()
            self._names.check_listening(self)
        self._max_backlog = max(1, min(backlog, _MAX_BACKLOG))
        self.backlog = self.backlog or []

    def connect(self, target: Socket | None, address: Address, inode: Callable[[], int]) -> None:
        """Connect to ``target``, None if no socket has the address; ``inode`` returns a number for the accepted socket.

        Raises OSError, and `WouldBlock` while the backlog is full."""
        if isinstance(address, Internet):
            address = address.destination()
        if self.kind == DATAGRAM:
            if isinstance(address, Internet):
                self.bind_free_port(address)
            elif target is None or target.kind != DATAGRAM:
                raise OSError(errno.ECONNREFUSED, "no socket has the address")
            self.peer, self.peer_address = target, address
            return
        if self._is_connecting:
            self._is_connecting = False
            if self._error:
                raise OSError(self.take_error(), "no socket listens")
            return
        if self.peer is not None or self._peer_is_closed:
            raise OSError(errno.EISCONN, "connected")
        in_progress = self.non_blocking and isinstance(address, Internet)
        if target is None or target.backlog is None:
            if in_progress:
                self._is_connecting, self._error = True, errno.ECONNREFUSED
                raise OSError(errno.EINPROGRESS, "connects")
            raise OSError(errno.ECONNREFUSED, "no socket listens")
        if target.kind != self.kind:
            raise OSError(errno.EPROTOTYPE, "another type of socket")
        if len(target.backlog) >= target._max_backlog:
            self.would_block("connects to a socket whose backlog is full and that no task accepts from")
        if isinstance(address, Internet):
            self.bind_free_port(address)
        other = Socket(target.family, self.kind, 0, inode(), self._names)
        other.process, other.protocol = target.process, target.protocol
        other.address = address if isinstance(address, Internet) else target.address
        join(self, other)
        self.peer_address, other.peer_address = address, self.address
        target.backlog.append(other)
        target.changes += 1
        if in_progress:
            self._is_connecting = True
            raise OSError(errno.EINPROGRESS, "connects")

    def accept(self) -> Socket:
        if self.backlog is None:
            raise OSError(errno.EINVAL, "not listening")
        if not self.backlog:
            self.would_block("waits for a connection that no other task makes")
        return self.backlog.pop(0)

    @property
    def has_ended(self) -> bool:
        """Whether no more data will arrive."""
        return self._read_shut or self._peer_is_closed

    @property
    def is_connected(self) -> bool:
        return self.peer_address is not None

    # Sending and receiving

    def send(
        self,
        data: bytes,
        files: list[OpenFile],
        target: Socket | None = None,
        ancillary: dict[int, int] | None = None,
    ) -> int:
        """Send ``data`` and return the number of bytes sent, on a stream only as many as have room.

        ``files`` are kept open until they are received. Raises OSError(EPIPE) if the peer has ended or shut down
        reading.
        """
        receiver = target or self.peer
        if receiver is None and self.kind == DATAGRAM and isinstance(self.peer_address, Internet):
            receiver = self._names.find(self, self.peer_address)
            if receiver is None:
                return len(data)  # the datagram has no receiver and is lost
        if self._write_shut or self._peer_is_closed:
            if self.kind == DATAGRAM:
                raise OSError(errno.ECONNREFUSED, "the peer is closed")
            if (
                self._peer_is_closed
                and isinstance(self.address, Internet)
                and not self._write_shut
                and not self._was_reset
            ):
                self._was_reset = bool(data)
                return len(data)  # as in TCP, only the answer to these bytes is a reset
            raise OSError(errno.EPIPE, "no reader")
        if receiver is None:
            raise OSError(errno.EDESTADDRREQ if self.kind == DATAGRAM else errno.ENOTCONN, "not connected")
        if receiver._read_shut:
            raise OSError(errno.EPIPE, "no reader")
        room = BUFFER_BYTES - sum(len(message.data) for message in receiver._inbox)
        if self.kind != STREAM and len(data) > BUFFER_BYTES:
            raise OSError(errno.EMSGSIZE, "message")
        if (data or self.kind != STREAM) and (
            room <= 0 or (self.kind != STREAM and len(data) > room) or len(receiver._inbox) >= BUFFER_BYTES >> 4
        ):
            self.would_block("sends to a full socket that no other task reads from")
        for file in files:
            file.references += 1
        last = receiver._inbox[-1] if receiver._inbox else None
        if self.kind == STREAM and not files and last is not None and not last.files:
            last.data += data[:room]
        elif data or self.kind != STREAM:
            sender = self.address
            if isinstance(sender, Internet) and isinstance(receiver.address, Internet):
                sender = sender._replace(host=LOOPBACK_6) if sender.host == ANY_6 else sender.destination()
            receiver._inbox.append(Message(data[:room], files, sender, ancillary or {}))
        receiver.changes += 1
        return min(len(data), room)

    def receive(self, n_bytes: int, peek: bool = False, wait: bool = True) -> Message:
        """Receive at most ``n_bytes`` bytes with their files; the rest of a datagram is lost.

        ``wait``: False makes the call non-blocking. An empty message is the end of the stream. Raises OSError.
        """
        if self.kind != DATAGRAM and not self.is_connected:
            raise OSError(errno.ENOTCONN if self.family != AF_UNIX else errno.EINVAL, "not connected")
        if not self._inbox:
            if self.has_ended or not n_bytes:
                return Message(b"")
            if not wait:
                raise OSError(errno.EAGAIN, "nothing to read")
            self.would_block("reads from a socket that no other task sends to")
        found = Message(b"", sender=self._inbox[0].sender, ancillary=self._inbox[0].ancillary)
        while self._inbox:
            message = self._inbox[0]
            if message.files and found.data:
                break  # a message with files is received by the next call
            part = message.data[: n_bytes - len(found.data)]
            found.data += part
            found.files += message.files
            if peek:
                break
            message.files = []
            if self.kind == STREAM and len(part) < len(message.data):
                message.data = message.data[len(part) :]
                break
            self._inbox.pop(0)
            if self.kind != STREAM or len(found.data) == n_bytes or found.files:
                break
        if self.peer is not None:
            self.peer.changes += 1
        return found

    def next_length(self) -> int:
        """Bytes of the next message."""
        return len(self._inbox[0].data) if self._inbox else 0

    def read(self, n_bytes: int) -> bytes:
        message = self.receive(n_bytes)
        drop_files(message)
        return message.data

    def write(self, data: bytes) -> int:
        return self.send(data, [])

    def waiting_bytes(self) -> int:
        return sum(len(message.data) for message in self._inbox)

    # Shutdown and close

    def shut(self, reading: bool, writing: bool) -> None:
        if self.kind != DATAGRAM and not self.is_connected:
            raise OSError(errno.ENOTCONN, "not connected")
        if reading:
            self._read_shut = True
        if writing and not self._write_shut:
            self._write_shut = True
            if self.peer is not None and self.kind != DATAGRAM:
                self.peer._read_shut = True
                self.peer.changes += 1

    def close(self) -> None:
        self._names.release(self)  # no effect on an accepted socket, which has its listener's address
        for waiting in self.backlog or ():
            waiting.close()
        if self.peer is not None and self.peer.peer is self:
            self.peer._peer_is_closed, self.peer.peer = True, None
            self.peer.changes += 1
        self.peer, self._peer_is_closed = None, True
        while self._inbox:
            drop_files(self._inbox.pop(0))

    def poll(self) -> int:
        if self.backlog is not None:
            return POLLIN if self.backlog else 0
        if self._error:
            return POLLIN | POLLOUT | POLLERR | POLLHUP
        if self.kind != DATAGRAM and not self.is_connected:
            return POLLOUT | POLLHUP
        ended = self.has_ended
        state = POLLIN if self._inbox or ended else 0
        if ended:
            state |= _POLLRDHUP
        if self._peer_is_closed or (self._read_shut and self._write_shut):
            state |= POLLHUP
        receiver = self.peer
        if receiver is None or receiver.waiting_bytes() < BUFFER_BYTES // 2:
            state |= POLLOUT
        return state | (POLLERR if self._peer_is_closed and self.kind == DATAGRAM else 0)


def join(one: Socket, other: Socket) -> None:
    """Connect two sockets with each other."""
    one.peer, other.peer = other, one
    one.peer_address, other.peer_address = other.address, one.address


def drop_files(message: Message) -> None:
    """Close the files of a message that was not received."""
    for file in message.files:
        file.references -= 1
        if file.references == 0:
            file.close()
