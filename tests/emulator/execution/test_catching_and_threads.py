"""Guests that catch their memory faults, and guests with threads, run in translations like any others."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from emulator.engine.tiering.tiers import Region, Tier
from emulator.events import FULL_RECORD
from emulator.machine import Machine
from instrumenter.building.program_build import build_program

GUEST = Path(__file__).parents[1] / "guest"
EAGER = {"background": False, "optimise_executions": 20}
TEMPLATES = {"background": False, "optimise_executions": 1 << 30}


@pytest.fixture(scope="module")
def catcher() -> Path:
    return build_program([GUEST / "catcher.c"], ["-O2"]).elf_path


class Words:
    """How much the record holds, and its hash."""

    selection = FULL_RECORD

    def __init__(self) -> None:
        self.seen: list[bytes] = []

    def consume(self, facts: object, stream) -> None:  # type: ignore[no-untyped-def]
        self.seen.append(stream.tobytes())


def outcome(program: Path, rounds: int, traced: bool = False, **options: object) -> tuple[object, ...]:
    words = Words()
    with Machine(
        program, [str(rounds)], consumers=[words] if traced else [], **options,  # type: ignore[arg-type]
    ) as machine:  # fmt: skip
        assert machine.run().status == 0
        return machine.files.output(1), machine.instructions, b"".join(words.seen)


@pytest.mark.parametrize("traced", [False, True])
def test_all_registers_are_exact_where_a_guest_catches_a_fault(catcher: Path, traced: bool) -> None:
    expected = outcome(catcher, 300, traced, engine="oracle")
    assert expected[0].split()[1] != b"0"  # type: ignore[attr-defined]
    for options in ({}, EAGER, TEMPLATES):
        assert outcome(catcher, 300, traced, **options) == expected


def test_a_catching_guest_is_translated(catcher: Path) -> None:
    with Machine(catcher, ["20000"], **EAGER) as machine:  # type: ignore[arg-type]
        machine.run()
        assert machine.translator is not None
        tier = machine.translator.tier
        assert tier.selection.exact_faults
        assert tier.regions
        translated = machine.files.output(1), machine.instructions
    assert translated == outcome(catcher, 20000, optimise_executions=1 << 30, templates=False)[:2]


def test_a_guest_with_threads_becomes_hot() -> None:
    program = build_program([GUEST / "two_threads.c"], ["-O2"]).elf_path
    with Machine(program, background=False) as machine:
        machine.run()
        assert machine.files.output(1) == b"1\n"
        translator = machine.translator
        assert translator is not None
        assert translator.tier.regions
        assert translator is not None
        most = max(translator.block_table.executions(2 * int(place)) for place in translator.block_table.places())
        assert most < 3_000_000  # executions of the loop, which has two threads for it


def test_a_guest_that_makes_code_keeps_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in other pages stays translated when it changes one."""
    from emulator.engine.translator import Translator

    program = build_program([GUEST / "patcher.c"], ["-O2"]).elf_path
    compile_ = Translator._compile
    made: list[int] = []

    def compile_and_list(self: Translator, tier: Tier, region: Region) -> None:
        made.append(region.pcs[0])
        compile_(self, tier, region)

    monkeypatch.setattr(Translator, "_compile", compile_and_list)
    with Machine(program, engine="translated", **EAGER) as machine:  # type: ignore[arg-type]
        machine.run()
        n_blocks, translated = machine.facts.n_blocks, machine.files.output(1)
        assert machine.translator is not None
        assert machine.translator.tier.regions
    times = Counter(made)
    assert max(times[pc] for pc in times if pc >= 1 << 28) >= 40  # each round, and once more
    assert max(times[pc] for pc in times if pc < 1 << 28) <= 3
    with Machine(program, templates=False, optimise_executions=1 << 30) as machine:
        machine.run()
        assert (machine.files.output(1), machine.facts.n_blocks) == (translated, n_blocks)
