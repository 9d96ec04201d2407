"""The campaign report in a real browser, where there is one: what its script does, on a phone and in the dark, too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from measure.report.html import render
from measure.report.model import Signals
from tests.measure.report.browser import needs_browser, run_in
from tests.measure.report.synthetic_report import synthetic_report

pytestmark = needs_browser

WORK = """
  const $ = (id) => document.getElementById(id), rows = () => $("pairs").tBodies[0].rows;
  const wait = () => new Promise((done) => setTimeout(done, 50));
  const choose = (name, value) => {
    const field = $("filters").elements[name];
    field.value = value;
    field.dispatchEvent(new Event("input", { bubbles: true }));
  };
  const labels = () => [...document.querySelectorAll("#plot-traces svg")].map((svg) => svg.textContent);
  const found = { first: $("pair-title").textContent, all: rows().length, traces: labels().length,
    maps: document.querySelectorAll("#plot-maps rect[data-row]").length };
  choose("text", "event_02");
  found.filtered = [...rows()].map((row) => row.cells[0].textContent);
  choose("text", "");
  choose("verdict", "equivalent");
  found.equivalent = [...rows()].map((row) => row.cells[3].textContent);
  choose("verdict", "");
  const change = [...$("pairs").tHead.rows[0].cells].find((cell) => cell.textContent === "change of z");
  change.querySelector("button").click();
  found.sorted = [...rows()].map((row) => Math.abs(Number(row.cells[6].textContent)));
  found.sort = change.getAttribute("aria-sort");
  const link = rows()[3].querySelector("a");
  link.focus();
  link.click();
  await wait();
  found.chosen = [link.textContent, $("pair-title").textContent, document.activeElement.id];
  found.current = document.querySelectorAll("#pairs tr[aria-current]").length;
  const whole = labels();
  document.querySelector("[data-zoom=in]").click();
  found.zoomed = labels().map((one, n) => one !== whole[n]);
  const svg = document.querySelector("#plot-traces svg"), box = svg.getBoundingClientRect();
  svg.dispatchEvent(new PointerEvent("pointermove", { clientX: box.left + box.width / 2, clientY: box.top + 20 }));
  found.readout = $("readout").textContent;
  found.crosses = document.querySelectorAll("svg .cross").length;
  let saved = "";
  window.Blob = class extends Blob { constructor(parts) { super(parts); saved = parts.join(""); } };
  for (const button of document.querySelectorAll("[data-csv]")) {
    button.click();
    (found.csv ??= {})[button.dataset.csv] = saved.split("\\n").length;
  }
  const cell = document.querySelector("#plot-maps rect[data-row='4'][data-column='3']");
  cell.dispatchEvent(new MouseEvent("click", { bubbles: true }));
  await wait();
  found.fromMap = $("pair-title").textContent;
  location.hash = $("pairs").querySelector("a[href*='outer_held_out']").getAttribute("href");
  await wait();
  found.across = [$("pair-title").textContent, labels().length, $("figure-runs").hidden];
  return found;
"""
LAYOUT = """
  const parts = "#pairs tbody tr:first-child > *, #pair svg, .card, #pair button, .command button";
  const hidden = [...document.querySelectorAll(parts)].filter((one) => {
    const box = one.getBoundingClientRect();
    return one.checkVisibility() && (box.width < 1 || box.left < -1 || box.right > innerWidth + 1);
  });
  return {
    width: innerWidth, page: document.documentElement.scrollWidth, hidden: hidden.map((one) => one.outerHTML),
    paper: getComputedStyle(document.body).backgroundColor,
    labels: getComputedStyle(document.querySelector("#pairs tbody td"), "::before").content,
  };
