"""gdb server: listens on a port of this host's loopback, and serves one debugger for a machine."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from emulator.errors import EmulatorError
from emulator.gdb.answers import SessionEnd
from emulator.gdb.debugger import Debugger
from emulator.gdb.packets import Connection

if TYPE_CHECKING:
    from emulator.machine import Machine

LOOPBACK = "127.0.0.1"


class Listener:
    """A listening port of the loopback for one debugger; 0: a free port. ``port``: the actual number.

    Raises `EmulatorError` if the port cannot be opened.
    """

    def __init__(self, port: int) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((LOOPBACK, port))
            self._socket.listen(1)
        except (OSError, OverflowError) as error:
            self._socket.close()
            raise EmulatorError(
                f"cannot listen on port {port} of {LOOPBACK} ({error}); choose another one, or 0 for any"
            ) from None
        self.port: int = self._socket.getsockname()[1]

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: Any) -> None:
        self._socket.close()

    def accept(self, or_readable: int | None = None) -> Connection | None:
        """Wait for the debugger; None if the host descriptor ``or_readable`` becomes readable first."""
        arrivals = select.poll()
        for one in (self._socket.fileno(), or_readable):
            if one is not None:
                arrivals.register(one, select.POLLIN)
        if self._socket.fileno() not in dict(arrivals.poll()):
            return None
        channel, _ = self._socket.accept()
        channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return Connection(channel)


def serve(machine: Machine, port: int, on_listening: Callable[[int], None] | None = None) -> SessionEnd:
    """Wait for a debugger, let it run ``machine``, and return how its session ended.

    For a machine that is not running: before its start, or while its owner has paused it. Observers stay attached and
    see the execution; intervals of `Machine.run_intervals` do not count it. An owner that itself runs the machine
    under a debugger creates a `Debugger` and calls `begin`. After `SessionEnd.DETACHED` the owner may continue the
    machine, after `SessionEnd.KILLED` the machine must not run any more.

    ``port``: 0 for a free one; ``on_listening(port)`` is called when the port is open.
    Raises `EmulatorError` if the port cannot be opened, and what `Machine.advance` raises.
    """
    with Listener(port) as listener:
        if on_listening is not None:
            on_listening(listener.port)
        connection = listener.accept()
    assert connection is not None
    try:
        return Debugger(machine, connection).run()
    finally:
        connection.close()
