"""What all pages share: structure, captions and data of figures, nothing from a network; and how figures are packed."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from markupsafe import escape

from measure.cycle_close import trace_page
from measure.report.packing import bucket_starts, packed_series
from measure.report.page import embedded_json, plain_page, render_page
from measure.report.traces import MOST_IN_STRIP, TRACE_VALUES, Line, Row, Square, Strip, TraceFigure, scripts
from tests.measure.report.made_up_pages import CYCLE_CLOSE, PAGES, cycle_close, cycle_close_columns
from tests.measure.report.page_structure import figures_without_caption_or_data, problems
from tests.measure.report.test_page import unpacked


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return {name: make() for name, make in PAGES.items()}


@pytest.mark.parametrize("name", PAGES)
def test_structure_captions_and_data(pages: dict[str, str], name: str) -> None:
    page = pages[name]
    assert problems(page) == []
    assert figures_without_caption_or_data(page) == []
    assert "{{" not in page
    assert "{%" not in page
    assert not re.search(r"\bnan\b|\bundefined\b", re.sub(r"<(script|style).*?</\1>|data:[^\"]*", "", page, flags=re.S))


@pytest.mark.parametrize("name", PAGES)
def test_nothing_comes_from_a_network(pages: dict[str, str], name: str) -> None:
    page = pages[name]
    addresses = re.findall(r'(?:src|href)="([^"]*)"', re.sub(r"<script.*?</script>", "", page, flags=re.S))
    assert all(one.startswith(("data:", "#")) for one in addresses)
    assert not re.search(r"@import|url\((?!#)|https?://", page.replace("http://www.w3.org", ""))


@pytest.mark.parametrize("name", PAGES)
def test_text_of_users_cannot_become_markup(pages: dict[str, str], name: str) -> None:
    body = pages[name][pages[name].index("<body>") :]
    assert not re.search(r"<(up|b|more|all)>(?!Best|[^<]*</b>)", re.sub(r"<script.*?</script>", "", body, flags=re.S))


def test_a_page_without_jinja_is_the_base_with_its_blocks() -> None:
    blocks = {"title": "T", "heading": "H", "sub": "S", "content": "<p>C</p>"}
    plain = plain_page(**blocks)
    plain = re.sub(r">[THS]<|<p>C</p>", lambda found: ">\n<" if found[0][0] == ">" else "", plain)
    rendered = render_page("base.html.jinja")
    assert re.sub(r"\s+", "", plain) == re.sub(r"\s+", "", rendered)


def drawn(figure: TraceFigure) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="traces">(.*?)</script>', scripts([figure]), re.S)
    assert found
    (one,) = json.loads(found[1])
    return dict(one)


def edges_of(one: dict[str, Any]) -> np.ndarray:
    lengths = one["edges"]["lengths"]
    whole = lengths if isinstance(lengths, list) else unpacked(lengths)
    return np.cumsum(np.append(one["edges"]["start"], whole))


@pytest.mark.parametrize("longest", [1200, 10**9])
def test_edges_of_intervals_are_exact(longest: int) -> None:
    lengths = np.random.default_rng(1).integers(1000, longest, 500)
    edges = np.cumsum(np.append(77, lengths))
    one = drawn(TraceFigure("f", edges, "cycles", "record", "c", rows=(Row("r", (Line("l", lengths),)),)))
    assert np.array_equal(edges_of(one), edges)
    assert one["first"] is None


def test_long_series_keep_their_extremes_and_their_gaps() -> None:
    n = TRACE_VALUES + 5
    values = np.ones(n)
    values[1001], values[n - 1] = 50, -3
    values[: n // 2 : 2] = np.nan
    edges = 10 * np.arange(n + 1)
    one = drawn(
        TraceFigure("f", edges, "cycles", "record", "c", rows=(Row("r", (Line("l", values),), ((1001, 1002),)),))
    )
    low, mean, high = (unpacked(part) for part in one["rows"][0]["lines"][0]["parts"])
    assert (high.max(), low.min()) == (50, -3)
    assert len(one["first"]) == len(low) == len(edges_of(one)) - 1
    assert edges_of(one)[-1] == edges[-1]
    assert np.allclose(mean[len(mean) // 4], 1, atol=1e-3)
    assert one["rows"][0]["zones"] == [[10_010, 10_020]]
    empty = packed_series(np.full(400, np.nan), bucket_starts(400, 300))
    assert all(np.isnan(unpacked(part)).all() for part in empty)


def test_a_strip_of_too_many_intervals_says_which_it_has() -> None:
    n = 2 * MOST_IN_STRIP
    phases = np.arange(n) % 7
    strip = Strip("Phase", phases, np.zeros(n, np.int64), (("all", "after"),), (n - 1,))
    one = drawn(TraceFigure("f", 10 * np.arange(n + 1), "instructions", "interval", "c", strip=strip))
    assert one["first"][:3] == [0, 2, 4]
    assert np.array_equal(unpacked(one["strip"]["phases"]), phases[::2])
    assert one["strip"]["points"] == [[10 * n - 5, phases[-1]]]


def test_a_square_of_stretches_begins_where_they_do() -> None:
    values = np.abs(np.subtract.outer(np.arange(7.0), np.arange(7)))
    one = drawn(TraceFigure("f", 10 * np.arange(101), "x", "interval", "c", square=Square("s", values, 2.0)))
    assert one["first"] == [0, 14, 28, 42, 57, 71, 85]
    assert unpacked(one["square"]["values"])[:3].tolist() == [0, 1, 0]


def test_a_page_of_a_cycle_close_trace_needs_no_jinja_no_table_and_no_picture() -> None:
    """They would take the command longer than everything else in the page."""
    import subprocess
    import sys

    code = (
        "import sys; from measure.cycle_close import trace_page\n"
        "print({'jinja2', 'matplotlib', 'pandas', 'scipy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
    assert "<!doctype html>" in cycle_close()
    assert embedded_json({"a": "</"}) == '{"a":"\\u003c/"}'


def test_the_command_to_validate_is_the_one_that_made_the_trace() -> None:
    about = {**CYCLE_CLOSE, "settings": {**CYCLE_CLOSE["settings"], "threshold": 0.125, "warm_up": "queues"}}
    page = trace_page.render_page(about, cycle_close_columns(), None)
    expected = (
        "measure cycleclose --machine m.yaml --set l1d.size=4k --interval 1000 --threshold 12.5 --warm-up 50000,50000 "
        "--seed 7 --validate 'dir/made<up>.c' 'a b'"
    )
    assert f"<code>{escape(expected)}</code>" in page
    assert "Estimates of CPI are 30% off in the mean" in page  # by the intervals that were sampled again
    assert "of the intervals are unsampled" not in page
    assert "Small deviations do not say" in page


def test_the_top_of_a_trace_names_what_is_furthest_off() -> None:
    page = cycle_close()
    told = page[page.index("<h2>What to do</h2>") : page.index("</section>")]
    assert (
        "<b>Far off: memory_writes, -60% in the whole run. Furthest off of the metrics: CPI [cycles/instruction], an "
        "interval 2.0% on average, the whole run 2.0%. CPI of an interval is 2.0% off on average"
    ) in told
    assert "Use nothing that is far off" in told
    assert "Small deviations" not in told


def test_a_trace_with_many_unsampled_intervals_says_first_how_to_sample_them() -> None:
    about = {**CYCLE_CLOSE, "share": {"simulated": 0.3, "matched": 0.4, "unsampled": 0.3}}
    page = trace_page.render_page(about, cycle_close_columns(), None)
    told = page[page.index("<ol") : page.index("</li>")]
    assert "30.0% of the intervals are unsampled" in told
    assert "measure cycleclose --machine m.yaml" in told
    assert "--roll-back" in told
    assert "Try to leave no phase unsampled" not in page


def test_an_unfinished_partition_says_how_to_go_on_and_what_was_not_confirmed() -> None:
    page = PAGES["partition"]()
    told = page[page.index("<h2>What to do</h2>") : page.index("</section>")]
    assert "Go on where the search stopped; group2, group3 may perturb until it has:" in told
    assert 'data-copy="measure partition mine.yaml --minutes 3"' in told
    assert "fresh runs confirmed group1, but not group2, group3." in told
    assert told.index("measure partition") < told.index("measure run") < told.index("measure merge")
