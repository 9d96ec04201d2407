"""Time limits that end before the first verdict: what was measured is compared, or the time that is needed is told."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

import measure
from common.interrupts import OutOfTime
from measure.errors import RunError
from measure.partitioning import command, oracle
from measure.partitioning.budget import Budget
from measure.partitioning.cli import partition
from measure.partitioning.oracle import CampaignOracle, GroupSettings, in_turn
from measure.partitioning.search_types import Group, GroupVerdict
from measure.run_types import BASELINE, RunSpec
from measure.runs import executor
from measure.runs.campaign_file import load_campaign
from measure.runs.store import Store
from tests.measure.demo_program import PROGRAM, source_file

ROOT = Path(__file__).parents[3]
CAMPAIGN = f"""\
name: demo
program: {{source: demo.c}}
machine: {ROOT / "configs" / "machines" / "desktop.yaml"}
sampling: {{every: 4000 cycles}}
hardware_metrics: [PAPI_TOT_INS, PAPI_LD_INS, PAPI_BR_MSP]
software_metrics:
  rounds: {{event: entry, function: work}}
  loops: {{event: loop, function: work}}
noise: {{code_layouts: 1}}
baselines: 20
replicates: 5
"""
RUN_SECONDS = 300.0  # of the clock: the real timer is never reached
EVERYTHING = frozenset({0, 1})


class SlowMachine:
    """Makes runs at once, in the time of a clock that each run advances; ends at a moment of it, as the timer does.
    From then on it is as busy as ``load_at_end`` says."""

    def __init__(self, ends_at_seconds: float = float("inf"), load_at_end: float = 0.0) -> None:
        self.load, self.load_at_end = 0.0, load_at_end
        self.now = self.begun = time.monotonic()
        self.ends_at = self.begun + ends_at_seconds
        self.made: list[RunSpec] = []

    def run_all(
        self, missing: Sequence[tuple[str, RunSpec]], store: Store, workers: object, done: dict, errors: dict,
        progress: Callable[[], None],
    ) -> None:  # fmt: skip
        for key, spec in missing:
            self.now = min(self.now + RUN_SECONDS, self.ends_at)
            if self.now >= self.ends_at:
                self.load = self.load_at_end
                raise OutOfTime
            run = executor.make_run(spec)
            if isinstance(run, RunError):
                errors[key] = run
            else:
                store.save(key, run)
                done[key] = run
                self.made.append(spec)
            progress()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "demo.c").symlink_to(source_file(PROGRAM))
    (tmp_path / "c.yaml").write_text(CAMPAIGN)
    return tmp_path


def use(machine: SlowMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "_run_all", machine.run_all)
    monkeypatch.setattr(oracle, "time", SimpleNamespace(perf_counter=lambda: machine.now))

    def budget(seconds: float | None, spent_seconds: float) -> Budget:
        return Budget(seconds, lambda: machine.now, load=lambda: machine.load)

    monkeypatch.setattr(command, "Budget", budget)


def run(folder: Path, *options: str) -> Result:
    arguments = [folder / "c.yaml", "--out", folder / "out", "--memory", folder / "memory.sqlite", "--target", "fake"]
    return CliRunner().invoke(partition, [*map(str, arguments), *options], catch_exceptions=False)


def result_of(folder: Path) -> dict:
    return json.loads((folder / "out" / "partition.json").read_text())


@pytest.mark.parametrize("load_at_end", [0.0, 100.0])
def test_a_limit_that_ends_among_the_baselines_leaves_a_group_that_was_measured(
    folder: Path, monkeypatch: pytest.MonkeyPatch, load_at_end: float
) -> None:
    machine = SlowMachine(7.5 * RUN_SECONDS, load_at_end)
    use(machine, monkeypatch)
    ended = run(folder, "--minutes", "40")
    assert ended.exit_code == 0, ended.output
    assert [spec.variant == BASELINE for spec in machine.made] == [True, False] * 3 + [True]
    found = result_of(folder)
    (group,) = found["groups"]
    assert (group["metrics"], group["status"], group["fresh_runs"]) == (["rounds", "loops"], "undecided", None)
    assert (group["verdict"]["state"], group["verdict"]["runs"]) == ("undecided", 3)
    assert group["verdict"]["reason"].endswith("3 runs); by 4 of 20 baselines, when the time was up")
    assert found["stopped_by"] == "the time limit of 40 min"
    assert found["shortfall"] is None
    output = " ".join(ended.output.split())
    assert "The time limit of 40 min leaves no time" in output
    assert "no group of software metrics was shown to be good; 2 in 1 group measured, but not decided." in output
    assert "Fresh runs: validated: none; not validated: none; undecided: group1; not tested: none." in output
    written = (folder / "out" / "partition.yaml").read_text()
    assert "# group1: measured, but not decided when the time was up.\n" in written
    assert yaml.safe_load(written)["variants"] == {"group1": ["rounds", "loops"]}
    page = (folder / "out" / "partition.html").read_text()
    assert "Too few runs were made to decide on group1. Collect the groups, with the verdict on each" in page
    assert "; group1 may change relations by any amount:" in page
    assert "less than delta:" not in page

    patient = SlowMachine()
    use(patient, monkeypatch)
    assert run(folder).exit_code == 0
    found = result_of(folder)
    assert found["remembered"] == 0  # a verdict by a part of the baselines is not kept
    assert found["confirmed"]
    assert not {(spec.variant, spec.seed) for spec in patient.made} & {(one.variant, one.seed) for one in machine.made}


def test_a_limit_without_a_group_run_tells_how_long_it_must_be(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(SlowMachine(ends_at_seconds=1.5 * RUN_SECONDS), monkeypatch)
    ended = run(folder, "--minutes", "7.5")
    assert ended.exit_code == 1, ended.output
    told = (
        "No group was measured in the time limit of 7.5 min: 0:00 went by before the first run, and 1 run ended in "
        "the 7:30 after that. The baselines and the first runs of all metrics together are 23 runs and take about "
        "2:52:30, their validation on fresh runs 3:07:30: give --minutes 361. Runs that ended are kept."
    )
    assert told in " ".join(ended.output.split())
    found = result_of(folder)
    assert found["shortfall"] == told
    assert "  measure partition " in ended.output
    assert "--minutes 361 " in ended.output.splitlines()[-1]
    assert [one["status"] for one in found["groups"]] == ["not tested"] * 2
    assert found["proved"] == "upper bound"
    assert not (folder / "out" / "partition.yaml").exists()  # no group was measured that it could collect
    assert "give --minutes 361" in (folder / "out" / "partition.html").read_text()
    use(SlowMachine(ends_at_seconds=0.5 * RUN_SECONDS), monkeypatch)
    (folder / "out").rename(folder / "earlier")
    ended = run(folder, "--minutes", "2.5")
    assert ended.exit_code == 1
    output = " ".join(ended.output.split())
    assert "no runs ended in the 2:30 after that" in output
    assert "take at least 57:30, their validation on fresh runs 1:02:30: give --minutes 121 or more." in output


def test_a_limit_after_the_first_verdict_tells_what_was_rejected_and_how_long_the_rest_takes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(SlowMachine(ends_at_seconds=23.5 * RUN_SECONDS), monkeypatch)
    rejected = GroupVerdict("bad", "cycles and loads changed", runs=3)
    monkeypatch.setattr(oracle, "decide", lambda *arguments: rejected)
    ended = run(folder, "--minutes", "130")
    assert ended.exit_code == 0, ended.output
    output = " ".join(ended.output.split())
    assert "- Not searched to the end. " in output
    assert "- All metrics together are no good group: cycles and loads changed." in output
    told = (
        "2 metrics are in no good group, and not tested alone to an end. That takes about 6 runs, 30:39, if these are "
        "tested like others, and fresh runs up to 2:33:15: --minutes 262 goes on from here."
    )
    assert f"- {told}" in output
    assert result_of(folder)["time_needed"] == told
    assert "--minutes 262 goes on from here" in (folder / "out" / "partition.html").read_text()


def test_a_limit_that_ends_while_programs_are_built_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def building(*arguments: object) -> None:
        raise OutOfTime

    monkeypatch.setattr(oracle, "make_plan", building)
    ended = run(folder, "--minutes", "1")
    assert ended.exit_code == 1
    output = " ".join(ended.output.split())
    assert "No group was measured in the time limit of 1 min: building the programs took all of it." in output
    found = result_of(folder)
    assert [one["status"] for one in found["groups"]] == ["not tested"] * 2
    assert found["proved"] == "upper bound"
    assert not (folder / "out" / "partition.yaml").exists()


def test_a_library_call_that_measured_no_group_raises_what_the_command_says(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(SlowMachine(ends_at_seconds=1.5 * RUN_SECONDS), monkeypatch)
    memory = str(folder / "memory.sqlite")
    with pytest.raises(measure.MeasureError, match=r"^No group was measured in the time limit of 7\.5 min: .* 361\."):
        measure.partition(str(folder / "c.yaml"), minutes=7.5, out=folder / "out", memory=memory, target="fake")
    assert result_of(folder)["shortfall"]


def test_a_limit_too_short_for_anything_keeps_the_result_that_was_validated(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The verdicts from before are read however short the limit is."""
    use(SlowMachine(), monkeypatch)
    monkeypatch.setattr(oracle, "decide", lambda *arguments: GroupVerdict("good", "no change", runs=3))
    assert run(folder).exit_code == 0
    before = result_of(folder)
    assert before["confirmed"]
    use(SlowMachine(), monkeypatch)  # whose clock shows the true time, as the timer needs it
    ended = run(folder, "--minutes", "0.0001")
    assert ended.exit_code == 0, ended.output
    output = " ".join(ended.output.split())
    assert "leaves no time for another step; the best so far, and all verdicts are kept." in output
    assert f"verdicts from before: {len(before['tested'])};" in output
    found = result_of(folder)
    assert found["groups"] == before["groups"]
    assert (found["confirmed"], found["tested"]) == (True, before["tested"])

    def building(*arguments: object) -> None:
        raise OutOfTime

    files = {path: path.read_bytes() for path in (folder / "out").glob("partition*")}
    assert len(files) == 3
    monkeypatch.setattr(oracle, "make_plan", building)
    ended = run(folder, "--minutes", "1")
    assert ended.exit_code == 1
    output = " ".join(ended.output.split())
    assert "leaves no time for another step; no group was measured." in output
    assert f"Nothing was written: the files of an earlier search in {folder / 'out'} stay as they are." in output
    assert {path: path.read_bytes() for path in (folder / "out").glob("partition*")} == files


