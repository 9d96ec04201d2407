"""Runs on this machine of programs that are given as text."""

from __future__ import annotations

from pathlib import Path

from instrumenter.building.generated_sources import preprocess_all
from instrumenter.building.program_build import HostSamplerConfig, Recipe
from instrumenter.compiler.toolchain import HOST_TARGET, Toolchain
from instrumenter.spec.software_metrics import MetricSpec
from measure.host.description import host_text
from measure.run_types import BASELINE, HOST, RECORD_FLAGS, CounterPlace, RunNoise, RunSpec


def host_spec(folder: Path, program: str) -> RunSpec:
    """A run of ``program``, a source in C, whose calls of `work` the software metric `rounds` counts."""
    source = folder / "program.c"
    source.write_text(program)
    toolchain = Toolchain(HOST_TARGET)
    recipe = Recipe(
        preprocess_all([source], ["-O1"], toolchain), ("-O1",), (), HostSamplerConfig(), target=HOST_TARGET,
        relinkable=True,
    )  # fmt: skip
    build = recipe.build({"rounds": MetricSpec.model_validate({"event": "entry", "function": "work"})})
    at = build.counters["rounds"]
    return RunSpec(
        variant=BASELINE, replicate=0, seed=1, build_key=build.key, binary=str(build.elf_path), arguments=(),
        stdin=None, files=(), machine=host_text(None), machine_name="host",
        hardware_metrics=("page-faults", "tsc", "task-clock"),
        counters=(CounterPlace("rounds", at.symbol, at.offset_bytes),), sampling_mode="signal", interval=1_000_000,
        interval_unit="nanoseconds", noise=RunNoise("each run", True, True, True), target=HOST,
        extra_columns=RECORD_FLAGS, layout_seed=7, limit_seconds=60.0,
    )  # fmt: skip
