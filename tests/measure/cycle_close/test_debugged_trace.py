"""gdb at a cycle-close trace: it stops the program where it wants, and the trace is the one without it."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from emulator.linux.loader.elf import load_image
from emulator.timing.machine_file import load_machine
from instrumenter.building.program_build import build_program
from measure.cycle_close.command import Job, Traced, trace_job
from measure.cycle_close.tracer import TracerSettings
from measure.cycle_close.watch import Keys, Watch

sys.path.insert(0, str(Path(__file__).parents[2] / "emulator" / "gdb"))
from tests.emulator.gdb.gdb_client import Client

ROOT = Path(__file__).parents[3]
STRONGARM = ROOT / "configs" / "machines" / "strongarm.yaml"
MACHINE = load_machine(STRONGARM)
PROGRAM = """
#include <stdio.h>
static volatile int data[1 << 14];
volatile long turn;
__attribute__((noinline)) void next(long k) { turn = k; }
int main(void) {
  long s = 0;
  for (int k = 0; k < 100; k++) {
    next(k);
    for (long i = 0; i < 10000; i++) s += data[(i * 17) & 0x3fff];
    for (long i = 0; i < 15000; i++) s = s * 1103515245 + (s >> 16 & 1 ? 3 : 5);
  }
  printf("%ld\\n", s);
  return 0;
}
"""
SETTINGS = {
    "predicted": TracerSettings(20_000, warm_up="lines", wait_step=0.2),
    "paper": TracerSettings(20_000),
    "roll-back": TracerSettings(20_000, warm_up="lines", wait_step=0.2, roll_back=True),
}


class Pressed(Keys):
    """Keys that were pressed beforehand; nothing can be pressed while gdb is awaited."""

    def __init__(self, keys: list[str]) -> None:
        super().__init__()
        self.keys = keys

    def pressed(self, wait: bool = False) -> str:
        return self.keys.pop(0) if self.keys else ""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traced") / "turns.c"
    path.write_text(PROGRAM)
    return path


@pytest.fixture(scope="module")
def elf(source: Path) -> Path:
    return build_program([source], ["-O2", "-g"]).elf_path


def free_port() -> int:
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def connected(port: int) -> Client:
    for _ in range(600):
        try:
            return Client(port)
        except ConnectionRefusedError:
            time.sleep(0.05)
    raise AssertionError("no process listens")


def traced(elf: Path, settings: TracerSettings, session: Callable[[Client], None]) -> Traced:
    """The trace with a debugger that comes after the first interval."""
    port, errors = free_port(), []

    def debugger() -> None:
        try:
            session(connected(port))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=debugger, daemon=True)
    thread.start()
    with Watch(Console(quiet=True), Pressed(["g"]), port) as watch:
        result = trace_job(Job(elf, (), STRONGARM), elf, MACHINE, settings, watch)
    thread.join(60)
    assert not errors, errors
    return result


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_the_trace_is_the_same(elf: Path, settings: TracerSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("measure.cycle_close.rollback._PART_INSTRUCTIONS", 400_000)
    image = load_image(elf)
    place, watched = image.find_symbol("next"), image.find_symbol("turn")
    assert place is not None
    assert watched is not None
    seen = []

    def session(client: Client) -> None:
        assert client.start().startswith("T05")
        client.insert(0, place.address)
        for _ in range(3):
            assert client.go().startswith("T05")
            assert client.pc == place.address
            seen.append(client.register(10))
        assert client.set_register(32, image.entry) == "E01"
        client.insert(2, watched.address, 8)
        assert f"watch:{watched.address:x}" in client.go()
        client.remove(2, watched.address, 8)
        for _ in range(5):
            assert client.step().startswith("T05")
        client.remove(0, place.address)
        client.send("vCont;c")
        client.channel.sendall(b"\x03")
        assert client.receive().startswith("T02")
        assert client.ask("D") == "OK"

    watched_trace = traced(elf, settings, session)
    alone = trace_job(Job(elf, (), STRONGARM), elf, MACHINE, settings, None)
    pd.testing.assert_frame_equal(watched_trace.table, alone.table)
    assert len(alone.table) > 20
    if not settings.roll_back:  # which comes to some places twice
        assert (seen[1] - seen[0], seen[2] - seen[1]) == (1, 1)


def test_it_may_stay_to_the_end(elf: Path) -> None:
    last: list[str] = []

    def session(client: Client) -> None:
        client.start()
        last.append(client.go())

    found = traced(elf, SETTINGS["predicted"], session)
    assert last == ["W00"]
    assert not found.interrupted


def test_kill_ends_the_trace(elf: Path) -> None:
    def session(client: Client) -> None:
        client.start()
        client.send("k")

    found = traced(elf, SETTINGS["predicted"], session)
    assert found.interrupted
    assert len(found.table) == 1


def test_a_key_instead_of_gdb(elf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While gdb is awaited, a key goes on; q ends the trace."""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        with Watch(Console(quiet=True)) as watch:
            os.write(ours, b"gq")
            found = trace_job(Job(elf, (), STRONGARM), elf, MACHINE, SETTINGS["paper"], watch)
    os.close(ours)
    assert found.interrupted
    assert len(found.table) == 1


