"""The campaign report as a page: what is in it, its size, and that it stands on its own."""

from __future__ import annotations

import base64
import itertools
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from measure.cycle_close.trace_page import CATEGORIES
from measure.perturbation.finding import RESULTS, Finding
from measure.perturbation.findings import advice_on
from measure.report.elements import code_markup
from measure.report.figures import _run_ticks, across_runs, across_runs_data
from measure.report.html import STATIC_ROWS, render
from measure.report.model import ReportData
from measure.report.next_steps import headline, next_steps
from measure.report.packing import packed
from measure.report.page import embedded_json
from measure.report.page_data import TRACE_VALUES, interval_text, page_data, pair_name, pair_rows
from measure.report.pair_columns import PAIR_COLUMNS, pair_values
from measure.report.style import DARK_VERDICTS, VERDICTS
from tests.measure.report.page_structure import problems
from tests.measure.report.synthetic_report import synthetic_report

MOST_BYTES = 2_000_000
STYLE = Path(__file__).parents[3] / "measure" / "report" / "style.css"


@pytest.fixture(scope="module")
def data() -> ReportData:
    return synthetic_report(5)


@pytest.fixture(scope="module")
def page(data: ReportData) -> str:
    return render(data, "results/drawn")


def unpacked(one: dict[str, Any]) -> np.ndarray:
    if "f" in one:
        return np.frombuffer(base64.b64decode(one["f"]), "<f4").astype(float)
    steps = np.frombuffer(base64.b64decode(one["q"]), "<u2").astype(float)
    return np.where(steps == 65535, np.nan, one["lo"] + one["step"] * steps)


