"""Classification inside a series of intervals, against naive twins and against one interval at a time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.machine import Machine
from emulator.timing.inorder import InOrderCore
from emulator.timing.machine_events import N_EVENTS
from emulator.timing.machine_file import load_machine
from instrumenter.building.program_build import build_program
from measure.cycle_close.classifier import SignatureTable
from measure.cycle_close.live_counts import CountWatcher, Following, live_counts, wait_cycles, waiting
from measure.cycle_close.online_kernel import BUCKETS, EMPTY, place_of
from measure.cycle_close.predictors import LastValue, RunLength
from measure.cycle_close.predictors_kernel import tuple_hash
from measure.cycle_close.rollback import RollBackTracer
from measure.cycle_close.samples import Sample, Samples, wait_bucket
from measure.cycle_close.schedule import SampleSchedule
from measure.cycle_close.tracer import (
    BY_DEFAULT,
    Category,
    Interval,
    Tracer,
    TracerSettings,
    follows_caches,
    profile_selection,
    signatures_for,
)
from tests.measure.cycle_close.online_naive import NaiveCover, NaivePredictor, NaiveSchedule, NaiveTable

ROOT = Path(__file__).parents[3]
MACHINES = {name: load_machine(ROOT / "configs" / "machines" / f"{name}.yaml") for name in ("strongarm", "desktop")}
PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
static volatile int data[1 << 18];
int main(void) { long s = 1; long n = 3000;
  for (int k = 0; k < 36; k++) {
    for (long i = 0; i < n; i++) s += data[(i * (17 + k)) & ((1 << (10 + k % 9)) - 1)];
    for (long i = 0; i < n / 2; i++) s = s * 1103515245 + (s >> 16 & 1 ? 3 : 5);
    if (k % 3 == 0) { char *p = malloc(5000 + k);
      for (int i = 0; i < 5000; i++) p[i] = s >> (i & 7);
      s += p[k]; free(p); }
    if (k % 5 == 0) for (long i = 0; i < n; i++) s += i * i % (k + 7);
  }
  printf("%ld\\n", s); return 0; }
"""
SHORT = replace(BY_DEFAULT, interval_instructions=2_000, threshold=0.12)
WAYS = {
    "default": SHORT,
    "mean": replace(SHORT, update="mean", base="L"),
    "never": replace(SHORT, update="never", predictor="last"),
    "few": replace(SHORT, entries=4, predictor="rle-1", unsampled="closest"),
    "full": replace(SHORT, entries=4, when_full="closest", dimensions=7),
    "code alone": replace(SHORT, wait_step=0.0, unsampled="none"),
    "paper": TracerSettings(2_000, warm_references=500, warm_branches=500),
}
# All ways on one machine, and two on the other, whose core issues one instruction a cycle: the default and the paper's.
ON_MACHINES = pytest.mark.parametrize(
    ("ways", "machine"),
    [
        *(pytest.param(ways, "desktop", id=f"{name}-desktop") for name, ways in WAYS.items()),
        *(pytest.param(WAYS[name], "strongarm", id=f"{name}-strongarm") for name in ("default", "paper")),
    ],
)
FEWER = settings(max_examples=60, derandomize=True, deadline=None)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("online") / "online.c"
    source.write_text(PROGRAM)
    return build_program([source], ["-O1"]).elf_path


def trace(program: Path, machine: str, ways: TracerSettings, **options: bool) -> list[Interval]:
    with Machine(program, background=False) as guest:
        return list(Tracer(guest, InOrderCore(MACHINES[machine], 1), ways, **options).intervals())


@ON_MACHINES
def test_a_series_gives_what_single_intervals_give(program: Path, machine: str, ways: TracerSettings) -> None:
    found, stepwise = trace(program, machine, ways), trace(program, machine, ways, stepwise=True)
    assert repr(found) == repr(stepwise)
    assert [one.events.tobytes() for one in found] == [one.events.tobytes() for one in stepwise]


