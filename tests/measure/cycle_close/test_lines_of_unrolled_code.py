"""Sampled intervals begin with the lines that unrolled code and the stack have left in the cache."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from emulator.machine import Machine
from emulator.timing.inorder import InOrderCore
from emulator.timing.machine_events import Event
from emulator.timing.machine_file import load_machine
from instrumenter.building.program_build import build_program
from measure.cycle_close.rerun import trace_in_two_runs
from measure.cycle_close.tracer import Category, Interval, Tracer, TracerSettings

MACHINE = load_machine(Path(__file__).parents[3] / "configs" / "machines" / "strongarm.yaml")
# Eight phases of code of their own, each with sixteen loads from one register a turn, over one of two arrays of 12 KiB,
# of which the first-level cache of 16 KiB holds one; and a frame with lines that only the stack pointer leads to.
SOURCE = """
#include <stdio.h>
static unsigned long data[2][1536];
#define WALK(NAME, OP, BY) \\
  static __attribute__((noinline)) unsigned long NAME(const unsigned long *p, unsigned long s) { \\
    volatile unsigned long here[256]; \\
    here[1] = s; here[60] = s; here[120] = s; here[180] = s; here[240] = s; \\
    for (const unsigned long *end = p + 1536; p < end; p += 16) \\
      s = s * BY + (p[0] OP p[1] OP p[2] OP p[3] OP p[4] OP p[5] OP p[6] OP p[7] OP \\
                    p[8] OP p[9] OP p[10] OP p[11] OP p[12] OP p[13] OP p[14] OP p[15]); \\
    return s + here[1] + here[60] + here[120] + here[180] + here[240]; \\
  }
WALK(w0, +, 3) WALK(w1, ^, 5) WALK(w2, |, 7) WALK(w3, &, 9) WALK(w4, -, 11) WALK(w5, *, 13)
WALK(w6, +, 17) WALK(w7, ^, 19)
static unsigned long (*const walks[])(const unsigned long *, unsigned long) = {w0, w1, w2, w3, w4, w5, w6, w7};
int main(void) {
  unsigned long s = 1;
  for (int phase = 0; phase < 48; phase++)
    for (int k = 0; k < 14; k++)
      s += walks[phase * 5 % 8](data[phase & 1], s);
  printf("%lu\\n", s);
  return 0;
}
"""
SETTINGS = TracerSettings(interval_instructions=10_000, warm_up="lines", wait_step=0.05)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("unrolled") / "unrolled.c"
    source.write_text(SOURCE)
    return build_program([source], ["-O2"]).elf_path


def trace(program: Path, settings: TracerSettings, runs: int) -> list[Interval]:
    def make() -> Machine:
        return Machine(program.read_bytes(), background=False)

    core = InOrderCore(MACHINE, 1)
    if runs == 2:
        return trace_in_two_runs(make, core, settings, 1)
    with make() as machine:
        return list(Tracer(machine, core, settings).intervals())


@pytest.mark.parametrize("runs", [1, 2])
def test_samples_miss_what_they_miss_in_full_simulation(program: Path, runs: int) -> None:
    full = trace(program, TracerSettings(interval_instructions=10_000, everything=True), 1)
    found = [one for one in trace(program, SETTINGS, runs)[1:-1] if one.category is Category.SIMULATED]
    assert 5 < len(found) < 0.5 * len(full)
    true = [full[one.number] for one in found]
    misses, truth = (np.array([one.events[Event.L1D_MISSES] for one in of]) for of in (found, true))
    assert np.abs(misses - truth).max() <= 6
