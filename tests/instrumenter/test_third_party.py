"""A large program by others, where it has been fetched before: every kind of counter, and the same output."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from instrumenter.building.generated_sources import preprocess_all
from instrumenter.building.program_build import build_program
from instrumenter.compiler.toolchain import Toolchain
from instrumenter.spec.software_metrics import MetricSpec
from measure.programs.catalogue import ensure_sources, load_catalogue
from tests.instrumenter.native_counters import every_metric

CATALOGUE = Path(__file__).parents[2] / "configs" / "programs.yaml"


def test_lua_does_not_notice() -> None:
    program = load_catalogue(CATALOGUE)["lua"]
    assert program.package is not None
    assert program.stdin is not None
    if not program.package.directory.is_dir():
        pytest.skip("Lua has not been fetched on this machine")
    (source,) = ensure_sources(program)
    flags = ["-O0", *program.compiler_flags()]
    text = preprocess_all([source], flags, Toolchain(None))[source]
    metrics = every_metric(source, text, None)
    assert len(metrics) > 3000
    outputs = []
    collected: tuple[dict[str, MetricSpec], ...] = ({}, metrics)
    for wanted in collected:
        build = build_program([source], flags, wanted, libraries=program.linker_flags(), target=None)
        done = subprocess.run(
            [build.elf_path, *program.arguments_for("small")], stdin=program.stdin.open("rb"),
            capture_output=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout)
    assert outputs[0] == outputs[1] != b""
