"""Sockets between programs of the guest: of the local family, and the internet's on a loopback that is the guest's own.

Nothing leaves the guest: other addresses than its own cannot be reached. What has a name in the file system is kept
by `memory_tree`; the calls are in `socket_calls`. All errors are `OSError`.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field

from emulator.linux.open_files import POLLERR, POLLHUP, POLLIN, POLLOUT, FileStatus, OpenFile
from emulator.linux.socket_names import (
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
    Names,
)

BUFFER_BYTES = 1 << 16
_POLLRDHUP = 0x2000
_MAX_BACKLOG = 128


@dataclass
class Message:
    """What was sent and not yet read; a stream's has no ends. ``files`` go along with its first byte. ``told``: values
    of control messages of IPv6, by their type."""

    data: bytes
    files: list[OpenFile] = field(default_factory=list)
    sender: Address = b""
    told: dict[int, int] = field(default_factory=dict)


class BoundSocket:
    """The name of a socket in the file system."""

    kind = stat.S_IFSOCK

    def __init__(self, listener: Socket, mode: int) -> None:
        self.socket = listener
        self.mode = mode

    def open(self, path: str, flags: int, status: Callable[[], FileStatus]) -> OpenFile:
        raise OSError(errno.ENXIO, "a socket")


class Socket(OpenFile):
    """One end. ``peer``: who gets what is sent; ``backlog``: connections that nobody has accepted yet."""

    def __init__(self, family: int, kind: int, flags: int, inode: int, names: Names) -> None:
        status = FileStatus(stat.S_IFSOCK | 0o777, 0, inode)
        super().__init__(f"socket:[{inode}]", flags | os.O_RDWR, lambda: status)
        self.family = family
        self.kind = kind
        self.address: Address = (
            b"" if family == AF_UNIX else Internet(ANY_4 if family == AF_INET else ANY_6, 0)
        )
        self.peer: Socket | None = None
        self.peer_address: Address | None = None
        self.backlog: list[Socket] | None = None
        self.options: dict[tuple[int, int], bytes] = {}
        self.protocol = 0
        self.process = 0
        """Who made it, for SO_PEERCRED."""
        self.has_room_later = kind == STREAM
        self._names = names
        self._room = _MAX_BACKLOG
        self._inbox: list[Message] = []
        self._sent_all = self._read_all = False
        self._peer_is_gone = False
        self._error = 0  # of a connection that was not waited for, until somebody asks
        self._is_connecting = False  # made at once, and not yet told
        self._was_reset = False

    def take_error(self) -> int:
        """The number of the error that is pending, once."""
        error, self._error = self._error, 0
        return error

    # Being connected

    def bind(self, address: Address) -> None:
        self.address = self._names.bind(self, address)

    def bind_somewhere(self, target: Internet | None = None) -> None:
        """Have a port, and the address from which ``target`` is reached."""
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

    def takes_from(self, sender: Socket) -> bool:
        """Whether a connection, or a datagram, of ``sender`` may arrive here: not what listens not, nor one connected
        with somebody else."""
        return self.peer in (None, sender) if self.kind == DATAGRAM else self.backlog is not None

    def listen(self, backlog: int) -> None:
        if self.kind == DATAGRAM:
            raise OSError(errno.EOPNOTSUPP, "listen")
        if self.peer is not None:
            raise OSError(errno.EINVAL, "connected")
        if self.family != AF_UNIX:
            self.bind_somewhere()
            self._names.check_listening(self)
        self._room = max(1, min(backlog, _MAX_BACKLOG))
        self.backlog = self.backlog or []

    def connect(self, target: Socket | None, address: Address, inode: Callable[[], int]) -> None:
        """``inode`` numbers the socket that the other side will accept."""
        if isinstance(address, Internet):
            address = address.reached()
        if self.kind == DATAGRAM:
            if isinstance(address, Internet):
                self.bind_somewhere(address)
            elif target is None or target.kind != DATAGRAM:
                raise OSError(errno.ECONNREFUSED, "nobody there")
            self.peer, self.peer_address = target, address
            return
        if self._is_connecting:
            self._is_connecting = False
            if self._error:
                raise OSError(self.take_error(), "nobody listens")
            return
        if self.peer is not None or self._peer_is_gone:
            raise OSError(errno.EISCONN, "connected")
        in_progress = self.non_blocking and isinstance(address, Internet)
        if target is None or target.backlog is None:
            if in_progress:
                self._is_connecting, self._error = True, errno.ECONNREFUSED
                raise OSError(errno.EINPROGRESS, "connects")
            raise OSError(errno.ECONNREFUSED, "nobody listens")
        if target.kind != self.kind:
            raise OSError(errno.EPROTOTYPE, "another type of socket")
        if len(target.backlog) >= target._room:
            self.would_block("connects to a socket that nobody accepts from")
        if isinstance(address, Internet):
            self.bind_somewhere(address)
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
            self.would_block("waits for a connection that nobody makes")
        return self.backlog.pop(0)

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will come."""
        return self._read_all or self._peer_is_gone

    @property
    def is_connected(self) -> bool:
        return self.peer_address is not None

    # Sending and receiving

    def send(
        self,
        data: bytes,
        files: list[OpenFile],
        target: Socket | None = None,
        told: dict[int, int] | None = None,
    ) -> int:
        """How much was taken: a part where there is no room for all, and the socket is a stream.

        ``files`` are kept open until they are received. Raises OSError(EPIPE) when nobody can read it.
        """
        receiver = target or self.peer
        if receiver is None and self.kind == DATAGRAM and isinstance(self.peer_address, Internet):
            receiver = self._names.find(self, self.peer_address)
            if receiver is None:
                return len(data)  # the datagram has no receiver and is lost
        if self._sent_all or self._peer_is_gone:
            if self.kind == DATAGRAM:
                raise OSError(errno.ECONNREFUSED, "nobody there")
            if (
                self._peer_is_gone
                and isinstance(self.address, Internet)
                and not self._sent_all
                and not self._was_reset
            ):
                self._was_reset = bool(data)
                return len(data)  # the other side tells only then that it is gone
            raise OSError(errno.EPIPE, "nobody reads")
        if receiver is None:
            raise OSError(errno.EDESTADDRREQ if self.kind == DATAGRAM else errno.ENOTCONN, "not connected")
        if receiver._read_all:
            raise OSError(errno.EPIPE, "nobody reads")
        room = BUFFER_BYTES - sum(len(message.data) for message in receiver._inbox)
        if self.kind != STREAM and len(data) > BUFFER_BYTES:
            raise OSError(errno.EMSGSIZE, "message")
        if (data or self.kind != STREAM) and (
            room <= 0
            or (self.kind != STREAM and len(data) > room)
            or len(receiver._inbox) >= BUFFER_BYTES >> 4
        ):
            self.would_block("sends to a socket that nobody reads from")
        for file in files:
            file.references += 1
        last = receiver._inbox[-1] if receiver._inbox else None
        if self.kind == STREAM and not files and last is not None and not last.files:
            last.data += data[:room]
        elif data or self.kind != STREAM:
            sender = self.address
            if isinstance(sender, Internet) and isinstance(receiver.address, Internet):
                sender = sender._replace(host=LOOPBACK_6) if sender.host == ANY_6 else sender.reached()
            receiver._inbox.append(Message(data[:room], files, sender, told or {}))
        receiver.changes += 1
        return min(len(data), room)

    def receive(self, n_bytes: int, peek: bool = False, wait: bool = True) -> Message:
        """At most so many bytes, and what goes with them; the rest of a message that is no stream's is lost.

        ``wait``: as the socket does, else not. An empty one is the end.
        """
        if self.kind != DATAGRAM and not self.is_connected:
            raise OSError(errno.ENOTCONN if self.family != AF_UNIX else errno.EINVAL, "not connected")
        if not self._inbox:
            if self.has_ended or not n_bytes:
                return Message(b"")
            if not wait:
                raise OSError(errno.EAGAIN, "nothing to read")
            self.would_block("reads from a socket that nobody sends to")
        found = Message(b"", sender=self._inbox[0].sender, told=self._inbox[0].told)
        while self._inbox:
            message = self._inbox[0]
            if message.files and found.data:
                break  # these begin the next piece
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
        """Bytes of the message that comes next."""
        return len(self._inbox[0].data) if self._inbox else 0

    def read(self, n_bytes: int) -> bytes:
        message = self.receive(n_bytes)
        drop_files(message)
        return message.data

    def write(self, data: bytes) -> int:
        return self.send(data, [])

    def waiting_bytes(self) -> int:
        return sum(len(message.data) for message in self._inbox)

    # The end

    def shut(self, reading: bool, writing: bool) -> None:
        if self.kind != DATAGRAM and not self.is_connected:
            raise OSError(errno.ENOTCONN, "not connected")
        if reading:
            self._read_all = True
        if writing and not self._sent_all:
            self._sent_all = True
            if self.peer is not None and self.kind != DATAGRAM:
                self.peer._read_all = True
                self.peer.changes += 1

    def close(self) -> None:
        self._names.release(self)  # an accepted one has its listener's address, and is not known there
        for waiting in self.backlog or ():
            waiting.close()
        if self.peer is not None and self.peer.peer is self:
            self.peer._peer_is_gone, self.peer.peer = True, None
            self.peer.changes += 1
        self.peer, self._peer_is_gone = None, True
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
        if self._peer_is_gone or (self._read_all and self._sent_all):
            state |= POLLHUP
        receiver = self.peer
        if receiver is None or receiver.waiting_bytes() < BUFFER_BYTES // 2:
            state |= POLLOUT
        return state | (POLLERR if self._peer_is_gone and self.kind == DATAGRAM else 0)


def join(one: Socket, other: Socket) -> None:
    """Connect two sockets with each other."""
    one.peer, other.peer = other, one
    one.peer_address, other.peer_address = other.address, one.address


def drop_files(message: Message) -> None:
    """Close what came with a message that nobody has received."""
    for file in message.files:
        file.references -= 1
        if file.references == 0:
            file.close()
