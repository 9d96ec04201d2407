"""Tracing a real program: against the full simulation, against a naive signature, and what must not change it."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.events import FULL_RECORD, BlockFacts, OpClass, TraceSelection
from emulator.machine import Machine
from emulator.timing.inorder import InOrderCore
from emulator.timing.machine_events import Event
from emulator.timing.machine_file import load_machine
from instrumenter.building.program_build import build_program
from measure.cycle_close.rates import deviations, event_totals, events_off, pointwise_deviation, table_of
from measure.cycle_close.signature import SignatureMaker, entry_of
from measure.cycle_close.tracer import Category, Interval, RecordBuffer, Tracer, TracerSettings
from measure.cycle_close.warmup import RecordQueue

ROOT = Path(__file__).parent.parent.parent.parent
MACHINE = load_machine(ROOT / "configs" / "machines" / "strongarm.yaml")
PHASES = """
#include <stdio.h>
static volatile int data[1 << 16];
static long compute(long n) { long s = 1; for (long i = 0; i < n; i++) s = s * 31 + (s >> 7); return s; }
static long sweep(long n) { long s = 0; for (long i = 0; i < n; i++) s += data[(i * 17) & 0xffff]; return s; }
static long branches(long n) { long s = 1, c = 0; for (long i = 0; i < n; i++) { s = s * 1103515245 + 12345;
  if (s >> 16 & 1) c += i; else c ^= s; } return c; }
int main(void) { long s = 0;
  for (int k = 0; k < 6; k++) { s += compute(100000); s += sweep(100000); s += branches(60000); }
  printf("%ld\\n", s); return 0; }
