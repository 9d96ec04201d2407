"""Control messages of sockets: files that go along with bytes, and what IPv6 tells of a datagram (RFC 3542)."""

from __future__ import annotations

import errno
import struct

from emulator.linux.open_files import OpenFile
from emulator.linux.socket_names import AF_INET6, IPPROTO_IPV6
from emulator.linux.socket_options import SocketOptionCalls
from emulator.linux.sockets import Message, Socket

_SOL_SOCKET, _SCM_RIGHTS = 1, 1
_MSG_CMSG_CLOEXEC = 0x4000_0000
_IPV6_UNICAST_HOPS, _IPV6_HOPLIMIT, _IPV6_TCLASS = 16, 52, 67
# What a socket of IPv6 can tell of a datagram: the option that asks for it, its type, the sender's option, the default.
_TOLD_OF_DATAGRAMS = ((51, _IPV6_HOPLIMIT, _IPV6_UNICAST_HOPS, 64), (66, _IPV6_TCLASS, _IPV6_TCLASS, 0))
_MAX_FILES = 253


class ControlMessages(SocketOptionCalls):
    """Inner parts of calls that send and receive messages."""

    def _control(self, one: Socket, control: bytes) -> tuple[list[OpenFile], dict[int, int]]:
        """The files, and the values by type, in control messages. Raises OSError."""
        files: list[OpenFile] = []
        told: dict[int, int] = {}
        while len(control) >= 16:
            length, level, kind = struct.unpack_from("<Qii", control)
            if not 16 <= length <= len(control):
                raise OSError(errno.EINVAL, "control message")
            if (level, kind) == (_SOL_SOCKET, _SCM_RIGHTS):
                numbers = struct.unpack_from(f"<{(length - 16) // 4}i", control, 16)
                files += [self._file(number) for number in numbers]
            elif one.family == AF_INET6 and level == IPPROTO_IPV6 and kind in (_IPV6_HOPLIMIT, _IPV6_TCLASS):
                value = struct.unpack_from("<i", control, 16)[0] if length == 20 else -2
                if not -1 <= value <= 255:
                    raise OSError(errno.EINVAL, "control message")
                told |= {} if value < 0 else {kind: value}
            else:
                self._scheduler.report(f"a control message of level {level} and type {kind}")
                raise OSError(errno.EINVAL, "control message")
            control = control[length + 7 & -8 :]
        if len(files) > _MAX_FILES:
            raise OSError(errno.EINVAL, "too many files at once")
        return files, told

    @staticmethod
    def _told_by(one: Socket, told: dict[int, int]) -> dict[int, int]:
        """What a datagram of a socket of IPv6 has in its header, by type; ``told``: as its control messages want it."""
        found = {}
        for _, kind, option, default in _TOLD_OF_DATAGRAMS if one.family == AF_INET6 else ():
            value = one.options.get((IPPROTO_IPV6, option), b"")
            chosen = struct.unpack("<i", value)[0] if len(value) == 4 else -1
            found[kind] = told.get(kind, chosen if chosen >= 0 else default)
        return found

    @staticmethod
    def _received_values(one: Socket, message: Message, room_bytes: int) -> tuple[bytes, bool]:
        """The control messages that a socket of IPv6 has asked for, and whether some were cut short."""
        packed, is_cut = b"", False
        for option, kind, _, _ in _TOLD_OF_DATAGRAMS:
            if kind not in message.told or not one.has_option(IPPROTO_IPV6, option):
                continue
            room = room_bytes - len(packed)
            length = min(20, room)
            is_cut |= length < 20
            if length >= 16:
                head = struct.pack("<Qiii4x", length, IPPROTO_IPV6, kind, message.told[kind])
                packed += head[: min(length if length < 20 else 24, room)]
        return packed, is_cut

    def _received_files(self, message: Message, room_bytes: int, flags: int) -> tuple[bytes, bool]:
        """The control message that tells their descriptors, and whether there was no room for all."""
        numbers: list[int] = []
        room = max(0, room_bytes - 16) // 4
        files, message.files = message.files, []
        for index, file in enumerate(files):
            if index < room:
                try:
                    numbers.append(self._table.install(file, close_on_exec=bool(flags & _MSG_CMSG_CLOEXEC)))
                except OSError:
                    room = 0
            file.references -= 1
            if file.references == 0:
                file.close()
        if not numbers:
            return b"", bool(files)
        head = struct.pack("<Qii", 16 + 4 * len(numbers), _SOL_SOCKET, _SCM_RIGHTS)
        return head + struct.pack(f"<{len(numbers)}i", *numbers), len(numbers) < len(files)
