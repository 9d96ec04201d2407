"""A program that executes another one at the same addresses: what is said of its addresses does not hold there."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.counterfactual.core import CounterfactualCore, CounterfactualSettings
from emulator.counterfactual.progress_clock import ProgressClock
from emulator.counterfactual.range_accesses import RangeAccesses
from emulator.counterfactual.served_instructions import served_instructions
from emulator.events import FIRST_PROGRAM, Consumer
from emulator.machine import Machine
from emulator.probes import BlockCounter, EventCounter
from emulator.timing.inorder import InOrderCore
from emulator.timing.machine_events import Event
from emulator.timing.machine_file import load_machine
from instrumenter.building.program_build import Build
from instrumenter.spec.software_metrics import MetricSpec
from tests.emulator.execution import executed_programs as programs
from tests.emulator.execution.executed_programs import OTHER_ROUNDS, OWN_ROUNDS, files_of

DESKTOP = Path(__file__).parents[3] / "configs" / "machines" / "desktop.yaml"
EAGER = {"background": False, "optimise_executions": 50}


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    steps = MetricSpec(event="entry", function="step")
    return programs.build(tmp_path_factory.mktemp("executed"), steps=steps)


@pytest.fixture(params=[{"engine": "oracle"}, EAGER], ids=["oracle", "translated"])
def options(request: pytest.FixtureRequest) -> dict[str, object]:
    return dict(request.param)


def address(machine: Machine, name: str) -> int:
    symbol = machine.image.find_symbol(name)
    assert symbol is not None
    return symbol.address


def test_blocks_know_whose_they_are(build: Build, options: dict[str, object]) -> None:
    with Machine(build.elf_path, ["other"], files=files_of(build.elf_path), **options) as machine:  # type: ignore[arg-type]
        assert machine.programs.keys() == {FIRST_PROGRAM}
        assert machine.run().status == 0
        blocks = machine.facts.blocks
        own, other = (set(blocks["pc"][blocks["program"] == number].tolist()) for number in (0, 1))
        assert set(blocks["program"].tolist()) == {0, 1}
        assert address(machine, "step") in own & other
        assert len(own & other) > 50
        assert [program.image.name for program in machine.programs.values()] == [str(build.elf_path), "/other"]


def test_probes_count_what_counters_count(build: Build, options: dict[str, object]) -> None:
    def counted(*arguments: str) -> tuple[int, ...]:
        with Machine(build.elf_path, arguments, files=files_of(build.elf_path), **options) as machine:  # type: ignore[arg-type]
            step, table, counter = (address(machine, name) for name in ("step", "table", "__measure_counters"))
            events, blocks = EventCounter([([step], []), ([], [(table, table + 256)])]), BlockCounter(True)
            accesses, clock = RangeAccesses([(counter, counter + 8)]), ProgressClock([step], with_addresses=True)
            consumers: list[Consumer] = [events, blocks, accesses, clock]
            machine.observe(events.selection, consumers)
            totals = machine.counter_totals([counter])
            assert machine.run().status == 0
            machine.drain()
            executions = blocks.executions_by_pc(machine.facts)
            inside = accesses.only_inside()
            found = (*totals.read(), *events.totals().tolist(), executions[step], len(inside))
            return (*found, sum(executions[pc] for pc in inside), clock.progress, machine.instructions)

    *alone, ticks, instructions = counted()
    assert alone == [OWN_ROUNDS, OWN_ROUNDS, OWN_ROUNDS, OWN_ROUNDS, 2, 2 * OWN_ROUNDS]
    assert ticks == OWN_ROUNDS
    *beside, ticks, more = counted("other")
    assert beside == alone
    assert OTHER_ROUNDS * 10 < ticks < more - instructions + OWN_ROUNDS  # all instructions of the other program


def test_an_intervention_leaves_the_other_program_alone(
    build: Build, tmp_path: Path, options: dict[str, object]
) -> None:
    """The metrics of the plain program to the unit, though the other one has the counter at the same addresses."""
    plain = programs.build(tmp_path)

    def metrics(program: Build, settings: CounterfactualSettings, *arguments: str) -> dict[str, int]:
        core = CounterfactualCore(InOrderCore(load_machine(DESKTOP), seed=4), settings)
        files = files_of(program.elf_path, build.elf_path)
        with Machine(program.elf_path, arguments, files=files, core=core, name="/program", **options) as machine:  # type: ignore[arg-type]
            assert machine.run().status == 0
            wanted = (Event.INSTRUCTIONS, Event.LOADS, Event.STORES, Event.L1D_ACCESSES)
            return {one.name: int(core.counters[one]) for one in wanted} | {"progress": core.progress}

    with Machine(build.elf_path, files=files_of(build.elf_path)) as machine:
        counter = address(machine, "__measure_counters")
        accesses = RangeAccesses([(counter, counter + 8)])
        machine.observe(accesses.selection, [accesses])
        machine.run()
        machine.drain()
        image = machine.image
    code = {segment.address: bytes(segment.data) for segment in image.segments}

    def read(at: int, size: int) -> bytes:
        start = max(place for place in code if place <= at)
        return code[start][at - start : at - start + size]

    functions = [(one.address, one.address + one.size_bytes) for one in image.symbols if one.is_function]
    served = served_instructions(read, functions, accesses.only_inside())
    free = CounterfactualSettings(tuple(sorted(served)), free=True, uncached=True)
    seen = metrics(build, CounterfactualSettings(), "other")
    unseen = metrics(build, free, "other")
    for name, per_step in (("LOADS", 1), ("STORES", 1), ("L1D_ACCESSES", 2), ("INSTRUCTIONS", len(free.instructions))):
        assert seen[name] - unseen[name] == per_step * OWN_ROUNDS
    assert unseen == metrics(plain, CounterfactualSettings(), "other")
    assert metrics(build, free) == metrics(plain, CounterfactualSettings())
