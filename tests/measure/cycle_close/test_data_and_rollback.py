"""Sampling that sees data, goes back, or warms up from lines, on a program that is one loop over changing data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.machine import Machine
from emulator.timing.inorder import InOrderCore
from emulator.timing.machine_config import MachineConfig
from emulator.timing.machine_events import FIRST_DYNAMIC, FIRST_STATIC, Event
from emulator.timing.machine_file import load_machine
from instrumenter.building.program_build import build_program
from measure.cycle_close import rerun, tracer
from measure.cycle_close.live_counts import wait_cycles
from measure.cycle_close.rates import deviations, table_of
from measure.cycle_close.rerun import CHECKS, checks_beside, profile, trace_in_two_runs, trace_second_run
from measure.cycle_close.rollback import RollBackTracer
from measure.cycle_close.samples import Samples
from measure.cycle_close.tracer import Category, Interval, Tracer, TracerSettings

MACHINE = load_machine(Path(__file__).parents[3] / "configs" / "machines" / "strongarm.yaml")
# The same loop over 1 KiB to 512 KiB: phases of code see one phase, caches eight.
SOURCE = """
#include <stdio.h>
static volatile int data[1 << 17];
int main(void) {
  unsigned long s = 1, state = 88172645463325252ul;
  for (int round = 0; round < 24; round++) {
    unsigned long mask = (256ul << (round * 7 % 10)) - 1;
    for (long i = 0; i < 12000; i++) {
      state ^= state << 13; state ^= state >> 7; state ^= state << 17;
      s += data[state & mask];
    }
  }
  printf("%lu\\n", s);
  return 0;
}
"""
CODE = TracerSettings(interval_instructions=10_000, warm_references=12_000, warm_branches=3_000)
DATA = replace(CODE, wait_step=0.2)
WAYS = {
    "predicting": replace(DATA, unsampled="closest"),
    "predicting, lines": replace(DATA, warm_up="lines", unsampled="closest"),
    "rolling back": replace(DATA, roll_back=True),
    "rolling back, lines": replace(DATA, roll_back=True, warm_up="lines"),
    "two runs": DATA,
    "two runs, lines": replace(DATA, warm_up="lines"),
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("data") / "data.c"
    source.write_text(SOURCE)
    return build_program([source], ["-O1"]).elf_path


def trace(
    program: Path, way: str, settings: TracerSettings, config: MachineConfig = MACHINE, **options: Any
) -> list[Interval]:
    core = InOrderCore(config, 1)

    def make() -> Machine:
        return Machine(program.read_bytes(), background=False, **options)

    if way.startswith("two runs"):
        return trace_in_two_runs(make, core, settings, 1)
    with make() as machine:
        tracer = (RollBackTracer if settings.roll_back else Tracer)(machine, core, settings)
        return tracer.reestimated(list(tracer.intervals()))


TRACES: dict[tuple[object, ...], list[Interval]] = {}


def traced(program: Path, way: str, settings: TracerSettings, config: MachineConfig = MACHINE) -> list[Interval]:
    """What `trace` gives, made once for all tests, whose events none can change."""
    key = program, way, settings, config.model_dump_json()
    if key not in TRACES:
        TRACES[key] = trace(program, way, settings, config)
        for one in TRACES[key]:
            one.events.flags.writeable = False
    return TRACES[key]


@pytest.fixture(scope="module")
def full(program: Path) -> list[Interval]:
    return traced(program, "full", replace(CODE, everything=True))


def deviation(full: list[Interval], found: list[Interval]) -> float:
    compared = deviations(table_of(full), table_of(found)).set_index("metric")
    return float(compared["deviation_percent"]["cpi"])


def test_code_alone_cannot_tell_the_data_apart(program: Path, full: list[Interval]) -> None:
    assert deviation(full, traced(program, "predicting", CODE)) > 15
    assert deviation(full, traced(program, "two runs", CODE)) > 15


@pytest.mark.parametrize("way", list(WAYS))
def test_waiting_for_memory_tells_it_apart(program: Path, full: list[Interval], way: str) -> None:
    found = traced(program, way, WAYS[way])
    assert [one.end_instructions for one in found] == [one.end_instructions for one in full]
    assert deviation(full, found) < 8  # 4 to 7, by where the guest's stack lies
    simulated = [one for one in found if one.category is Category.SIMULATED]
    assert len(simulated) < 0.4 * len(found)
    for one in simulated:
        assert one.source == one.number
    if "predicting" not in way:
        assert not [one for one in found if one.category is Category.UNSAMPLED]


@pytest.mark.parametrize("way", ["rolling back", "rolling back, lines", "predicting, lines", "two runs, lines"])
def test_a_trace_does_not_depend_on_translations(program: Path, way: str) -> None:
    def events(**options: Any) -> list[object]:
        return [(one.phase, one.source, repr(one.events.tolist())) for one in trace(program, way, WAYS[way], **options)]

    assert events(optimise_executions=4) == events(templates=False, optimise_executions=1 << 30)


@pytest.mark.parametrize("way", list(WAYS))
def test_misses_of_every_interval_are_counted(program: Path, full: list[Interval], way: str) -> None:
    found = traced(program, way, WAYS[way])
    estimated = np.array([one.category is not Category.SIMULATED for one in found])
    for event in (Event.L1D_MISSES, Event.L1D_WRITEBACKS, Event.DTLB_MISSES, Event.L1I_MISSES, Event.MEMORY_READS):
        counted, truth = (np.array([one.events[event] for one in of])[estimated] for of in (found, full))
        # Full simulation fetches the block that begins an interval in that interval; fast execution may before it.
        assert np.abs(counted - truth).max() <= 2, event


def test_lines_hold_what_the_caches_would_hold(program: Path, full: list[Interval]) -> None:
    """With no reference to warm up with, the first loads of a sample miss as if all had been simulated."""
    nothing = replace(DATA, warm_references=0, warm_branches=0)
    cold = traced(program, "two runs", nothing)
    warm = traced(program, "two runs, lines", replace(nothing, warm_up="lines"))

    def missed(found: list[Interval]) -> float:
        table, truth = table_of(found), table_of(full)
        mine = (table["category"] == "simulated").to_numpy()
        apart = (table["l1d_misses"] - truth["l1d_misses"]).abs()[mine].sum()
        return float(apart / truth["l1d_misses"][mine].sum())

    assert missed(warm) < 0.02
    assert missed(warm) < 0.2 * missed(cold)


def test_what_is_simulated_is_simulated_as_in_full(program: Path, full: list[Interval]) -> None:
    for way in ("rolling back, lines", "two runs, lines"):
        for one in traced(program, way, WAYS[way])[:-1]:
            if one.category is Category.SIMULATED:
                truth = full[one.number].events
                assert (np.abs(one.events - truth) <= 0.04 * np.maximum(truth, one.instructions)).all()


@pytest.mark.parametrize("way", list(WAYS))
def test_what_follows_from_the_blocks_is_not_estimated(program: Path, full: list[Interval], way: str) -> None:
    estimated = [one for one in traced(program, way, WAYS[way]) if one.source >= 0]
    assert estimated
    for one in estimated:
        truth = full[one.number].events[FIRST_STATIC:FIRST_DYNAMIC]
        assert one.events[FIRST_STATIC:FIRST_DYNAMIC] == pytest.approx(truth)


@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.parametrize("with_l2", [False, True])
def test_estimated_events_fit_together_as_those_of_a_simulation_do(program: Path, way: str, with_l2: bool) -> None:
    """Cycles are instructions and stalls where one issues a cycle; what misses goes to the next level. Limits that each
    event keeps on its own leave a little."""
    config = small_caches("lru") if with_l2 else MACHINE
    for one in traced(program, way, WAYS[way], config):
        if np.isnan(one.events).any():
            continue
        events = one.events
        missed = events[Event.L1I_MISSES] + events[Event.L1D_MISSES]
        if with_l2:
            assert events[Event.L2_ACCESSES] == pytest.approx(missed, rel=0.005)
            assert events[Event.MEMORY_READS] == pytest.approx(events[Event.L2_MISSES], rel=0.005)
        else:
            worked = events[Event.INSTRUCTIONS] + events[Event.STALL_CYCLES]
            assert events[Event.CYCLES] == pytest.approx(worked, rel=0.005)
            assert events[Event.MEMORY_READS] == pytest.approx(missed, rel=0.005)
            assert events[Event.MEMORY_WRITES] == pytest.approx(events[Event.L1D_WRITEBACKS], rel=0.005)


def small_caches(policy: str) -> MachineConfig:
    """The desktop machine with caches that the program does not fit into, of one replacement policy."""
    desktop = load_machine(Path(__file__).parents[3] / "configs" / "machines" / "desktop.yaml")
    assert desktop.l2 is not None
    changed = {
        "l1i": desktop.l1i.model_copy(update={"replacement": policy}),
        "l1d": desktop.l1d.model_copy(update={"replacement": policy, "size_bytes": 8192}),
        "l2": desktop.l2.model_copy(update={"replacement": policy, "size_bytes": 65536}),
    }
    return desktop.model_copy(update=changed)


@pytest.fixture(scope="module", params=["lru", "fifo", "random"])
def by_policy(request: pytest.FixtureRequest, program: Path) -> tuple[MachineConfig, list[Interval]]:
    config = small_caches(request.param)
    return config, traced(program, "full", replace(CODE, everything=True), config)


@pytest.mark.parametrize("way", ["predicting, lines", "two runs, lines"])
def test_what_is_simulated_is_not_biased(
    program: Path, by_policy: tuple[MachineConfig, list[Interval]], way: str
) -> None:
    """Caches begin with what each replacement policy would hold: CPI of all simulated intervals together within 1.2%,
    energy within 1.2%, too. Intervals are short, so that what they begin with weighs much more than in use."""
    config, full = by_policy
    settings = replace(WAYS[way], warm_branches=1_000, wait_step=0.02)
    found = [one for one in traced(program, way, settings, config) if one.category is Category.SIMULATED]
    assert len(found) > 20
    events = np.sum([one.events for one in found], axis=0)
    truth = np.sum([full[one.number].events for one in found], axis=0)
    assert config.energy is not None
    energy = config.energy.picojoules()
    assert events[Event.CYCLES] == pytest.approx(truth[Event.CYCLES], rel=0.012)
    assert events @ energy == pytest.approx(truth @ energy, rel=0.012)


@pytest.mark.parametrize("way", ["predicting, lines", "rolling back, lines", "two runs, lines"])
def test_fifo_caches_miss_what_they_miss_in_full_simulation(program: Path, way: str) -> None:
    """They are kept up to date while nothing is simulated, so that there is nothing to warm up."""
    config = small_caches("fifo")
    full = traced(program, "full", replace(CODE, everything=True), config)
    settings = replace(WAYS[way], warm_branches=1_000, wait_step=0.02)
    found = [one for one in traced(program, way, settings, config) if one.category is Category.SIMULATED]
    assert 20 < len(found) < len(full) / 2
    for event in (Event.L1D_MISSES, Event.L1I_MISSES, Event.L2_MISSES, Event.L1D_WRITEBACKS, Event.L2_WRITEBACKS):
        misses, truth = (np.array([one.events[event] for one in of]) for of in (found, [full[n.number] for n in found]))
        assert misses == pytest.approx(truth, abs=1e-6), event
        assert truth.any() or event not in (Event.L1D_MISSES, Event.L2_MISSES)


def test_samples_that_come_later_count(program: Path) -> None:
    """An interval before the first sample of its kind has an estimate from it at the end."""
    with Machine(program.read_bytes(), background=False) as machine:
        tracer = Tracer(machine, InOrderCore(MACHINE, 1), WAYS["predicting, lines"])
        found = list(tracer.intervals())
        reestimated = tracer.reestimated(found)
    assert any(np.isnan(one.events).any() for one in found)
    assert not any(np.isnan(one.events).any() for one in reestimated)
    for one, after in zip(found, reestimated, strict=True):
        assert (one.number, one.category, one.phase) == (after.number, after.category, after.phase)
        if one.category is Category.SIMULATED:
            assert after is one
    assert any(one.source != after.source for one, after in zip(found, reestimated, strict=True))


# The same loop over lines that stay in the cache and over lines that do not.
LINES = """
static volatile char data[1 << 20];
int main(void) {
  for (int round = 0; round < 33; round++) {
    volatile long wanted = round % 2 ? 64 : 1 << 14;
    long lines = wanted;
    for (long i = 0; i < 60000; i++) data[(i & (lines - 1)) * 32];
  }
  return 0;
}
"""


@pytest.fixture
def without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Misses count as no waiting, so that neither code nor waiting tells intervals with them from others."""
    for module in (tracer, rerun):
        monkeypatch.setattr(module, "wait_cycles", lambda config: 0 * wait_cycles(config))


