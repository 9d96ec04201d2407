"""Records of cycles have the length that was asked for, whatever the program's phases."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from emulator.linux.vfs.files import VirtualFiles
from emulator.machine import Machine
from emulator.pmu import Pmu
from emulator.sampling import Samples, sample_ideal
from emulator.timing.inorder import InOrderCore
from emulator.timing.machine_file import load_machine
from instrumenter.building.program_build import build_program

MACHINES = Path(__file__).parents[3] / "configs" / "machines"
# Divisions take thirty times as long as what is between them, and each list element is in a cache line of its own.
PROGRAM = """\
#include <stdlib.h>
struct element { struct element *next; char rest[120]; };
volatile double sum;
int main(void) {
    int n = 20000;
    struct element *all = malloc(n * sizeof *all);
    for (int i = 0; i < n; i++) all[i].next = &all[(i * 7919L + 1) % n];
    for (int round = 0; round < 12; round++) {
        for (int i = 0; i < 1500; i++) { double t = i; sum += 1 / (t + 1) + 2 / (t + 2); }
        for (long i = 0; i < 30000; i++) sum += 1;
        struct element *at = all;
        for (int i = 0; i < 3000; i++) at = at->next;
        sum += at == all;
    }
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(PROGRAM, tmp_path_factory.mktemp("slow-phases"))


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(PROGRAM.replace("round < 12", "round < 1"), tmp_path_factory.mktemp("short"))


def built(text: str, folder: Path) -> Path:
    (folder / "phases.c").write_text(text)
    return build_program([folder / "phases.c"], ["-O2"]).elf_path


def samples_of(program: Path, machine_file: str, every: int) -> Samples:
    core = InOrderCore(load_machine(MACHINES / machine_file), seed=1)
    pmu = Pmu(core, ["PAPI_TOT_INS"])
    with Machine(program, files=VirtualFiles(), core=core, counters=pmu) as machine:
        return sample_ideal(machine, pmu, every, "cycles")


@pytest.mark.parametrize("machine_file", ["desktop.yaml", "strongarm.yaml"])
@pytest.mark.parametrize("every", [5_000, 30_000])
def test_records_have_their_length_in_slow_phases_too(program: Path, machine_file: str, every: int) -> None:
    # Steps were as long as the mean of the run: a third of such records were empty or twice as long.
    samples = samples_of(program, machine_file, every)
    lengths = np.diff(samples.boundaries_cycles)
    assert len(lengths) > 100
    assert np.mean(np.abs(lengths / every - 1) > 0.1) < 0.12  # the first of each phase
    assert (samples.hardware > 0).all()


@pytest.mark.parametrize("machine_file", ["desktop.yaml", "strongarm.yaml"])
@pytest.mark.parametrize("phase", [0.0, 0.05, 0.6])
def test_the_first_record_begins_in_time(short: Path, machine_file: str, phase: float) -> None:
    """Caches are empty then: the first instructions were taken for a cycle each, and took ten and more."""
    core = InOrderCore(load_machine(MACHINES / machine_file), seed=1)
    pmu = Pmu(core, ["PAPI_TOT_INS"])
    with Machine(short, files=VirtualFiles(), core=core, counters=pmu) as machine:
        samples = sample_ideal(machine, pmu, 40_000, "cycles", phase=phase)
    begin, end = samples.boundaries_cycles[:2]
    assert end - begin == pytest.approx(40_000, rel=0.1)
    assert begin == pytest.approx(phase * 40_000, abs=4_000)


def test_no_record_is_empty_where_a_block_is_longer_than_a_record(short: Path) -> None:
    samples = samples_of(short, "desktop.yaml", 20)
    lengths = np.diff(samples.boundaries_cycles)
    assert (lengths > 0).all()
    assert (samples.hardware > 0).all()
