"""A guest under a debugger: stopped exactly, looked at, changed, and otherwise as if nobody were there."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from gdb_client import Client
from served import Served

from emulator.errors import EmulatorError
from emulator.events import FULL_RECORD, BlockFacts
from emulator.gdb.answers import Left
from emulator.gdb.server import serve
from emulator.gdb.target import F0, FCSR, FFLAGS, FRM, PC
from emulator.machine import Machine
from instrumenter.build import build_program

A0, RA, SP = 10, 1, 2


@pytest.fixture(scope="module")
def program() -> Path:
    return build_program([Path(__file__).parent / "guest.c"], ["-O1", "-g"]).elf_path


class Record:
    """A consumer that remembers everything."""

    selection = FULL_RECORD

    def __init__(self) -> None:
        self.words: list[np.ndarray] = []

    def consume(self, facts: BlockFacts, stream: Any) -> None:
        self.words.append(stream.copy())


@pytest.fixture(params=["translated", "oracle"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def serving(program: Path) -> Iterator[Any]:
    served: list[Served] = []

    def start(*arguments: str, **options: Any) -> Served:
        served.append(Served(program, arguments, **options))
        return served[-1]

    yield start
    for one in served:
        one.client.channel.close()
        one._thread.join(60)
        one.machine.close()


def test_breakpoint_look_and_go_on(serving: Any, engine: str) -> None:
    served = serving(engine=engine)
    client = served.client
    assert served.reason.startswith("T05thread:")
    assert client.pc == served.machine.process.entry
    twice = served.address("twice")
    client.insert(0, twice)
    for n in range(5):
        assert client.go().startswith("T05")
        assert client.pc == twice
        assert client.register(A0) == n
        assert client.read(served.address("counter"), 4) == n.to_bytes(4, "little")
        function = served.machine.image.function_at(client.register(RA))
        assert function.name == "work"
    client.remove(0, twice)
    assert client.go() == "W07"
    assert served.finish() is Left.ENDED
    assert served.machine.files.output(1) == b"20 0x1.e6p+1 before\n"


def test_steps_are_the_oracles(program: Path, serving: Any) -> None:
    """Single steps through calls and loops: every pc and register as the oracle executes them."""
    expected: list[tuple[int, list[int]]] = []

    class Trace:
        def enter(self, block: Any) -> None: ...
        def before(self, pc: int, instruction: Any) -> None:
            expected.append((pc, [*map(int, machine.hart.x), *map(int, machine.hart.f)]))

        def after(self, pc: int, instruction: Any) -> None: ...

    with Machine(program, engine="oracle") as machine:
        from emulator.events import TraceSelection
        from emulator.isa.table import TABLE

        machine.call_hooks(Trace(), TraceSelection(hooks=tuple(row.mnemonic for row in TABLE)))
        machine.run()
    served = serving()
    work = served.address("work")
    start = next(n for n, (pc, _) in enumerate(expected) if pc == work)
    served.client.insert(0, work)
    served.client.go()
    for pc, registers in expected[start : start + 60]:
        found = served.client.registers
        assert (found[PC], found[:PC] + found[F0:FFLAGS]) == (pc, registers)
        assert served.client.step().startswith("T05")


def test_the_record_is_the_same_with_a_debugger(program: Path, serving: Any) -> None:
    alone = Record()
    with Machine(program, consumers=[alone]) as machine:
        machine.run()
        instructions = machine.instructions
    watched = Record()
    served = serving(consumers=[watched])
    client = served.client
    client.insert(0, served.address("twice"))
    client.insert(0, served.address("work") + 8)
    client.insert(2, served.address("counter"), 4)
    stops = 0
    while (reply := client.go()).startswith("T05"):
        stops += 1
        if stops % 3 == 0:
            client.step()
    assert reply == "W07"
    assert stops >= 11
    served.finish()
    assert served.machine.instructions == instructions
    assert np.array_equal(np.concatenate(watched.words), np.concatenate(alone.words))


@pytest.mark.parametrize(("kind", "name"), [(2, "watch"), (3, "rwatch"), (4, "awatch")])
def test_watchpoints(serving: Any, engine: str, kind: int, name: str) -> None:
    served = serving(engine=engine)
    client, half = served.client, served.address("half")
    client.insert(0, served.address("work"))
    client.go()
    client.remove(0, served.address("work"))
    client.insert(kind, half + 6, 1)  # inside the double
    for n in range(3):
        before = np.frombuffer(client.read(half, 8), float)[0]
        # A stop comes after the access: a load's before the store that follows it.
        assert before == 0.5 * 1.5 ** {2: n, 3: max(0, n - 1), 4: n // 2}[kind]
        reply = client.go()
        assert reply.startswith("T05thread:")
        assert reply.endswith(f";{name}:{half + 6:x};")
        if kind == 2:
            assert np.frombuffer(client.read(half, 8), float)[0] == 0.5 * 1.5 ** (n + 1)
    client.remove(kind, half + 6, 1)
    assert client.go() == "W07"


def test_change_registers_and_memory(serving: Any) -> None:
    served = serving()
    client = served.client
    twice, text = served.address("twice"), served.address("text")
    client.insert(0, twice)
    client.go()
    client.remove(0, twice)
    assert client.set_register(A0, 1000) == "OK"
    assert client.set_register(F0 + 31, 0x3FF0000000000000) == "OK"
    assert client.set_register(0, 5) == "OK"
    assert client.write(text, b"after\0") == "OK"
    assert client.write_binary(text + 1, b"#$}*") == "OK"
    assert client.read(text, 6) == b"a#$}*\0"
    assert client.write(text, b"after\0") == "OK"
    found = client.registers
    assert (found[0], found[A0], found[F0 + 31]) == (0, 1000, 0x3FF0000000000000)
    assert client.set_register(FRM, 2) == "OK"
    assert client.set_register(FFLAGS, 17) == "OK"
    assert client.register(FCSR) == 2 << 5 | 17
    assert client.set_register(FCSR, 0) == "OK"
    all_of_them = client.ask("g")
    assert client.ask(f"G{all_of_them}") == "OK"
    assert client.ask("g") == all_of_them
    assert client.go() == "W07"
    assert served.finish() is Left.ENDED
    assert served.machine.files.output(1) == b"2020 0x1.e6p+1 after\n"


def test_memory_that_is_not_there(serving: Any) -> None:
    served = serving()
    client, end = served.client, served.machine.process.stack_high
    assert client.ask("m0,10") == "E01"
    assert client.ask(f"m{end - 4:x},10") == client.read(end - 4, 4).hex()
    assert client.write(0, b"x") == "E01"
    assert client.write(1 << 31, b"x") == "E01"
    code = client.read(served.address("twice"), 4)
    assert client.write(served.address("twice"), code) == "OK"  # whatever the guest may do there
    assert client.ask("mzz,1") == "E01"
    assert client.ask("p99") == "E01"


def test_written_code_runs(serving: Any, engine: str) -> None:
    served = serving(engine=engine)
    client, twice = served.client, served.address("twice")
    client.insert(0, twice)
    client.go()
    client.go()
    client.remove(0, twice)
    assert client.write(twice, bytes.fromhex("05058280")) == "OK"  # c.addi a0, 1; ret
    assert client.go() == "W07"
    said = int(served.machine.files.output(1).split()[0])
    assert said in (0 + 2 + 3 + 4 + 5, 0 + 1 + 1 + 3 + 4 + 5)  # a block that has begun is executed as it was


@pytest.mark.parametrize("inside", [False, True])
def test_go_on_elsewhere(serving: Any, engine: str, inside: bool) -> None:
    """A function called from the debugger: what gdb's ``print twice(21)`` does."""
    served = serving(engine=engine)
    client, twice = served.client, served.address("twice")
    place = served.address("work") + (2 if inside else 0)
    client.insert(0, place)
    client.go()
    before = client.registers
    client.remove(0, place)
    client.insert(0, place)
    client.set_register(A0, 21)
    client.set_register(RA, place)
    assert client.set_register(PC, twice) == "OK"
    assert client.go().startswith("T05")
    assert (client.pc, client.register(A0)) == (place, 42)
    client.set_register(A0, before[A0])
    client.set_register(RA, before[RA])
    assert client.registers == before
    client.remove(0, place)
    assert client.go() == "W07"
    assert served.machine.files.output(1) == b"20 0x1.e6p+1 before\n"