@pytest.mark.usefixtures("without_waiting")
def test_a_phase_that_its_samples_do_not_explain_is_sampled_more_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lines.c").write_text(LINES)
    program = build_program([tmp_path / "lines.c"], ["-O1"]).elf_path
    settings = replace(DATA, warm_up="lines")
    full = traced(program, "full", replace(settings, everything=True))
    cycles = np.array([one.events[Event.CYCLES] / one.instructions for one in full])
    assert cycles.max() > 3 * cycles.min()

    def off_and_simulated() -> tuple[float, int]:
        """The share of intervals that are far off, and how many are simulated."""
        found = trace(program, "predicting, lines", settings)
        estimated = np.array([one.events[Event.CYCLES] / one.instructions for one in found])
        return float((np.abs(estimated / cycles - 1) > 0.2).mean()), sum(
            one.category is Category.SIMULATED for one in found
        )

    off, simulated = off_and_simulated()
    monkeypatch.setattr(Samples, "relative_error", lambda *arguments: 0.0)
    off_before, simulated_before = off_and_simulated()
    assert off < 0.75 * off_before  # the rest is at the changes between the two
    assert simulated_before < simulated < 0.2 * len(full)


@pytest.mark.parametrize("is_explained", [True, False])
def test_intervals_that_are_sampled_again_tell_how_far_off_estimates_are(
    tmp_path: Path, is_explained: bool, request: pytest.FixtureRequest
) -> None:
    """Without a full simulation: what code and data explain well, or code alone not at all."""
    (tmp_path / "lines.c").write_text(LINES)
    program = build_program([tmp_path / "lines.c"], ["-O1"]).elf_path
    settings = replace(DATA, warm_up="lines")
    if not is_explained:
        request.getfixturevalue("without_waiting")

    def make() -> Machine:
        return Machine(program.read_bytes(), background=False)

    with make() as machine:
        traced_once = Tracer(machine, InOrderCore(MACHINE, 1), settings)
        for _ in traced_once.intervals():
            pass
    with make() as machine:
        first_run = profile(machine, InOrderCore(MACHINE, 1), settings)
    with make() as machine:
        second_run = trace_second_run(machine, InOrderCore(MACHINE, 1), settings, first_run, 1)
    simulated = [one.number for one in second_run.intervals if one.category is Category.SIMULATED]
    assert len(simulated) > len(second_run.checks) == min(CHECKS, len(second_run.intervals) // 50)
    assert len(traced_once.sampled_again) >= 4
    for errors in (traced_once.sampled_again, second_run.checks):
        assert np.mean(errors) < 0.05 if is_explained else np.mean(errors) > 0.2


@given(st.sets(st.integers(0, 2000)), st.integers(0, 2000))
def test_checks_are_spread_over_the_run_beside_samples(chosen: set[int], n: int) -> None:
    chosen = {number for number in chosen if number < n}
    found = checks_beside(chosen, n)
    assert not chosen.intersection(found)
    assert len(found) == len(set(found)) == min(CHECKS, n // 50, n - len(chosen))
    others = [number for number in range(n) if number not in chosen]
    for place, number in enumerate(found):
        assert abs(others.index(number) / len(others) - (place + 0.5) / len(found)) <= 0.5 / len(found) + 0.1


@pytest.mark.parametrize("unsampled", ["none", "last", "closest"])
def test_events_that_are_estimated_at_the_end_alone_are_the_same(program: Path, unsampled: str) -> None:
    settings = replace(DATA, warm_up="lines", unsampled=unsampled)  # type: ignore[arg-type]
    expected = traced(program, "predicting", settings)
    with Machine(program.read_bytes(), background=False) as machine:
        tracer = Tracer(machine, InOrderCore(MACHINE, 1), settings, defer_estimates=True)
        found = list(tracer.intervals())
        of_others = [one for one in found if one.category is not Category.SIMULATED]
        assert of_others
        assert all(np.isnan(one.events).all() for one in of_others)
        reestimated = tracer.reestimated(found)
    assert [(i.category, i.source) for i in reestimated] == [(i.category, i.source) for i in expected]
    np.testing.assert_array_equal([i.events for i in reestimated], [i.events for i in expected])
