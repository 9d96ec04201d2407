"""The benchmark of tracing: every way runs and sees every instruction; what is said of the bars."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from emulator.machine import Machine
from experiments.benchmarks import process_speed, tracing_speed
from experiments.benchmarks.tracing_speed import (
    HELD_OUT,
    RARE_EVENTS,
    WAYS,
    Guest,
    rare_place,
    ratio_of_slices,
    run,
    side_by_side,
    table,
)
from instrumenter.building.program_build import build_program

GUEST = """
#include <stdio.h>
volatile long data[512];
__attribute__((noinline)) void seldom(long n) { data[n & 511] = n; }
int main(void) {
  unsigned long s = 1;
  for (long k = 0; k < 1900; k++) {
    for (long i = 0; i < 30; i++) s += data[s & 511] += s ^ i;
    seldom(k);
  }
  return (int)(s & 0);
}
"""


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Guest:
    source = tmp_path_factory.mktemp("tracing") / "guest.c"
    source.write_text(GUEST)
    return Guest(str(build_program([source], ["-O1"]).elf_path), ["x"], ["x"])


def test_the_rare_place_is_met_about_as_often_as_wanted(guest: Guest) -> None:
    told = run("rare", guest, ["x"], rare_place(guest))
    assert told["events"] == pytest.approx(RARE_EVENTS, rel=0.1)


@pytest.mark.parametrize("way", [way for way in WAYS if way != "rare"])
def test_every_way_sees_the_whole_program(guest: Guest, way: str) -> None:
    with Machine(guest.program, ["x"]) as machine:
        machine.run()
        expected = machine.instructions
    told = run(way, guest, ["x"], 0)
    assert told["instructions"] == expected
    assert told["seconds"] > 0
    assert told["events"] == 0


def test_a_guest_reads_its_standard_input(tmp_path: Path) -> None:
    source, given = tmp_path / "guest.c", tmp_path / "given"
    source.write_text("#include <stdio.h>\nint main(void) { int n = 0; while (getchar() != EOF) n++; return n; }")
    given.write_bytes(b"abcd" * 1000)
    program = str(build_program([source], ["-O1"]).elf_path)
    with_input, without = (run("counting", Guest(program, [], [], stdin), [], 0) for stdin in (str(given), None))
    assert with_input["instructions"] > without["instructions"] + 4000


def test_held_out_programs_are_those_of_the_process_benchmark() -> None:
    assert set(HELD_OUT) == set(process_speed.SETS["held out"])


def test_one_that_misses_events_is_found_out(guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing_speed.Columns, "selection", "class=memory fields=pc,address")
    with pytest.raises(SystemExit, match=r"columns: \d+ events of \d+ instructions"):
        run("columns", guest, ["x"], 0)


def test_ways_run_side_by_side_to_the_end(guest: Guest) -> None:
    alone = run("untraced", guest, ["x"], 0)
    told = side_by_side(["untraced", "counting", "bbv"], guest, 0, 2)
    assert [one["instructions"] for one in told.values()] == [alone["instructions"]] * 3
    assert all(one["seconds"] > 0 for one in told.values())


def test_a_machine_that_gets_slower_for_a_while_leaves_ratios_of_slices_alone() -> None:
    generator = np.random.default_rng(1)
    costs, factors = generator.uniform(1, 5, 20), generator.uniform(1, 1.3, 20)
    speeds = np.where(generator.random((9, 20)) < 0.4, 2.0, 1.0)  # of the machine, while a pair of slices runs
    base, other = costs * speeds, costs * factors * speeds
    other[0, 3] *= 7  # once, only one of the two is disturbed
    assert ratio_of_slices(base, other) == pytest.approx((costs * factors).sum() / costs.sum(), rel=0.03)
    assert ratio_of_slices(base, base) == 1


def test_what_is_said_of_the_bars() -> None:
    found = {
        "untraced": {"seconds": 1.0, "instructions": 2e8}, "counting": {"seconds": 1.04, "instructions": 2e8},
        "bbv": {"seconds": 1.2, "instructions": 2e8}, "caches": {"seconds": 4.0, "instructions": 2e8},
        "rare": {"seconds": 1.5, "instructions": 2e8, "events": 2000},
    }  # fmt: skip
    lines = list(table({"one": found, "two": found}))
    assert "| one | 1.04 | 1.20 | 4.00 | 1.50 | 50 | - | 250 |" in lines
    assert "- counting: 1.04, at most 1.05 wanted: met" in lines
    assert "- bbv: 1.20, at most 1.1 wanted: NOT MET" in lines
    assert "- caches: 50 M instructions/s, at least 100 wanted: NOT MET" in lines
