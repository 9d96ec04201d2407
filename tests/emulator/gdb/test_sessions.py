"""How a debugger comes, what it asks first, and how it leaves or is lost; and gdb itself."""

from __future__ import annotations

import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from emulator.errors import EmulatorError
from emulator.gdb.answers import SessionEnd
from emulator.gdb.server import serve
from emulator.machine import Machine
from tests.emulator.gdb.gdb_client import Client


def test_detached_guests_run_on(serving: Any) -> None:
    served = serving()
    served.client.insert(0, served.address("twice"))
    served.client.go()
    assert served.client.ask("D") == "OK"
    assert served.finish() is SessionEnd.DETACHED
    assert served.machine.run().status == 7
    assert served.machine.files.output(1) == b"20 0x1.e6p+1 before\n"


def test_a_lost_debugger_is_one_that_has_left(serving: Any) -> None:
    served = serving()
    served.client.insert(0, served.address("work") + 2)
    served.client.go()
    served.client.channel.close()
    assert served.finish() is SessionEnd.DETACHED
    assert served.machine.run().status == 7


def test_a_machine_that_has_run_before(program: Path) -> None:
    """As a trace that has paused: the debugger looks, and leaves everything as it was."""
    with Machine(program) as machine:
        machine.advance_to_instructions(machine.instructions + 100)
        at, pc = machine.instructions, machine.hart.pc
        ports: list[int] = []
        seen: list[int] = []

        def debugger() -> None:
            client = Client(ports[0])
            client.start()
            assert client.ask("qAttached") == "1"
            seen.append(client.pc)
            client.ask("D")

        def listening(port: int) -> None:
            ports.append(port)
            threading.Thread(target=debugger, daemon=True).start()

        assert serve(machine, 0, listening) is SessionEnd.DETACHED
        assert (machine.instructions, machine.hart.pc, seen) == (at, pc, [pc])
        assert machine.run().status == 7


def test_what_gdb_asks_before_anything_else(serving: Any) -> None:
    served = serving()
    client = served.client
    text, position, part = "", 0, "m"
    while part[0] == "m":
        part = client.ask(f"qXfer:features:read:target.xml:{position:x},200")
        text, position = text + part[1:], position + len(part) - 1
    registers = [reg.attrib for reg in ElementTree.fromstring(text).iter("reg")]
    assert [int(r["regnum"]) for r in registers] == list(range(68))
    assert (registers[8]["name"], registers[32]["name"], registers[33]["name"]) == ("fp", "pc", "ft0")
    auxv = client.ask("qXfer:auxv:read::0,1000")
    assert auxv[0] == "l"
    words = np.frombuffer(auxv[1:].encode("latin-1"), np.uint64)
    values = dict(zip(words[::2].tolist(), words[1::2].tolist(), strict=True))
    assert values[9] == served.machine.process.entry  # AT_ENTRY
    thread = client.ask("qC")[2:]
    assert client.ask("qfThreadInfo") == f"m{thread}"
    assert client.ask("qsThreadInfo") == "l"
    assert client.ask(f"T{thread}") == "OK"
    assert client.ask("Tffff") == "E01"
    assert client.ask(f"Hg{thread}") == "OK"
    assert client.ask("Hgffff") == "E01"
    assert client.ask("qAttached") == "0"
    assert client.ask("vMustReplyEmpty") == ""
    assert client.ask("vCont?") == "vCont;c;C;s;S"
    assert client.ask("vCont;s:ffff") == "E01"
    assert client.ask("qXfer:libraries:read::0,10") == ""
    assert client.ask("Z9,0,0") == ""
    said = bytes.fromhex(client.ask(f"qRcmd,{b'instructions'.hex()}")).decode()
    assert said.startswith("0 instructions")
    assert b"expected" in bytes.fromhex(client.ask(f"qRcmd,{b'help'.hex()}"))


def test_damaged_packets_are_asked_for_again(serving: Any) -> None:
    served = serving()
    client = served.client
    client.channel.sendall(b"noise$p20#00")  # not acknowledged any more: ignored
    assert client.ask("vCont?") == "vCont;c;C;s;S"
    client.channel.sendall(b"$" + b"x" * (1 << 18))
    assert served.finish() is SessionEnd.DETACHED


def test_a_port_that_is_taken(program: Path, serving: Any) -> None:
    import socket

    with socket.socket() as other, Machine(program) as machine:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(EmulatorError, match=rf"cannot listen on port {port} of 127.0.0.1"):
            serve(machine, port)
        with pytest.raises(EmulatorError, match=r"cannot listen on port 70000 of 127.0.0.1"):
            serve(machine, 70000)


_SESSION = """
set confirm off
set pagination off
target remote 127.0.0.1:{port}
break twice if n == 3
continue
backtrace
print n
print counter
finish
watch counter
continue
next
print twice(21)
print half
info threads
delete
continue
"""


def riscv_gdb() -> str | None:
    """A gdb on this host that knows RISC-V."""
    for name in ("gdb-multiarch", "riscv64-linux-gnu-gdb", "riscv64-unknown-elf-gdb", "gdb"):
        path = shutil.which(name)
        if path is not None:
            said = subprocess.run(
                [path, "-nx", "-batch", "-ex", "set architecture riscv:rv64"], capture_output=True, timeout=60
            )
            if b"Undefined" not in said.stderr + said.stdout:
                return path
    return None


def test_with_gdb(program: Path, tmp_path: Path) -> None:
    """What a person does, with gdb itself: symbols, source lines and conditions are its own."""
    gdb = riscv_gdb()
    if gdb is None:
        pytest.skip("no gdb for RISC-V on this host")
    said: list[str] = []
    threads: list[threading.Thread] = []

    def debugger(port: int) -> None:
        script = tmp_path / "session"
        script.write_text(_SESSION.format(port=port))
        found = subprocess.run(
            [gdb, "-nx", "-batch", "-x", str(script), str(program)],
            capture_output=True,
            text=True,
            timeout=60,
        )
        said.append(found.stdout + found.stderr)

    def listening(port: int) -> None:
        threads.append(threading.Thread(target=debugger, args=(port,), daemon=True))
        threads[0].start()

    with Machine(program) as machine:
        left = serve(machine, 0, listening)
        threads[0].join()
        for part in (
            "Breakpoint 1, twice (n=", "#1  0x", "in work (n=", "in main (", "$1 = 3", "$2 = 3",
            "Value returned is $3 = 6", "Old value = 3", "New value = 4", "$4 = 42", "exited with code 07",
        ):  # fmt: skip
            assert part in said[0], said[0]
        assert left is SessionEnd.ENDED
        assert machine.files.output(1) == b"20 0x1.e6p+1 before\n"
