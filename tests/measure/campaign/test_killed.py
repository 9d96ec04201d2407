"""Killed or ended at any moment, campaigns and searches lose no finished run, and end as if they had not been."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.measure.demo_program import source_file

ROOT = Path(__file__).parents[3]
KILLS = 3
PROGRAM = """
#include <unistd.h>
void work(int n) { for (volatile int i = 0; i < n; i++) ; }
void rest(void) { sleep(0); }
int main(void) { for (int round = 0; round < 60; round++) { work(50); rest(); } return 0; }
"""
CAMPAIGN = f"""\
name: demo
program: {{{{source: demo.c{{arguments}}}}}}
machine: {ROOT / "configs" / "machines" / "desktop.yaml"}
hardware_metrics: [PAPI_TOT_INS, PAPI_LD_INS, PAPI_BR_MSP]
software_metrics:
  rounds: {{{{event: entry, function: work}}}}
  perturbing: {{{{event: entry, function: rest}}}}
  loops: {{{{event: loop, function: work}}}}
noise: {{{{code_layouts: 1}}}}
baselines: 10
replicates: 5
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "demo.c").symlink_to(source_file(PROGRAM))
    return tmp_path


def start(folder: Path, command: str, out: str, *options: str) -> subprocess.Popen[bytes]:
    arguments = [
        command,
        str(folder / "c.yaml"),
        "--out",
        str(folder / out),
        "--target",
        "fake",
        "--workers",
        "2",
    ]
    return subprocess.Popen(
        [sys.executable, "-c", "from measure.cli import main; main()", *arguments, *options],
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=(folder / "stderr").open("wb"), start_new_session=True,
    )  # fmt: skip


def finished(directory: Path) -> set[str]:
    """The traces that are there; all of them, and the ledger, can be read."""
    if not (directory / "ledger.sqlite").exists():
        return set()
    with sqlite3.connect(directory / "ledger.sqlite") as ledger:
        assert ledger.execute("pragma integrity_check").fetchone() == ("ok",)
        tables = ledger.execute("select count(*) from sqlite_master where name = 'runs'").fetchone()[0]
        noted = {key for (key,) in ledger.execute("select key from runs")} if tables else set()
    there = {path.stem for path in (directory / "traces").glob("*.parquet") if not path.name.startswith(".")}
    for key in there:
        assert pq.read_table(directory / "traces" / f"{key}.parquet", page_checksum_verification=True).num_rows
    assert noted <= there
    return there


def kill_again_and_again(folder: Path, command: str, longest_seconds: float, *options: str) -> None:
    """Start and kill `KILLS` times; what was finished stays."""
    draw = random.Random(7)
    kept: set[str] = set()
    for _ in range(KILLS):
        process = start(folder, command, "out", *options)
        time.sleep(draw.uniform(0.2, longest_seconds))
        process.kill()
        process.wait()
        now = finished(folder / "out")
        assert kept <= now
        kept = now


@pytest.mark.slow
def test_a_campaign_killed_at_random(folder: Path) -> None:
    (folder / "c.yaml").write_text(CAMPAIGN.format(arguments=", args: [sleep]"))
    kill_again_and_again(folder, "run", 2.0)
    before = finished(folder / "out")
    assert start(folder, "run", "out").wait() == 0
    after = finished(folder / "out")
    assert before <= after
    assert len(after) == 20
    with sqlite3.connect(folder / "out" / "ledger.sqlite") as ledger:
        states = dict(ledger.execute("select key, state from runs"))
    assert states == dict.fromkeys(after, "done")
    assert json.loads((folder / "out" / "summary.json").read_text())["runs"]["done"] == 20


@pytest.mark.slow
def test_a_search_killed_at_random(folder: Path) -> None:
    (folder / "c.yaml").write_text(CAMPAIGN.format(arguments=""))
    one = "--workers", "1"  # makes all runs in less time than two take to start
    assert start(folder, "partition", "whole", *one, "--memory", str(folder / "other.sqlite")).wait() == 0
    memory = folder / "memory.sqlite"
    kill_again_and_again(folder, "partition", 3.0, *one, "--memory", str(memory))
    assert start(folder, "partition", "out", *one, "--memory", str(memory)).wait() == 0
    with sqlite3.connect(memory) as kept:
        assert kept.execute("pragma integrity_check").fetchone() == ("ok",)
    found, expected = (json.loads((folder / out / "partition.json").read_text()) for out in ("out", "whole"))
    for key in ("groups", "uncovered", "proved", "confirmed", "bad_alone"):
        assert found[key] == expected[key]
    assert len(found["tested"]) == len(expected["tested"])


def running(session: int) -> list[str]:
    """The processes of a session that have not ended."""
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, its_session = place.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(its_session) == session and state != "Z":
            found.append(place.parent.name)
    return found


@pytest.mark.parametrize("whole_group", [False, True], ids=["process", "process group"])
def test_sigterm_ends_a_campaign_and_its_workers_with_a_message(folder: Path, whole_group: bool) -> None:
    """As `kill` does to a job in the background, or a service manager to all processes of a job."""
    (folder / "c.yaml").write_text(CAMPAIGN.format(arguments=", args: [sleep]"))
    process = start(folder, "run", "out")
    while len(finished(folder / "out")) < 3:
        assert process.poll() is None
        time.sleep(0.05)
    (os.killpg if whole_group else os.kill)(process.pid, signal.SIGTERM)
    assert process.wait(timeout=30) == 143
    told = (folder / "stderr").read_text()
    assert told == "measure: ended by SIGTERM; finished runs are kept, the same command goes on\n"
    deadline = time.monotonic() + 10  # multiprocessing's resource tracker notices the end, and ends
    while running(process.pid):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    kept = finished(folder / "out")
    assert len(kept) >= 3
    assert not list((folder / "out" / "traces").glob(".*"))