@ON_MACHINES
def test_phases_are_those_of_the_naive_twins(program: Path, machine: str, ways: TracerSettings) -> None:
    found, was_bad = [], []  # a bad estimate brings the next sample forward
    with Machine(program, background=False) as guest:
        tracer = Tracer(guest, InOrderCore(MACHINES[machine], 1), ways, stepwise=True)
        for one in tracer.intervals():
            found.append(one)
            was_bad.append(bool(tracer.sampled_again) and tracer.sampled_again[-1] > 0.1)
    assert len({one.category for one in found}) == 3
    core_config, step = MACHINES[machine], ways.wait_step
    runs = int(ways.predictor[4:]) if ways.predictor != "last" else 0
    table = NaiveTable(ways.threshold, ways.base, ways.entries, ways.update, ways.when_full)
    predictor, schedule, cover = NaivePredictor(runs, 4096), NaiveSchedule(), NaiveCover(ways.threshold, ways.base)
    uncovered, n_for_code = None, 0
    maker = signatures_for(ways)
    with Machine(program, background=False) as guest:
        following = Following(guest, InOrderCore(core_config, 1)) if follows_caches(ways) else None
        watcher = CountWatcher(live_counts(following))
        guest.observe(profile_selection(following))
        for one in found:
            key = predictor.next_phase()
            is_known = key is not None and key // BUCKETS in table.numbers
            is_due = key is not None and schedule.left.get(key, 0) <= 0
            wants = is_known and (is_due or key == uncovered)
            n_for_code += wants and not is_due
            assert wants == (one.category is Category.SIMULATED)
            ran = guest.run_intervals(ways.interval_instructions, 1, watcher.begin(1))
            assert int(ran.ends[0]) == one.end_instructions
            signature = maker.make(guest.facts, ran)[0]
            lengths = np.array([one.instructions])
            wait = float(waiting(watcher.end(1), lengths, wait_cycles(core_config))[0]) if step else 0.0
            match = table.classify(signature)
            assert (match.phase, match.distance) == (one.phase, one.distance)
            key = match.phase * BUCKETS + min(wait_bucket(wait, step), BUCKETS - 1)
            predictor.observe(key)
            if step and key in schedule.left:
                schedule.left[key] -= 1
            uncovered = key if step and not cover.has(signature) else None
            if wants:
                schedule.take(key, was_bad[one.number])
                table.record_sample(match.phase, signature)
                cover.add(signature)
                uncovered = None
        assert guest.ending is not None
    assert n_for_code > 0 or ways is not SHORT


MIXED = """
static volatile int data[64];
int main(void) {
  for (long k = 0; k < 4000; k++) {
    long n = k < 1500 ? 560 : 480;
    for (long i = 0; i < n; i++) data[i & 63] += i;
    for (long i = 0; i < 600 - n; i++) data[i & 7] ^= data[(i * k) & 31];
  }
  return 0; }
"""


def test_other_code_within_a_phase_is_sampled_where_it_begins(tmp_path: Path) -> None:
    """The schedule alone has made samples rare by then: the next one would come some hundred intervals later."""
    source = tmp_path / "mixed.c"
    source.write_text(MIXED)
    ways = replace(BY_DEFAULT, interval_instructions=20_000)
    program = build_program([source], ["-O1"]).elf_path
    found = trace(program, "strongarm", ways)
    assert {one.phase for one in found[:-1]} == {0}
    change = next(one.number for one in found[20:] if one.distance > ways.threshold / 2)
    samples = [one.number for one in found if one.category is Category.SIMULATED]
    assert max(number for number in samples if number < change) < change - 50
    assert any(change < number <= change + 2 for number in samples)
    with Machine(program, background=False) as guest:
        back = list(RollBackTracer(guest, InOrderCore(MACHINES["strongarm"], 1), ways).intervals())
    assert any(one.category is Category.SIMULATED and one.distance > ways.threshold / 2 for one in back[20:])


