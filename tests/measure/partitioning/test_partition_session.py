"""Sessions that end early: a time limit, Ctrl-C and SIGTERM, anywhere, always leave the best so far, whole and true."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from common.interrupts import OutOfTime, Terminated
from measure.partitioning import command
from measure.partitioning.budget import Budget
from measure.partitioning.cli import partition
from measure.partitioning.oracle import CampaignOracle
from measure.partitioning.page import NextCommands, next_steps
from measure.partitioning.result import PartitionResult, summary_of
from measure.partitioning.search_types import Group, GroupVerdict, Outlook, Partition
from measure.partitioning.synthetic import SyntheticOracle
from measure.partitioning.timed_search import Session, SessionOracles, SessionResult
from measure.runs.campaign_file import load_campaign
from tests.measure.demo_program import source_file
from tests.measure.report.page_structure import problems

ROOT = Path(__file__).parents[3]
N = 7


class Ending:
    """Two oracles of one truth, except that fresh runs doubt some groups; the ``last``-th group asked about ends it."""

    def __init__(self, seed: int, last: int, error: type[KeyboardInterrupt]) -> None:
        self.truth = SyntheticOracle(N, seed, planted=3, pairs=0.7, triples=2)
        self.last, self.error, self.over = last, error, False
        self.asked: dict[str, list[Group]] = {"search": [], "fresh": []}
        self.doubted = {frozenset({0, 1}), frozenset({2, 3}), frozenset({seed % N})}

    def oracle(self, which: str) -> Oracle:
        return Oracle(self, which)


class Oracle:
    def __init__(self, ending: Ending, which: str) -> None:
        self.ending, self.which = ending, which

    def test(self, groups: Sequence[Group]) -> list[GroupVerdict]:
        ending = self.ending
        verdicts = []
        for number, group in enumerate(groups):
            if sum(map(len, ending.asked.values())) + number >= ending.last:
                ending.over = True
                raise ending.error  # verdicts of the same call are lost with it
            good = ending.truth.is_good(group) and not (self.which == "fresh" and group in ending.doubted)
            verdicts.append(GroupVerdict("good" if good else "bad", f"{self.which} says so"))
        ending.asked[self.which] += groups
        return verdicts


def outcome_of(found: SessionResult) -> PartitionResult:
    progress = found.progress
    return PartitionResult(
        "demo", tuple(f"m{k}" for k in range(N)), progress.best, progress.proof, progress.stage, progress.outlook,
        found.tested, found.validated, found.calls, found.remembered, 0, (("cycles",),), 0.2, 0.05, "equivalent",
        found.stopped, found.unfinished,
    )  # fmt: skip


def test_a_result_shows_its_groups_by_the_names_of_metrics() -> None:
    good, doubtful, alone = frozenset({0, 1}), frozenset({2}), frozenset({4})
    verdict = GroupVerdict("good", "a < b", runs=3)
    shown = PartitionResult(
        "demo", ("a", "b", "c", "d", "e<f"), Partition((good, doubtful), frozenset({3, 4})), "upper bound", "stopped",
        Outlook(1), {good: verdict, doubtful: verdict, alone: GroupVerdict("bad", "changed")}, {good: verdict}, 2, 0, 9,
        (("cycles",),), 0.2, 0.05, "equivalent",
    )  # fmt: skip
    assert repr(shown).splitlines() == [
        "<PartitionResult demo: 3 of 5 software metrics in 2 runs (upper bound); 1 more not tested yet, each in a "
        "group of its own.",
        "group1: a, b: good, validated on fresh runs",
        "group2: c: good, not validated on fresh runs",
        "group3: d: not tested>",
    ]
    for starts_tasks in (False, True):
        (*_, step) = next_steps(replace(shown, starts_tasks=starts_tasks), NextCommands())
        assert step.text.startswith("Not shown to be good even alone: e<f. Count what fires less often for the same")
        assert ("method: second_run" in step.text) == (not starts_tasks)
    page = shown._repr_html_()
    assert "<h3>demo: 3 of 5 software metrics" in page
    assert "<td>group1</td><td>a, b</td><td>a &lt; b</td><td>a &lt; b</td>" in page
    assert "<li>e&lt;f is not shown to be good even alone: changed.</li>" in page


@given(
    seed=st.integers(0, 500),
    last=st.integers(0, 90),
    error=st.sampled_from([KeyboardInterrupt, Terminated, OutOfTime]),
    width=st.integers(1, 4),
)
@settings(max_examples=60, deadline=None)
def test_the_best_so_far_covers_all_metrics_and_tells_what_was_tested(
    seed: int, last: int, error: type[KeyboardInterrupt], width: int
) -> None:
    ending = Ending(seed, last, error)
    asked = SessionOracles(ending.oracle("search"), ending.oracle("fresh"))
    session = Session(N, lambda: asked, Budget(None), seed=seed, width=width)
    session.run()
    found = session.result()
    outcome = outcome_of(found)
    metrics: set[int] = set()
    for one in outcome.groups:
        metrics |= one.group
        if one.status == "not tested":
            assert len(one.group) == 1
            assert one.group not in ending.asked["search"]
            assert one.verdict is one.fresh is None
            continue
        assert one.group in ending.asked["search"]
        assert one.verdict is not None
        assert one.verdict.good
        assert ending.truth.is_good(one.group)
        if one.status == "validated":
            assert one.group in ending.asked["fresh"]
            assert one.group not in ending.doubted
            assert one.fresh is not None
            assert one.fresh.good
    refused = {metric for metric in range(N) if frozenset({metric}) in found.tested} - metrics
    assert metrics | refused == set(range(N))  # what is left out was tested alone, and is not good
    assert not any(found.tested[frozenset({metric})].good for metric in refused)
    if not ending.over:
        assert (found.stopped, session.exit_status) == ("", 0)
        assert outcome.confirmed
    if found.stopped:
        assert session.exit_status == {KeyboardInterrupt: 130, Terminated: 143}.get(error, 0)
        assert f"Stopped by {found.stopped}" in " ".join(outcome.sentences())
    proved = " ".join(outcome.sentences()).startswith(("Proved: ", "Not proved: "))
    assert proved == bool(found.progress.best.groups or found.progress.proof == "optimal")
    told = json.loads(json.dumps(summary_of(outcome), allow_nan=False))
    assert [one["status"] for one in told["groups"]] == [one.status for one in outcome.groups]
    assert told["confirmed"] == all(one["status"] == "validated" for one in told["groups"])


class Slow:
    """Takes its time over each group: good ones are single metrics."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def test(self, groups: Sequence[Group]) -> list[GroupVerdict]:
        time.sleep(self.seconds * len(groups))
        return [GroupVerdict("good" if len(group) == 1 else "bad", runs=3) for group in groups]


