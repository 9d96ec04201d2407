"""A guest under a debugger: stopped exactly, looked at, changed, and otherwise as if nobody were there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emulator.events import FULL_RECORD, BlockFacts
from emulator.gdb.answers import SessionEnd
from emulator.gdb.target import F0, FCSR, FFLAGS, FRM, PC
from emulator.machine import Machine
from instrumenter.building.program_build import build_program
from tests.emulator.gdb.served import Served

A0, RA, SP = 10, 1, 2


class Record:
    """A consumer that remembers everything."""

    selection = FULL_RECORD

    def __init__(self) -> None:
        self.words: list[np.ndarray] = []

    def consume(self, facts: BlockFacts, stream: Any) -> None:
        self.words.append(stream.copy())


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
    assert served.finish() is SessionEnd.ENDED
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
    assert served.finish() is SessionEnd.ENDED
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
    assert served.finish() is SessionEnd.KILLED


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
    assert served.finish() is SessionEnd.ENDED


def test_faults_in_translations_stop_as_the_oracles_do(serving: Any) -> None:
    """Everything is translated at once; a fault there has all registers, and memory as it was."""
    found = []
    for options in (
        {"engine": "oracle"},
        {"background": False, "optimise_executions": 2},
    ):
        served = serving("fault", "64", **options)
        served.client.insert(0, served.address("main"))
        served.client.go()
        served.client.remove(0, served.address("main"))
        assert served.client.go().startswith("T0b")
        found.append((served.client.registers, served.client.read(served.address("counter"), 4)))
        assert served.client.go() == "X0b"
    assert found[0] == found[1]


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
        assert served.finish() is SessionEnd.ENDED
    finally:
        client.channel.close()
        served._thread.join(60)
        served.machine.close()
