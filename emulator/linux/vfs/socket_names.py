"""Socket addresses: ports on the guest's own loopback and abstract local names, and the sockets bound to them.

All errors are `OSError`. The sockets themselves are in `sockets`.
"""

from __future__ import annotations

import errno
from itertools import count
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

STREAM, DATAGRAM, SEQUENCED = 1, 2, 5
AF_UNIX, AF_INET, AF_INET6 = 1, 2, 10  # the same on all Linux architectures
FAMILIES = (AF_UNIX, AF_INET, AF_INET6)
_FIRST_PORT, _LAST_PORT = 32768, 60999
MAPPED = bytes(10) + b"\xff\xff"
LOOPBACK_4, LOOPBACK_6 = MAPPED + bytes([127, 0, 0, 1]), bytes(15) + b"\1"
ANY_4, ANY_6 = MAPPED + bytes(4), bytes(16)
_SOL_SOCKET, _SO_REUSEADDR, _SO_REUSEPORT = 1, 2, 15
IPPROTO_IPV6, IPV6_V6ONLY = 41, 26


class Internet(NamedTuple):
    """An IPv4 or IPv6 address: ``host`` as 16 bytes, IPv4 hosts mapped (::ffff:127.0.0.1), and a port."""

    host: bytes
    port: int

    @property
    def is_any(self) -> bool:
        """Whether the host is the wildcard address."""
        return self.host in (ANY_4, ANY_6)

    def destination(self) -> Internet:
        """The address that data sent to this one reaches: the loopback for the wildcard address."""
        if not self.is_any:
            return self
        return self._replace(host=LOOPBACK_4 if self.host == ANY_4 else LOOPBACK_6)


def internet_address(family: int, host: bytes, port: int) -> Internet:
    """The address with ``host`` of 4 (AF_INET) or 16 bytes (AF_INET6)."""
    return Internet(MAPPED + host if family == AF_INET else host, port)


# bytes: an AF_UNIX address, which is a path, an abstract name (it begins with a zero byte), or empty.
Address = bytes | Internet


class Bindable(Protocol):
    """The part of a socket that binding looks at."""

    kind: int
    protocol: int
    address: Address
    backlog: Any  # None unless it listens

    @property
    def is_v6_only(self) -> bool: ...

    def has_option(self, level: int, name: int) -> bool: ...

    def accepts_from(self, sender: Any) -> bool: ...


Socket = TypeVar("Socket", bound=Bindable)


class SocketNames(Generic[Socket]):
    """Bound addresses that are not paths: ports, and abstract AF_UNIX names."""

    def __init__(self) -> None:
        self._sockets: dict[tuple[int, bytes | int], list[Socket]] = {}  # by protocol, and name or port
        self._next_port = _FIRST_PORT

    def bind(self, one: Socket, address: Address) -> Address:
        """Bind a socket and return its address; port 0 is replaced by a free port. Raises OSError(EADDRINUSE)."""
        if isinstance(address, Internet) and not address.port:
            while (one.protocol, self._next_port) in self._sockets:
                self._next_port = self._next_port + 1 if self._next_port < _LAST_PORT else _FIRST_PORT
            address = address._replace(port=self._next_port)
        if any(self._conflicts(one, address, other) for other in self._users(one, address)):
            raise OSError(errno.EADDRINUSE, "address")
        self._sockets.setdefault(self._key(one, address), []).append(one)
        return address

    def free_name(self) -> bytes:
        """A free abstract name."""
        return next(
            name
            for number in count(1)
            if not {(False, name := b"\0%05x" % number), (True, name)} & self._sockets.keys()
        )

    def check_listening(self, one: Socket) -> None:
        """Raises OSError(EADDRINUSE) if another socket listens at the address of ``one``."""
        others = [other for other in self._users(one, one.address) if other is not one]
        if any(other.backlog is not None and self._conflicts(one, one.address, other) for other in others):
            raise OSError(errno.EADDRINUSE, "address")

    def find(self, one: Socket, address: Address) -> Socket | None:
        """The bound socket that data sent by ``one`` to ``address`` reaches, or None."""
        users = self._users(one, address)
        if not isinstance(address, Internet):
            return users[-1] if users else None
        host = address.destination().host
        takes = [(_match_rank(other, host), place) for place, other in enumerate(users) if other.accepts_from(one)]
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
    def _key(one: Bindable, address: Address) -> tuple[int, bytes | int]:
        if isinstance(address, Internet):
            return one.protocol, address.port
        return int(one.kind == DATAGRAM), address

    @staticmethod
    def _conflicts(one: Bindable, address: Address, other: Bindable) -> bool:
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
    """The IPv4 and the IPv6 host that a socket bound to the address receives for; zeros: all, None: none."""
    if address.host.startswith(MAPPED):
        return address.host[len(MAPPED) :], None
    return bytes(4) if address.host == ANY_6 and not is_v6_only else None, address.host


def _match_rank(one: Bindable, host: bytes) -> int:
    """How closely a bound socket matches the destination ``host``, 0: not at all. As in Linux, the best match wins."""
    if not isinstance(one.address, Internet):
        return 0
    v4, v6 = _covered(one.address, one.is_v6_only)
    own, target = (v4, host[len(MAPPED) :]) if host.startswith(MAPPED) else (v6, host)
    if own is None or (any(own) and own != target):
        return 0
    return 1 + 2 * any(own) + (v6 is None)
