"""Intervals, block counts and reuse times: the same from every tier, and what the record says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from emulator.engine.instrument.line_timestamps import timestamped_accesses, writes_offset
from emulator.engine.reuse_counts import (
    CLASS_SHIFT,
    EXACT_TURNS,
    LINE_SET_FIELDS,
    LINE_SETS,
    NEAR_BITS,
    PAGE_BITS,
    PAGE_FIELDS,
    PAGE_SET_FIELDS,
    PAGE_SETS,
    REUSE_BINS,
    REUSE_FIELDS,
    TURN_BINS,
    TURN_FIELDS,
    bin_edges,
    bin_of,
    turn_bin_of,
    turn_bin_starts,
)
from emulator.engine.translator import Translator
from emulator.events import ACCESS_STORE, FULL_RECORD, NEVER, BlockFacts, TraceSelection
from emulator.execution.intervals import Intervals, Written
from emulator.execution.intervals_kernel import DONE, ENOUGH
from emulator.isa.decode import Instruction, decode
from emulator.kernels.jit import BoundKernel, kernel
from emulator.machine import Machine
from emulator.memory import PAGE_SHIFT
from instrumenter.building.program_build import build_program

GUEST = Path(__file__).parents[1] / "guest"
LINE_BITS = 5
SET_MASK = 15
EVERYTHING = TraceSelection(counts=True, line_bits=LINE_BITS, reuse_times=True, set_mask=SET_MASK)


@pytest.fixture(scope="module")
def mixture() -> Path:
    return build_program([GUEST / "mixture.c"], ["-O2"], libraries=["-lm"]).elf_path


class Twin:
    """Reuse times and last touches from the record, as one would write it."""

    selection = FULL_RECORD

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.timestamped_accesses: dict[int, list[bool]] = {}
        self.last: dict[int, int] = {}
        self.written: dict[int, int] = {}
        self.pages: dict[int, int] = {}
        self.last_page = 0
        self.reuses = np.zeros(REUSE_FIELDS, np.int64)
        self.turns: dict[int, list[int]] = {}  # by set, the lines that took them
        self.executions: dict[int, int] = {}
        self.now = 0

    def consume(self, facts: BlockFacts, stream: Any) -> None:
        position = 0
        while position < len(stream):
            number = int(stream[position])
            block = facts.blocks[number]
            first, count = int(block["first_instruction"]), int(block["n_instructions"])
            rows = facts.instructions[first : first + count]
            if number not in self.timestamped_accesses:
                code = [decode(self.machine._guest.address_space.fetch(int(pc))) for pc in rows["pc"]]
                self.timestamped_accesses[number] = timestamped_accesses([one for one in code if one is not None])
            access = 0
            for place in range(count):
                if rows["access"][place]:
                    access += 1
                    if self.timestamped_accesses[number][place]:
                        address = int(stream[position + access])
                        self.touch(address, self.now + place)
                        if rows["access"][place] & ACCESS_STORE:
                            self.written[address >> LINE_BITS] = self.now + place
            pc = int(block["pc"])
            self.executions[pc] = self.executions.get(pc, 0) + 1
            self.now += count
            position += 1 + access

    def touch(self, address: int, time: int) -> None:
        line = address >> LINE_BITS
        age = time - self.last[line] if line in self.last else time + (1 << 31)
        self.last[line] = time
        if age >= 1 << NEAR_BITS:
            self.count(age, 0, LINE_SET_FIELDS, LINE_SETS, line)
            turns = np.searchsorted(turn_bin_starts(), self.turns_since(line), side="right") - 1
            self.reuses[TURN_FIELDS + turns] += 1
            page = address >> PAGE_SHIFT
            if page != self.last_page:
                self.last_page = page
                page_age = time - self.pages[page] if page in self.pages else time + (1 << 31)
                self.pages[page] = time
                self.count(page_age, PAGE_FIELDS, PAGE_SET_FIELDS, PAGE_SETS, page)

    def count(self, age: int, fields: int, set_fields: int, sets: int, number: int) -> None:
        """By the time, and by its class and set."""
        time_bin = int(np.searchsorted(bin_edges(), age, side="right")) - 1
        self.reuses[fields + time_bin] += 1
        self.reuses[set_fields + (time_bin >> CLASS_SHIFT) * sets + number % sets] += 1

    def turns_since(self, line: int) -> int:
        """Take a turn of the line's set; how many have passed since its last."""
        taken = self.turns.setdefault(line & SET_MASK, [])
        if taken and taken[-1] == line:
            return 0
        ago = next((place for place, other in enumerate(reversed(taken), 1) if other == line), 1 << 31)
        taken.append(line)
        return ago


