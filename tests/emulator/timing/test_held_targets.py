"""Targets of indirect transfers that fast execution looks up, against those of full simulation, in every tier."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.events import TraceSelection
from emulator.machine import Machine
from emulator.timing.inorder import InOrderCore
from emulator.timing.machine_events import Event
from emulator.timing.machine_file import load_machine
from instrumenter.building.program_build import build_program
from tests.emulator.timing.tiers import TIERS

SOURCE = """
typedef long step(long);
#define STEP(n) __attribute__((noinline)) static long s##n(long x) { return x * (2 * n + 1) + n; }
STEP(0) STEP(1) STEP(2) STEP(3)
static step *volatile steps[4] = {s0, s1, s2, s3};
int main(void) {
  long x = 1;
  for (long i = 0; i < 600; i++) x = steps[i / 50 & 3](x);
  for (long i = 0; i < 600; i++) x = steps[i & 3](x);
  return x == 5;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("targets") / "targets.c"
    source.write_text(SOURCE)
    return build_program([source], ["-O1"]).elf_path


@pytest.mark.parametrize("tier", list(TIERS))
def test_they_are_mispredicted_as_often_as_in_full_simulation(program: Path, tier: str) -> None:
    machine = Path(__file__).parents[3] / "configs" / "machines" / "strongarm.yaml"
    config = load_machine(machine, ["branch_predictor.return_stack_entries=64"])
    core = InOrderCore(config, 1)
    with Machine(program, consumers=[core]) as guest:
        guest.run()
    with Machine(program, **TIERS[tier]) as guest:
        held = guest.hold_targets(config.branch_predictor.btb_entries)
        guest.observe(TraceSelection(inline=(held.call,)))
        guest.run()
        found = int(held.mispredicted[0])
    assert found > 600  # by turns each goes elsewhere than last
    assert found == pytest.approx(int(core.counters[Event.TARGETS_MISPREDICTED]), abs=12)
