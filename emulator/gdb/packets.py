"""Packets of the remote serial protocol on a socket: framing, checksums, acknowledgements.

Their contents are left to `answers`.

Source: "Debugging with GDB", appendix E (GDB Remote Serial Protocol), sections E.1 (overview) and E.10 (interrupts).
"""

from __future__ import annotations

import select
import socket

from emulator.errors import EmulatorError

MAX_PACKET_BYTES = 1 << 16
INTERRUPT = b"\x03"
_ESCAPE, _START, _END = 0x7D, 0x24, 0x23
_ESCAPED = b"#$}*"


class ConnectionLost(EmulatorError):
    """The debugger has closed the connection without detaching."""


def escaped(payload: bytes) -> bytes:
    """Escape the bytes that the framing and run-length encoding use, as ``}`` and the byte with bit 5 inverted."""
    return b"".join(bytes((_ESCAPE, b ^ 0x20)) if b in _ESCAPED else bytes((b,)) for b in payload)


def unescaped(payload: bytes) -> bytes:
    """Undo `escaped`."""
    first, *others = payload.split(b"}")
    return first + b"".join(bytes((part[0] ^ 0x20,)) + part[1:] for part in others if part)


def framed(payload: bytes) -> bytes:
    """The packet with ``payload``, which is already escaped."""
    return b"$" + payload + b"#%02x" % (sum(payload) & 0xFF)


class Connection:
    """The connection to one debugger over ``channel``.

    `send` escapes payloads; `receive` returns them as received, because only those with binary data (X) are escaped.
    """

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._arrivals = select.poll()
        self._arrivals.register(channel, select.POLLIN)
        self._buffer = bytearray()
        self.acknowledges = True

    def receive(self) -> bytes:
        """Wait for the next payload or `INTERRUPT`, and return it. Raises `ConnectionLost`."""
        while True:
            found = self._next()
            if found is not None:
                return found
            self._read()

    def send(self, payload: bytes) -> None:
        """Send a packet. Raises `ConnectionLost`."""
        self._write(framed(escaped(payload)))

    def is_interrupted(self) -> bool:
        """Whether the debugger has sent an interrupt; does not wait. Raises `ConnectionLost`."""
        while self._arrivals.poll(0):
            self._read()
        if INTERRUPT not in self._buffer:
            return False
        del self._buffer[: self._buffer.index(INTERRUPT) + 1]
        return True

    def wait_or(self, other: int) -> bool:
        """Wait until the connection or the host descriptor ``other`` is readable (data, or the end); return whether
        only ``other`` is. The debugger comes first, so that a packet sent before the input is not missed when both are
        seen together."""
        both = select.poll()
        both.register(self._channel, select.POLLIN)
        both.register(other, select.POLLIN)
        return self._channel.fileno() not in dict(both.poll())

    def close(self) -> None:
        self._channel.close()

    def _next(self) -> bytes | None:
        """The payload of the next complete packet in the buffer, or None. Requests damaged packets again."""
        while self._buffer:
            if self._buffer[0] == INTERRUPT[0]:
                del self._buffer[0]
                return INTERRUPT
            if self._buffer[0] != _START:
                del self._buffer[0]  # acknowledgements, and noise
                continue
            end = self._buffer.find(_END)
            if end < 0 or len(self._buffer) < end + 3:
                if len(self._buffer) > 2 * MAX_PACKET_BYTES:
                    raise ConnectionLost("the debugger sent 128 KiB without the end of a packet")
                return None
            payload, checksum = bytes(self._buffer[1:end]), bytes(self._buffer[end + 1 : end + 3])
            del self._buffer[: end + 3]
            is_whole = checksum.lower() == b"%02x" % (sum(payload) & 0xFF)
            if self.acknowledges:
                self._write(b"+" if is_whole else b"-")
            if is_whole:
                return payload
        return None

    def _read(self) -> None:
        try:
            part = self._channel.recv(MAX_PACKET_BYTES)
        except OSError as error:
            raise ConnectionLost(f"the connection to the debugger was lost: {error}") from None
        if not part:
            raise ConnectionLost("the debugger has closed the connection without detaching")
        self._buffer += part

    def _write(self, data: bytes) -> None:
        try:
            self._channel.sendall(data)
        except OSError as error:
            raise ConnectionLost(f"the connection to the debugger was lost: {error}") from None