def test_bins_of_turns_are_exact_then_cut_powers_of_two_into_four() -> None:
    starts = turn_bin_starts()
    assert len(starts) == TURN_BINS + 1
    assert [turn_bin_of(turns) for turns in range(EXACT_TURNS + 1)] == list(range(EXACT_TURNS + 1))
    for turns in (*range(5000), *(1 << np.arange(31)), (1 << 32) - 1):
        assert starts[turn_bin_of(int(turns))] <= turns < starts[turn_bin_of(int(turns)) + 1]


def test_bins_of_reuse_times_cut_powers_of_two_into_four() -> None:
    assert [bin_of(time) for time in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)] == [0, 0, 4, 6, 8, 9, 10, 11, 12, 12, 13]
    edges = bin_edges()
    assert len(edges) == REUSE_BINS + 1
    for time in (*range(1, 5000), *(1 << np.arange(31)), (1 << 32) - 1):
        assert edges[bin_of(int(time))] <= time < edges[bin_of(int(time)) + 1]


def test_pages_whose_reuse_is_counted_are_those_of_guest_memory() -> None:
    assert PAGE_BITS == PAGE_SHIFT  # snapshots keep the times of mapped pages


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
        twin = Twin(machine)
        machine.observe(TraceSelection(), [twin])
        machine.run()
        machine.drain()
        return twin


@pytest.mark.parametrize("tier", list(TIERS))
def test_every_tier_counts_what_the_record_says(mixture: Path, expected: Twin, tier: str) -> None:
    with Machine(mixture, ["1"], **TIERS[tier]) as machine:
        machine.observe(EVERYTHING)
        machine.run()
        assert by_pc(machine) == expected.executions
        assert machine.reuse_times.tolist() == expected.reuses.tolist()
        addresses, ages, written = machine.touched_lines()
        times = machine.instructions - ages.astype(np.int64)
        found = dict(zip((addresses >> LINE_BITS).tolist(), times.tolist(), strict=True))
        assert found == expected.last  # some of them in memory that was unmapped before the end
        was_written = written != NEVER
        written_at = (machine.instructions - written[was_written].astype(np.int64)).tolist()
        found = dict(zip((addresses[was_written] >> LINE_BITS).tolist(), written_at, strict=True))
        assert found == expected.written
        assert machine.memory.unmapped.any()


