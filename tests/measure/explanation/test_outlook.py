"""The steps, runs and time left that an explanation tells: known before its first run, and right from early on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from measure.cli import main
from measure.console.tables import without_middle
from measure.explanation.outlook import STEPS, Effort, Outlook, efforts
from measure.runs.campaign_file import load_campaign

QUICKSTART = Path(__file__).parents[3] / "configs" / "campaigns" / "quickstart.yaml"
MADE = {"metrics": 32, "mechanisms": 29, "places": 8, "remedies": 24, "confirming": 20}
"""Runs that explaining the quickstart's `heavy` takes."""


def quickstart_efforts() -> dict[str, Effort]:
    campaign = load_campaign(QUICKSTART)[0]
    return efforts(campaign, campaign.variant_sets()["heavy"], places=2, pairs=(4, 6))


def test_the_runs_of_the_quickstart_are_known_before_the_first() -> None:
    assert {step: effort.runs for step, effort in quickstart_efforts().items()} == MADE
    assert all(effort.most >= effort.runs for effort in quickstart_efforts().values())


@pytest.mark.parametrize("slower", [0.7, 1.0, 1.6])
def test_the_time_left_is_right_from_the_first_quarter_on(slower: float) -> None:
    """Also where runs take longer or shorter than the campaign's did, as on a busy machine."""
    now = [0.0]
    outlook = Outlook({"heavy": quickstart_efforts()}, 4.0, 0.5, 2, clock=lambda: now[0])
    assert outlook.seconds()[0] / 1.2 <= 233 <= outlook.seconds()[1] * 1.2
    moments = []
    for step, runs in MADE.items():
        outlook.begin_step("heavy", step)
        for _ in range(runs):
            now[0] += 2.0 * slower * (1.4 if step == "mechanisms" else 1.0)
            outlook.advance()
            moments.append((now[0], outlook.seconds()))
    for moment, (low, high) in moments[len(moments) // 4 : -5]:
        assert low / 1.25 <= now[0] - moment <= high * 1.25
    assert outlook.describe().startswith("heavy, step 5 of 5 (fresh runs): 113 of about 115 runs")


def test_a_step_that_needs_more_or_fewer_runs_changes_only_its_own_number() -> None:
    outlook = Outlook({"a": {step: Effort(10, 20) for step in STEPS}}, 1.0, 0.0, 1, clock=lambda: 0.0)
    assert outlook.runs() == (50, 100)
    outlook.begin_step("a", "metrics")
    outlook.need(14)
    assert outlook.runs() == (54, 104 - 4)
    for _ in range(14):
        outlook.advance()
    outlook.begin_step("a", "mechanisms")
    assert outlook.runs() == (54, 94)
    outlook.begin_step("a", "remedies")  # the mechanisms' and the places' runs were there already
    assert outlook.runs()[0] == 34


def test_stored_runs_take_no_time() -> None:
    outlook = Outlook({"a": {step: Effort(10, 10) for step in STEPS}}, 60.0, 0.0, 1, stored=42, clock=lambda: 0.0)
    assert "10 to 14 min for about 50 runs (42 are there)" in outlook.begin_text()
    outlook.begin_step("a", "metrics")
    outlook.found(10, missing=0)
    assert outlook.seconds()[0] == pytest.approx((54 - 42) * 60 * 0.85)
    outlook.found(2, missing=4)  # so no later ones are stored
    assert outlook.seconds()[0] == pytest.approx(44 * 60 * 0.85)


def test_builds_count_apart_from_runs() -> None:
    now = [0.0]
    outlook = Outlook(
        {"a": {step: Effort(10, 10, 2) for step in STEPS}, "b": {step: Effort(0, 0) for step in STEPS}},
        1.0, 60.0, 1, clock=lambda: now[0],
    )  # fmt: skip
    assert outlook.seconds()[0] == pytest.approx((54 + 600) * 0.85)
    outlook.begin_step("a", "metrics")
    with outlook.building(2):
        now[0] = 120.0
        assert "a (1 of 2), step 1 of 5 (metrics: building 2 programs): 0" in outlook.describe()
        assert outlook.seconds()[0] == pytest.approx((54 + 480) * 0.85)
    assert outlook.seconds()[0] == pytest.approx((54 + 480) * 0.85)


def test_time_left_grows_while_a_build_takes_longer_than_expected() -> None:
    """A project on a busy machine takes ten times as long as it took; the status line stood still."""
    now = [0.0]
    outlook = Outlook({"a": {step: Effort(10, 10, 2) for step in STEPS}}, 1.0, 10.0, 1, clock=lambda: now[0])
    outlook.begin_step("a", "metrics")
    with outlook.building(2):
        left = []
        for now[0] in (0.0, 20.0, 100.0, 200.0):
            left.append(outlook.seconds()[0] / 0.85 - 54)
    assert left == pytest.approx([100, 80, 400, 800])  # ten programs; of ten programs at 50 s and 100 s, eight are left


def test_each_layout_of_a_program_is_a_build() -> None:
    """A project that cannot be linked anew is built once for each layout."""
    campaign = load_campaign(QUICKSTART)[0]
    one, four = (
        efforts(
            campaign, campaign.variant_sets()["heavy"], places=2, pairs=(4, 6), layouts=layouts, further_layouts=further
        )
        for layouts, further in ((1, 0), (4, 10))
    )
    built = [sum(effort.programs for effort in each.values()) for each in (one, four)]
    assert built[1] == 4 * built[0] + 20 > 20
    assert {step: effort.runs for step, effort in four.items()} == MADE


def test_a_campaign_file_stands_for_its_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = CliRunner().invoke(main, ["explain", str(QUICKSTART)])
    assert shown.exit_code == 2
    assert f"results/quickstart: no such directory; `measure run {QUICKSTART}` makes it" in shown.output


def test_the_status_line_fits_80_columns() -> None:
    outlook = Outlook({"heavy": quickstart_efforts()}, 20.0, 0.5, 2, clock=lambda: 0.0)
    for step in STEPS:
        outlook.begin_step("heavy", step)
        assert len(outlook.describe()) <= 78  # a turning sign is before it


def test_a_long_name_is_shortened_to_the_width_of_the_terminal() -> None:
    name = "order1-1_with_all_of_the_counters_in_the_search"
    outlook = Outlook({name: {step: Effort(20, 40, 2) for step in STEPS}}, 1.0, 1.0, 2, clock=lambda: 0.0)
    outlook.begin_step(name, "mechanisms")
    assert outlook.describe().startswith(f"{name}, step 2 of 5 (mechanisms): ")
    assert [len(outlook.describe(width)) for width in (78, 90)] == [78, 90]
    assert re.match(r"order1\S+\.\.\.\S+search, step 2 of 5 \(mechanisms\): ", outlook.describe(90))
    assert outlook.describe(40).startswith("ord...ch, step 2 of 5 (mechanisms): 0 of about 80 runs, 0:00, ")
    assert [without_middle("abcdefgh", width) for width in (8, 7, 4)] == ["abcdefgh", "ab...gh", "a..."]