def test_no_other_pc_inside_a_recorded_block(serving: Any) -> None:
    served = serving(consumers=[Record()])
    client, place = served.client, served.address("work") + 2
    client.insert(0, place)
    client.go()
    assert client.set_register(PC, served.address("twice")) == "E01"
    assert client.pc == place


def test_interrupt_an_endless_loop(serving: Any, engine: str) -> None:
    served = serving("loop", engine=engine)
    client = served.client
    for _ in range(2):
        client.send("vCont;c")
        client.channel.sendall(b"\x03")
        assert client.receive().startswith("T02")
    counter = int.from_bytes(client.read(served.address("counter"), 4), "little")
    client.insert(2, served.address("counter"), 4)  # everything by the oracle
    assert "watch" in client.go()
    client.remove(2, served.address("counter"), 4)
    client.insert(2, 0x1000, 4)
    client.send("vCont;c")
    client.channel.sendall(b"\x03")
    assert client.receive().startswith("T02")
    assert int.from_bytes(client.read(served.address("counter"), 4), "little") >= counter
    client.send("k")
    assert served.finish() is Left.KILLED


def test_faults_stop_with_exact_registers(serving: Any, engine: str) -> None:
    served = serving("fault", "64", engine=engine)
    client = served.client
    assert client.go().startswith("T0b")
    function = served.machine.image.function_at(client.pc)
    assert function.name == "main"
    assert served.machine.image.source_line(client.pc)[1] > 20
    assert 64 in client.registers[:32]
    assert 6 in client.registers[:32]  # work(3)
    assert client.go() == "X0b"
    assert served.finish() is Left.ENDED