def data_in(page: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert found
    return json.loads(found.group(1))


def test_the_structure_can_be_used_without_seeing_or_pointing(page: str) -> None:
    assert problems(page) == []


def test_the_page_loads_nothing(page: str) -> None:
    addresses = re.findall(r'(?:src|href)="([^"]*)"', re.sub(r"<script.*?</script>", "", page, flags=re.S))
    assert addresses
    assert all(one.startswith(("data:", "#")) for one in addresses)
    assert not re.search(r"@import|url\((?!#)|https?://", page.replace("http://www.w3.org", ""))


def test_what_to_do_comes_first_and_has_commands_to_copy(page: str) -> None:
    assert page.index("<h2>What to do</h2>") < page.index("<h2>Verdicts</h2>") < page.index("<h2>Pairs of metrics</h2>")
    assert 'data-copy="measure explain results/drawn"' in page
    assert "A &lt;b&gt;finding&lt;/b&gt;." in page
    assert "given the directory of these results" not in page


def test_an_equivalent_campaign_says_what_to_do(data: ReportData) -> None:
    good = replace(data, variants=data.variants[:1], said=())
    assert [one.verdict for one in good.variants] == ["equivalent"]
    assert [step.commands for step in next_steps(good, "r")] == [("measure merge r --out merged.parquet",)]
    assert next_steps(good) == ()
    # A report told the reader to use the counters below a control that had failed.
    assert next_steps(replace(good, invalidating=("The positive control was not found.",)), "r") == ()
    one = good.variants[0]
    first, *others = one.inner.pairs
    unseen = replace(one.inner, pairs=(*others, replace(first, verdict="not assessable")))
    (step,) = next_steps(replace(good, variants=(replace(one, inner=unseen),)), "r")
    assert step.text.endswith(f"Not judged, so not shown to be unchanged: {first.name} of variant 0.")
    blind = replace(good, variants=(replace(one, inner=replace(one.inner, verdict="not assessable")),))
    assert blind.variants[0].verdict == "equivalent"  # across runs
    (step,) = next_steps(blind, "r")
    assert "nothing could be seen in variant 0" in step.text
    assert step.commands == ()
    assert headline(blind) == "Equivalent across runs, not assessable within a run: variant 0."
    unaligned = replace(good, variants=(replace(one, outer_held_out=replace(one.inner, verdict="not assessable")),))
    assert unaligned.variants[0].verdict == "equivalent"  # within a run
    (step,) = next_steps(unaligned, "r")
    assert "Across runs nothing could be judged of variant 0: whether these runs align" in step.text
    assert "No command follows from the verdicts" in render(good)


def test_a_page_without_variants_has_no_empty_parts(data: ReportData) -> None:
    finding = Finding("No software metrics are given: `measure run --counts c.yaml` says how often they fire.")
    page = render(replace(data, variants=(), said=(finding,), ground_truth=None))
    assert problems(page) == []
    assert 'data-copy="measure run --counts c.yaml"' in page
    assert re.findall(r"<h2>(.*?)</h2>", page) == ["What to do", "Provenance"]
    assert "<img" not in page


def test_a_remedy_that_helped_is_something_to_do(data: ReportData) -> None:
    """The words of a sentence decide nothing: only its kind and its commands do."""
    helped = Finding("To sample every 8th event makes the relations equivalent.", "remedy", heading="variant 1")
    told = replace(data, said=(Finding("all of the change comes from calls.", heading="variant 1"), helped))
    assert [(step.text, step.commands) for step in next_steps(told)] == [(helped.text, ())]
    more = replace(data, said=(Finding("more runs would settle it: `measure run c.yaml` makes them.", "next"),))
    assert [step.text for step in next_steps(more)] == ["More runs would settle it: `measure run c.yaml` makes them."]
    helped = replace(helped, in_results=f"Sampled; `measure run {RESULTS}/explain/v.yaml` runs the campaign with it.")
    (step,) = next_steps(replace(data, said=(helped,)), "results/mine")
    assert step.commands == ("measure run results/mine/explain/v.yaml",)


def test_traces_of_other_tools_are_told_what_not_to_do(data: ReportData) -> None:
    advice = replace(advice_on("inner", one_metric=True), heading="variant 1, within a run", of_comparison=True)
    (step,) = next_steps(replace(data, said=(Finding("A pair."), advice)))
    assert (step.text, step.commands, step.finding) == (advice.text, (), advice)


def test_verdicts_table_and_overview_are_there_without_the_script(page: str, data: ReportData) -> None:
    without = re.sub(r"<script.*?</script>", "", page, flags=re.S)
    table = without[without.index('id="pairs"') : without.index("</table>", without.index('id="pairs"'))]
    assert table.count("<tr") == 1 + sum(
        len(one.pairs) for variant in data.variants for one in (variant.inner, variant.outer_held_out) if one
    )
    assert table.index("EVENT_00") < table.index("equivalent")  # the metric that changed is in the worst pairs
    assert '<img alt="Change of each pair with its interval in variant 1" src="data:image/svg+xml' in without
    assert "<progress" not in without


def test_every_figure_has_a_caption_and_its_data(page: str) -> None:
    figures = re.findall(r"<figure.*?</figure>", page, re.S)
    assert len(figures) >= 7
    for figure in figures:
        assert "<figcaption" in figure
        assert 'href="data:text/csv' in figure or "data-csv=" in figure


def test_runs_of_each_variant_are_numbered_from_zero_as_in_the_data_and_the_library(data: ReportData) -> None:
    """They were numbered on, so that the first run of a variant was 12; and from 1, where the data began at 0."""
    assert _run_ticks([10, 3, 1]) == [(0, 0), (3, 3), (6, 6), (9, 9), (11, 0), (12, 1), (13, 2), (15, 0)]
    _, rows = across_runs_data(data)
    assert [row[1] for row in rows[: len(data.baseline_rho)]] == list(range(len(data.baseline_rho)))
    (axes,) = across_runs(data).axes
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert labels == ["0", "2", "5", "7"] * (1 + len(data.variants))


def test_columns_say_what_intervals_and_alignments_they_have(page: str, data: ReportData) -> None:
    for which in ("this pair", "all pairs"):  # *equivalent* is decided by the one, *perturbed* by the other
        assert f'<th scope="col">interval ({which})</th>' in page
    rows = {(row["variant"], row["relation"], row["name"]): row["interval"] for row in pair_rows(data, 10_000)}
    for variant in data.variants:
        worst = variant.inner.pairs[0]
        low, high = worst.simultaneous
        assert rows[variant.name, "within a run", pair_name(worst)] == f"{low:+.3f} to {high:+.3f}"
    assert interval_text(-np.inf, 0.25) == "at most +0.250"
    assert interval_text(-np.inf, np.inf) == interval_text(np.nan, np.nan) == "unknown"
    assert "across runs, aligned on the other metrics</th>" in page


def test_csv_of_a_figure_has_what_it_shows(page: str, data: ReportData) -> None:
    found = re.search(r'download="runs.csv" href="data:text/csv;base64,([^"]*)"', page)
    assert found
    head, *rows = base64.b64decode(found.group(1)).decode().splitlines()
    assert head.startswith("variant,run,PAPI_EVENT_0")
    assert len(rows) == len(data.baseline_rho) + sum(len(one.rho) for one in data.variants)
    found = re.search(r'download="changes-variant 1.csv" href="data:text/csv;base64,([^"]*)"', page)
    assert found
    head, first, *_ = base64.b64decode(found.group(1)).decode().splitlines()
    columns = head.split(",")
    assert set(columns) < set(PAIR_COLUMNS)
    worst = pair_values(data.variants[1].inner.pairs[0])
    assert first == ",".join(str(worst[column]) for column in columns)


def test_numbers_of_the_script_are_those_of_the_analysis(page: str, data: ReportData) -> None:
    found = data_in(page)
    inner = data.variants[1].inner
    columns = {name: unpacked(one) for name, one in found["variants"][1]["comparisons"]["inner"]["columns"].items()}
    for name, attribute in (("delta_z", "delta_z"), ("baseline_rho", "baseline_rho"), ("p", "p_adjusted")):
        assert np.allclose(columns[name], [getattr(pair, attribute) for pair in inner.pairs], rtol=1e-7, atol=0)
    assert [found["metrics"][int(n)] for n in columns["a"]] == [pair.a for pair in inner.pairs]
    assert found["shortNames"]["PAPI_EVENT_02"] == "EVENT_02"
    trace = found["baseline"]["example"]
    assert trace["buckets"] == 0
    assert np.array_equal(
        unpacked(trace["series"]["PAPI_EVENT_02"][0]), data.baseline_example.series("PAPI_EVENT_02")
    )  # counts are exact
    before = np.tanh(np.arctanh(data.baseline_rho[:, 2, 1]).mean())
    assert unpacked(found["baseline"]["rho"])[2] == pytest.approx(before, abs=1e-4)
    i, j = found["runPairs"][0]
    runs = found["variants"][1]["runs"]
    assert unpacked(runs)[: runs["n"]] == pytest.approx(data.variants[1].rho[:, i, j], abs=1e-4)


def test_the_alignment_of_the_example_runs_is_there(page: str) -> None:
    paths = data_in(page)["variants"][1]["paths"]
    assert sorted(paths["heldOut"]) == ["0", "1", "2", "3", "4"]
    for path in (paths["joint"], *paths["heldOut"].values()):
        records = unpacked(path)
        assert 0 <= records[0] < records[-1] <= 299.001
        assert (np.diff(records) >= 0).all()


def test_long_traces_keep_their_extremes(data: ReportData) -> None:
    records = TRACE_VALUES  # of 5 metrics in 3 runs: more than fit
    values = np.ones((records, 5))
    values[777, 2] = 900
    long = replace(data, baseline_example=replace(data.baseline_example, values=values))
    trace = page_data(long)["baseline"]["example"]
    low, mean, high = (unpacked(one) for one in trace["series"]["PAPI_EVENT_02"])
    assert trace["records"] == records
    assert 0 < trace["buckets"] == len(low) < records / 3
    assert (low.min(), high.max(), int(high.argmax())) == (1, 900, 777 * trace["buckets"] // records)
    assert (mean.min(), mean.max()) == pytest.approx((1, 1 + 899 * trace["buckets"] / records), rel=0.01)
    assert "joint" not in page_data(long)["variants"][0]["paths"]  # too long to be aligned for a page


@pytest.mark.parametrize(
    "values", [[], [5], [1, 65535], [-3, 10**12, 4], [0.25, np.nan, 1e-9], [np.nan], [np.inf, 1.0]]
)
def test_packed_numbers_come_back(values: list[float]) -> None:
    numbers = np.array(values, np.float64)
    numbers[~np.isfinite(numbers)] = np.nan
    span = np.ptp(numbers[np.isfinite(numbers)]) if np.isfinite(numbers).any() else 0
    assert np.allclose(unpacked(packed(numbers)), numbers, atol=span / 65_000, equal_nan=True)
    if span < 65_535 and (numbers == np.round(numbers)).all():
        assert np.array_equal(unpacked(packed(numbers)), numbers)


def test_fifty_metrics_stay_below_two_megabytes() -> None:
    large = synthetic_report(50, variants=2, runs=6, records=1500)
    assert len(large.variants[0].inner.pairs) == 1225
    page = render(large, "results/large")
    assert len(page.encode()) < MOST_BYTES
    assert f"{STATIC_ROWS} of {2 * 1275} pairs, worst first; summary.json has all" in page
    assert problems(page) == []


def test_text_of_a_campaign_cannot_become_markup() -> None:
    assert embedded_json({"a": "</script><b>"}) == '{"a":"\\u003c/script>\\u003cb>"}'
    assert code_markup("`measure run x` & <b>") == "<code>measure run x</code> &amp; &lt;b&gt;"


def luminance(colour: str) -> float:
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def test_text_stands_out_from_what_is_behind_it(page: str) -> None:
    """A contrast of 4.5 (WCAG 2.2, success criterion 1.4.3), in light and dark, on every background."""
    style = page[page.index("<style>") : page.index("</style>")]
    blocks = re.findall(r":root \{([^}]*)\}", style)
    light, dark, light_verdicts, dark_verdicts = (dict(re.findall(r"--([\w-]+):(#\w+);", one)) for one in blocks)
    for colours, verdicts, expected in ((light, light_verdicts, VERDICTS), (dark, dark_verdicts, DARK_VERDICTS)):
        assert list(verdicts.values()) == list(expected.values())
        whole = {name: one if len(one) == 7 else "#" + "".join(2 * c for c in one[1:]) for name, one in colours.items()}
        for behind in ("paper", "wash", "spot"):
            texts = {name: whole[name] for name in ("ink", "muted", "link")} | verdicts
            for name, text in texts.items():
                if behind != "spot" or name != "muted":
                    assert contrast(text, whole[behind]) >= 4.5, f"{name} {text} on {behind} {whole[behind]}"


# What eyes without one kind of cones make of linear red, green and blue (Machado, Oliveira and Fernandes, 2009).
EYES = np.array([
    np.eye(3),
    [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
])  # fmt: skip
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)


def seen(colour: str, eyes: NDArray[np.float64]) -> NDArray[np.float64]:
    """The colour in CIELAB, where equal distances look about alike."""
    parts = np.array([int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    x, y, z = TO_XYZ @ np.clip(eyes @ linear, 0, 1) / TO_XYZ.sum(axis=1)
    x, y, z = (np.cbrt(one) if one > 0.008856 else 7.787 * one + 16 / 116 for one in (x, y, z))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_how_intervals_were_obtained_can_be_told_apart_by_all_eyes() -> None:
    """In the light theme, blue and slate were as dark as one another, and 18 apart for eyes without cones for blue."""
    light, dark = re.findall(r":root \{([^}]*)\}", STYLE.read_text())[:2]
    for theme in (light, dark):
        colours = dict(re.findall(r"--([\w-]+):(#\w{6});", theme))
        used = [colours["link" if style == "fourth" else style] for _, style in CATEGORIES]
        paper = colours.get("paper", "#ffffff")
        assert all(contrast(one, paper) >= 3 for one in used)  # WCAG 2.2, success criterion 1.4.11
        for eyes, (one, other) in itertools.product(EYES, itertools.combinations(used, 2)):
            assert np.linalg.norm(seen(one, eyes) - seen(other, eyes)) >= 28, (one, other)


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [value for name, value in attrs if name == "id" and value]


def test_what_the_script_asks_for_is_there(page: str) -> None:
    parser = _Links()
    parser.feed(page)
    assert len(parser.ids) == len(set(parser.ids))
    assert set(re.findall(r'\$\("([\w-]+)"\)', page)) <= set(parser.ids)
