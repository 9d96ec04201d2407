"""A debugger as small as can be: it speaks the protocol, and knows nothing else."""

from __future__ import annotations

import socket

from emulator.gdb.packets import escaped, framed
from emulator.gdb.target import N_REGISTERS, PC, register_bytes


class Client:
    """At ``port`` of the loopback, without acknowledgements after `start`."""

    def __init__(self, port: int) -> None:
        self.channel = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._buffer = b""
        self.acknowledges = True

    def send(self, payload: bytes | str) -> None:
        self.channel.sendall(framed(payload.encode() if isinstance(payload, str) else payload))

    def receive(self) -> str:
        while True:
            start = self._buffer.find(b"$")
            end = self._buffer.find(b"#", start)
            if 0 <= start < end and len(self._buffer) >= end + 3:
                payload = self._buffer[start + 1 : end]
                assert int(self._buffer[end + 1 : end + 3], 16) == sum(payload) & 255
                self._buffer = self._buffer[end + 3 :]
                if self.acknowledges:
                    self.channel.sendall(b"+")
                return payload.decode("latin-1")
            part = self.channel.recv(4096)
            if not part:
                raise EOFError
            self._buffer += part

    def ask(self, payload: bytes | str) -> str:
        self.send(payload)
        return self.receive()

    def start(self) -> str:
        """What gdb asks first; the reason of the stop."""
        assert "PacketSize" in self.ask("qSupported:multiprocess+;swbreak+")
        assert self.ask("QStartNoAckMode") == "OK"
        self.acknowledges = False
        assert self.ask("Hg0") == "OK"
        return self.ask("?")

    # --- what a person asks
    @property
    def registers(self) -> list[int]:
        raw, values = bytes.fromhex(self.ask("g")), []
        for number in range(N_REGISTERS):
            values.append(int.from_bytes(raw[: register_bytes(number)], "little"))
            raw = raw[register_bytes(number) :]
        assert not raw
        return values

    @property
    def pc(self) -> int:
        return self.register(PC)

    def register(self, number: int) -> int:
        return int.from_bytes(bytes.fromhex(self.ask(f"p{number:x}")), "little")

    def set_register(self, number: int, value: int) -> str:
        return self.ask(f"P{number:x}={value.to_bytes(register_bytes(number), 'little').hex()}")

    def read(self, address: int, n_bytes: int) -> bytes:
        return bytes.fromhex(self.ask(f"m{address:x},{n_bytes:x}"))

    def write(self, address: int, data: bytes) -> str:
        return self.ask(f"M{address:x},{len(data):x}:{data.hex()}")

    def write_binary(self, address: int, data: bytes) -> str:
        return self.ask(f"X{address:x},{len(data):x}:".encode() + escaped(data))

    def insert(self, kind: int, address: int, size: int = 2) -> None:
        assert self.ask(f"Z{kind},{address:x},{size:x}") == "OK"

    def remove(self, kind: int, address: int, size: int = 2) -> None:
        assert self.ask(f"z{kind},{address:x},{size:x}") == "OK"

    def go(self) -> str:
        return self.ask("vCont;c")

    def step(self) -> str:
        return self.ask("vCont;s")
