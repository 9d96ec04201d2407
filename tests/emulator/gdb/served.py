"""A machine with a debugger at it, for tests that are the debugger."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from emulator.gdb.answers import SessionEnd
from emulator.gdb.server import serve
from emulator.machine import Machine
from tests.emulator.gdb.gdb_client import Client


class Served:
    """A machine with a debugger: the machine runs in a thread of its own."""

    def __init__(self, program: Path, arguments: tuple[str, ...] = (), **options: Any) -> None:
        self.machine = Machine(program, arguments, **options)
        self.left: SessionEnd | None = None
        self.error: BaseException | None = None
        ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(ready,), daemon=True)
        self._thread.start()
        assert ready.wait(60)
        self.client = Client(self.port)
        self.reason = self.client.start()

    def _serve(self, ready: threading.Event) -> None:
        def listening(port: int) -> None:
            self.port = port
            ready.set()

        try:
            self.left = serve(self.machine, 0, listening)
        except BaseException as error:
            self.error = error

    def address(self, name: str) -> int:
        symbol = self.machine.image.find_symbol(name)
        assert symbol is not None
        return symbol.address

    def finish(self) -> SessionEnd:
        self._thread.join(60)
        assert self.error is None, self.error
        assert self.left is not None
        return self.left
