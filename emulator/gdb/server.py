"""Waits for a debugger on a port of this host's loopback, and lets it have a machine."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from emulator.errors import EmulatorError
from emulator.gdb.answers import Left
from emulator.gdb.debugger import Debugger
from emulator.gdb.packets import Connection

if TYPE_CHECKING:
    from emulator.machine import Machine

LOOPBACK = "127.0.0.1"


def serve(machine: Machine, port: int, on_listening: Callable[[int], None] | None = None) -> Left:
    """Let one debugger have ``machine``, which stands where it is until it comes; returns when it has left.

    For a machine that is not running: before its start, or wherever its owner has paused. Observers stay, and see
    what runs meanwhile; intervals of `Machine.run_intervals` do not count it. With `Left.DETACHED` the owner goes on
    with the machine, with `Left.KILLED` the machine must not run any more.

    ``port``: 0 for a free one; ``on_listening(port)`` is called when a debugger may come.
    Raises `EmulatorError` when the port cannot be had, and what `Machine.advance` raises.
    """
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, port))
            listener.listen(1)
        except (OSError, OverflowError) as error:
            raise EmulatorError(
                f"port {port} of {LOOPBACK} cannot be had ({error}); choose another one, or 0 for any"
            ) from None
        if on_listening is not None:
            on_listening(listener.getsockname()[1])
        channel, _ = listener.accept()
    channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection = Connection(channel)
    try:
        return Debugger(machine, connection).run()
    finally:
        connection.close()
