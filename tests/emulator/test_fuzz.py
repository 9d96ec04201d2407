"""A little of the fuzzing, always the same; and every case that fuzzing ever found. More: ``python -m tests.fuzz``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from emulator.isa.decode import assemble, decode
from emulator.isa.table import ROWS
from emulator.machine import Machine
from tests.fuzz.engines import CASES, differences, keep, listing, load_case, minimise, run
from tests.fuzz.hostile import SECRET, Surroundings, check_calls, damaged_elf
from tests.fuzz.hostile import run as run_hostile
from tests.fuzz.programs import Item, Program, elf, random_program


@pytest.mark.parametrize("path", sorted(CASES.glob("*.json")), ids=lambda path: path.stem)
def test_cases(path: Path) -> None:
    assert differences(load_case(path)) == []


@pytest.mark.parametrize("seed", range(8))
def test_random_programs(seed: int) -> None:
    assert differences(random_program(seed)) == []


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
