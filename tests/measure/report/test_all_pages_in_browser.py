"""All pages in a real browser, where there is one: figures that zoom together, phones, the dark, and axe-core."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest

from measure.explanation.page import render_page
from tests.measure.explanation.made_up import explanation
from tests.measure.report.browser import needs_browser, run_in
from tests.measure.report.made_up_pages import PAGES

pytestmark = needs_browser

DRAWN = ["merged", "phases", "vectors", "cycle-close", "cycle-close, not validated"]
WORK = """
  const titles = () => [...document.querySelectorAll("[data-traces] .title")].map((one) => one.textContent);
  const drawn = () => [...document.querySelectorAll("[data-traces] svg")];
  const plots = () => drawn().map((svg) => svg.innerHTML.replace(/clip-\\d+/g, ""));
  const found = { plots: plots().length, titles: titles() };
  const whole = plots();
  document.querySelector("[data-zoom=in]").click();
  found.zoomed = plots().map((one, n) => one !== whole[n]);
  document.querySelector("[data-zoom=later]").click();
  const later = plots();
  document.querySelector("[data-zoom=all]").click();
  found.back = plots().every((one, n) => one === whole[n]) && later.some((one, n) => one !== whole[n]);
  const svg = document.querySelector("[data-traces] svg"), box = svg.getBoundingClientRect();
  const at = (type, share) => svg.dispatchEvent(new PointerEvent(type, { clientX: box.left + share * box.width,
    clientY: box.top + 20, pointerId: 1, bubbles: true }));
  at("pointermove", 0.5);
  found.readouts = [...document.querySelectorAll("[data-traces] output")].map((one) => one.textContent);
  found.pointed = titles();
  found.crosses = document.querySelectorAll("svg .cross").length;
  svg.setPointerCapture = () => {};
  at("pointerdown", 0.4);
  at("pointermove", 0.6);
  at("pointerup", 0.6);
  found.dragged = plots().map((one, n) => one !== whole[n]);
  let saved = "";
  window.Blob = class extends Blob { constructor(parts) { super(parts); saved = parts.join(""); } };
  found.csv = [...document.querySelectorAll("[data-csv]")].map((button) => { button.click(); return saved; });
  found.choices = document.querySelectorAll("fieldset input").length;
  return found;