def intervals_of(machine: Machine, length: int, at_most: int) -> Intervals:
    machine.observe(EVERYTHING)
    parts = []
    while machine.ending is None:
        parts.append(machine.run_intervals(length, at_most))
    entries = np.cumsum([0, *(len(part.blocks) for part in parts)])
    return Intervals(
        np.concatenate([part.ends for part in parts]),
        np.concatenate([[0], *(part.starts[1:] + first for part, first in zip(parts, entries, strict=False))]),
        np.concatenate([machine.facts.blocks["pc"][part.blocks] for part in parts]),
        np.concatenate([part.executions for part in parts]),
        np.concatenate([part.reuse_times for part in parts]),
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
def test_intervals_are_the_same_from_every_tier(mixture: Path, expected: Twin, tier: str, at_most: int) -> None:
    length = 5_000
    with Machine(mixture, ["1"], **TIERS[tier]) as machine:
        found = intervals_of(machine, length, at_most)
    with Machine(mixture, ["1"], **TIERS["interpreted"]) as machine:
        machine.observe(EVERYTHING)
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
    assert found.reuse_times.sum(axis=0).tolist() == expected.reuses.tolist()


def test_intervals_of_the_oracle(mixture: Path) -> None:
    def first(engine: str) -> Intervals:
        with Machine(mixture, ["1"], engine=engine) as machine:
            machine.observe(EVERYTHING)
            found = machine.run_intervals(2_000, 4)
            return Intervals(
                found.ends, found.starts, machine.facts.blocks["pc"][found.blocks], found.executions,
                found.reuse_times,
            )  # fmt: skip

    oracle, translated = first("oracle"), first("translated")
    assert oracle.ends.tolist() == translated.ends.tolist()
    assert told(oracle) == told(translated)
    assert oracle.reuse_times.tolist() == translated.reuse_times.tolist()


@kernel
def end_after(written: Written, most: int, seen: NDArray[np.int64]) -> None:
    """A watcher: sums up what is written of each interval, and ends a series after ``most``."""
    row = written.job[DONE] - 1
    seen[0] += 1
    seen[1] += written.ends[row]
    for place in range(written.starts[row], written.starts[row + 1]):
        seen[2] += written.executions[place] * (written.blocks[place] + 1)
    for place in range(REUSE_FIELDS):
        seen[3] += written.reuse_times[row, place] * place
    if row + 1 == most:
        written.job[ENOUGH] = 1


class Ends:
    def __init__(self, most: int) -> None:
        self.most, self.seen = most, np.zeros(4, np.int64)

    def watch(self, written: Written) -> BoundKernel:
        bound = end_after.bound(written, self.most, self.seen)
        assert isinstance(bound, BoundKernel)
        return bound


@pytest.mark.parametrize("engine", ["translated", "oracle"])
def test_a_watcher_sees_each_interval_and_ends_the_series(mixture: Path, engine: str) -> None:
    watcher = Ends(5)
    with Machine(mixture, ["1"], engine=engine, background=False) as machine:
        machine.observe(EVERYTHING)
        parts = [machine.run_intervals(1_000, 64, watcher), machine.run_intervals(1_000, 3, watcher)]
    assert [len(part) for part in parts] == [5, 3]
    assert watcher.seen.tolist() == [
        8,
        sum(int(part.ends.sum()) for part in parts),
        sum(int((part.executions * (part.blocks.astype(np.int64) + 1)).sum()) for part in parts),
        sum(int((part.reuse_times * np.arange(REUSE_FIELDS)).sum()) for part in parts),
    ]


def test_a_watcher_gets_the_arrays_that_have_grown(mixture: Path) -> None:
    watcher = Ends(1_000_000)
    with Machine(mixture, ["1"], background=False) as machine:
        machine.observe(EVERYTHING)
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


def test_lines_of_two_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="lines of 32 and of 64 bytes"):
        TraceSelection(line_bits=5) | TraceSelection(line_bits=6)


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
            machine.observe(EVERYTHING)
            ran = machine.run_intervals(5_000, 20)
            pcs = machine.facts.blocks["pc"]
            found.append((ran.ends.tolist(), [
                sorted(zip(pcs[ran.blocks[a:b]].tolist(), ran.executions[a:b].tolist(), strict=True))
                for a, b in zip(ran.starts[:-1], ran.starts[1:], strict=True)
            ], ran.reuse_times.tolist()))  # fmt: skip
    assert found[0] == found[1]
    assert len(asked) < len({pc for interval in found[0][1] for pc, _ in interval}) / 2


@pytest.mark.parametrize("line_bits", range(2, 13))
def test_the_two_times_of_a_line_are_in_other_places_of_their_pages(line_bits: int) -> None:
    # Else some processors take the one for the other, at every store.
    apart = writes_offset(line_bits) % 4096
    assert min(apart, 4096 - apart) >= 1024
    assert writes_offset(line_bits) >= 4 << (32 - line_bits)