def test_a_port_that_is_taken(elf: Path) -> None:
    import socket

    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with Watch(Console(quiet=True), Pressed(["g"]), other.getsockname()[1]) as watch:
            found = trace_job(Job(elf, (), STRONGARM), elf, MACHINE, SETTINGS["paper"], watch)
    assert not found.interrupted


_GDB = """
set pagination off
set confirm off
target remote 127.0.0.1:{port}
break next if k >= 4
continue
backtrace
print k
delete
watch turn
continue
continue
info breakpoints
detach
"""


@pytest.mark.slow
def test_gdb_itself_from_the_command(source: Path, tmp_path: Path) -> None:
    """`measure cycleclose` in a terminal, the key g, and gdb-multiarch with a session as people have them: it finds the
    program and its symbols by itself."""
    gdb = shutil.which("gdb-multiarch")
    if gdb is None:
        pytest.skip("no gdb-multiarch on this host")
    source = tmp_path / "turns.c"
    source.write_text(PROGRAM.replace("k < 100", "k < 1500"))
    port = free_port()
    ours, theirs = pty.openpty()
    command = [
        sys.executable, "-c", "from measure.cli import main; main()", "cycleclose", "--machine", str(STRONGARM),
        "--interval", "20k", "--gdb-port", str(port), "--out", str(tmp_path / "out"), str(source),
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "200"}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    said = b""
    pressed = False
    while b"waiting for gdb" not in said:
        said += os.read(ours, 4096)
        if b"interval" in said and not pressed:
            os.write(ours, b"g")
            pressed = True
    drain = threading.Thread(target=_read_all, args=(ours,), daemon=True)
    drain.start()
    script = tmp_path / "session"
    script.write_text(_GDB.format(port=port))
    found = subprocess.run([gdb, "-nx", "-batch", "-x", str(script)], capture_output=True, text=True, timeout=100)
    text = found.stdout + found.stderr
    for part in (
        "Reading symbols from target:",
        "Breakpoint 1, next (k=",
        "in main ()",
        "New value =",
        "detached",
    ):
        assert part in text, text
    turns = [int(number) for number in re.findall(r"New value = (\d+)", text)]
    assert turns[1] == turns[0] + 1
    assert process.wait(100) == 0
    os.close(ours)
    assert (tmp_path / "out" / "trace.parquet").exists()


def _read_all(descriptor: int) -> None:
    """Take in what is written, so that the writer does not wait, until it is gone."""
    try:
        while os.read(descriptor, 4096):
            pass
    except OSError:
        return
