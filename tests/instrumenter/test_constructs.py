"""Constructs of C: hand-worked counts, and a program that does not notice.

Each ``constructs/*.c`` says at its top what to count and how often that happens: ``// COUNT name: {spec} = number``,
and its own compiler flags: ``// FLAGS: ...``. A new case is one file.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from instrumenter.building.program_build import build_program
from instrumenter.spec.software_metrics import MetricSpec
from tests.instrumenter.native_counters import count, run

CONSTRUCTS = sorted((Path(__file__).parent / "constructs").glob("*.c"))
_COUNT = re.compile(r"^// COUNT (\w+): (\{.*\}) = (\d+)$", re.MULTILINE)
_FLAGS = re.compile(r"^// FLAGS: (.*)$", re.MULTILINE)


@pytest.mark.parametrize(
    ("level", "options"),
    [("-O2", {}), ("-O0", {"placement": "cache_line", "volatile": False})],
    ids=["optimised", "cache lines"],
)
@pytest.mark.parametrize("source", CONSTRUCTS, ids=lambda path: path.stem)
def test_counts_of(source: Path, level: str, options: dict[str, Any], tmp_path: Path) -> None:
    text = source.read_text()
    cases = _COUNT.findall(text)
    assert len(cases) == text.count("// COUNT"), "a COUNT line is not well formed"
    metrics = {name: MetricSpec.model_validate(yaml.safe_load(spec)) for name, spec, _ in cases}
    flags = [level, *(flag for found in _FLAGS.findall(text) for flag in found.split())]
    plain = run(build_program([source], flags, target=None))
    assert (plain.returncode, plain.stderr) == (0, "")
    done, counted = count(source, flags, metrics, tmp_path, **options)
    assert (done.stdout, done.returncode) == (plain.stdout, 0)
    assert counted == {name: int(number) for name, _, number in cases}
