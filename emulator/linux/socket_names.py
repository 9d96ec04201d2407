"""Addresses of sockets, and the socket bound to each: ports on the guest's own loopback, and names that are no paths.

All errors are `OSError`. What sockets do is in `sockets`.
"""

from __future__ import annotations

import errno
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from emulator.linux.sockets import Socket

STREAM, DATAGRAM, SEQUENCED = 1, 2, 5
AF_UNIX, AF_INET, AF_INET6 = 1, 2, 10  # of the guest, and of every Linux
FAMILIES = (AF_UNIX, AF_INET, AF_INET6)
_FIRST_PORT, _LAST_PORT = 32768, 60999
MAPPED = bytes(10) + b"\xff\xff"
LOOPBACK_4, LOOPBACK_6 = MAPPED + bytes([127, 0, 0, 1]), bytes(15) + b"\1"
ANY_4, ANY_6 = MAPPED + bytes(4), bytes(16)
_SOL_SOCKET, _SO_REUSEADDR, _SO_REUSEPORT = 1, 2, 15
IPPROTO_IPV6, IPV6_V6ONLY = 41, 26


class Internet(NamedTuple):
    """An address of the internet's families: ``host`` as 16 bytes, IPv4 ones mapped (::ffff:127.0.0.1), and a port."""

    host: bytes
    port: int

    @property
    def is_any(self) -> bool:
        """Whether it stands for every address of the host."""
        return self.host in (ANY_4, ANY_6)

    def reached(self) -> Internet:
        """The address that somebody who sends there reaches."""
        if not self.is_any:
            return self
        return self._replace(host=LOOPBACK_4 if self.host == ANY_4 else LOOPBACK_6)


def internet_address(family: int, host: bytes, port: int) -> Internet:
    """Of 4 or 16 bytes, as ``family`` has them."""
    return Internet(MAPPED + host if family == AF_INET else host, port)


# Of the local family: a path, a name that begins with a zero byte, or nothing.
Address = bytes | Internet


class Names:
    """Addresses in use that are no paths: ports, and names of the local family that begin with a zero byte."""

    def __init__(self) -> None:
        self._sockets: dict[tuple[int, bytes | int], list[Socket]] = {}  # by protocol, and name or port
        self._next_port = _FIRST_PORT

    def bind(self, one: Socket, address: Address) -> Address:
        """The address that it has got: port 0 asks for any. Raises OSError(EADDRINUSE)."""
        if isinstance(address, Internet) and not address.port:
            while (one.protocol, self._next_port) in self._sockets:
                self._next_port = self._next_port + 1 if self._next_port < _LAST_PORT else _FIRST_PORT
            address = address._replace(port=self._next_port)
        if any(self._is_in_the_way(one, address, other) for other in self._users(one, address)):
            raise OSError(errno.EADDRINUSE, "address")
        self._sockets.setdefault(self._key(one, address), []).append(one)
        return address

    def free_name(self) -> bytes:
        """A free name of the local family."""
        return next(
            name
            for number in count(1)
            if not {(False, name := b"\0%05x" % number), (True, name)} & self._sockets.keys()
        )

    def check_listening(self, one: Socket) -> None:
        """Raises OSError(EADDRINUSE) when another socket listens where ``one`` wants to."""
        others = [other for other in self._users(one, one.address) if other is not one]
        if any(
            other.backlog is not None and self._is_in_the_way(one, one.address, other) for other in others
        ):
            raise OSError(errno.EADDRINUSE, "address")

    def find(self, one: Socket, address: Address) -> Socket | None:
        """The socket that is bound to the address, as ``one`` would reach it."""
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
    def _key(one: Socket, address: Address) -> tuple[int, bytes | int]:
        if isinstance(address, Internet):
            return one.protocol, address.port
        return int(one.kind == DATAGRAM), address

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
    if address.host.startswith(MAPPED):
        return address.host[len(MAPPED) :], None
    return bytes(4) if address.host == ANY_6 and not is_v6_only else None, address.host


def _rank(one: Socket, host: bytes) -> int:
    """How well a bound socket fits what is sent to ``host``, 0 for not at all: as Linux, the closest one gets it."""
    if not isinstance(one.address, Internet):
        return 0
    v4, v6 = _covered(one.address, one.is_v6_only)
    own, wanted = (v4, host[len(MAPPED) :]) if host.startswith(MAPPED) else (v6, host)
    if own is None or (any(own) and own != wanted):
        return 0
    return 1 + 2 * any(own) + (v6 is None)
