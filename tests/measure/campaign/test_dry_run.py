"""`measure run --dry-run`: what a campaign takes and finds, without its runs."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from measure.campaign import dry_run
from measure.campaign.dry_run import PlanEstimate, Rate, _plain_plan, _rows, estimate
from measure.cli import main
from measure.errors import CampaignError
from measure.judging.power import assumed_spread, detectable_change
from measure.runs.campaign_file import load_campaign
from measure.runs.plan import make_plan
from measure.targets.emulated import PartTiming, time_part
from tests.measure.demo_program import PROGRAM, SMALL_CAMPAIGN
from tests.measure.shown_tables import widest_row

CAMPAIGN = f"{SMALL_CAMPAIGN}variance_runs: 2\n"
QUIET = Console(quiet=True)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "p.c").write_text(PROGRAM)
    (tmp_path / "c.yaml").write_text(CAMPAIGN)
    return tmp_path / "c.yaml"


def test_runs_builds_and_records_are_those_of_the_campaign(path: Path) -> None:
    campaign, document = load_campaign(path)
    found = estimate(campaign, document, QUIET, workers=3)
    plan = make_plan(campaign, document, lambda text: None)
    assert found.runs == len(plan.specs) == 46
    assert found.builds == sum(map(len, plan.builds.values())) == 4
    assert found.columns == max(len(spec.metrics) for spec in plan.specs) + 4
    assert found.at_once == 3
    assert found.counted is not None
    assert {one.metric: one.events for one in found.counted.metrics} == {"work": 60, "loops": 78_000}
    from measure.targets.emulated import EmulatedTarget

    heavy, plain = (next(spec for spec in plan.specs if spec.variant == name) for name in ("heavy", "baseline"))
    assert found.instructions == pytest.approx(EmulatedTarget().execute(heavy).total_instructions, rel=0.01)
    assert found.records == pytest.approx(EmulatedTarget().execute(plain).trace.n_records, rel=0.05)
    again = estimate(campaign, document, QUIET)
    assert (again.missing, again.build_seconds) == (0, None)  # all built by the plan


def test_the_time_is_that_of_waves_of_runs_and_of_missing_builds() -> None:
    rate = Rate(set_up_seconds=0.5, instructions=1_000, cycles=2_000, seconds=0.25)
    found = PlanEstimate(None, 40, 4, 3, 2.0, 10_000, 800, 10, rate, 2)
    assert rate.run_seconds(10_000) == 3.0
    assert found.seconds == 20 * 3.0 + 3 * 2.0
    assert replace(found, comparing_seconds=7.0).seconds == found.seconds + 7.0
    assert replace(found, start_seconds=3.0).seconds == found.seconds + 3.0
    assert found.bytes >= 40 * 800 * 10 * 8


def test_on_a_busy_machine_the_time_is_a_range_with_its_reason(path: Path) -> None:
    campaign, _ = load_campaign(path)
    rate = Rate(set_up_seconds=0.5, instructions=1_000, cycles=2_000, seconds=0.25)
    calm = PlanEstimate(None, 46, 4, 0, None, 10_000, 800, 10, rate, 2, load=0.05)
    assert dict(_rows(campaign, calm))["time"].startswith(
        "about 69 s on an idle machine with 2 at once: 46 runs of about 3.0 s"
    )
    busy = replace(calm, load=4.5)
    assert busy.busy_seconds == 5.5 * calm.seconds
    assert dict(_rows(campaign, busy))["time"].startswith(
        "about 69 s on an idle machine, about 6 minutes if this one stays as busy as in the last minute (load average "
        "4.5 a processor), with 2 at once: 46 runs of about 3.0 s"
    )
    assert dict(_rows(campaign, calm))["disk"].endswith("about 800 records of 10 columns")
    part = dict(_rows(campaign, replace(calm, timed_share=0.12)))["disk"]
    assert part.endswith("about 800 records of 10 columns, by the cycles of the first 12% of its instructions")
    half = dict(_rows(campaign, replace(calm, load=0.5)))["time"]  # two runs share two processors with one task more
    assert half.startswith("about 69 s on an idle machine, about 2 minutes if this one")


def test_the_load_is_that_before_the_dry_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dry_run, "load_per_processor", lambda: 3.25)
    assert estimate(*load_campaign(path), QUIET).load == 3.25


def test_other_work_does_not_make_a_part_of_a_run_longer(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part is timed by the processor's clock: what passes on the wall's while others have it does not count."""
    spec = _plain_plan(*load_campaign(path), lambda text: None).specs[0]
    time_part(spec, 1_000)  # loads kernels
    monkeypatch.setattr(time, "perf_counter", lambda: 1e9 * time.monotonic())
    assert time_part(spec, 1_000).seconds < 60


