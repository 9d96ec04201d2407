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
from typing import NamedTuple

from emulator.linux.open_files import POLLERR, POLLHUP, POLLIN, POLLOUT, FileStatus, OpenFile

STREAM, DATAGRAM, SEQUENCED = 1, 2, 5
AF_UNIX, AF_INET, AF_INET6 = 1, 2, 10  # of the guest, and of every Linux
FAMILIES = (AF_UNIX, AF_INET, AF_INET6)
BUFFER_BYTES = 1 << 16
_POLLRDHUP = 0x2000
_FIRST_PORT, _LAST_PORT = 32768, 60999
_MAX_BACKLOG = 128

_MAPPED = bytes(10) + b"\xff\xff"
LOOPBACK_4, LOOPBACK_6 = _MAPPED + bytes([127, 0, 0, 1]), bytes(15) + b"\1"
_ANY_4, _ANY_6 = _MAPPED + bytes(4), bytes(16)
_SOL_SOCKET, _SO_REUSEADDR, _SO_REUSEPORT = 1, 2, 15
_IPPROTO_IPV6, _IPV6_V6ONLY = 41, 26


class Internet(NamedTuple):
    """An address of the internet's families: ``host`` as 16 bytes, IPv4 ones mapped (::ffff:127.0.0.1), and a port."""

    host: bytes
    port: int

    @property
    def is_any(self) -> bool:
        """Whether it stands for every address of the host."""
        return self.host in (_ANY_4, _ANY_6)

    def reached(self) -> Internet:
        """The address that somebody who sends there reaches."""
        if not self.is_any:
            return self
        return self._replace(host=LOOPBACK_4 if self.host == _ANY_4 else LOOPBACK_6)


def internet_address(family: int, host: bytes, port: int) -> Internet:
    """Of 4 or 16 bytes, as ``family`` has them."""
    return Internet(_MAPPED + host if family == AF_INET else host, port)


# Of the local family: a path, a name that begins with a zero byte, or nothing.
Address = bytes | Internet


@dataclass
class Message:
    """What was sent and not yet read; a stream's has no ends. ``files`` go along with its first byte."""

    data: bytes
    files: list[OpenFile] = field(default_factory=list)
    sender: Address = b""


class BoundSocket:
    """The name of a socket in the file system."""

    kind = stat.S_IFSOCK

    def __init__(self, listener: Socket, mode: int) -> None:
        self.socket = listener
        self.mode = mode

    def open(self, path: str, flags: int, status: Callable[[], FileStatus]) -> OpenFile:
        raise OSError(errno.ENXIO, "a socket")


class Names:
    """Addresses in use that are no paths: ports, and names of the local family that begin with a zero byte."""

    def __init__(self) -> None:
        self._sockets: dict[
            tuple[bool, bytes | int], list[Socket]
        ] = {}  # by datagram or not, and name or port
        self._next_port = _FIRST_PORT

    def bind(self, one: Socket, address: Address) -> Address:
        """The address that it has got: port 0 asks for any. Raises OSError(EADDRINUSE)."""
        if isinstance(address, Internet) and not address.port:
            while (one.kind == DATAGRAM, self._next_port) in self._sockets:
                self._next_port = self._next_port + 1 if self._next_port < _LAST_PORT else _FIRST_PORT
            address = address._replace(port=self._next_port)
        if any(self._is_in_the_way(one, address, other) for other in self._users(one, address)):
            raise OSError(errno.EADDRINUSE, "address")
        self._sockets.setdefault(self._key(one, address), []).append(one)
        return address

    def check_listening(self, one: Socket) -> None:
        """Raises OSError(EADDRINUSE) when another socket listens where ``one`` wants to."""
        others = [other for other in self._users(one, one.address) if other is not one]
        if any(
            other.backlog is not None and self._is_in_the_way(one, one.address, other) for other in others
        ):
            raise OSError(errno.EADDRINUSE, "address")

    def find(self, one: Socket, address: Address) -> Socket | None:
        """Who has the address, as ``one`` would reach it."""
        users = self._users(one, address)
        if not isinstance(address, Internet):
            return users[-1] if users else None
        host = address.reached().host
        takes = [(_rank(other, host), place) for place, other in enumerate(users) if other.takes_from(one)]
        best, place = max(takes, default=(0, 0))
        return users[place] if best else None

    def release(self, one: Socket) -> None:
        key = self._key(one, one.address)
        others = [other for other in self._sockets.pop(key, []) if other is not one]
        if others:
            self._sockets[key] = others

    def _users(self, one: Socket, address: Address) -> list[Socket]:
        return self._sockets.get(self._key(one, address), [])

    @staticmethod
    def _key(one: Socket, address: Address) -> tuple[bool, bytes | int]:
        return one.kind == DATAGRAM, address.port if isinstance(address, Internet) else address

    @staticmethod
    def _is_in_the_way(one: Socket, address: Address, other: Socket) -> bool:
        if not isinstance(address, Internet) or not isinstance(other.address, Internet):
            return True
        mine, theirs = _covered(address, one.is_v6_only), _covered(other.address, other.is_v6_only)
        if not any(
            a is not None and b is not None and (a == b or not any(a) or not any(b))
            for a, b in zip(mine, theirs, strict=True)
        ):
            return False
        if all(has.has_option(_SOL_SOCKET, _SO_REUSEPORT) for has in (one, other)):
            return False
        shares = all(has.has_option(_SOL_SOCKET, _SO_REUSEADDR) for has in (one, other))
        return not shares or other.backlog is not None