"""
LAYOUT = """
  for (const one of document.querySelectorAll("details")) one.open = true;
  const parts = "svg, .card, button, td, tbody th, figcaption, .command code, fieldset";
  const outside = [...document.querySelectorAll(parts)].filter((one) => {
    const box = one.getBoundingClientRect();
    return one.checkVisibility() && !one.closest(".scroll, .pairs") && (box.left < -1 || box.right > innerWidth + 1);
  });
  const { violations } = window.axe ? await axe.run(document, { resultTypes: ["violations"] }) : { violations: [] };
  return { page: document.documentElement.scrollWidth,
    violations: violations.map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map((one) => one.html.slice(0, 160))}`),
    outside: outside.map((one) => one.outerHTML.slice(0, 200)),
    paper: getComputedStyle(document.body).backgroundColor,
    squeezed: [...document.querySelectorAll("[data-traces] svg")].filter((one) => one.clientWidth < 200).length };
"""


def axe_core() -> str | None:
    """The script of axe-core, of the package axe-core-python; None without it."""
    found = importlib.util.find_spec("axe_core_python")
    if found is None or not found.submodule_search_locations:
        return None
    return (Path(found.submodule_search_locations[0]) / "axe.min.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", DRAWN)
def test_figures_zoom_and_point_together(name: str, tmp_path: Path) -> None:
    found = run_in(PAGES[name](), WORK, tmp_path)
    assert found["errors"] == []
    assert found["plots"] == len(found["titles"]) >= 2
    assert found["zoomed"] == [True] * found["plots"]
    assert found["back"]
    assert found["crosses"] == found["plots"]
    assert all(one.startswith(("interval 1", "record 1", "record 9")) for one in found["readouts"])
    assert found["pointed"] != found["titles"]
    assert found["dragged"] == [True] * found["plots"]
    assert all(len(one.splitlines()) > 200 for one in found["csv"])


def test_csv_of_figures_is_what_the_trace_says(tmp_path: Path) -> None:
    rates, phases = run_in(PAGES["cycle-close"](), WORK, tmp_path)["csv"]
    head, *rows = [line.split(",") for line in rates.splitlines()]
    assert head[:5] == ["interval", "begin_instructions", "end_instructions",
                        "CPI [cycles/instruction] full simulation", "CPI [cycles/instruction] cycle-close"]  # fmt: skip
    assert rows[5][:3] == ["5", "5000", "6000"]
    assert rows[5][4] == ""  # no estimate
    assert abs(float(rows[17][4]) - 2.07) < 1e-3
    head, *rows = [line.split(",") for line in phases.splitlines()]
    assert head == ["interval", "begin_instructions", "end_instructions", "phase", "group"]
    assert rows[10] == ["10", "10000", "11000", "1", "simulated"]
    assert rows[5][4] == "unsampled"


def test_metrics_of_a_merged_trace_are_chosen(tmp_path: Path) -> None:
    script = """
      const boxes = [...document.querySelectorAll("fieldset input")];
      const count = () => document.querySelectorAll("[data-traces=rates] svg").length;
      const before = count();
      boxes[0].click();
      return { boxes: boxes.length, before, after: count() };
    """
    page = PAGES["cycle-close"]()
    few = run_in(page, script.replace("boxes[0].click();", ""), tmp_path)
    assert (few["boxes"], few["before"]) == (0, 2)
    many = page.replace('"rows":[', '"rows":[' + ",".join(6 * ['{"title":"T","zones":[],"lines":[]}']) + ",")
    found = run_in(many, script, tmp_path)
    assert (found["boxes"], found["before"], found["after"], found["errors"]) == (8, 8, 7, [])


@pytest.mark.parametrize(("width", "dark"), [(400, True), (800, False)])
@pytest.mark.parametrize("name", PAGES)
def test_pages_fit_every_width_in_light_and_dark_and_axe_core_finds_nothing(
    name: str, width: int, dark: bool, tmp_path: Path
) -> None:
    page, axe = PAGES[name](), axe_core()
    place = page.index("<head>") + len("<head>")
    if axe is not None:
        page = f"{page[:place]}<script>{axe}</script>{page[place:]}"
    found = run_in(page, LAYOUT, tmp_path, width=width, dark=dark)
    assert (found["errors"], found["outside"], found["squeezed"]) == ([], [], 0)
    assert found["page"] == width
    assert found["paper"] == ("rgb(20, 25, 31)" if dark else "rgb(255, 255, 255)")
    assert found["violations"] == []


def test_a_page_that_begins_with_a_section_has_one_rule_below_its_header(tmp_path: Path) -> None:
    """Two rules with nothing in between looked like an empty section."""
    script = """
      const header = document.querySelector("header"), headings = [...document.querySelectorAll("section > h2")];
      const borders = headings.map((one) => parseFloat(getComputedStyle(one).borderTopWidth) > 0);
      return { borders, gap: headings[0].getBoundingClientRect().top - header.getBoundingClientRect().bottom };
    """
    one = explanation()
    found = run_in(render_page("made up", [one, replace(one, variant="light")], {}), script, tmp_path)
    assert found["borders"] == [False, True]
    assert 0 < found["gap"] < 40


@pytest.mark.skipif(axe_core() is None, reason="no axe-core: pip install axe-core-python")
def test_axe_core_sees_what_is_wrong(tmp_path: Path) -> None:
    page = (
        f'<html lang="en"><head><script>{axe_core()}</script></head><body><main><img src="data:,"></main></body></html>'
    )
    found = run_in(page, LAYOUT, tmp_path)["violations"]
    assert any(one.startswith("image-alt: ") for one in found)