"""


@pytest.fixture(scope="module")
def page() -> str:
    return render(synthetic_report(5), "results/drawn")


def test_events_that_happen_now_and_then_are_not_cut_off(page: str, tmp_path: Path) -> None:
    script = """
      const rare = [...Array(95).fill(0), ...Array(5).fill(2000)], spike = [...Array(99).keys(), 5000];
      return { rare: bulk(rare), spike: bulk(spike), constant: bulk([7, 7, 7]), zero: bulk([0, 0]) };
    """
    found = run_in(page, script, tmp_path)
    assert found["rare"] == [0, 2100]
    assert found["spike"][1] < 300  # a single spike runs out of the picture
    assert found["constant"] == [6, 8]
    assert found["zero"] == [0, 1]


def test_one_can_work_in_it(page: str, tmp_path: Path) -> None:
    found: dict[str, Any] = run_in(page, WORK, tmp_path)
    assert found["errors"] == []
    assert found["all"] == 2 * (10 + 5)
    assert "in variant 1: " in found["first"]  # the worst is chosen at first
    assert (found["traces"], found["maps"]) == (4, 3 * 10)
    assert len(found["filtered"]) == 2 * (4 + 1)
    assert all("EVENT_02" in name for name in found["filtered"])
    assert set(found["equivalent"]) <= {"equivalent", "changed < delta"}
    assert 0 < len(found["equivalent"]) < found["all"]
    assert found["sorted"] == sorted(found["sorted"], reverse=True)
    assert found["sort"] == "ascending"
    name, title, focused = found["chosen"]
    assert title.startswith(f"{name} in variant 1: ")
    assert (focused, found["current"]) == ("pair-title", 1)
    assert found["zoomed"] == [True] * 4 or found["zoomed"] == [True] * 2  # both runs, by one button
    assert "baseline, record 1" in found["readout"]
    assert "; variant 1, record 1" in found["readout"]
    assert found["crosses"] >= 4
    assert found["csv"]["traces"] == 2 * 300 + 2
    assert found["csv"]["maps"] == 10 + 2
    assert found["csv"]["runs"] == 2 * 8 + 2
    assert found["csv"]["alignment"] > 100
    assert found["fromMap"].startswith(("EVENT_03 – EVENT_04", "EVENT_04 – EVENT_03"))
    assert found["across"][0].endswith("across runs")
    assert found["across"][1:] == [2, True]


def test_a_variant_called_all_is_not_taken_for_any_variant(tmp_path: Path) -> None:
    """`measure init` writes a variant of that name."""
    data = synthetic_report(3)
    names = ("all", "any variant")
    variants = tuple(replace(one, name=name) for one, name in zip(data.variants, names, strict=True))
    script = """
      const field = document.getElementById("filters").elements.variant;
      const rows = document.getElementById("pairs").tBodies[0].rows;
      const options = [...field.options].map((one) => one.textContent);
      const values = [...field.options].map((one) => one.value);
      const shown = values.map((value) => {
        field.value = value;
        field.dispatchEvent(new Event("input", { bubbles: true }));
        return [...new Set([...rows].map((row) => row.cells[1].textContent))].sort();
      });
      return { options, different: new Set(values).size, shown };
    """
    found = run_in(render(replace(data, variants=variants)), script, tmp_path)
    assert found["options"] == ["any variant", *names]
    assert found["different"] == 3
    assert found["shown"] == [["all", "any variant"], ["all"], ["any variant"]]


def test_captions_say_what_is_cut_off_and_left_out(tmp_path: Path) -> None:
    data = synthetic_report(3)
    names = tuple(f"calls{n}" for n in range(6))
    variants = []
    for variant in data.variants:
        one = variant.example
        values = np.column_stack([one.values[:, :3], *[one.values[:, 3]] * len(names)])
        example = replace(one, metrics=(*one.metrics[:3], *names), values=values)
        variants.append(replace(variant, software_metrics=names, example=example))
    script = """
      return { caption: document.getElementById("caption-traces").textContent,
        shown: document.querySelectorAll("#plot-software svg").length };
    """
    found = run_in(render(replace(data, variants=tuple(variants))), script, tmp_path)
    assert found["shown"] == 4
    assert (
        "Last: calls0, calls1, calls2, calls3, the first of 6 software metrics that variant 1 collects."
        in found["caption"]
    )
    assert "single spikes are cut off" in found["caption"]
    found = run_in(render(data), script, tmp_path)
    assert "Last: calls, which variant 1 collects." in found["caption"]


@pytest.mark.parametrize("width", [500, 800, 870, 1050, 1200, 1600])
def test_the_table_of_pairs_is_not_cut_by_long_names(tmp_path: Path, width: int) -> None:
    """Pairs of metrics of perf in a variant `instrumented` hid their p-values even in a window of 1600 pixels."""
    data = synthetic_report(3)
    names = ("cycles", "UOPS_EXECUTED_CYCLES_GE_3_UOPS_EXEC", "LLC-load-misses")
    new = dict(zip(data.hardware_metrics, names, strict=True))

    def renamed(one: Any) -> Any:
        return replace(one, pairs=tuple(replace(pair, a=new[pair.a], b=new[pair.b]) for pair in one.pairs))

    def traced(one: Signals) -> Signals:
        return replace(one, metrics=tuple(new.get(name, name) for name in one.metrics))

    variants = tuple(
        replace(
            one, name=f"instrumented_everywhere_{n}", example=traced(one.example), inner=renamed(one.inner),
            outer_joint=renamed(one.outer_joint), outer_held_out=renamed(one.outer_held_out),
        )
        for n, one in enumerate(data.variants)
    )  # fmt: skip
    data = replace(data, hardware_metrics=names, baseline_example=traced(data.baseline_example), variants=variants)
    script = """
      const field = document.getElementById("filters").elements.relation;
      field.value = "every";
      field.dispatchEvent(new Event("input", { bubbles: true }));
      const table = document.querySelector(".pairs");
      const widths = [...table.querySelector("tbody tr").cells].slice(1).map((cell) => Math.round(cell.clientWidth));
      return { page: document.documentElement.scrollWidth, shown: table.clientWidth, whole: table.scrollWidth, widths };
    """
    found = run_in(render(data), script, tmp_path, width=width)
    assert (found["errors"], found["page"]) == ([], width)
    assert found["whole"] == found["shown"]
    assert (len(set(found["widths"])) == 1) == (width <= 860)  # cards have a line for each value


@pytest.mark.parametrize(("width", "dark"), [(400, False), (800, True)])
def test_it_fits_every_width_in_light_and_dark(page: str, tmp_path: Path, width: int, dark: bool) -> None:
    found = run_in(page, LAYOUT, tmp_path, width=width, dark=dark)
    assert found["errors"] == []
    assert (found["width"], found["page"], found["hidden"]) == (width, width, [])
    assert found["paper"] == ("rgb(20, 25, 31)" if dark else "rgb(255, 255, 255)")
    assert (found["labels"] != "none") == (
        width <= 860
    )  # in a narrow window, rows are cards with a label for each value
