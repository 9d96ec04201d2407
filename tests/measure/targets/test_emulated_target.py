"""Runs on the emulated machine depend on their spec, and on nothing of the user's."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np

from instrumenter.building.program_build import build_program
from measure.campaign.campaign_model import Noise
from measure.campaign.plan import content_keys
from measure.campaign.run_types import BASELINE, RunNoise, RunSpec
from measure.targets.emulated import EmulatedTarget, hotness_threshold

MACHINE = Path(__file__).parents[3] / "configs" / "machines" / "desktop.yaml"
# It walks its stack, whose place in memory the name of the program would move.
PROGRAM = """
#include <stdio.h>
int main(int argc, char **argv) {
    unsigned sum = 0;
    for (int round = 0; round < 300; round++) {
        unsigned char here[3000];
        for (int n = 0; n < 3000; n++) here[n] = n + round + (argv[0][0] == '?');
        for (int n = 0; n < 3000; n += 7) sum += here[(n * 31) % 3000];
    }
    printf("%u\\n", sum);
    return 0;
}
"""


def test_the_same_seed_gives_the_same_trace_wherever_the_cache_directory_is(tmp_path: Path) -> None:
    source = tmp_path / "walks.c"
    source.write_text(PROGRAM)
    here = build_program([source], ["-O1"]).elf_path
    elsewhere = tmp_path / ("a directory with a long name " * 4) / "another name of the program"
    elsewhere.parent.mkdir()
    shutil.copy(here, elsewhere)
    spec = RunSpec(
        variant=BASELINE, replicate=0, seed=5, build_key="key", binary=str(here), arguments=(), stdin=None, files=(),
        machine=MACHINE.read_text("utf-8"), machine_name=str(MACHINE), hardware_metrics=("PAPI_TOT_INS", "PAPI_L1_DCM"),
        counters=(), sampling_mode="ideal", interval=20_000, interval_unit="cycles",
        noise=RunNoise(**Noise().model_dump()),
    )  # fmt: skip
    first = EmulatedTarget().execute(spec)
    second = EmulatedTarget().execute(replace(spec, binary=str(elsewhere)))
    assert first.trace.boundaries_cycles.tolist() == second.trace.boundaries_cycles.tolist()
    assert np.array_equal(first.trace.values, second.trace.values)


def test_a_program_with_few_runs_is_hardly_compiled_and_has_the_same_trace(tmp_path: Path) -> None:
    source = tmp_path / "walks.c"
    source.write_text(PROGRAM)
    spec = RunSpec(
        variant=BASELINE, replicate=0, seed=5, build_key="key", binary=str(build_program([source]).elf_path),
        arguments=(), stdin=None, files=(), machine=MACHINE.read_text("utf-8"), machine_name=str(MACHINE),
        hardware_metrics=("PAPI_TOT_INS",), counters=(), sampling_mode="ideal", interval=20_000,
        interval_unit="cycles",
    )  # fmt: skip
    seldom = replace(spec, seldom=True)
    assert content_keys([seldom]) == content_keys([spec])
    assert hotness_threshold(seldom) == hotness_threshold(replace(spec, layout_seed=1)) > hotness_threshold(spec)
    traces = [EmulatedTarget().execute(one).trace for one in (spec, seldom)]
    assert np.array_equal(traces[0].values, traces[1].values)
    assert traces[0].boundaries_cycles.tolist() == traces[1].boundaries_cycles.tolist()