def test_the_status_line_begins_with_the_activity_and_the_time() -> None:
    session = Session(N, lambda: pytest.fail("not prepared"), Budget(None))
    activity, so_far = session.describe()
    assert activity == "building, and measuring baselines and all metrics together"
    assert re.fullmatch(r"0:0\d so far", so_far)


@pytest.mark.parametrize(("search_seconds", "fresh_seconds"), [(60.0, 60.0), (0.0, 60.0), (0.01, 0.05)])
def test_the_time_limit_holds_inside_a_test_and_inside_validation(search_seconds: float, fresh_seconds: float) -> None:
    asked = SessionOracles(
        Slow(search_seconds),
        Slow(fresh_seconds),
        validation_seconds=lambda groups: 2 * fresh_seconds * len(groups),
        judge_unfinished=lambda found: found.update({frozenset({0, 1}): GroupVerdict("undecided", "too few runs")}),
    )
    started = time.monotonic()
    session = Session(N, lambda: asked, Budget(2.0), exact=False)
    session.run()
    assert time.monotonic() - started < 10  # not the minute that a test takes
    found = session.result()
    outcome = outcome_of(found)
    if search_seconds > 2:
        assert [one.status for one in outcome.groups] == ["undecided"] + ["not tested"] * (N - 2)
    elif fresh_seconds > 2:
        assert [one.status for one in outcome.groups] == ["not validated"] * N
    else:  # what validation needs is kept for it
        assert [one.status for one in outcome.groups] == ["validated"] * N
    assert bool(found.unfinished) == (search_seconds > 2)
    if fresh_seconds > 2:
        assert outcome.stopped == "the time limit of 0.0333333 min"