def _covered(address: Internet, is_v6_only: bool) -> tuple[bytes | None, bytes | None]:
    """The IPv4 and the IPv6 hosts that a socket bound to the address has, zeros for all of them."""
    if address.host.startswith(_MAPPED):
        return address.host[len(_MAPPED) :], None
    return bytes(4) if address.host == _ANY_6 and not is_v6_only else None, address.host


def _rank(one: Socket, host: bytes) -> int:
    """How well a bound socket fits what is sent to ``host``, 0 for not at all: as Linux, the closest one gets it."""
    if not isinstance(one.address, Internet):
        return 0
    v4, v6 = _covered(one.address, one.is_v6_only)
    own, wanted = (v4, host[len(_MAPPED) :]) if host.startswith(_MAPPED) else (v6, host)
    if own is None or (any(own) and own != wanted):
        return 0
    return 1 + 2 * any(own) + (v6 is None)


class Socket(OpenFile):
    """One end. ``peer``: who gets what is sent; ``backlog``: connections that nobody has accepted yet."""

    def __init__(self, family: int, kind: int, flags: int, inode: int, names: Names) -> None:
        status = FileStatus(stat.S_IFSOCK | 0o777, 0, inode)
        super().__init__(f"socket:[{inode}]", flags | os.O_RDWR, lambda: status)
        self.family = family
        self.kind = kind
        self.address: Address = (
            b"" if family == AF_UNIX else Internet(_ANY_4 if family == AF_INET else _ANY_6, 0)
        )
        self.peer: Socket | None = None
        self.peer_address: Address | None = None
        self.backlog: list[Socket] | None = None
        self.options: dict[tuple[int, int], bytes] = {}
        self.process = 0
        """Who made it, for SO_PEERCRED."""
        self.has_room_later = kind == STREAM
        self._names = names
        self._room = _MAX_BACKLOG
        self._inbox: list[Message] = []
        self._sent_all = self._read_all = False
        self._peer_is_gone = False

    # Being connected

    def bind(self, address: Address) -> None:
        self.address = self._names.bind(self, address)

    def bind_somewhere(self, target: Internet | None = None) -> None:
        """Have a port, and the address from which ``target`` is reached."""
        assert isinstance(self.address, Internet)
        if not self.address.port:
            self.bind(self.address)
        if target is not None and self.address.is_any:
            host = LOOPBACK_4 if target.host.startswith(_MAPPED) else LOOPBACK_6
            self.address = Internet(host, self.address.port)

    def has_option(self, level: int, option: int) -> bool:
        return any(self.options.get((level, option), b""))

    @property
    def is_v6_only(self) -> bool:
        return self.has_option(_IPPROTO_IPV6, _IPV6_V6ONLY)

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
        if self.peer is not None or self._peer_is_gone:
            raise OSError(errno.EISCONN, "connected")
        if target is None or target.backlog is None:
            raise OSError(errno.ECONNREFUSED, "nobody listens")
        if target.kind != self.kind:
            raise OSError(errno.EPROTOTYPE, "another type of socket")
        if len(target.backlog) >= target._room:
            self.would_block("connects to a socket that nobody accepts from")
        if isinstance(address, Internet):
            self.bind_somewhere(address)
        other = Socket(target.family, self.kind, 0, inode(), self._names)
        other.process = target.process
        other.address = address if isinstance(address, Internet) else target.address
        join(self, other)
        self.peer_address, other.peer_address = address, self.address
        target.backlog.append(other)
        target.changes += 1

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

    def send(self, data: bytes, files: list[OpenFile], target: Socket | None = None) -> int:
        """How much was taken: a part where there is no room for all, and the socket is a stream.

        ``files`` are kept open until they are received. Raises OSError(EPIPE) when nobody can read it.
        """
        receiver = target or self.peer
        if receiver is None and self.kind == DATAGRAM and isinstance(self.peer_address, Internet):
            receiver = self._names.find(self, self.peer_address)
            if receiver is None:
                return len(data)  # nobody is there: lost
        if self._sent_all or self._peer_is_gone:
            if self.kind == DATAGRAM:
                raise OSError(errno.ECONNREFUSED, "nobody there")
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
                sender = sender._replace(host=LOOPBACK_6) if sender.host == _ANY_6 else sender.reached()
            receiver._inbox.append(Message(data[:room], files, sender))
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
        found = Message(b"", sender=self._inbox[0].sender)
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
