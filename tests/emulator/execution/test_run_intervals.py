"""Intervals and block counts: the same from every tier, and what the record says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from emulator.engine.translator import Translator
from emulator.events import FULL_RECORD, BlockFacts, TraceSelection
from emulator.execution.intervals import Intervals, Written
from emulator.execution.intervals_kernel import DONE, ENOUGH
from emulator.kernels.jit import BoundKernel, kernel
from emulator.machine import Machine
from instrumenter.building.program_build import build_program

GUEST = Path(__file__).parents[1] / "guest"
COUNTS = TraceSelection(counts=True)


@pytest.fixture(scope="module")
def mixture() -> Path:
    return build_program([GUEST / "mixture.c"], ["-O2"], libraries=["-lm"]).elf_path


class Twin:
    """Executions of blocks from the record, as one would write it."""

    selection = FULL_RECORD

    def __init__(self) -> None:
        self.executions: dict[int, int] = {}

    def consume(self, facts: BlockFacts, stream: Any) -> None:
        position = 0
        while position < len(stream):
            block = facts.blocks[int(stream[position])]
            pc = int(block["pc"])
            self.executions[pc] = self.executions.get(pc, 0) + 1
            position += 1 + int(block["n_accesses"])


def by_pc(machine: Machine) -> dict[int, int]:
    counts = machine.block_counts
    return {int(machine.facts.blocks["pc"][n]): int(counts[n]) for n in np.flatnonzero(counts)}


TIERS: dict[str, dict[str, Any]] = {
    "interpreted": {"templates": False, "optimise_executions": 1 << 30, "background": False},
    "templates": {"optimise_executions": 1 << 30, "background": False},
    "optimised": {"optimise_executions": 4, "background": False},
    "background": {"optimise_executions": 20},
}


@pytest.fixture(scope="module")
def expected(mixture: Path) -> Twin:
    with Machine(mixture, ["1"]) as machine:
        twin = Twin()
        machine.observe(TraceSelection(), [twin])
        machine.run()
        machine.drain()
        return twin


@pytest.mark.parametrize("tier", list(TIERS))
def test_every_tier_counts_what_the_record_says(mixture: Path, expected: Twin, tier: str) -> None:
    with Machine(mixture, ["1"], **TIERS[tier]) as machine:
        machine.observe(COUNTS)
        machine.run()
        assert by_pc(machine) == expected.executions


def intervals_of(machine: Machine, length: int, at_most: int) -> Intervals:
    machine.observe(COUNTS)
    parts = []
    while machine.ending is None:
        parts.append(machine.run_intervals(length, at_most))
    entries = np.cumsum([0, *(len(part.blocks) for part in parts)])
    return Intervals(
        np.concatenate([part.ends for part in parts]),
        np.concatenate([[0], *(part.starts[1:] + first for part, first in zip(parts, entries, strict=False))]),
        np.concatenate([machine.facts.blocks["pc"][part.blocks] for part in parts]),
        np.concatenate([part.executions for part in parts]),
    )


def told(found: Intervals) -> list[dict[int, int]]:
    """Executions by pc of each interval."""
    return [
        dict(zip(found.blocks[a:b].tolist(), found.executions[a:b].tolist(), strict=True))
        for a, b in zip(found.starts[:-1], found.starts[1:], strict=True)
    ]


@pytest.mark.parametrize(
    ("tier", "at_most"), [("interpreted", 7), ("templates", 1), ("optimised", 64), ("background", 5)]
)
def test_intervals_are_the_same_from_every_tier(mixture: Path, tier: str, at_most: int) -> None:
    length = 5_000
    with Machine(mixture, ["1"], **TIERS[tier]) as machine:
        found = intervals_of(machine, length, at_most)
    with Machine(mixture, ["1"], **TIERS["interpreted"]) as machine:
        machine.observe(COUNTS)
        ends: list[int] = []
        counts = []
        while machine.ending is None:
            machine.advance_to_instructions((len(ends) + 1) * length)
            ends.append(machine.instructions)
            counts.append(by_pc(machine))
    assert found.ends.tolist() == ends
    total: dict[int, int] = {}
    for executed, so_far in zip(told(found), counts, strict=True):
        for pc, count in executed.items():
            total[pc] = total.get(pc, 0) + count
        assert total == so_far


def test_intervals_of_the_oracle(mixture: Path) -> None:
    def first(engine: str) -> Intervals:
        with Machine(mixture, ["1"], engine=engine) as machine:
            machine.observe(COUNTS)
            found = machine.run_intervals(2_000, 4)
            return Intervals(found.ends, found.starts, machine.facts.blocks["pc"][found.blocks], found.executions)

    oracle, translated = first("oracle"), first("translated")
    assert oracle.ends.tolist() == translated.ends.tolist()
    assert told(oracle) == told(translated)


ROUNDING = """
int main(void) {
    volatile double x = 1;
    double sum = 0;
    for (int k = 0; k < 5; k++) {
        __asm__ volatile("fsrmi 4"); /* to the nearest, ties away from zero, which the host cannot: the oracle runs */
        for (int i = 0; i < 700; i++) sum += x / 3;
        __asm__ volatile("fsrmi 0");
        for (int i = 0; i < 700; i++) sum += x / 7;
    }
    return sum < 0;
}
"""


@pytest.mark.parametrize("at_most", [1, 64])
def test_an_interval_ends_at_each_multiple_of_the_length(tmp_path: Path, at_most: int) -> None:
    source = tmp_path / "rounding.c"
    source.write_text(ROUNDING)
    length = 100
    with Machine(build_program([source], ["-O2"]).elf_path) as machine:
        found = intervals_of(machine, length, at_most)
        longest_block = int(machine.facts.blocks["n_instructions"].max())
        executed = machine.instructions
    assert longest_block < length
    assert found.ends[-1] == executed
    assert len(found) == -(-executed // length)
    beyond = found.ends[:-1] - length * np.arange(1, len(found))
    assert 0 <= beyond.min() <= beyond.max() < longest_block


def test_a_series_begins_anew_where_others_ran_in_between(mixture: Path) -> None:
    with Machine(mixture, ["1"], background=False) as machine:
        machine.observe(COUNTS)
        machine.run_intervals(1_000, 2)
        machine.advance_to_instructions(2_500)
        begin = machine.instructions
        ends = machine.run_intervals(1_000, 2).ends - begin
    assert 1_000 <= ends[0] < 1_100
    assert 2_000 <= ends[1] < 2_100


@kernel
def end_after(written: Written, most: int, seen: NDArray[np.int64]) -> None:
    """A watcher: sums up what is written of each interval, and ends a series after ``most``."""
    row = written.job[DONE] - 1
    seen[0] += 1
    seen[1] += written.ends[row]
    for place in range(written.starts[row], written.starts[row + 1]):
        seen[2] += written.executions[place] * (written.blocks[place] + 1)
    if row + 1 == most:
        written.job[ENOUGH] = 1


class Ends:
    def __init__(self, most: int) -> None:
        self.most, self.seen = most, np.zeros(3, np.int64)

    def watch(self, written: Written) -> BoundKernel:
        bound = end_after.bound(written, self.most, self.seen)
        assert isinstance(bound, BoundKernel)
        return bound


@pytest.mark.parametrize("engine", ["translated", "oracle"])
def test_a_watcher_sees_each_interval_and_ends_the_series(mixture: Path, engine: str) -> None:
    watcher = Ends(5)
    with Machine(mixture, ["1"], engine=engine, background=False) as machine:
        machine.observe(COUNTS)
        parts = [machine.run_intervals(1_000, 64, watcher), machine.run_intervals(1_000, 3, watcher)]
    assert [len(part) for part in parts] == [5, 3]
    assert watcher.seen.tolist() == [
        8,
        sum(int(part.ends.sum()) for part in parts),
        sum(int((part.executions * (part.blocks.astype(np.int64) + 1)).sum()) for part in parts),
    ]


def test_a_watcher_gets_the_arrays_that_have_grown(mixture: Path) -> None:
    watcher = Ends(1_000_000)
    with Machine(mixture, ["1"], background=False) as machine:
        machine.observe(COUNTS)
        machine.run_intervals(100, 1)
        writer = machine._run_loop._intervals
        assert writer is not None
        writer.blocks, writer.executions = np.zeros(1, np.uint32), np.zeros(1, np.int64)
        found = machine.run_intervals(1_000, 30, watcher)
    assert watcher.seen[0] == len(found) == 30
    assert watcher.seen[2] == (found.executions * (found.blocks.astype(np.int64) + 1)).sum()


def test_blocks_that_come_next_are_met_together(mixture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    discover = Translator.discover

    def counted(self: Translator, pc: int) -> None:
        asked.append(pc)
        discover(self, pc)

    monkeypatch.setattr(Translator, "discover", counted)
    found = []
    for engine in ("oracle", "translated"):
        with Machine(mixture, ["20"], engine=engine, background=False) as machine:
            machine.observe(COUNTS)
            ran = machine.run_intervals(5_000, 20)
            pcs = machine.facts.blocks["pc"]
            found.append((ran.ends.tolist(), [
                sorted(zip(pcs[ran.blocks[a:b]].tolist(), ran.executions[a:b].tolist(), strict=True))
                for a, b in zip(ran.starts[:-1], ran.starts[1:], strict=True)
            ]))  # fmt: skip
    assert found[0] == found[1]
    assert len(asked) < len({pc for interval in found[0][1] for pc, _ in interval}) / 2