def test_the_limit_holds_while_programs_are_built(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[object] = []

    def make_plan(campaign: object, document: object, notify: object, target: object, begin: Any) -> None:
        begin(False)
        built.append(campaign)

    monkeypatch.setattr(oracle, "make_plan", make_plan)
    ended = run(folder, "--minutes", "0.0001")
    assert ended.exit_code == 1
    assert "building the programs took all of it" in " ".join(ended.output.split())
    assert not built


def test_the_comparison_within_runs_stays_when_alignment_takes_too_long(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With enough runs for *equivalent* within runs, whose alignment is interrupted, the verdict is still open."""
    text = (folder / "c.yaml").read_text().replace("baselines:", "delta: 3\nbaselines:")
    (folder / "c.yaml").write_text(text)
    campaign, document = load_campaign(folder / "c.yaml")
    machine = SlowMachine(ends_at_seconds=14.5 * RUN_SECONDS)
    use(machine, monkeypatch)
    with Store(folder / "out") as store:

        def unfinished(found: dict[Group, GroupVerdict]) -> None:
            tester = CampaignOracle(campaign, document, store, GroupSettings(3), target="fake")
            with pytest.raises(OutOfTime):
                tester.test([EVERYTHING])
            tester.judge_unfinished(found)

        found: dict[Group, GroupVerdict] = {}
        unfinished(found)
        assert found[EVERYTHING].kind == "outer"
        assert found[EVERYTHING].reason.endswith("by 11 of 20 baselines, when the time was up")
        found.clear()

        def too_slow(*arguments: object, **options: object) -> None:
            raise OutOfTime

        monkeypatch.setattr(oracle, "outer_perturbation", too_slow)
        with pytest.raises(OutOfTime):
            unfinished(found)
        assert (found[EVERYTHING].state, found[EVERYTHING].kind) == ("undecided", "inner")


def test_what_a_look_left_open_is_told_when_the_next_one_is_interrupted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign, document = load_campaign(folder / "c.yaml")
    use(SlowMachine(ends_at_seconds=23.5 * RUN_SECONDS), monkeypatch)
    monkeypatch.setattr(oracle, "decide", lambda *arguments: None)
    with Store(folder / "out") as store:
        tester = CampaignOracle(campaign, document, store, GroupSettings(6), target="fake")
        with pytest.raises(OutOfTime):
            tester.test([EVERYTHING])
        found: dict[Group, GroupVerdict] = {}
        tester.judge_unfinished(found)
    assert (found[EVERYTHING].state, found[EVERYTHING].runs) == ("undecided", 3)
    assert "baselines, when the time" not in found[EVERYTHING].reason  # by all of them


def test_runs_in_turn() -> None:
    kinds = [[f"{kind}{n}" for n in range(count)] for kind, count in (("b", 4), ("g", 2), ("h", 1))]
    assert in_turn(kinds) == ["b0", "g0", "h0", "b1", "g1", "b2", "b3"]


def test_time_to_compare_is_kept() -> None:
    assert Budget(240.0, lambda: 100.0, load=lambda: 0.0).comparing_begins == 100 + 240 - 10 - 24
    assert Budget(3600.0, lambda: 0.0, load=lambda: 0.0).comparing_begins == 3600 - 10 - 30
    assert Budget(None).comparing_begins is None
    assert Budget(None).comparing_ends is None


def test_what_was_measured_is_compared_also_where_the_machine_has_become_busy() -> None:
    now, load = 0.0, 0.0
    budget = Budget(180.0, lambda: now, load=lambda: load)
    now = budget.comparing_begins or 0.0
    assert now == 180 - 10 - 18
    assert budget.comparing_ends == budget.measuring_ends == 170
    load = 4.0  # writing takes longer: the time for measuring would be over
    assert budget.is_over()
    assert budget.comparing_ends == now + 9
    now = 178.0
    assert budget.comparing_ends == 180
