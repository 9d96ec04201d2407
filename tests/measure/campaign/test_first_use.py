"""What is compiled ahead while a campaign's programs are built."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from emulator.first_use import compile_ahead
from emulator.timing.machine_file import load_machine
from measure.campaign.first_use import Preparation
from measure.runs.campaign_file import load_campaign
from measure.runs.executor import Workers

ROOT = Path(__file__).parents[3]
CAMPAIGN = ROOT / "configs" / "campaigns" / "quickstart.yaml"
MACHINE = ROOT / "configs" / "machines" / "desktop.yaml"


def compiled(cache: Path) -> set[Path]:
    """Files of machine code under a cache directory."""
    return {path.relative_to(cache) for path in cache.rglob("*") if path.is_file()}


def test_a_run_finds_everything_compiled_that_was_compiled_ahead(tmp_path: Path) -> None:
    code = (
        "from emulator.first_use import compile_ahead; from emulator.timing.machine_file import load_machine; "
        f"from pathlib import Path; compile_ahead(load_machine(Path({str(MACHINE)!r})))"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, cwd=ROOT)
    first = compiled(tmp_path)
    assert first
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, cwd=ROOT)
    assert compiled(tmp_path) == first


def test_compiling_ahead_needs_no_machine() -> None:
    compile_ahead()
    compile_ahead(load_machine(MACHINE))


def test_workers_that_were_prepared_make_runs(tmp_path: Path) -> None:
    with Workers(2) as workers:
        preparation = Preparation(workers, "fake", load_campaign(CAMPAIGN)[0])
        preparation.wait()
        preparation.begin(True)
        preparation.begin(False)
        preparation.wait()
        assert workers._pool is not None
    assert workers._pool is None
