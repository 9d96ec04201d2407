"""Cycle-close traces on a machine whose large branch predictor is kept up to date, against full simulation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from emulator.machine import Machine
from emulator.timing.inorder import InOrderCore
from emulator.timing.machine_config import MachineConfig
from emulator.timing.machine_events import N_EVENTS, Event
from emulator.timing.machine_file import load_machine
from instrumenter.building.program_build import build_program
from measure.cycle_close.estimated_events import with_mispredictions
from measure.cycle_close.live_counts import UNKNOWN, known_penalty_cycles
from measure.cycle_close.rerun import trace_in_two_runs
from measure.cycle_close.rollback import RollBackTracer
from measure.cycle_close.samples import Sample, Samples
from measure.cycle_close.tracer import Category, Interval, Tracer, TracerSettings

DESKTOP = load_machine(Path(__file__).parents[3] / "configs" / "machines" / "desktop.yaml")
DEEP = DESKTOP.model_copy(
    update={
        "branch_predictor": DESKTOP.branch_predictor.model_copy(update={"entries": 16384, "history_bits": 14}),
        "pipeline": DESKTOP.pipeline.model_copy(update={"mispredict_penalty_cycles": 12}),
    }
)
# One loop, whose branch is ever harder to predict, and easier again: phases of code and of waiting see one phase.
SOURCE = """
#include <stdio.h>
int main(void) {
  unsigned long s = 1, state = 88172645463325252ul;
  for (int round = 0; round < 24; round++) {
    unsigned long mask = (1ul << (round * 5 % 12)) - 1;
    for (long i = 0; i < 12000; i++) {
      state ^= state << 13; state ^= state >> 7; state ^= state << 17;
      if ((state & mask) == 0) s += i; else s ^= state;
    }
  }
  printf("%lu\\n", s);
  return 0;
}
"""
SETTINGS = TracerSettings(10_000, warm_up="lines", wait_step=0.2, unsampled="closest")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("branches") / "branches.c"
    source.write_text(SOURCE)
    return build_program([source], ["-O1"]).elf_path


def traced(program: Path, way: str, config: MachineConfig = DEEP) -> list[Interval]:
    core = InOrderCore(config, 1)

    def make() -> Machine:
        return Machine(program.read_bytes(), background=False)

    if way == "two runs":
        return trace_in_two_runs(make, core, SETTINGS, 1)
    settings = replace(SETTINGS, everything=way == "full", roll_back=way == "rolling back")
    with make() as machine:
        tracer = (RollBackTracer if settings.roll_back else Tracer)(machine, core, settings)
        return tracer.reestimated(list(tracer.intervals()))


@pytest.fixture(scope="module")
def full(program: Path) -> list[Interval]:
    return traced(program, "full")


def of(intervals: list[Interval], event: Event) -> np.ndarray:
    return np.array([interval.events[event] for interval in intervals])


@pytest.mark.parametrize("kind", ["backward_taken", "not_taken"])
@pytest.mark.parametrize("way", ["predicting", "rolling back", "two runs"])
def test_mispredictions_of_a_static_predictor_are_counted_too(program: Path, way: str, kind: str) -> None:
    """They were estimated: on one machine a trace had 74% too few."""
    config = DEEP.model_copy(update={"branch_predictor": DEEP.branch_predictor.model_copy(update={"kind": kind})})
    found, full = traced(program, way, config), traced(program, "full", config)
    actual, known = of(full, Event.BRANCHES_MISPREDICTED), of(found, Event.BRANCHES_MISPREDICTED)
    assert actual.max() > 100
    assert np.abs(known - actual).max() < 1e-6
    assert np.mean([interval.category is not Category.SIMULATED for interval in found]) > 0.7


@pytest.mark.parametrize("way", ["predicting", "rolling back", "two runs"])
def test_every_interval_has_its_own_mispredictions_and_their_cycles(
    program: Path, full: list[Interval], way: str
) -> None:
    found = traced(program, way)
    assert [interval.end_instructions for interval in found] == [interval.end_instructions for interval in full]
    actual, known = of(full, Event.BRANCHES_MISPREDICTED), of(found, Event.BRANCHES_MISPREDICTED)
    assert actual.max() > 5 * np.median(actual) + 100
    assert np.abs(known - actual).max() < 1e-6
    estimated = np.array([interval.category is not Category.SIMULATED for interval in found])
    assert estimated.mean() > 0.7
    deviation = np.abs(of(found, Event.CYCLES) / of(full, Event.CYCLES) - 1)
    assert deviation.mean() < 0.03


def test_estimates_get_the_mispredictions_that_are_known() -> None:
    events = np.ones((3, N_EVENTS)) * 10
    changed = with_mispredictions(events, np.array([12.0, np.nan, 9.0]), DEEP)
    assert changed[:, Event.BRANCHES_MISPREDICTED].tolist() == [12, 10, 9]
    for event in (Event.CYCLES, Event.STALL_CYCLES, Event.FRONTEND_STALL_CYCLES):
        assert changed[:, event].tolist() == [10 + 24, 10, 10 - 12]
    assert changed[:, Event.INSTRUCTIONS].tolist() == [10, 10, 10]
    assert with_mispredictions(events[0], np.full((), np.nan), DEEP) is events[0] or (events == 10).all()
    assert known_penalty_cycles(np.zeros(1, np.int64), DEEP) == 12
    assert known_penalty_cycles(UNKNOWN, DEEP) == 0


def test_an_estimate_is_not_bad_for_mispredictions_that_are_known() -> None:
    samples, share = Samples(4, 0.1, 0.2), np.full(4, 0.25)
    one, other = np.zeros(N_EVENTS), np.zeros(N_EVENTS)
    one[Event.CYCLES], one[Event.BRANCHES_MISPREDICTED] = 1.0, 0.01
    other[Event.CYCLES], other[Event.BRANCHES_MISPREDICTED] = 1.24, 0.03
    samples.add(Sample(0, one), share, 0.0)
    assert samples.relative_error(Sample(1, other), share, 0.0) == pytest.approx(0.24 / 1.24)
    assert samples.relative_error(Sample(1, other), share, 0.0, 12) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("write_policy", "has_l2"), [("write_back", True), ("write_through", True), ("write_through", False)]
)
def test_what_stores_write_to_memory_is_counted(program: Path, write_policy: str, has_l2: bool) -> None:
    l1d = DESKTOP.l1d.model_copy(update={"write_policy": write_policy})
    config = DESKTOP.model_copy(update={"l1d": l1d} | ({} if has_l2 else {"l2": None}))
    for event in (Event.MEMORY_WRITES, Event.L2_WRITEBACKS, Event.L1D_MISSES):
        full, found = (of(traced(program, way, config), event) for way in ("full", "predicting"))
        assert found.sum() == pytest.approx(full.sum(), abs=3), event.name


# One loop, of which first the loads miss, and then the stores, as often.
STORES = """
#include <stdio.h>
long a[1 << 15], b[1 << 15], i, j;
long loop(long n, long load_step, long store_step, long x) {
  while (n--) {
    x += a[i];
    __asm__ volatile(".rept 190\\n addi %0, %0, 1\\n.endr" : "+r"(x));
    b[j] = x;
    i += load_step; j += store_step;
  }
  return x;
}
int main(void) {
  long x = 0;
  for (int round = 0; round < 40; round++) x = loop(50, round < 26 ? 8 : 0, round < 26 ? 0 : 8, x);
  printf("%ld\\n", x);
  return 0;
}
"""


@pytest.mark.parametrize(
    ("outstanding", "write_allocate", "has_l2"), [(1, True, True), (4, True, False), (1, False, False), (0, True, True)]
)
def test_stores_that_miss_are_told_from_loads(
    tmp_path: Path, outstanding: int, write_allocate: bool, has_l2: bool
) -> None:
    """They hold an MSHR at most, and nothing waits for what they write: estimates were 30% off."""
    (tmp_path / "stores.c").write_text(STORES)
    program = build_program([tmp_path / "stores.c"], ["-O1"]).elf_path
    update = {
        "l1d": DESKTOP.l1d.model_copy(update={"write_allocate": write_allocate}),
        "pipeline": DESKTOP.pipeline.model_copy(update={"outstanding_misses": outstanding}),
    }
    config = DESKTOP.model_copy(update=update | ({} if has_l2 else {"l2": None}))
    full, found = traced(program, "full", config), traced(program, "predicting", config)
    deviation = np.abs(of(found, Event.CYCLES) / of(full, Event.CYCLES) - 1)
    assert np.mean([interval.category is not Category.SIMULATED for interval in found]) > 0.6
    assert deviation.mean() < 0.02