"""
SHORT = TracerSettings(interval_instructions=10_000, warm_references=5_000, warm_branches=5_000)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("phases") / "phases.c"
    source.write_text(PHASES)
    return build_program([source], ["-O1"]).elf_path


def trace(program: Path, settings: TracerSettings) -> list[Interval]:
    with Machine(program, background=False) as machine:
        return list(Tracer(machine, InOrderCore(MACHINE, 1), settings).intervals())


def test_phases_of_a_program_are_found_and_estimated(program: Path) -> None:
    full = trace(program, replace(SHORT, everything=True))
    found = trace(program, SHORT)
    assert [one.end_instructions for one in found] == [one.end_instructions for one in full]
    assert [one.phase for one in found][-1] >= 3
    categories = [one.category for one in found]
    assert categories[0] is Category.UNSAMPLED
    assert categories.count(Category.SIMULATED) < 0.15 * len(found)
    compared = deviations(table_of(full), table_of(found)).set_index("metric")
    assert (compared["deviation_percent"] < 12).all()
    # Intervals that two phases share are the worst. The sweep has no hits: L1D hits are compared in these alone.
    assert (compared["matched_percent"].drop("l1d_hit_rate") < 6).all()
    assert compared["absolute"]["l1d_hit_rate"] < 0.02
    assert compared["simulated_percent"]["cpi"] < 1


def test_the_full_trace_is_the_full_simulation(program: Path) -> None:
    intervals = trace(program, replace(SHORT, everything=True))
    total = sum(one.events for one in intervals)
    core = InOrderCore(MACHINE, 1)
    with Machine(program, consumers=[core], background=False) as machine:
        machine.run()
        machine.drain()
    assert np.array_equal(np.rint(total).astype(np.int64), core.snapshot())
    for one in intervals:  # each has the outcome of its last branch, too
        assert one.events[Event.BRANCHES_TAKEN] <= one.events[Event.BRANCHES_CONDITIONAL]
        assert one.events[Event.BRANCHES_MISPREDICTED] <= one.events[Event.BRANCHES_CONDITIONAL]


THREADS = """
#include <pthread.h>
static volatile long sums[4];
static void *run(void *own) {
  for (unsigned long i = 0, s = (long)own; i < 400000; i++) {
    s = s * 1103515245 + 12345;
    if (s >> 16 & 7) sums[(long)own] += i;
  }
  return 0;
}
int main(void) {
  pthread_t threads[4];
  for (long n = 0; n < 4; n++) pthread_create(&threads[n], 0, run, (void *)n);
  for (long n = 0; n < 4; n++) pthread_join(threads[n], 0);
  return 0;
}
"""


def test_threads_that_take_turns_change_no_branch_of_the_full_trace(tmp_path: Path) -> None:
    # The branch before a switch of threads was taken to lead to the other thread's code.
    (tmp_path / "threads.c").write_text(THREADS)
    program = build_program([tmp_path / "threads.c"], ["-O1"]).elf_path
    core = InOrderCore(MACHINE, 1)
    with Machine(program, consumers=[core], background=False) as machine:
        machine.run()
        machine.drain()
    total = sum(one.events for one in trace(program, replace(SHORT, everything=True)))
    assert np.array_equal(np.rint(total).astype(np.int64), core.snapshot())


def test_a_kept_record_says_where_another_thread_went_on(program: Path) -> None:
    kept = RecordBuffer()
    with Machine(program, background=False) as machine:
        kept.interrupted(0x10)
        kept.consume(machine.facts, np.array([1, 2, 3], np.uint32))
        kept.interrupted(0x20)
        kept.consume(machine.facts, np.array([4], np.uint32))
    record, interruptions = kept.take()
    assert (record.tolist(), interruptions) == ([1, 2, 3, 4], [(0, 0x10), (3, 0x20)])
    assert [len(part) for part in kept.take()] == [0, 0]


def test_a_trace_is_the_same_however_it_was_translated(program: Path) -> None:
    def events(**options: int | bool) -> list[tuple[int, int, float]]:
        with Machine(program, **options) as machine:  # type: ignore[arg-type]
            tracer = Tracer(machine, InOrderCore(MACHINE, 1), SHORT)
            return [(i.end_instructions, i.phase, float(i.events[Event.CYCLES])) for i in tracer.intervals()]

    reference = events(background=False)
    assert repr(events(background=True)) == repr(reference)
    assert repr(events(background=False, templates=False, optimise_executions=1 << 30)) == repr(reference)


def test_unsampled_intervals_follow_the_policy(program: Path) -> None:
    nothing, last = (trace(program, replace(SHORT, unsampled=policy)) for policy in ("none", "last"))
    closest = trace(program, replace(SHORT, unsampled="closest"))
    missing = [one.number for one in nothing if one.category is Category.UNSAMPLED]
    assert missing
    for number in missing:
        assert np.isnan(nothing[number].events).all()
        assert nothing[number].source == -1
    later = [number for number in missing if number > 3]
    assert later
    for number in later:
        assert last[number].source == last[number - 1].source
        assert last[number].events[Event.INSTRUCTIONS] == pytest.approx(last[number].instructions)
        assert closest[number].category is Category.UNSAMPLED
        assert closest[number].source >= 0


def test_warm_up_brings_a_sample_closer(program: Path) -> None:
    full = trace(program, replace(SHORT, everything=True))
    cold = trace(program, replace(SHORT, warm_references=0, warm_branches=0))
    warm = trace(program, SHORT)

    def error(found: list[Interval]) -> float:
        apart = [
            abs(one.events[Event.CYCLES] / full[one.number].events[Event.CYCLES] - 1)
            for one in found
            if one.category is Category.SIMULATED
        ]
        return float(np.mean(apart))

    assert error(warm) < 0.01
    assert error(warm) < error(cold)


def test_signatures_are_those_of_a_naive_walk(program: Path) -> None:
    class Walk:
        """Counts the instructions since the last control transfer, as the paper says."""

        selection = FULL_RECORD

        def __init__(self) -> None:
            self.entries = np.zeros(32, np.int64)
            self.since = 0

        def consume(self, facts: BlockFacts, stream: np.ndarray) -> None:
            position = 0
            while position < len(stream):
                block = facts.blocks[stream[position]]
                self.since += int(block["n_instructions"])
                if OpClass.BRANCH <= block["terminator"] <= OpClass.INDIRECT_CALL:
                    last = block["first_instruction"] + block["n_instructions"] - 1
                    pc = np.array([facts.instructions["pc"][last]], np.int64)
                    self.entries[entry_of(pc, 32)[0]] += self.since
                    self.since = 0
                position += 1 + int(block["n_accesses"])

    walk = Walk()
    with Machine(program, consumers=[walk], background=False) as machine:
        machine.advance_to_instructions(300_000)
        machine.drain()
    with Machine(program, background=False) as machine:
        machine.observe(TraceSelection(counts=True))
        ran = machine.run_intervals(300_000, 1)
        assert ran.ends[-1] == machine.instructions
        made = SignatureMaker(32).make(machine.facts, ran).sum(axis=0)
    assert made.sum() == walk.entries.sum() + walk.since
    assert np.abs(made - walk.entries).sum() <= walk.since + 200  # blocks that system calls end


def test_a_signature_does_not_depend_on_when_its_blocks_were_met(program: Path) -> None:
    with Machine(program, background=False) as machine:
        machine.observe(TraceSelection(counts=True))
        grown = SignatureMaker(32)
        parts = []
        while machine.ending is None:
            parts.append(machine.run_intervals(2_000, 3))
            grown.make(machine.facts, parts[-1])
        for part in parts:
            at_once = SignatureMaker(32).make(machine.facts, part)
            assert grown.make(machine.facts, part).tolist() == at_once.tolist()


def made_up(seed: int, n: int) -> tuple[BlockFacts, list[list[int]]]:
    rng = np.random.default_rng(seed)
    facts = BlockFacts()
    for number in range(8):
        rows = [(4 * number, 4, int(OpClass.LOAD), 1, 4, 1, 2, 0, 0)] * int(rng.integers(0, 4))
        ends = OpClass.BRANCH if rng.random() < 0.7 else OpClass.SYSTEM
        facts.append([*rows, (4 * number, 4, int(ends), 0, 0, 0, 0, 0, 0)], None)
    words = [int(rng.integers(8)) for _ in range(n)]
    return facts, [[block, *([1000] * int(facts.blocks["n_accesses"][block]))] for block in words]


@given(st.integers(0, 1000), st.integers(0, 60), st.integers(0, 40), st.integers(0, 30), st.integers(1, 20))
def test_the_queue_keeps_the_shortest_end(seed: int, n: int, references: int, branches: int, part: int) -> None:
    facts, executions = made_up(seed, n)
    queue = RecordQueue(references, branches)
    queue._room_words = queue._least_words = 20  # so that it is trimmed within so short a record
    for start in range(0, n, part):
        queue.consume(facts, np.array(list(chain(*executions[start : start + part])), np.uint32))

    def held(blocks: list[list[int]]) -> tuple[int, int]:
        ends = facts.blocks["terminator"]
        return sum(len(b) - 1 for b in blocks), sum(int(ends[b[0]] == OpClass.BRANCH) for b in blocks)

    tail = queue.tail(facts).tolist()
    for kept in range(n + 1):
        if list(chain(*executions[n - kept :])) == tail:
            break
    else:
        raise AssertionError("the tail is no end of the record")
    if kept < n:
        has = held(executions[n - kept :])
        assert has[0] >= references
        assert has[1] >= branches
    if kept:
        fewer = held(executions[n - kept + 1 :])
        assert fewer[0] < references or fewer[1] < branches


def test_deviation_has_n_terms_and_a_rule_for_zero() -> None:
    nan = float("nan")
    assert pointwise_deviation(np.array([1.0, 2.0]), np.array([1.1, 1.8])) == pytest.approx(10)
    assert pointwise_deviation(np.array([0.0, 0.0, 2.0]), np.array([0.0, 1.0, 2.0])) == pytest.approx(100 / 3)
    assert pointwise_deviation(np.array([nan, 1.0]), np.array([1.0, nan])) != 0  # nothing to compare
    assert np.isnan(pointwise_deviation(np.array([nan]), np.array([1.0])))


def test_deviations_are_absolute_too_and_tell_how_many_accesses_a_rate_is_of() -> None:
    def with_misses(l2_misses: int) -> pd.DataFrame:
        events = np.zeros(len(Event))
        events[[Event.INSTRUCTIONS, Event.CYCLES, Event.L2_ACCESSES, Event.L2_MISSES]] = 10_000, 20_000, 4, l2_misses
        many = events + 1000 * (np.arange(len(Event)) == Event.L2_ACCESSES)
        bounds = [(0, 10_000), (10_000, 20_000), (20_000, 30_000)]
        return table_of(
            [
                Interval(n, *bounds[n], 0, Category.SIMULATED, 0, 0.0, each)
                for n, each in enumerate([events, many, events])
            ]
        )

    compared = deviations(with_misses(3), with_misses(1)).set_index("metric")
    assert compared["deviation_percent"]["l2_hit_rate"] == pytest.approx(100 * 2 / 1001)  # not of 4 accesses
    assert compared["absolute"]["l2_hit_rate"] == pytest.approx(2 / 1004)
    assert compared["accesses_per_1000_instructions"]["l2_hit_rate"] == pytest.approx(0.4)
    assert compared["absolute"]["cpi"] == 0
    assert np.isnan(compared["accesses_per_1000_instructions"]["cpi"])


def test_a_rate_near_0_has_no_relative_deviation() -> None:
    def with_misses(*misses: int) -> pd.DataFrame:
        events = np.zeros((len(misses), len(Event)))
        events[:, [Event.INSTRUCTIONS, Event.CYCLES, Event.BRANCHES_CONDITIONAL]] = 10_000, 20_000, 1000
        events[:, Event.BRANCHES_MISPREDICTED] = misses
        bounds = [(10_000 * n, 10_000 * (n + 1)) for n in range(len(misses))]
        return table_of([Interval(n, *bounds[n], 0, Category.SIMULATED, 0, 0.0, each) for n, each in enumerate(events)])

    compared = deviations(with_misses(1000, 999), with_misses(998, 995)).set_index("metric").loc["branch_hit_rate"]
    assert compared["absolute"] == pytest.approx(0.003)
    assert compared.filter(like="percent").isna().all()
    compared = deviations(with_misses(999, 500), with_misses(995, 490)).set_index("metric").loc["branch_hit_rate"]
    assert compared["deviation_percent"] == compared["largest_percent"] == pytest.approx(2)
    assert compared["absolute"] == pytest.approx(0.007)
    assert compared["whole_run_percent"] == pytest.approx(100 * 14 / 501)


def test_events_that_are_far_off_for_the_whole_run_are_named() -> None:
    def columns(**totals: float) -> dict[str, np.ndarray]:
        found = {event.name.lower(): np.zeros(3) for event in Event}
        found |= {name: np.array([total, total, 0.0]) for name, total in totals.items()}
        return found | {"cpi": np.array([1.0, 1.0, np.nan])}

    full = columns(instructions=1e6, cycles=2e6, memory_writes=5000, l2_writebacks=100, fences=3)
    estimated = columns(instructions=1e6, cycles=1.97e6, memory_writes=2000, l2_writebacks=120, fences=9)
    full["cycles"][2] = 1e9  # an interval without an estimate counts in neither
    totals = event_totals(full, estimated)
    assert list(totals) == ["fences", "memory_writes", "l2_writebacks", "cycles", "instructions"]
    assert totals["memory_writes"] == (10_000, 4000)
    assert events_off(totals) == (
        "for the whole run memory_writes -60%, l2_writebacks +20%; others are less than 5% off, those that happen less "
        "often than once in 100,000 instructions left out."
    )
    near = event_totals(full, full)
    assert events_off(near).startswith("for the whole run all are less than 5% off, those that")