def test_of_equally_good_partitions_the_one_that_fresh_runs_confirmed_is_reported() -> None:
    pairs = [frozenset(pair) for pair in ({0, 1}, {2, 3}, {0, 2}, {1, 3})]
    earlier = {group: GroupVerdict("good", "no change") for group in pairs} | {
        frozenset(range(4)): GroupVerdict("bad", "")
    }
    for confirmed in (pairs[:2], pairs[2:]):
        fresh = {group: GroupVerdict("good", "confirmed") for group in confirmed}
        asked = SessionOracles(Slow(60.0), Slow(60.0), earlier, fresh)
        session = Session(4, lambda asked=asked: asked, Budget(1e-6))  # type: ignore[misc]
        session.run()
        found = session.result()
        assert set(found.progress.best.groups) == set(confirmed)
        assert found.validated == fresh


def test_shares_of_a_limit() -> None:
    now = [100.0]
    budget = Budget(240.0, lambda: now[0], load=lambda: 0.5)
    assert budget.measuring_ends == 100 + 240 - 10
    assert budget.search_ends(50.0) == 100 + 240 - 10 - 50
    assert budget.search_ends(1e9) == 100 + 240 - 10 - 120
    now[0] = 173.5
    assert budget.describe() == "2:46 of 4:00 left"
    assert not budget.is_over()
    now[0] = 330.0
    assert budget.is_over()
    assert Budget(2.0, lambda: 0.0, load=lambda: 1.0).measuring_ends == 1.6
    assert Budget(240.0, lambda: 100.0, spent_seconds=20.0, load=lambda: 3.0).measuring_ends == 100 - 20 + 240 - 30
    unlimited = Budget(None, lambda: now[0])
    assert (unlimited.measuring_ends, unlimited.search_ends(5.0), unlimited.is_over()) == (None, None, False)


# -- the command -----------------------------------------------------------------------------------------------

