"""What gdb reads through the emulator: the guest's files, by which it finds symbols; and stops in the host's input."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import threading
from pathlib import Path

import pytest

from emulator.gdb.answers import SessionEnd
from emulator.gdb.server import serve
from emulator.linux.vfs.files import VirtualFiles
from emulator.machine import Machine
from instrumenter.building.program_build import build_program
from tests.emulator.dynamic_root import INTERPRETER, build_root
from tests.emulator.gdb.served import Served

READER = """
#include <stdio.h>
#include <unistd.h>
int main(void) {
  char text[16];
  long n = read(0, text, sizeof text);
  printf("%ld %.*s", n, (int)n, text);
  return 3;
}
"""
READ, ECALL = 63, bytes.fromhex("73000000")


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("reader") / "reader.c"
    source.write_text(READER)
    return build_program([source], ["-O1", "-g"]).elf_path


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with a dynamically linked program, its library (which is its interpreter, too), and a link."""
    directory = build_root(tmp_path_factory.mktemp("root"), "-g")
    (directory / "link").symlink_to("program")
    return directory


def named(path: str) -> str:
    return path.encode().hex()


def test_files_are_the_guests(root: Path) -> None:
    served = Served(root / "program", ("x",), files=VirtualFiles(root=root))
    client = served.client
    path = client.ask("qXfer:exec-file:read:3e8:0,ff")
    assert path == "l/program"
    assert client.ask("vFile:setfs:0") == "F0"
    assert client.ask(f"vFile:open:{named('/program')},0,0") == "F0"
    contents = (root / "program").read_bytes()
    size, _, status = client.ask("vFile:fstat:0").removeprefix("F").partition(";")
    fields = struct.unpack(">7I3Q3I", status.encode("latin-1"))
    assert int(size, 16) == len(status) == 64
    assert (fields[2] >> 12, fields[7]) == (8, len(contents))  # a regular file
    read, position = b"", 0
    while position < len(contents):
        count, _, data = client.ask(f"vFile:pread:0,8000,{position:x}").removeprefix("F").partition(";")
        part = _unescaped(data.encode("latin-1"))
        assert len(part) == int(count, 16) > 0
        read, position = read + part, position + len(part)
    assert read == contents
    assert client.ask(f"vFile:open:{named(INTERPRETER)},0,0") == "F1"
    assert client.ask("vFile:close:0") == "F0"
    assert client.ask(f"vFile:readlink:{named('/link')}") == "F7;program"
    assert client.ask("D") == "OK"
    assert served.finish() is SessionEnd.DETACHED
    served.machine.close()


def _unescaped(data: bytes) -> bytes:
    first, *others = data.split(b"}")
    return first + b"".join(bytes((part[0] ^ 0x20,)) + part[1:] for part in others)


def test_files_that_are_not_shown(root: Path) -> None:
    served = Served(root / "program", ("x",), files=VirtualFiles(root=root))
    client = served.client
    assert client.ask(f"vFile:open:{named('/etc/passwd')},0,0") == "F-1,2"
    assert client.ask(f"vFile:open:{named('/../../etc/passwd')},0,0") == "F-1,2"
    assert client.ask(f"vFile:open:{named('/program')},1,0") == "F-1,1e"  # for writing
    assert client.ask("vFile:close:7") == "F-1,9"
    assert client.ask("vFile:pread:7,10,0") == "F-1,9"
    assert client.ask(f"vFile:unlink:{named('/program')}") == ""
    assert client.ask("vFile:open:zz,0,0") == "E01"
    client.send("k")
    assert served.finish() is SessionEnd.KILLED
    served.machine.close()


@pytest.mark.parametrize("engine", ["translated", "oracle"])
def test_interrupt_in_the_hosts_input(reader: Path, engine: str) -> None:
    """A guest that waits for a person can be stopped, looked at, and goes on waiting."""
    theirs, ours = os.pipe()
    served = Served(reader, files=VirtualFiles(stdin=theirs), engine=engine)
    client = served.client
    for _ in range(2):
        client.send("vCont;c")
        client.channel.sendall(b"\x03")
        assert client.receive().startswith("T02")
    for _ in range(1000):
        if client.read(client.pc - 4, 4) == ECALL:
            break
        client.send("vCont;c")  # the stops before may come before the guest waits
        client.channel.sendall(b"\x03")
        assert client.receive().startswith("T02")
    assert client.register(17) == READ
    assert client.set_register(32, served.address("main")) == "E01"
    client.send("vCont;s")
    os.write(ours, b"hello\n")
    assert client.receive().startswith("T05")
    assert client.register(10) == 6
    assert client.go() == "W03"
    assert served.finish() is SessionEnd.ENDED
    assert served.machine.files.output(1) == b"6 hello\n"
    served.machine.close()
    os.close(ours)
    os.close(theirs)


def test_a_debugger_that_goes_while_the_guest_waits(reader: Path) -> None:
    theirs, ours = os.pipe()
    served = Served(reader, files=VirtualFiles(stdin=theirs))
    served.client.send("vCont;c")
    served.client.channel.close()
    os.write(ours, b"hello\n")
    assert served.finish() is SessionEnd.DETACHED
    assert served.machine.run().status == 3
    served.machine.close()
    os.close(ours)
    os.close(theirs)


_SESSION = """
set pagination off
set confirm off
target remote 127.0.0.1:{port}
info sharedlibrary
break main
continue
backtrace
detach
"""


def test_gdb_finds_programs_and_symbols_by_itself(reader: Path, tmp_path: Path) -> None:
    gdb = shutil.which("gdb-multiarch")
    if gdb is None:
        pytest.skip("no gdb-multiarch on this host")
    said: list[str] = []
    threads: list[threading.Thread] = []

    def debugger(port: int) -> None:
        script = tmp_path / "session"
        script.write_text(_SESSION.format(port=port))
        command = [gdb, "-nx", "-batch", "-x", str(script)]
        found = subprocess.run(command, capture_output=True, text=True, timeout=60)
        said.append(found.stdout + found.stderr)

    def listening(port: int) -> None:
        threads.append(threading.Thread(target=debugger, args=(port,), daemon=True))
        threads[0].start()

    with Machine(reader, files=VirtualFiles(stdin=b"x")) as machine:
        assert serve(machine, 0, listening) is SessionEnd.DETACHED
        threads[0].join()
        assert "reader.c:6" in said[0], said[0]
        assert machine.run().status == 3
