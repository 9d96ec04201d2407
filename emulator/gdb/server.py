"""Waits for a debugger on a port of this host's loopback, and lets it have a machine."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from emulator.errors import EmulatorError
from emulator.gdb.answers import Left
from emulator.gdb.debugger import Debugger
from emulator.gdb.packets import Connection

if TYPE_CHECKING:
    from emulator.machine import Machine

LOOPBACK = "127.0.0.1"


class Listener:
    """A port of the loopback where one debugger may come; 0 for a free one, ``port`` says which.

    Raises `EmulatorError` when the port cannot be had.
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
                f"port {port} of {LOOPBACK} cannot be had ({error}); choose another one, or 0 for any"
            ) from None
        self.port: int = self._socket.getsockname()[1]

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: Any) -> None:
        self._socket.close()

    def accept(self, or_readable: int | None = None) -> Connection | None:
        """Wait for the debugger; None when the host descriptor ``or_readable`` has something to read first."""
        arrivals = select.poll()
        for one in (self._socket.fileno(), or_readable):
            if one is not None:
                arrivals.register(one, select.POLLIN)
        if self._socket.fileno() not in dict(arrivals.poll()):
            return None
        channel, _ = self._socket.accept()
        channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return Connection(channel)


def serve(machine: Machine, port: int, on_listening: Callable[[int], None] | None = None) -> Left:
    """Let one debugger have ``machine``, which stands where it is until it comes; returns when it has left.

    For a machine that is not running: before its start, or wherever its owner has paused. Observers stay, and see
    what runs meanwhile; intervals of `Machine.run_intervals` do not count it: an owner who is to go on running the
    machine, with the debugger at it, makes a `Debugger` and lets it `begin`. With `Left.DETACHED` the owner goes on
    with the machine, with `Left.KILLED` the machine must not run any more.

    ``port``: 0 for a free one; ``on_listening(port)`` is called when a debugger may come.
    Raises `EmulatorError` when the port cannot be had, and what `Machine.advance` raises.
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
