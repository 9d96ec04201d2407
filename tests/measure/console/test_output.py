"""What a command prints into a pipe or a file has whole sentences, also where a terminal would fold them."""

from __future__ import annotations

import io
import sys

import pytest

from measure.console.output import command_console
from measure.console.tables import print_table

SENTENCE = "Collect the groups: " + " ".join(["measure run results/long-name/partition.yaml"] * 9)


@pytest.mark.parametrize("columns", [None, "60"])
def test_a_sentence_is_one_line_and_a_table_has_columns(columns: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if columns is None:
        monkeypatch.delenv("COLUMNS", raising=False)
    else:
        monkeypatch.setenv("COLUMNS", columns)
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    console = command_console()
    console.print(SENTENCE)
    print_table(console, "Groups", ("group", "metrics"), [("one", "a_name " * 60), ("two", "b")])
    first, *table = out.getvalue().splitlines()
    assert first == SENTENCE
    widths = {len(line) for line in table if line.startswith(("│", "┃"))}
    assert widths == {int(columns or 160)}
