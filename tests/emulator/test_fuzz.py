"""A little of the fuzzing, always the same; and every case that fuzzing ever found. More: ``python -m tests.fuzz``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from emulator.isa import softfloat
from emulator.isa.decode import assemble, decode
from emulator.isa.table import ROWS
from emulator.machine import Machine
from tests.fuzz import memory_operations, qemu
from tests.fuzz.engines import CASES, differences, keep, listing, load_case, minimise, run
from tests.fuzz.hostile import SECRET, Surroundings, check_calls, damaged_elf
from tests.fuzz.hostile import run as run_hostile
from tests.fuzz.mixtures import compressed_program, float_program
from tests.fuzz.programs import Item, Program, elf, random_program
from tests.fuzz.sequences import Script, check_sequence, child_story, sequence
from tests.fuzz.sequences import run as run_sequence


@pytest.mark.parametrize("path", sorted(CASES.glob("*.json")), ids=lambda path: path.stem)
def test_cases(path: Path) -> None:
    assert differences(load_case(path)) == []


@pytest.mark.parametrize("seed", range(8))
def test_random_programs(seed: int) -> None:
    assert differences(random_program(seed)) == []


@pytest.mark.parametrize("make", [float_program, compressed_program])
@pytest.mark.parametrize("seed", range(6))
def test_programs_of_a_kind(make: Callable[[int], Program], seed: int) -> None:
    assert differences(make(seed), ("interpreter", "optimised") if seed < 2 else ("interpreter",)) == []


def test_float_programs_compute_and_compressed_ones_are_short() -> None:
    """Flags are raised of every kind, finite numbers come out, and most instructions of the others have two bytes."""
    flags = finite = 0
    for seed in range(30):
        state = run(float_program(seed), "oracle").state
        if state is not None:
            flags |= state[64] & 31
            for register in state[1:32]:  # what the flags were, read on the way
                flags |= register if register < 32 else 0
            finite += sum(bits >> 52 & 0x7FF not in (0, 0x7FF) for bits in state[32:64])
    assert flags == 31
    assert finite > 150
    items = [item for seed in range(20) for item in compressed_program(seed).items]
    assert sum(item.n_bytes == 2 for item in items) > 0.6 * len(items)


@pytest.mark.skipif(not qemu.is_installed(), reason="qemu-riscv64 is not installed")
def test_qemu_says_whether_the_oracle_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same registers, flags and memory; and an oracle that rounds wrongly is found."""
    comparable = [p for p in map(float_program, range(12)) if qemu.is_comparable(p)]
    assert len(comparable) > 8
    for program in comparable[:4]:
        right = run(program, "oracle")
        status, registers, memory = qemu.final_state(program)
        assert (status, memory) == (0, right.state and right.state[-1])
        assert right.state is not None
        assert [r for n, r in enumerate(registers) if n not in (10, 17)] == [
            r for n, r in enumerate(right.state[:-1]) if n not in (10, 17)
        ]
    f = [0x3FF0000000000000, 0x4008000000000000, *[0] * 30]
    x = [0] * 32
    x[9] = 1
    third = Program((Item("code", assemble("fdiv.d", 2, 0, 1) | 7 << 12),), tuple(x), tuple(f), 0, 1, 0)
    assert differences(third, ("interpreter",)) == []
    exact = softfloat.div
    monkeypatch.setattr(softfloat, "div", lambda fmt, a, b, rm: exact(fmt, a, b, softfloat.RUP))
    assert "oracle: f2 0x3fd5555555555556, QEMU 0x3fd5555555555555" in differences(third, ())


@pytest.mark.parametrize("seed", range(12))
def test_system_calls_in_sequences(seed: int, tmp_path: Path) -> None:
    assert check_sequence(seed, tmp_path) == []


@pytest.mark.skipif(not memory_operations.is_comparable(), reason="the host is no Linux with pages of 4 KiB")
@pytest.mark.parametrize("seed", range(4))
def test_memory_operations(seed: int) -> None:
    assert memory_operations.check_memory(seed + 1) == []


def test_a_difference_of_memory_operations_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    said = ["0: 1+1 map = 1 ...", "1: 1+1 unmap = 0 ...", "status 0"]
    monkeypatch.setattr(memory_operations, "on_host", lambda seed, operations: said)
    monkeypatch.setattr(memory_operations, "in_guest", lambda seed, operations: said[:1])
    assert memory_operations.check_memory(0) == [said[0], f"host:  {said[1]}", "guest: None"]


def test_sequences_make_sense(tmp_path: Path) -> None:
    """Most calls do something, all stories are told, children among them."""
    done = failed = 0
    for seed in range(12):
        _, results, _ = run_sequence(sequence(seed), tmp_path / str(seed), "translated")
        done += sum(result >= 0 for result in results)
        failed += sum(result < 0 for result in results)
    assert done > failed > 20


