"""Analyzers of a program that executes another one at the same addresses: its own results are those without that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emulator.analyzers.analysis_session import Session
from emulator.analyzers.analyzer import Analyzer
from emulator.analyzers.batch import Batch
from emulator.analyzers.callgraph import CallGraph
from emulator.analyzers.coverage import Coverage
from emulator.analyzers.hook_context import HookContext
from emulator.analyzers.mix import InstructionMix
from emulator.machine import Machine
from tests.emulator.execution import executed_programs as programs
from tests.emulator.execution.executed_programs import OTHER_ROUNDS, OWN_ROUNDS, files_of


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return programs.build(tmp_path_factory.mktemp("executed")).elf_path


@pytest.fixture(params=[{"engine": "oracle"}, {"background": False, "optimise_executions": 50}, {"templates": False}])
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    return dict(request.param)


def analyzed(program: Path, analyzers: list[Any], arguments: list[str], options: dict[str, Any]) -> None:
    with Machine(program, arguments, files=files_of(program), **options) as machine:
        session = Session(machine, analyzers)
        assert session.run() is not None
        session.finish()
        assert machine.ending is not None
        assert machine.ending.status == 0


class Stores(Analyzer):
    """Stores of `step`, counted in every way; and all stores."""

    selection = "class=store symbol=step fields=pc,address"
    calls = "class=return symbol=step"

    def begin(self) -> None:
        self.n = self.returns = self.entries = 0

    def consume(self, batch: Batch) -> None:
        self.n += len(batch)

    def before(self, context: HookContext) -> None:
        self.returns += 1


class AllStores(Analyzer):
    selection = "class=store fields=pc"

    def begin(self) -> None:
        self.n = 0

    def consume(self, batch: Batch) -> None:
        self.n += len(batch)


def test_events_and_calls_selected_by_address(program: Path, options: dict[str, Any]) -> None:
    found = []
    for arguments in ([], ["other"]):
        mine, every = Stores(), AllStores()
        analyzed(program, [mine, every], arguments, options)
        found.append((mine.n, mine.returns, every.n))
    assert found[0][:2] == found[1][:2]
    assert found[0][1] == OWN_ROUNDS
    assert found[0][0] % OWN_ROUNDS == 0
    assert found[1][2] > found[0][2] + 2 * OTHER_ROUNDS  # those of all programs, where no address is given


def test_mix_and_coverage(program: Path, options: dict[str, Any], tmp_path: Path) -> None:
    found = []
    for arguments in ([], ["other"]):
        mix, everything = InstructionMix(), InstructionMix()
        mix.restrict("symbol=step,work")
        coverage = Coverage(out=str(tmp_path / "c.info"))
        analyzed(program, [mix, everything, coverage], arguments, options)
        functions = {name: count for of in coverage.functions.values() for name, (_, count) in of.items()}
        assert functions["step"] == OWN_ROUNDS
        assert functions["work"] == 3
        found.append(
            (mix.counts, coverage.functions, coverage.lines, coverage.branches, sum(everything.counts.values()))
        )
    assert found[0][0] == found[1][0]
    assert found[0][1].keys() == found[1][1].keys()
    assert found[0][4] + 10 * OTHER_ROUNDS < found[1][4]
    # The branch that begins the other program, and nothing else, is another.
    changed = [
        (line, count, found[1][2][file][line])
        for file, lines in found[0][2].items()
        for line, count in lines.items()
        if found[1][2][file][line] != count
    ]
    assert {(was, now) for _, was, now in changed} <= {(0, 1), (0, 2), (2, 3)}


def test_the_call_graph_tells_functions_of_programs_apart(program: Path) -> None:
    graphs = []
    for arguments in ([], ["other"]):
        graphs.append(CallGraph())
        analyzed(program, [graphs[-1]], arguments, {})
    alone, beside = (graph.functions for graph in graphs)
    assert alone["step"] == beside["step"]
    assert alone["work"] == beside["work"]
    assert beside["step"][0] == OWN_ROUNDS
    assert beside["step [other]"][0] == OTHER_ROUNDS
    assert beside["work [other]"][1] == beside["work [other]"][2] + beside["step [other]"][2]
    assert {callee for caller, callee in graphs[1].edges if caller == "main [other]"} == {"work [other]"}
    assert all(("[other]" in caller) == ("[other]" in callee) for caller, callee in graphs[1].edges)
    assert beside["main"][1] < alone["main"][1] + 1000  # without the other program, which a fork of it executes


def test_stops_are_in_the_program(program: Path, options: dict[str, Any]) -> None:
    """``--from`` and ``--until``: the other program reaches the place first, and does not stop there."""
    with Machine(program, ["other"], files=files_of(program), **options) as machine:
        session = Session(machine, [InstructionMix()], paused=True)
        stopped: list[str] = []

        def stop() -> None:
            stopped.append(machine.image.name)
            if len(stopped) < 2:
                session.at("main", stop)

        session.at("main", stop)
        session.run()
        # The program, and the same executed again: not the other, of which the stop could be the third.
        assert stopped == [str(program), "/program"]
        rows = machine.facts.blocks
        assert np.isin([0, 1], rows["program"]).all()
