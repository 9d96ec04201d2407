"""Balanced signatures: against a naive twin, and on a program of more loops than a hashed signature has entries."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.events import BlockFacts, OpClass
from emulator.execution.intervals import Intervals
from emulator.machine import Machine
from emulator.timing.inorder import InOrderCore
from emulator.timing.machine_file import load_machine
from experiments.cycle_close.loops import source_of
from instrumenter.building.program_build import build_program
from measure.cycle_close.command import Job, trace_job
from measure.cycle_close.rerun import trace_in_two_runs
from measure.cycle_close.rollback import RollBackTracer
from measure.cycle_close.signature import SignatureMaker, about_crowded_signatures, entries_for
from measure.cycle_close.tracer import BY_DEFAULT, Interval, Tracer, TracerSettings

DESKTOP_FILE = Path(__file__).parents[3] / "configs" / "machines" / "desktop.yaml"
DESKTOP = load_machine(DESKTOP_FILE)
N_BLOCKS = 12
RAN = st.dictionaries(st.integers(0, N_BLOCKS - 1), st.integers(1, 50), min_size=1)  # executions by block


def facts_of(n_blocks: int) -> BlockFacts:
    """Block k has 1 + k % 3 instructions, the last of them a branch of its own."""
    facts = BlockFacts()
    for number in range(n_blocks):
        rows = [(16 * number + 4 * place, 4, int(OpClass.INT_ALU), 0, 0, 0, 0, 0, 0) for place in range(number % 3)]
        facts.append([*rows, (16 * number + 12, 4, int(OpClass.BRANCH), 0, 0, 0, 0, 0, 0)], None)
    return facts


def intervals_of(series: list[dict[int, int]]) -> Intervals:
    counted = [(block, times) for one in series for block, times in sorted(one.items())]
    blocks, executions = np.array(counted, np.int64).reshape(-1, 2).T
    starts = np.cumsum([0, *map(len, series)])
    return Intervals(np.arange(len(series)), starts, blocks.astype(np.uint32), executions.copy())


def naive(series: list[dict[int, int]], dimensions: int) -> list[list[int]]:
    """A branch that runs for the first time gets the entry with the fewest instructions so far, the most frequent
    branch of the interval first. A branch that has a sixteenth of an interval for the first time reserves its entry, or
    gets another entry if another branch has reserved it. Reserved entries are given only when no other is left."""
    totals, entries, keeps, signatures = [0] * dimensions, dict[int, int](), dict[int, int](), []
    for one in series:
        instructions = {block: times * (1 + block % 3) for block, times in one.items()}
        so_far = list(totals)
        for block in sorted(one, key=lambda block: (-instructions[block], block)):
            is_frequent = instructions[block] >= sum(instructions.values()) / 16 and block not in keeps
            if block not in entries or (is_frequent and entries[block] in keeps.values()):
                free = [entry for entry in range(dimensions) if entry not in keeps.values()] or range(dimensions)
                entries[block] = min(free, key=lambda entry: (so_far[entry], entry))
            if is_frequent:
                keeps[block] = entries[block]
            so_far[entries[block]] += instructions[block]
        signatures.append([0] * dimensions)
        for block in one:
            signatures[-1][entries[block]] += instructions[block]
            totals[entries[block]] += instructions[block]
    return signatures


@settings(max_examples=100, derandomize=True, deadline=None)
@given(st.lists(RAN, min_size=1, max_size=8), st.integers(1, 14), st.integers(1, 8))
def test_entries_are_those_of_the_naive_twin(series: list[dict[int, int]], dimensions: int, part: int) -> None:
    maker, made = SignatureMaker(dimensions, balanced=True), []
    for first in range(0, len(series), part):
        mine = series[first : first + part]
        known = max(block for one in series[: first + part] for block in one) + 1  # others are not discovered yet
        made += maker.make(facts_of(known), intervals_of(mine)).tolist()
    assert made == naive(series, dimensions)


@pytest.fixture(scope="module")
def loops(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An executable of more loops, one after another, than a hashed signature has entries."""
    source = tmp_path_factory.mktemp("loops") / "loops.c"
    source.write_text(source_of(range(36), 36, 6_000, 3))
    return build_program([source], ["-O2"]).elf_path


