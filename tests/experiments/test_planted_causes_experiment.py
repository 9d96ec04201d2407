"""The experiment with planted causes: a small version of it, its table, and going on."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.planted_causes import find_causes
from experiments.planted_causes.find_causes import COLUMNS, add_row, examine, read_rows, table
from experiments.planted_causes.programs import CAUSES, instance
from measure.runs.campaign_file import load_campaign
from measure.runs.executor import Workers


@pytest.mark.slow
@pytest.mark.parametrize("cause", ["inlining", "alias"])
def test_a_planted_cause_comes_first(cause: str, tmp_path: Path) -> None:
    with Workers(2) as workers:
        row = examine(instance(cause, 202), tmp_path, workers)
    assert row["verdict"] == "perturbed"
    assert row["first"] == row["mechanism"] == CAUSES[cause][0]


def test_every_instance_is_a_campaign_and_its_number_decides_it(tmp_path: Path) -> None:
    for cause in CAUSES:
        first, again, other = instance(cause, 4), instance(cause, 4), instance(cause, 5)
        assert first == again
        assert first.source != other.source
        assert (first.machine, other.machine) == ("desktop", "strongarm")
        campaign, _ = load_campaign(first.write(tmp_path / cause))
        assert set(campaign.software_metrics) == set(first.metrics)


def row(cause: str, number: int, first: str) -> dict[str, object]:
    found: dict[str, object] = dict.fromkeys(COLUMNS, "")
    return found | {
        "cause": cause, "number": number, "machine": "desktop", "first": first,
        "mechanism": CAUSES[cause][0] if first else "",
    }  # fmt: skip


def test_the_table_counts_right_wrong_and_skipped(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    assert read_rows(path) == []
    for number in range(9):
        add_row(path, row("adds", number, CAUSES["adds"][0]))
    add_row(path, row("adds", 9, CAUSES["alias"][0]))
    add_row(path, row("adds", 10, ""))
    lines = table(read_rows(path)).splitlines()
    assert lines[2] == "| adds | desktop | 11 | 1 | 9 of 10 (55% to 100%) |"
    assert lines[-1].startswith("| all | both | 11 | 1 | 9 of 10")


def test_rows_that_are_there_are_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, int]] = []

    def stub(one: find_causes.Instance, directory: Path, workers: Workers) -> find_causes.Row:
        made.append((one.cause, one.number))
        return row(one.cause, one.number, "" if one.cause == "alias" else one.mechanism)

    monkeypatch.setattr(find_causes, "examine", stub)
    path = tmp_path / "rows.csv"
    add_row(path, row("adds", 7, CAUSES["adds"][0]))
    monkeypatch.setattr("sys.argv", ["find_causes.py", "--instances", "1", "--first", "7", "--out", str(path)])
    find_causes.main()
    assert ("adds", 7) not in made
    assert made.count(("evicts", 7)) == 1
    assert [number for cause, number in made if cause == "alias"] == list(range(7, 13))  # skipped ones: the next