def test_a_child_that_executes_another_program(tmp_path: Path) -> None:
    script = Script(np.random.default_rng(0))
    script.rng = cast(Any, Sensible())
    for _ in child_story(script):
        pass
    said, results, changes = run_sequence(script, tmp_path / "guest", "translated")
    assert (said, changes) == ("status 0", [])
    assert results[1] > 0  # the child's number
    assert results[1] in results[4:]  # which wait4 gives back


class Sensible:
    """A generator of random numbers that never chooses nonsense, and always the first of several."""

    def random(self) -> float:
        return 0.25

    def integers(self, *_: int) -> int:
        return 0


def test_programs_are_what_they_should_be() -> None:
    """All kinds of instructions come up, programs end, and transfers go where they are told."""
    mnemonics: set[str] = set()
    endings = []
    for seed in range(150):
        program = random_program(seed)
        for item in program.items:
            if item.kind == "code":
                instruction = decode(item.word)
                assert instruction is not None
                mnemonics.add(instruction.row.mnemonic)
            else:
                mnemonics.add(item.kind)
        if seed < 60:
            endings.append(run(program, "oracle").ending)
    assert {"branch", "jal", "jalr", "c.j", "c.beqz", "c.bnez", "call"} <= mnemonics
    straight = {n for n, row in ROWS.items() if not row.ends_block or row.slow} - {"ecall", "ebreak"}
    assert len(straight - mnemonics) < 0.1 * len(straight)
    assert endings.count("0 ") > 40


@pytest.mark.parametrize("kind", ["branch", "jal", "jalr", "c.j", "c.beqz", "c.bnez"])
def test_transfers_skip_items(kind: str) -> None:
    """Two of four additions are skipped; a0 is 0, which c.beqz sees and c.bnez does not."""
    add = [Item("code", assemble("addi", 20, 20, imm=1 << n)) for n in range(4)]
    transfer = Item(kind, ROWS["beq"].match if kind == "branch" else 2, 2)
    x = [0] * 32
    x[9], x[18] = 1, 0x10000
    program = Program((transfer, *add), tuple(x), (0,) * 32, 0, 1, 0)
    state = run(program, "oracle").state
    assert state is not None
    assert state[20] == (15 if kind == "c.bnez" else 12)
    assert differences(program) == []


def test_minimising_and_keeping(tmp_path: Path) -> None:
    """The smallest program that still has what was wrong, and the same after it was kept."""
    program = next(p for p in map(random_program, range(100)) if len(p.items) > 30 and p.is_integer)
    wanted = {program.items[5], program.items[25]}
    smallest = minimise(program, lambda one: wanted <= set(one.items))
    assert set(smallest.items) == wanted
    path = keep(smallest, ["it is only a test"], tmp_path)
    assert load_case(path) == smallest
    assert json.loads(path.read_text())["listing"] == listing(smallest).splitlines()


def test_a_wrong_engine_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An oracle that cannot subtract: all engines, and unicorn, say so."""
    from emulator.engine.oracle import Oracle

    x = [0, *range(100, 131)]
    x[9] = 1
    program = Program((Item("code", assemble("sub", 20, 21, 23)),), tuple(x), (0,) * 32, 0, 1, 0)
    assert differences(program) == []
    monkeypatch.setattr(Oracle, "sub", lambda self, a, b: (a - b + 1) & (1 << 64) - 1)
    wrong = differences(program)
    assert any(text.startswith("optimised: x20 ") for text in wrong)


def test_damaged_executables() -> None:
    said = [run_hostile(damaged_elf(seed))[0] for seed in range(80)]
    assert sum(text.startswith("GuestImageError") for text in said) > 20
    assert sum(text.startswith("status") for text in said) > 5


@pytest.mark.parametrize("seed", range(40))
def test_random_system_calls(seed: int, tmp_path: Path) -> None:
    assert check_calls(seed, tmp_path / "guest") == []


def test_changes_outside_are_seen(tmp_path: Path) -> None:
    """The check itself: what a guest may change is not reported, everything else is."""
    surroundings = Surroundings(tmp_path / "guest")
    (surroundings.root / "directory" / "new").write_bytes(b"")
    (surroundings.root / "file").write_bytes(b"")
    assert surroundings.changes() == []
    (surroundings.outside / "secret").write_bytes(SECRET[::-1])
    (surroundings.root / "readonly" / "file").unlink()
    (surroundings.base / "new").mkdir()
    assert len(surroundings.changes()) == 3


@pytest.mark.parametrize("engine", ["oracle", "translated"])
def test_an_odd_entry_is_the_even_one(engine: str) -> None:
    """Bit 0 of an address is not there: found by damaged executables, and once a crash of the host."""
    code = b"".join(
        word.to_bytes(4, "little")
        for word in (assemble("addi", 10, 0, imm=5), assemble("addi", 17, 0, imm=93), assemble("ecall"))
    )
    program = bytearray(elf(code, bytes(16)))
    program[24] |= 1
    with Machine(bytes(program), engine=engine) as machine:
        assert machine.run().status == 5