@FEWER
@given(
    st.lists(st.lists(st.integers(0, 9), min_size=5, max_size=5).filter(any), min_size=1, max_size=30),
    st.integers(0, 5), st.integers(0, 5), st.floats(0.01, 1.0),
)  # fmt: skip
def test_samples_for_all_code_and_no_more(rows: list[list[int]], n_samples: int, n_chosen: int, reach: float) -> None:
    shares = np.array([np.array(row) / sum(row) for row in rows])
    samples = Samples(5, reach, 0.2)
    for share in shares[:n_samples]:
        samples.add(Sample(0, np.zeros(N_EVENTS)), share, 0.0)
    later = shares[n_samples:]
    chosen = list(range(min(n_chosen, len(later))))
    more = samples.more_for(later, chosen)
    standing = [*shares[:n_samples], *later[chosen]]
    for number in more:  # each for code that none before stood for
        assert all(np.abs(later[number] - one).sum() > reach for one in standing)
        standing.append(later[number])
    assert all(any(np.abs(share - one).sum() <= reach for one in standing) for share in later)


def test_the_schedule_counts_intervals() -> None:
    schedule = SampleSchedule()
    schedule.take(7, was_badly_estimated=False)
    assert [schedule.count(7) for _ in range(12)] == 10 * [False] + 2 * [True]


PHASES = st.lists(st.integers(0, 3).map(lambda phase: phase * BUCKETS + phase), max_size=200)


@FEWER
@given(PHASES, st.integers(0, 4), st.sampled_from([1, 3, 64]))
def test_predictors(phases: list[int], runs: int, entries: int) -> None:
    mine = RunLength(runs, entries) if runs else LastValue()
    naive = NaivePredictor(runs, entries)
    for phase in phases:
        assert mine.next_phase() == naive.next_phase()
        mine.observe(phase)
        naive.observe(phase)


@FEWER
@given(st.lists(st.tuples(st.integers(0, (1 << 61) - 2), st.integers(0, 1 << 40)), max_size=6))
def test_runs_are_hashed_as_python_hashes_them(runs: list[tuple[int, int]]) -> None:
    assert tuple_hash(np.array(runs, np.int64).reshape(-1, 2)) == hash(tuple(runs))


ROWS = st.lists(st.lists(st.integers(0, 9), min_size=11, max_size=11), max_size=60)


@FEWER
@given(
    ROWS, st.floats(0.01, 1.0), st.sampled_from(["L", "2L"]), st.sampled_from([1, 3, 50]),
    st.sampled_from(["sample", "mean", "never"]), st.sampled_from(["oldest", "closest"]),
)  # fmt: skip
def test_the_table(
    rows: list[list[int]], threshold: float, base: str, entries: int, update: str, when_full: str
) -> None:
    mine = SignatureTable(11, threshold, base, entries, update, when_full)  # type: ignore[arg-type]
    naive = NaiveTable(threshold, base, entries, update, when_full)
    for number, row in enumerate(rows):
        signature = np.array(row, np.int64)
        match = mine.classify(signature)
        assert match == naive.classify(signature)  # to the bit
        if number % 3 == 0:
            mine.record_sample(match.phase, signature)
            naive.record_sample(match.phase, signature)
        assert all(mine.contains(phase) == (phase in naive.numbers) for phase in range(naive.phases))
    assert (mine.phases, mine.phases - mine.replaced) == (naive.phases, len(naive.rows))


@FEWER
@given(st.lists(st.tuples(st.integers(0, 5000), st.booleans()), max_size=80))
def test_the_schedule(samples: list[tuple[int, bool]]) -> None:
    mine, naive = SampleSchedule(), NaiveSchedule()
    for key, badly in samples:
        mine.take(key, badly)
        naive.take(key, badly)
        assert (key in mine) == (key in naive.left)
    for key in range(0, 5001):
        place = place_of(mine.due, key)
        if key in naive.left:
            assert (mine.due.keys[place], mine.due.intervals[place]) == (key, naive.left[key])
        else:
            assert mine.due.keys[place] == EMPTY


def test_the_schedule_grows() -> None:
    schedule = SampleSchedule()
    for key in range(3000):
        schedule.take(key * 7, False)
    assert all(schedule.due.keys[place_of(schedule.due, key * 7)] == key * 7 for key in range(3000))
    assert schedule.due.keys[place_of(schedule.due, 5)] == EMPTY
