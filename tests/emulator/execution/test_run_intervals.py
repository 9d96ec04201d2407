"""Intervals and block counts: the same from every tier, and what the record says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from emulator.engine.instrument.followed_lines import timestamped_accesses
from emulator.engine.translator import Translator
from emulator.events import ACCESS_STORE, FULL_RECORD, BlockFacts, TraceSelection
from emulator.execution.intervals import Intervals, Written
from emulator.execution.intervals_kernel import DONE, ENOUGH
from emulator.isa.decode import Instruction, decode
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
        ends, counts = [], []
        while machine.ending is None:
            machine.advance_to_instructions(machine.instructions + length)
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


def load(rd: int, base: int, offset: int) -> Instruction:
    found = decode((offset & 0xFFF) << 20 | base << 15 | 3 << 12 | rd << 7 | 0x03)
    assert found is not None
    return found


def store(base: int, offset: int) -> Instruction:
    found = decode((offset >> 5 & 0x7F) << 25 | 5 << 20 | base << 15 | 3 << 12 | (offset & 31) << 7 | 0x23)
    assert found is not None
    return found


def test_accesses_that_are_left_out() -> None:
    assert timestamped_accesses([load(5, 10, offset) for offset in (0, 8, 16, 24, 32, 40, 48)]) == [
        True, False, False, False, True, False, True,
    ]  # fmt: skip
    assert timestamped_accesses([load(6, 10, 0), load(7, 10, 0), load(10, 10, 8), load(5, 10, 8)]) == [
        True, False, True, True,
    ]  # fmt: skip
    assert timestamped_accesses([load(5, 2, 40), load(6, 2, 0), load(7, 2, 16)]) == [True, True, True]


def test_a_store_is_noted_beside_loads_but_not_beside_stores() -> None:
    assert timestamped_accesses([load(5, 10, 0), store(10, 0), store(10, 0), load(5, 10, 0)]) == [
        False, True, False, False,
    ]  # fmt: skip
    assert timestamped_accesses([load(5, 10, 0), store(10, 8), load(5, 10, 16)]) == [True, True, True]
    assert timestamped_accesses([store(10, 0), load(5, 10, 8), store(10, 24)]) == [True, False, True]


@settings(max_examples=300)
@given(
    st.lists(
        st.tuples(st.booleans(), st.sampled_from([2, 10, 11]), st.integers(-40, 40), st.sampled_from([5, 6, 10, 11])),
        max_size=12,
    ),
    st.lists(st.integers(0, 255), min_size=32, max_size=32),
    st.sampled_from([5, 6, 7]),
)
def test_every_line_that_a_block_touches_gets_a_timestamp(
    accesses: list[tuple[bool, int, int, int]], values: list[int], line_bits: int
) -> None:
    """Whatever the registers have: of reads and writes, and of writes alone. Offsets are multiples of eight."""
    code = [store(base, 8 * to) if is_store else load(rd, base, 8 * to) for is_store, base, to, rd in accesses]
    held = {register: 4096 + value for register, value in enumerate(values)}
    touched: list[tuple[int, bool, bool]] = []
    loaded = iter(range(8192, 10**6, 1000))
    for instruction, is_timestamped in zip(code, timestamped_accesses(code), strict=True):
        line = (held[instruction.rs1] + instruction.imm) >> line_bits
        is_store = bool(instruction.row.access & ACCESS_STORE)
        touched.append((line, is_store, is_timestamped))
        if not is_store:
            held[instruction.rd] = next(loaded) + values[instruction.rd]
    for of_writes in (False, True):
        lines = {line for line, is_store, _ in touched if is_store or not of_writes}
        assert lines == {line for line, is_store, marked in touched if marked and (is_store or not of_writes)}


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