def trace(program: Path, how: str, ways: TracerSettings) -> list[Interval]:
    def machine() -> Machine:
        return Machine(program, background=False)

    core = InOrderCore(DESKTOP, 1)
    if how == "two runs":
        return trace_in_two_runs(machine, core, ways, 1)
    with machine() as guest:
        tracer = (
            RollBackTracer(guest, core, ways)
            if how == "roll back"
            else Tracer(guest, core, replace(ways, everything=how == "full"), defer_estimates=how != "full")
        )
        return tracer.reestimated(list(tracer.intervals()))


def cycles_each(intervals: list[Interval]) -> np.ndarray:
    return np.array([one.events[0] for one in intervals])


@pytest.mark.parametrize("how", ["predicted", "roll back", "two runs"])
def test_loops_of_unlike_code_are_told_apart(loops: Path, how: str) -> None:
    """Of more loops than entries two have the same entry: hashed, they are one phase, and cost what either costs."""
    ways = replace(BY_DEFAULT, interval_instructions=4_000)
    truth = cycles_each(trace(loops, "full", ways))
    balanced, hashed = (
        np.abs(cycles_each(trace(loops, how, one)) / truth - 1).mean()
        for one in (ways, replace(ways, signature="hashed", dimensions=32))
    )
    assert balanced < 0.03
    assert hashed > 0.1


@pytest.mark.parametrize("how", ["predicted", "roll back", "two runs"])
def test_more_frequent_branches_than_entries_are_told(loops: Path, how: str) -> None:
    job = Job(loops, (), DESKTOP_FILE, None, 1, samples=int(how == "two runs"))
    ways = replace(BY_DEFAULT, interval_instructions=4_000, roll_back=how == "roll back")
    enough = trace_job(job, loops, DESKTOP, ways, None).frequent_branches
    assert about_crowded_signatures(enough, ways.dimensions) == ""
    few = trace_job(job, loops, DESKTOP, replace(ways, dimensions=8), None).frequent_branches
    assert few == enough > 36
    assert about_crowded_signatures(few, 8).endswith(f"with --dimensions {entries_for(few)} each has its own.")
    assert few <= entries_for(few) < 2 * few


REPLACED = """
#include <string.h>
#include <sys/mman.h>
asm(".option push\\n.option norvc\\n"
    "adds: add a2, a2, a1\\n addi a0, a0, -1\\n bnez a0, adds\\n mv a0, a2\\n ret\\n"
    "divides: divu a2, a2, a1\\n addi a0, a0, -1\\n bnez a0, divides\\n mv a0, a2\\n ret\\n"
    ".option pop\\n");
extern char adds[], divides[];
int main(void) {
  char *page = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  long sum = 0;
  for (int k = 0; k < 12; k++) {
    memcpy(page, k % 3 ? adds : divides, 20);
    __builtin___clear_cache(page, page + 20);
    sum += ((long (*)(long, long))page)(30000, 3);
  }
  return sum == 1;
}
"""


@pytest.mark.parametrize("how", ["predicted", "roll back", "two runs"])
def test_other_code_at_the_same_address_is_told_apart(tmp_path: Path, how: str) -> None:
    source = tmp_path / "replaced.c"
    source.write_text(REPLACED)
    program = build_program([source], ["-O1"]).elf_path
    ways = replace(BY_DEFAULT, interval_instructions=4_000)
    truth = cycles_each(trace(program, "full", ways))
    found = cycles_each(trace(program, how, ways))
    assert np.abs(found / truth - 1).mean() < 0.05
    assert found.sum() == pytest.approx(truth.sum(), rel=0.02)