PROGRAM = """\
#include <stdlib.h>
static unsigned state = 1, table[4096];
unsigned next(void) { state = state * 1664525u + 1013904223u; return state >> 8; }
void work(int n) { for (int i = 0; i < n; i++) table[next() % 4096] += i; }
int main(int argc, char **argv) {
    for (int round = 0; round < atoi(argv[1]); round++) work(500 + 400 * (round % 5));
    return 0;
}
"""
CAMPAIGN = f"""\
name: demo
program: {{{{source: demo.c, args: [{{argument}}]}}}}
machine: {ROOT / "configs" / "machines" / "desktop.yaml"}
sampling: {{{{every: 4000 cycles}}}}
hardware_metrics: [PAPI_TOT_INS, PAPI_LD_INS, PAPI_BR_MSP]
software_metrics:
  rounds: {{{{event: entry, function: work}}}}
  calls: {{{{event: call, callee: next}}}}
  loops: {{{{event: loop, function: work}}}}
noise: {{{{code_layouts: 1}}}}
baselines: 20
replicates: 5
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "demo.c").symlink_to(source_file(PROGRAM))
    return tmp_path


def arguments(folder: Path, argument: object, *options: str, target: str = "fake") -> list[str]:
    (folder / "c.yaml").write_text(CAMPAIGN.format(argument=argument))
    common = ["--out", str(folder / "out"), "--memory", str(folder / "memory.sqlite"), "--workers", "2"]
    return [str(folder / "c.yaml"), *common, "--target", target, *options]


def check_files(folder: Path) -> dict:
    """All files are there and say the same, but no campaign where no group was measured; returns partition.json."""
    out = folder / "out"
    told = json.loads((out / "partition.json").read_text())
    page = (out / "partition.html").read_text()
    assert problems(page) == []
    if all(one["status"] == "not tested" for one in told["groups"]):
        assert not (out / "partition.yaml").exists()
    else:
        campaign, _ = load_campaign(out / "partition.yaml")
        assert campaign.variants == {one["name"]: tuple(one["metrics"]) for one in told["groups"]}
        text = (out / "partition.yaml").read_text()
        for one in told["groups"]:
            assert re.search(rf"^# {one['name']}: .*{one['status'].removeprefix('not ')}", text, re.MULTILINE)
        assert not told["stopped_by"] or f"# Stopped by {told['stopped_by']}: the best so far." in text
    if told["stopped_by"]:
        assert f"Stopped by {told['stopped_by']}" in page
    for state in ("validated", "not validated", "not tested"):
        names = [one["name"] for one in told["groups"] if one["status"] == state]
        assert told["confirmed"] or f"{state}: {', '.join(names) or 'none'}" in page
    return told


def test_a_limit_that_ends_inside_validation_leaves_all_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = CampaignOracle.test

    def late(self: CampaignOracle, groups: Sequence[Group]) -> list[GroupVerdict]:
        if self.round == command.VALIDATION:
            raise OutOfTime  # what the timer does
        return real(self, groups)

    monkeypatch.setattr(CampaignOracle, "test", late)
    result = CliRunner().invoke(partition, arguments(folder, 60, "--minutes", "30"), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "The time limit of 30 min leaves no time" in result.output
    assert "Fresh runs: validated: none; not validated: group1; not tested: none." in result.output.replace("\n", " ")
    told = check_files(folder)
    assert [one["status"] for one in told["groups"]] == ["not validated"]
    assert told["stopped_by"] == "the time limit of 30 min"
    monkeypatch.undo()
    assert CliRunner().invoke(partition, arguments(folder, 60)).exit_code == 0
    told = check_files(folder)
    assert (told["confirmed"], told["stopped_by"], told["tested_now"]) == (True, None, 0)


def test_a_run_longer_than_the_limit_is_ended(folder: Path) -> None:
    started = time.monotonic()
    result = CliRunner().invoke(
        partition,
        arguments(folder, 10_000_000, "--minutes", "0.15", target="emulated"),
        catch_exceptions=False,
    )
    seconds = time.monotonic() - started
    assert result.exit_code == 1, result.output
    assert seconds < 30  # a run takes many minutes
    assert "No group was measured in the time limit of 0.15 min" in " ".join(result.output.split())
    assert not multiprocessing.active_children()
    told = check_files(folder)
    assert [one["status"] for one in told["groups"]] == ["not tested"] * 3
    assert [one["metrics"] for one in told["groups"]] == [["rounds"], ["calls"], ["loops"]]
    assert not list((folder / "out" / "traces").iterdir())


@pytest.mark.parametrize(("number", "status", "name"), [
    (signal.SIGTERM, 143, "SIGTERM"), (signal.SIGINT, 130, "Ctrl-C"),
])  # fmt: skip
def test_signals_leave_a_result_and_the_runs(folder: Path, number: int, status: int, name: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", "from measure.cli import main; main()", "partition", *arguments(folder, "sleep")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, cwd=ROOT,
    )  # fmt: skip
    traces = folder / "out" / "traces"
    while not (traces.is_dir() and len(list(traces.glob("[!.]*"))) >= 2):
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, number)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == status, errors
    assert errors == ""
    assert "Interrupted; the best so far" in output
    told = check_files(folder)
    assert told["stopped_by"] == name
    assert len(list(traces.glob("[!.]*"))) >= 2
    assert not list(traces.glob(".*"))


def test_the_command_that_goes_on_has_all_options() -> None:
    options: dict[str, Any] = {
        "campaign": Path("c.yaml"), "out": Path("a place"), "minutes": 2.5, "exact": False, "most_replicates": 9,
        "accept": "not perturbed", "counters": 3, "shared": ("PAPI_TOT_INS", "PAPI_LD_INS"), "workers": 2,
        "scheduler": "tcp://host:8786", "memory": Path("m.sqlite"), "settings": ("delta=0.1", "seed=2"),
    }  # fmt: skip
    words = shlex.split(command._command_again(command.Request(**options)))
    assert words[:2] == ["measure", "partition"]
    read = partition.make_context("partition", words[2:]).params
    assert read | {"shared": tuple(read["shared"].split(","))} == options | {"resume": True, "target": "emulated"}
