"""A command does not write over the results of another command or campaign."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from measure.cycle_close import command as cycleclose_command
from measure.errors import CampaignError, StoreError
from measure.program_phases import command as phases_command
from measure.result_files import MADE_BY, check_own_results, check_results_place, write_atomically, write_result
from measure.sampling_check import check as sampling_check
from measure.verdict_files.summary_file import PERTURB_FORMAT, SUMMARY_FORMAT

SUMMARIES = {
    "measure run": SUMMARY_FORMAT,
    "measure perturb": PERTURB_FORMAT,
    "measure check-sampling": sampling_check.SUMMARY_FORMAT,
    "measure cycleclose": cycleclose_command.SUMMARY_FORMAT,
    "measure phases": phases_command.SUMMARY_FORMAT,
}
"""By the command that writes it, the format of a summary.json."""


def with_results(directory: Path, campaign: str | None = None, summary_format: str | None = None) -> Path:
    directory.mkdir()
    if campaign is not None:
        (directory / "plan.json").write_text(json.dumps({"campaign": {"name": campaign}}))
    summary = {} if summary_format is None else {"format": summary_format}
    (directory / "summary.json").write_text(json.dumps(summary))
    return directory


def test_a_full_disk_keeps_runs_only_where_there_are_some(tmp_path: Path) -> None:
    """What `measure cycleclose` and `measure phases` have done is lost: they keep nothing to go on from."""

    def fail(path: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(StoreError, match=r"make room or choose another place with --out, and start again$"):
        write_atomically(tmp_path / "trace.parquet", fail)
    (tmp_path / "traces").mkdir()
    for path in (tmp_path / "report.html", tmp_path / "traces" / "a.parquet"):
        with pytest.raises(StoreError, match=r"start again: the runs that are finished stay where they are$"):
            write_atomically(path, fail)


def test_results_of_the_same_command_and_campaign_are_its_own(tmp_path: Path) -> None:
    check_own_results(tmp_path / "new", "measure run", "one")
    check_own_results(with_results(tmp_path / "a", "one"), "measure run", "one")
    check_own_results(with_results(tmp_path / "b", None, "perturbation-phases-1"), "measure phases")
    check_own_results(with_results(tmp_path / "c", None, "perturbation-cycleclose-7"), "measure cycleclose")
    (tmp_path / "c" / "summary.json").write_text("[")  # a killed process of another tool
    check_own_results(tmp_path / "c", "measure phases")


@pytest.mark.parametrize(
    ("campaign", "summary_format", "command", "words"),
    [
        ("one", None, "measure run", "has results of campaign 'one', which would be lost"),
        ("one", None, "measure cycleclose", "has results of `measure run`, which would be lost"),
        ("one", "perturbation-cycleclose-1", "measure phases", "has results of `measure run`"),
        (None, "perturbation-phases-1", "measure run", "has results of `measure phases`"),
        (None, "perturbation-cycleclose-1", "measure phases", "has results of `measure cycleclose`"),
    ],
)
def test_other_results_are_not_lost(
    tmp_path: Path, campaign: str | None, summary_format: str | None, command: str, words: str
) -> None:
    directory = with_results(tmp_path / "r", campaign, summary_format)
    with pytest.raises(CampaignError, match=r"r: has results of .*choose another directory with --out") as caught:
        check_own_results(directory, command, "two" if command == "measure run" else "")
    assert words in str(caught.value)


@pytest.mark.parametrize("command", SUMMARIES)
def test_a_summary_is_taken_for_its_own_commands(tmp_path: Path, command: str) -> None:
    directory = with_results(tmp_path / "r", None, SUMMARIES[command])
    check_own_results(directory, command)
    for other in SUMMARIES.keys() - {command}:
        with pytest.raises(CampaignError, match=f"has results of `{command}`, which would be lost"):
            check_own_results(directory, other)


def test_results_of_another_sampling_check_are_not_lost(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text(json.dumps({"format": "perturbation-check-2", "check": "one"}))
    check_own_results(tmp_path, "measure check-sampling", "one")
    with pytest.raises(CampaignError, match="has results of campaign 'one', which would be lost"):
        check_own_results(tmp_path, "measure check-sampling", "two")


def test_no_result_is_written_whose_command_is_not_known(tmp_path: Path) -> None:
    for format_name in MADE_BY:
        write_result(tmp_path / "result.json", {"format": f"{format_name}-1", "n": 1})
    assert json.loads((tmp_path / "result.json").read_text())["n"] == 1
    for content in ({"schema": 1}, {"format": "perturbation-other-1"}):
        with pytest.raises(KeyError):
            write_result(tmp_path / "other.json", content)
    assert not (tmp_path / "other.json").exists()


def test_the_place_of_results_is_checked_for_others(tmp_path: Path) -> None:
    taken = with_results(tmp_path / "r", "one")
    check_results_place(taken)  # of a command whose files have names of their own
    with pytest.raises(CampaignError, match="has results of `measure run`"):
        check_results_place(taken, "measure perturb")


def test_a_program_of_the_same_name_elsewhere_has_results_of_its_own(tmp_path: Path) -> None:
    directory = tmp_path / "results"
    directory.mkdir()
    about = {"format": "perturbation-phases-1", "program": str(tmp_path / "a" / "prog.c")}
    (directory / "summary.json").write_text(json.dumps(about))
    check_own_results(directory, "measure phases", program=tmp_path / "a" / "prog.c")
    with pytest.raises(CampaignError, match=r"has results of .*a/prog\.c, which would be lost: choose another"):
        check_results_place(directory, "measure phases", program=tmp_path / "b" / "prog.c")
