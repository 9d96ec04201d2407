"""Listings of metrics at the width of a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from measure.campaign.list_metrics import list_host_metrics, list_metrics
from measure.cli import main

ROOT = Path(__file__).parents[3]
QUICKSTART = ROOT / "configs/campaigns/quickstart.yaml"


def test_descriptions_are_wrapped_below_their_column() -> None:
    lines = list_metrics(QUICKSTART, width=80).lines
    assert max(map(len, lines)) <= 80
    at = next(n for n, line in enumerate(lines) if "PAPI_FAD_INS" in line)
    column = lines[at].index("Floating-point")
    assert lines[at + 1] == " " * column + "minima, sign operations"
    assert max(map(len, list_host_metrics(width=80).lines)) <= 80
    assert max(map(len, list_metrics(QUICKSTART, width=40).lines)) <= 42  # the longest name and unit are left whole


def test_a_file_or_a_pipe_gets_a_metric_on_each_line(monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["metrics", str(QUICKSTART)]
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr("sys.__stdout__", None)
    (line,) = (line for line in CliRunner().invoke(main, command).output.splitlines() if "PAPI_FAD_INS" in line)
    assert line.endswith("Floating-point additions, comparisons, minima, sign operations")
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, CliRunner().invoke(main, command).output.splitlines())) <= 80
