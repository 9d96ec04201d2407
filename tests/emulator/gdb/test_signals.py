"""Signals under a debugger: the guest stops before one is delivered, and gets the one that the debugger wants."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from emulator.gdb.answers import SessionEnd
from emulator.gdb.server import serve
from emulator.gdb.signal_numbers import gdb_number, linux_number
from emulator.linux.abi.numbers import Signal
from emulator.linux.vfs.files import VirtualFiles
from emulator.machine import Machine
from instrumenter.building.program_build import build_program
from tests.emulator.gdb.served import Served
from tests.emulator.gdb.test_sessions import riscv_gdb

HERE = Path(__file__).parent
USR1, USR2, ALRM, SEGV, ABRT = "1e", "1f", "0e", "0b", "06"  # gdb's numbers


@pytest.fixture(scope="module")
def program() -> Path:
    return build_program([HERE / "signals.c"], ["-O1", "-g"]).elf_path


@pytest.fixture
def served(program: Path, engine: str) -> Iterator[Served]:
    made = Served(program, ("abort",), engine=engine)
    yield made
    made.client.channel.close()
    made._thread.join(60)
    made.machine.close()


def where(served: Served) -> str:
    function = served.machine.image.function_at(served.client.pc)
    assert function is not None
    return function.name


def test_numbers() -> None:
    for signal in (Signal.SIGUSR1, Signal.SIGBUS, Signal.SIGCHLD, 32, 33, 63, 64):
        assert linux_number(gdb_number(signal)) == signal
    assert [gdb_number(one) for one in (0, Signal.SIGUSR1, Signal.SIGBUS, 33, Signal.SIGSTKFLT)] == [0, 30, 10, 45, 143]
    assert [linux_number(one) for one in (0, 7, 30, 143)] == [0, 0, 10, 0]


def test_the_guest_stops_before_each_signal_and_gets_it_or_not(served: Served) -> None:
    client = served.client
    assert client.go().startswith(f"T{USR1}thread:")
    assert where(served) != "handler"
    siginfo = client.ask("qXfer:siginfo:read::0,80")
    assert siginfo[0] == "l"
    assert ord(siginfo[1]) == Signal.SIGUSR1
    assert client.ask(f"vCont;C{USR1}").startswith(f"T{USR1}")  # delivered, and the second one comes
    assert client.go().startswith(f"T{ALRM}")  # that one is discarded
    assert client.ask(f"C{ALRM}").startswith(f"T{SEGV}")
    assert where(served) == "main"
    thread = client.ask("qC")[2:]
    assert client.ask(f"vCont;C{SEGV}:{thread};c").startswith(f"T{ABRT}")
    assert served.machine.files.output(1) == b"1 0 1 1\n"
    assert client.ask(f"C{ABRT}") == f"X{ABRT}"
    assert served.finish() is SessionEnd.ENDED


def test_signals_that_the_debugger_passes_do_not_stop(served: Served) -> None:
    client = served.client
    assert client.ask(f"QPassSignals:{USR1};{ALRM};{SEGV}") == "OK"
    assert client.go().startswith(f"T{ABRT}")
    assert served.machine.files.output(1) == b"2 0 1 1\n"
    assert client.ask("qXfer:siginfo:read::0,80")[1] == chr(Signal.SIGABRT)
    assert client.ask("QPassSignals:") == "OK"


def test_another_signal_in_its_place_and_a_step_into_the_handler(served: Served) -> None:
    client = served.client
    assert client.ask(f"QPassSignals:{ALRM};{SEGV}") == "OK"
    assert client.go().startswith(f"T{USR1}")
    assert client.ask(f"C{USR2}").startswith(f"T{USR1}")  # without a stop before the one that the debugger sends
    assert client.ask("vCont;S1e:9999;c") == "E01"
    thread = client.ask("qC")[2:]
    assert client.ask(f"vCont;S{USR1}:{thread};c").startswith("T05")
    assert client.pc == served.address("handler")
    assert client.go().startswith(f"T{ABRT}")
    assert served.machine.files.output(1) == b"1 1 1 1\n"


def test_nothing_changes_for_a_guest_whose_signals_are_passed(program: Path) -> None:
    served = Served(program)
    with Machine(program) as machine:
        machine.run()
        alone = machine.instructions, machine.files.output(1)
    client = served.client
    stops = [client.go()]
    while stops[-1].startswith("T"):
        stops.append(client.ask("C" + stops[-1][1:3]))
    assert [stop[:3] for stop in stops] == [f"T{USR1}", f"T{USR1}", f"T{ALRM}", f"T{SEGV}", "W03"]
    assert (served.machine.instructions, served.machine.files.output(1)) == alone
    served.finish()
    served.machine.close()


_SESSION = """
set confirm off
set pagination off
target remote 127.0.0.1:{port}
handle SIGUSR1 nostop noprint
catch signal SIGUSR1
continue
backtrace 1
print $_siginfo.si_signo
delete
handle SIGUSR1 stop print
continue
signal 0
handle SIGSEGV nostop noprint
continue
"""


def test_with_gdb(program: Path, tmp_path: Path) -> None:
    gdb = riscv_gdb()
    if gdb is None:
        pytest.skip("no gdb for RISC-V on this host")
    said: list[str] = []
    threads: list[threading.Thread] = []

    def debugger(port: int) -> None:
        script = tmp_path / "session"
        script.write_text(_SESSION.format(port=port))
        command = [gdb, "-nx", "-batch", "-x", str(script), str(program)]
        found = subprocess.run(command, capture_output=True, text=True, timeout=60)
        said.append(found.stdout + found.stderr)

    def listening(port: int) -> None:
        threads.append(threading.Thread(target=debugger, args=(port,), daemon=True))
        threads[0].start()

    with Machine(program) as machine:
        left = serve(machine, 0, listening)
        threads[0].join()
        for part in (
            "Catchpoint 1 (signal SIGUSR1)",
            "$1 = 10",
            "Program received signal SIGUSR1",
            "exited with code 03",
        ):
            assert part in said[0], said[0]
        assert left is SessionEnd.ENDED
        assert machine.files.output(1) == b"1 0 1 1\n"


STARTER = """
#include <sys/wait.h>
#include <unistd.h>
volatile int counter;
__attribute__((noinline)) int twice(int n) { counter = n; return n + n; }
int main(int argc, char **argv) {
    int status;
    twice(1);
    if (argc > 1) return twice(4) == 8 ? 0 : 1;
    if (!fork()) { twice(2); execl("/other", "/other", "again", (char *)0); _exit(9); }
    wait(&status);
    return twice(3) + (status ? 1 : 0);
}
"""


@pytest.mark.parametrize("kind", [0, 2])
def test_a_program_that_is_executed_does_not_stop_at_the_breakpoints_of_the_first(
    tmp_path: Path, engine: str, kind: int
) -> None:
    """It has the same code at the same addresses, and is another file; the child of a fork does stop."""
    (tmp_path / "starter.c").write_text(STARTER)
    starter = build_program([tmp_path / "starter.c"], ["-O1"]).elf_path
    other = tmp_path / "other"
    other.write_bytes(starter.read_bytes() + b"another file")
    served = Served(starter, files=VirtualFiles(mapped={"/other": other}), engine=engine)
    client, stops = served.client, []
    client.insert(kind, served.address("twice" if kind == 0 else "counter"), 4)
    while (reply := client.go()).startswith("T05"):
        stops.append(int.from_bytes(client.read(served.address("counter"), 4), "little"))
    assert reply == "W06"
    assert stops == ([0, 1, 1] if kind == 0 else [1, 2, 3])
    served.finish()
    served.machine.close()
