"""Selections that change while the program runs, and functions before and after instructions."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from emulator.analyzers.analysis_session import HookContext, Session
from emulator.analyzers.analyzer import Analyzer
from emulator.analyzers.batch import Batch
from emulator.analyzers.vectors import BlockVectors
from emulator.errors import EmulatorError
from emulator.events import FULL_RECORD, BlockFacts, TraceSelection
from emulator.linux.vfs.files import VirtualFiles
from emulator.machine import Machine
from tests.emulator.dynamic_root import build_root

ENGINES: tuple[dict[str, Any], ...] = (
    {"templates": False},
    {"background": False, "optimise_executions": 4},
    {"engine": "oracle"},
)


class Pcs(Analyzer):
    selection = "fields=pc"

    def __init__(self) -> None:
        self.pcs: list[int] = []

    def consume(self, batch: Batch) -> None:
        self.pcs += batch.pc.tolist()


def function(machine: Machine, name: str) -> tuple[int, int]:
    symbol = machine.image.find_symbol(name)
    assert symbol is not None
    return symbol.address, symbol.address + symbol.size_bytes


@pytest.mark.parametrize("options", ENGINES)
def test_between_two_places_to_the_instruction(small: Path, steps: list[Any], options: dict[str, Any]) -> None:
    pcs = Pcs()
    with Machine(small, ["3"], **options) as machine:
        session = Session(machine, [pcs])
        session.pause()
        session.at("main", session.resume)
        session.at("printf", session.pause)
        session.run()
        session.finish()
        main, printf = function(machine, "main")[0], function(machine, "printf")[0]
    every = [step.pc for step in steps]
    assert pcs.pcs == every[every.index(main) : every.index(printf)]


def test_after_so_many_instructions(small: Path, steps: list[Any]) -> None:
    pcs = Pcs()
    with Machine(small, ["3"]) as machine:
        session = Session(machine, [pcs])
        session.pause()
        assert session.run(3000) is None
        begin = machine.instructions
        session.resume()
        session.run(5000)
        session.pause()
        end = machine.instructions
        assert session.run() is not None
        session.finish()
        assert 3000 <= begin < 3064
        assert 5000 <= end < 5064
    assert pcs.pcs == [step.pc for step in steps[begin:end]]


def test_an_analyzer_that_changes_its_mind(small: Path, steps: list[Any]) -> None:
    """Selects loads when control comes to ``walk``, and what it had before at the next ``fact``; both again later."""

    class Fickle(Pcs):
        session: Session
        selection = "class=branch fields=pc"

        def begin(self) -> None:
            self.session.at("walk", self.loads)

        def loads(self) -> None:
            self.select("class=load fields=pc")
            self.session.at("fact", self.branches)

        def branches(self) -> None:
            self.select("class=branch fields=pc")
            self.session.at("walk", self.loads)

    with Machine(small) as plain:
        walk, fact = function(plain, "walk")[0], function(plain, "fact")[0]
    expected, kind = [], "BRANCH"
    for step in steps:
        if step.pc == walk and kind == "BRANCH":
            kind = "LOAD"
        elif step.pc == fact and kind == "LOAD":
            kind = "BRANCH"
        if step.op_class.name in (kind, f"FP_{kind}"):
            expected.append(step.pc)
    for options in ENGINES[:2]:
        fickle = Fickle()
        with Machine(small, ["3"], **options) as machine:
            session = Session(machine, [fickle])
            session.run()
            session.finish()
            if "background" in options:
                # Two selections, waiting for one of two places, however often they change; their regions stay.
                assert machine.translator is not None
                tiers = [tier for tier in machine.translator._tiers.values() if tier.selection.columns]
                assert len(tiers) == 2
                assert all(tier.regions for tier in tiers)
        assert fickle.pcs == expected


def test_intervals_end_at_most_one_further_than_asked(small: Path) -> None:
    with Machine(small, ["3"]) as machine:
        session = Session(machine, [BlockVectors(500, os.devnull)])
        assert session.run(2100) is None
        assert 2100 <= machine.instructions < 2500 + 5 * 64  # five intervals, each to the end of a block
        session.run()
        session.finish()


def test_changing_from_a_batch(small: Path) -> None:
    class Once(Pcs):
        def consume(self, batch: Batch) -> None:
            super().consume(batch)
            self.select("")

    once = Once()
    with Machine(small, ["3"]) as machine:
        session = Session(machine, [once])
        machine.advance_to_instructions(1000)
        machine.drain()
        seen = len(once.pcs)
        session.run()
        assert machine.selection == TraceSelection()
        session.finish()
    assert seen == len(once.pcs) > 900


@pytest.mark.parametrize("options", ENGINES)
def test_before_and_after(small: Path, steps: list[Any], options: dict[str, Any]) -> None:
    class Divisions(Analyzer):
        calls = "class=int_div,int_mul symbol=main,fact"

        def __init__(self) -> None:
            self.seen: list[tuple[int, ...]] = []
            self.texts: list[str] = []

        def before(self, context: HookContext) -> None:
            x, instruction = context.machine.hart.x, context.instruction
            self.seen.append((context.pc, int(x[instruction.rs1]), int(x[instruction.rs2])))
            self.texts.append(str(context))

        def after(self, context: HookContext) -> None:
            self.seen[-1] += (int(context.machine.hart.x[context.instruction.rd]),)

    analyzer = Divisions()
    with Machine(small, ["3"], **options) as machine:
        session = Session(machine, [analyzer])
        session.run()
        session.finish()
        inside = [range(*function(machine, name)) for name in ("main", "fact")]
        assert machine.instructions == len(steps)
    expected = [
        tuple(step.fields[name] for name in ("pc", "rs1", "rs2", "rd"))
        for step in steps
        if step.op_class.name in ("INT_DIV", "INT_MUL") and any(step.pc in one for one in inside)
    ]
    assert len(expected) > 10
    assert analyzer.seen == expected
    assert any(text.startswith("fact+0x") and ": mul " in text for text in analyzer.texts)


def test_functions_may_change_registers_and_memory(small: Path) -> None:
    def output(analyzers: list[Analyzer]) -> tuple[bytes, int]:
        with Machine(small, ["3"], background=False, optimise_executions=4) as machine:
            session = Session(machine, analyzers)
            session.run()
            session.finish()
            return machine.files.output(1), machine.instructions

    class Counting(Analyzer):
        calls = "symbol=fact"
        value = 0

        def before(self, context: HookContext) -> None:
            if context.pc == function(context.machine, "fact")[0]:
                context.machine.hart.x[10] = 1
            address = function(context.machine, "nodes")[0]
            context.write(address + 8, 8, context.read(address + 8, 8))

    plain, changed = output([]), output([Counting()])
    assert changed[1] < plain[1]  # no recursion any more
    assert changed[0] != plain[0]


def test_other_observers_see_the_whole_record(small: Path) -> None:
    class Words:
        selection = FULL_RECORD

        def __init__(self) -> None:
            self.words: list[int] = []

        def consume(self, facts: BlockFacts, stream: Any) -> None:
            self.words += stream.tolist()

    alone, beside = Words(), Words()
    with Machine(small, ["3"], consumers=[alone]) as machine:
        machine.run()
    pcs = Pcs()
    pcs.selection = "symbol=walk fields=pc,value"
    with Machine(small, ["3"], consumers=[beside]) as machine:
        session = Session(machine, [pcs])
        session.run()
        session.finish()
        inside = range(*function(machine, "walk"))
    assert beside.words == alone.words
    assert pcs.pcs
    assert all(pc in inside for pc in pcs.pcs)


def test_intervals_must_agree(small: Path) -> None:
    one, two = Pcs(), Pcs()
    one.interval_instructions, two.interval_instructions = 1000, 2000
    with Machine(small) as machine, pytest.raises(EmulatorError, match="intervals of 1000 and of 2000 instr"):
        Session(machine, [one, two])


def test_one_library(tmp_path: Path) -> None:
    """The guest's dynamic linker is one: it is mapped from the start; others are when they are asked for later."""
    build_root(tmp_path)

    def watch(selection: str, **options: Any) -> list[int]:
        pcs = Pcs()
        pcs.selection = selection
        with Machine(tmp_path / "program", ["x"], files=VirtualFiles(root=tmp_path), **options) as machine:
            session = Session(machine, [pcs])
            session.run()
            session.finish()
            image = machine.process.interpreter
            assert image is not None
            spans.append((image.start, image.end))
        return pcs.pcs

    spans: list[tuple[int, int]] = []
    every = watch("fields=pc")
    expected = [pc for pc in every if spans[0][0] <= pc < spans[0][1]]
    assert 0 < len(expected) < len(every)
    assert watch("library=own-loader.so fields=pc") == expected
    assert watch("library=lib/own-loader.so fields=pc", engine="oracle") == expected
    with pytest.raises(EmulatorError, match=r"from a library 'libc\.so'; expected one of program, own-"):
        watch("library=libc.so fields=pc")