def test_detached_guests_run_on(serving: Any) -> None:
    served = serving()
    served.client.insert(0, served.address("twice"))
    served.client.go()
    assert served.client.ask("D") == "OK"
    assert served.finish() is Left.DETACHED
    assert served.machine.run().status == 7
    assert served.machine.files.output(1) == b"20 0x1.e6p+1 before\n"


def test_a_lost_debugger_is_one_that_has_left(serving: Any) -> None:
    served = serving()
    served.client.insert(0, served.address("work") + 2)
    served.client.go()
    served.client.channel.close()
    assert served.finish() is Left.DETACHED
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

        assert serve(machine, 0, listening) is Left.DETACHED
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
    assert dict(words.reshape(-1, 2).tolist())[9] == served.machine.process.entry  # AT_ENTRY
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
    assert served.finish() is Left.DETACHED


def test_a_port_that_is_taken(program: Path, serving: Any) -> None:
    import socket

    with socket.socket() as other, Machine(program) as machine:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(EmulatorError, match=rf"port {port} of 127.0.0.1 cannot be had"):
            serve(machine, port)
        with pytest.raises(EmulatorError, match=r"port 70000 of 127.0.0.1 cannot be had"):
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
        assert left is Left.ENDED
        assert machine.files.output(1) == b"20 0x1.e6p+1 before\n"


def test_a_function_called_with_its_return_on_the_stack(serving: Any, engine: str) -> None:
    """gdb lets functions that it calls return to the stack, where nothing can be executed, and breaks there."""
    served = serving(engine=engine)
    client, place = served.client, served.address("work")
    client.insert(0, place)
    client.go()
    client.remove(0, place)
    before = client.registers
    stack = before[SP] - 64
    client.insert(0, stack)
    for number, value in ((A0, 21), (RA, stack), (PC, served.address("twice"))):
        assert client.set_register(number, value) == "OK"
    assert client.go().startswith("T05")
    assert (client.pc, client.register(A0)) == (stack, 42)
    client.remove(0, stack)
    for number in (A0, RA, PC, 14, 15):
        assert client.set_register(number, before[number]) == "OK"
    assert client.go() == "W07"
    assert served.machine.files.output(1) == b"20 0x1.e6p+1 before\n"


def test_threads(engine: str) -> None:
    """The one that runs is shown first; another one's registers are those that it will go on with."""
    program = build_program([Path(__file__).parent / "threads.c"], ["-O1"]).elf_path
    served = Served(program, engine=engine)
    client = served.client
    try:
        first = client.ask("qC")[2:]
        client.insert(0, served.address("inside"))
        reply = client.go()
        second = client.ask("qC")[2:]
        assert second != first
        assert f"thread:{second};" in reply
        assert client.ask("qfThreadInfo") == f"m{second},{first}"
        assert client.register(A0) == 14
        mine = client.registers
        assert client.ask(f"Hg{first}") == "OK"
        others = client.registers
        assert others[SP] != mine[SP]
        assert others[PC] != mine[PC]
        assert client.set_register(25, 7) == "OK"
        assert client.register(25) == 7
        assert client.set_register(25, others[25]) == "OK"
        assert client.ask(f"Hg{second}") == "OK"
        assert client.registers == mine
        assert client.ask(f"vCont;s:{second};c").startswith("T05")
        assert client.ask("qC")[2:] == second
        assert client.pc > mine[PC]
        client.remove(0, served.address("inside"))
        assert client.go() == "W2a"
        assert served.finish() is Left.ENDED
    finally:
        client.channel.close()
        served._thread.join(60)
        served.machine.close()
