"""Tables on terminals of any width: nothing is cut off, and no word is broken in its middle."""

from __future__ import annotations

import re
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from measure.console.tables import print_table, wrapped

HEADINGS = ("variant", "verdict", "change\nof z", "within a run")
ROWS = [
    ("light_with_a_long_name", "[bold green]equivalent[/]", "+0.00", "no measurable change (p = 0.052); parse.c:12"),
    ("heavy_with_both_counters", "[bold red]perturbed[/], but", "-1.35", "within: changed by more;\nacross: not known"),
]


def printed(width: int, rows: Sequence[tuple[str, ...]] = ROWS) -> str:
    console = Console(file=StringIO(), width=width)
    print_table(console, "demo: 10 baselines", HEADINGS, rows, right=[2])
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", range(20, 121, 4))
def test_no_word_is_broken_in_its_middle_and_verdicts_are_whole(width: int) -> None:
    lines = printed(width).splitlines()
    assert max(map(len, lines)) <= width
    pieces = {
        piece for row in ROWS for cell in row for piece in re.split(r"(?<=[_:])|\s+", Text.from_markup(cell).plain)
    }
    shown = {word for line in lines for word in re.split(r"[\s│┃]+|(?<=[_:])", line)}
    assert pieces - shown == set()
    for verdict in ("equivalent", "perturbed", "-1.35", "0.052"):
        assert any(verdict in line for line in lines)


def test_a_wide_terminal_has_a_table_and_a_narrow_one_has_cards() -> None:
    assert "│ light_with_a_long_name " in printed(120)
    assert "│ heavy_with_both_ " in printed(70)
    assert printed(36).splitlines()[:4] == [
        "demo: 10 baselines", "light_with_a_long_name", "  verdict: equivalent", "  change of z: +0.00",
    ]  # fmt: skip


def test_names_are_broken_only_where_lines_are_shorter_than_they_are() -> None:
    assert wrapped(Text("a PAPI_TOT_INS - PAPI_L1_DCM"), 14).plain.split("\n") == ["a PAPI_TOT_INS", "- PAPI_L1_DCM"]
    assert wrapped(Text("std::vector::push_back"), 9).plain.split("\n") == ["std::", "vector::", "push_back"]
    assert wrapped(Text("p = 0.0005, demo.c:7"), 8).plain.split("\n") == ["p =", "0.0005,", "demo.c:7"]
    assert wrapped(Text("withoutaplace"), 5).plain.split("\n") == ["witho", "utapl", "ace"]
    styled = wrapped(Text.from_markup("[red]one two[/]"), 3)
    assert [style.style for style in styled.spans] == ["red", "red"]


@given(st.text(alphabet="ab_:./ \n0é", max_size=60), st.integers(1, 20))
@settings(deadline=None)
def test_wrapping_keeps_everything_but_spaces(text: str, width: int) -> None:
    lines = wrapped(Text(text), width).plain.split("\n")
    assert max(map(len, lines)) <= width
    assert re.sub(r"\s", "", "".join(lines)) == re.sub(r"\s", "", text)


@given(st.lists(st.tuples(*[st.text(alphabet="ab_[] \n", max_size=30)] * 4), max_size=4), st.integers(12, 90))
@settings(deadline=None, max_examples=50)
def test_any_cells_fit(rows: list[tuple[str, ...]], width: int) -> None:
    shown = printed(width, [tuple(map(escape, row)) for row in rows])
    assert max(map(len, shown.splitlines())) <= width


def test_a_title_is_not_broken_by_a_narrow_table() -> None:
    console = Console(file=StringIO(), width=60)
    print_table(console, "demo: a title that is longer than its table", ("a", "b"), [("1", "2")], right=[1])
    assert isinstance(console.file, StringIO)
    assert console.file.getvalue().splitlines()[:2] == ["demo: a title that is longer than its table", "┏━━━┳━━━┓"]


def test_facts_without_headings_have_no_head() -> None:
    facts = [("runs", "40 runs: 10 baselines, 10 of each"), ("disk", "of experiments_with_a_long_name/program.c")]
    console = Console(file=StringIO(), width=30)
    print_table(console, "what it takes", ("", ""), facts)
    assert isinstance(console.file, StringIO)
    assert console.file.getvalue().splitlines() == [
        "what it takes", "┌──────┬─────────────────────┐", "│ runs │ 40 runs: 10         │",
        "│      │ baselines, 10 of    │", "│      │ each                │", "│ disk │ of                  │",
        "│      │ experiments_with_a_ │", "│      │ long_name/program.c │", "└──────┴─────────────────────┘",
    ]  # fmt: skip


def test_all_tables_of_the_commands_are_printed_by_this_module() -> None:
    """So that all have one style, and none breaks words and numbers."""
    package = Path(__file__).parents[3] / "measure"
    users = [path for path in package.rglob("*.py") if "rich.table" in path.read_text("utf-8")]
    assert [path.relative_to(package).as_posix() for path in users] == ["console/tables.py"]
