"""Counterfactual runs of a real guest: both engines give the same counters, whatever the intervention."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from emulator.counterfactual.core import CounterfactualCore, CounterfactualSettings
from emulator.counterfactual.progress_sampling import sample_by_progress
from emulator.counterfactual.range_accesses import RangeAccesses
from emulator.counterfactual.served_instructions import served_instructions
from emulator.linux.kernel import scheduler
from emulator.linux.vfs.files import VirtualFiles
from emulator.machine import Machine
from emulator.pmu import Pmu
from emulator.timing.inorder import InOrderCore
from emulator.timing.machine_events import Event
from emulator.timing.machine_file import load_machine
from instrumenter.building.program_build import Build, build_program
from instrumenter.spec.software_metrics import MetricSpec

DESKTOP = Path(__file__).parents[3] / "configs" / "machines" / "desktop.yaml"
PROGRAM = """
static unsigned table[512];
static unsigned step(unsigned x) { for (int k = 0; k < 9; k++) { table[x % 512] += k; x = x * 5 + 1; } return x; }
int main(void) { unsigned x = 1; for (int n = 0; n < 150; n++) x = step(x); return x == 77; }
"""
THREADS = """
#include <pthread.h>
#include <stdio.h>
static volatile long last;
static long log_[64];
static volatile int entries;
static unsigned step(unsigned x) { return x * 5 + 1; }
static void *turn(void *who) {
    unsigned x = 1;
    for (long n = 0; n < 20000; n++) {
        x = step(x);
        if (last != (long)who && entries < 64) { last = (long)who; log_[entries] = n; entries = entries + 1; }
    }
    return (void *)(long)(x == 77);
}
int main(void) {
    pthread_t one, two;
    pthread_create(&one, 0, turn, (void *)1);
    pthread_create(&two, 0, turn, (void *)2);
    pthread_join(one, 0);
    pthread_join(two, 0);
    for (int n = 0; n < entries; n++) printf("%ld ", log_[n]);
}
"""
"""Prints in which turn of its loop each of two threads was after each switch."""


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    source = tmp_path_factory.mktemp("counted") / "counted.c"
    source.write_text(PROGRAM)
    return build_program([source], metrics={"turns": MetricSpec(event="loop", function="step")})


def counter_instructions(build: Build) -> tuple[int, ...]:
    with Machine(build.elf_path, files=VirtualFiles(), background=False) as machine:
        symbol = machine.image.find_symbol("__measure_counters")
        assert symbol is not None
        accesses = RangeAccesses([(symbol.address, symbol.address + 8)])
        machine.observe(accesses.selection, [accesses])
        machine.run()
        machine.drain()
        code = {segment.address: bytes(segment.data) for segment in machine.image.segments}
        functions = [
            (one.address, one.address + one.size_bytes) for one in machine.image.symbols if one.is_function
        ]  # fmt: skip

    def read(address: int, size: int) -> bytes:
        start = max(at for at in code if at <= address)
        return code[start][address - start : address - start + size]

    return tuple(sorted(served_instructions(read, functions, accesses.only_inside())))


def run(build: Build, settings: CounterfactualSettings | None, engine: str) -> tuple[list[int], int]:
    """All counters of a run, and the program's progress."""
    core = InOrderCore(load_machine(DESKTOP), seed=4)
    observed = core if settings is None else CounterfactualCore(core, settings)
    with Machine(
        build.elf_path, files=VirtualFiles(), core=observed, engine=engine, background=False
    ) as machine:  # fmt: skip
        machine.run()
    return core.counters.tolist(), observed.progress if isinstance(observed, CounterfactualCore) else 0


@pytest.mark.slow
def test_both_engines_agree_under_every_intervention(build: Build) -> None:
    chosen = counter_instructions(build)
    assert len(chosen) >= 3
    plain, _ = run(build, None, "translated")
    unchanged, own = run(build, CounterfactualSettings(chosen), "translated")
    assert unchanged == plain
    counted = plain[Event.INSTRUCTIONS] - own
    assert counted >= 3 * 150 * 9
    for change in (
        {"free": True, "uncached": True},
        {"free": True},
        {"uncached": True},
        {
            "free": True,
            "uncached": True,
            "code_moves": ((0x10000, 0x2000),),
            "data_moves": ((0x12000, 0x5000), (0x40000000, 0)),
        },
    ):  # fmt: skip
        settings = CounterfactualSettings(chosen, **change)
        translated, oracle = run(build, settings, "translated"), run(build, settings, "oracle")
        assert translated == oracle
        if settings.free:
            assert translated[0][Event.INSTRUCTIONS] == own
        if not settings.free:
            assert translated[0][Event.LOADS] == plain[Event.LOADS]
            assert plain[Event.L1D_ACCESSES] - translated[0][Event.L1D_ACCESSES] == 2 * 150 * 9


def test_records_are_cut_at_the_first_block_with_the_progress(build: Build) -> None:
    chosen = counter_instructions(build)
    core = CounterfactualCore(
        InOrderCore(load_machine(DESKTOP)), CounterfactualSettings(chosen, free=True, uncached=True)
    )
    pmu = Pmu(core, ["PAPI_TOT_INS"])
    wanted = [1000, 4000, 4100, 9000]
    with Machine(build.elf_path, files=VirtualFiles(), core=core, background=False) as machine:
        samples = sample_by_progress(machine, pmu, core, wanted)
    # Free instructions do not count, so the metric is the progress; a block has at most 64 instructions.
    assert len(samples.hardware) == 3
    for got, expected in zip(samples.hardware[:, 0], (3000, 100, 4900), strict=True):
        assert abs(got - expected) < 64
    assert np.diff(samples.boundaries_instructions).tolist() == samples.hardware[:, 0].tolist()


def test_counters_that_are_not_seen_leave_the_turns_of_threads_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "TIME_SLICE_INSTRUCTIONS", 9000)
    source = tmp_path / "threads.c"
    source.write_text(THREADS)
    plain = build_program([source])
    counted = build_program([source], metrics={"steps": MetricSpec(event="entry", function="step")})
    free = CounterfactualSettings(counter_instructions(counted), free=True, uncached=True)

    def turns(build: Build, settings: CounterfactualSettings, engine: str = "translated") -> tuple[str, int, int]:
        core = CounterfactualCore(InOrderCore(load_machine(DESKTOP), seed=4), settings)
        files = VirtualFiles()
        with Machine(build.elf_path, files=files, core=core, engine=engine, background=False) as machine:
            machine.run()
            return files.output(1).decode(), machine.timed_instructions, machine.instructions

    seen, unseen = turns(counted, CounterfactualSettings()), turns(counted, free)
    expected = turns(plain, CounterfactualSettings())
    assert len(expected[0].split()) > 20
    assert unseen[:2] == expected[:2]
    assert seen[0] != expected[0]
    assert unseen[2] - unseen[1] >= 2 * 20_000
    assert turns(counted, free, "oracle") == unseen