def test_a_link_that_takes_most_of_a_part_is_no_part_of_the_rate() -> None:
    """As with -flto. What was quickest tells most: other work on the machine only adds to it."""
    quick, held_up = PartTiming(1_000, 1_300, 9.2, 0.4, True), PartTiming(1_000, 1_300, 9.0, 0.9, True)
    assert Rate.of([held_up, quick]) == Rate(9.0, 1_000, 1_300, 0.4)


def test_builds_are_part_of_the_time_also_where_the_plain_program_is_built_already(path: Path) -> None:
    campaign, document = load_campaign(path)
    _plain_plan(campaign, document, lambda text: None)
    found = estimate(campaign, document, QUIET)
    assert (found.builds, found.missing) == (4, 3)
    assert found.build_seconds is not None
    assert 0 < found.build_seconds < 60
    assert found.seconds > 3 * found.build_seconds


def test_everything_is_told_and_no_result_is_left(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    monkeypatch.setattr(dry_run, "load_per_processor", lambda: 0.5)
    monkeypatch.setenv("COLUMNS", "80")
    result = CliRunner().invoke(main, ["run", "--dry-run", "c.yaml"])
    assert result.exit_code == 0, result.output
    assert widest_row(result.output) <= 80
    told = " ".join(re.sub("[│\n]", " ", result.output).split())
    assert "runs 46 runs: 10 baselines, 10 of each of 2 variants, 10 of the null control, 6 for the sources" in told
    assert re.search(
        r"time about \d+ s on an idle machine, about \d+ s if this one stays as busy as in the last minute \(load "
        r"average 0\.5 a processor\), with \d+ at once: 46 runs of about [\d.]+ s",
        told,
    )
    assert re.search(r"Comparing the runs takes about \d+ s of it \(by alignments of made-up traces\)", told)
    assert re.search(r"with timing, [\d.]+ million a second \(measured on the first [\d,]+\)", told)
    assert re.search(r"disk at most \d+ MB: a trace of a run has about [\d,]+ records of 9 columns", told)
    campaign, _ = load_campaign(path)
    change = detectable_change(campaign, campaign.alpha, assumed_spread(campaign), 2)
    sizes = f"A change of z of {change:.2f} is significant, and one of {change + 0.2:.2f} called perturbed"
    assert f"finds Compared in 10 pairs of runs. {sizes} (beyond delta, 0.2), in 80% of such campaigns" in told
    assert "- heavy: 78,060 events a run" in told
    assert sorted(item.name for item in path.parent.iterdir()) == ["c.yaml", "p.c"]
    assert CliRunner().invoke(main, ["run", "--dry-run", "c.yaml", "--out", "x"]).exit_code == 2


def test_what_no_run_could_do_is_told(path: Path) -> None:
    path.write_text(CAMPAIGN.replace("1000 cycles", "1M cycles"))
    with pytest.raises(
        CampaignError, match=r"c\.yaml:\d+: a run would have about \d records of 1M cycles, expected at least 20"
    ):
        estimate(*load_campaign(path), QUIET)
    path.write_text(CAMPAIGN.replace("PAPI_L1_DCM", "PAPI_L9_DCM"))
    with pytest.raises(CampaignError, match=r"c\.yaml:5: machine 'desktop' cannot count 'PAPI_L9_DCM'"):
        estimate(*load_campaign(path), QUIET)
