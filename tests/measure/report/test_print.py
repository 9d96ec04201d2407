"""Pages on paper, in a real browser, where there is one: white, whole, without controls, as wide as the paper."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.measure.report.browser import BROWSER, needs_browser, run_in
from tests.measure.report.made_up_pages import PAGES

pytestmark = needs_browser

A4_WIDTH_PIXELS = 717  # 210 mm without Chromium's margins, at 96 pixels an inch
MOST_SHEETS = {"report": 9, "phases": 5}
"""Of A4 for the pages of `PAGES`, others 4."""

ON_PAPER = """
  for (const sheet of document.styleSheets)
    for (const rule of sheet.cssRules)
      if (rule.media) {
        const kind = rule.media.mediaText;
        if (kind === "print") rule.media.mediaText = "all";
        else if (kind.includes("screen")) rule.media.mediaText = "not all";
      }
  const shown = (one) => one.checkVisibility({ contentVisibilityAuto: true }) && one.getBoundingClientRect().height > 0;
  const outside = [...document.querySelectorAll("svg, svg text, img, td, th, figcaption, code, p")].filter((one) => {
    const box = one.getBoundingClientRect();
    return box.width && (box.left < -1 || box.right > innerWidth + 1 || cut(one, box));
  });
  function cut(one, box) {  // what an ancestor hides
    const frame = one.tagName === "text" ? one.closest("svg") : one.closest(".scroll, .pairs");
    const edge = frame?.getBoundingClientRect();
    return edge && (box.right > edge.right + 1 || box.left < edge.left - 1 ||
      (frame.matches(".pairs") && box.bottom > edge.bottom + 1));
  }
  return { page: document.documentElement.scrollWidth,
    outside: outside.map((one) => one.outerHTML.slice(0, 160)),
    paper: getComputedStyle(document.body).backgroundColor,
    controls: [...document.querySelectorAll("button, select, input, a[download]")]
      .filter((one) => shown(one) && !one.closest("thead")).map((one) => one.outerHTML.slice(0, 120)),
    folded: [...document.querySelectorAll("details table, details p")]
      .filter((one) => !one.querySelector("a[download]") && !shown(one)).length,
    heads: [...document.querySelectorAll("thead")].map((one) => getComputedStyle(one).display),
    stuck: [...document.querySelectorAll("thead th")]
      .filter((one) => getComputedStyle(one).position !== "static").length,
    unpainted: [...document.querySelectorAll("thead button")]  // in heads that are repeated, buttons stay empty
      .filter((one) => getComputedStyle(one).display !== "contents").length,
    split: [...document.querySelectorAll("figure, tr, .card, .todo")]
      .filter((one) => getComputedStyle(one).breakInside !== "avoid").length,
    commands: [...document.querySelectorAll(".command code")].every((one) => one.scrollWidth <= one.clientWidth + 1) };
"""


@pytest.mark.parametrize("name", PAGES)
def test_pages_are_whole_on_paper(name: str, tmp_path: Path) -> None:
    found = run_in(PAGES[name](), ON_PAPER, tmp_path, width=A4_WIDTH_PIXELS, dark=True)
    assert (found["errors"], found["outside"], found["controls"]) == ([], [], [])
    assert (found["folded"], found["stuck"], found["unpainted"], found["split"]) == (0, 0, 0, 0)
    assert set(found["heads"]) <= {"table-header-group"}
    assert found["page"] == A4_WIDTH_PIXELS
    assert found["paper"] == "rgb(255, 255, 255)"
    assert found["commands"]


@pytest.mark.parametrize("name", PAGES)
def test_pages_take_few_sheets(name: str, tmp_path: Path) -> None:
    page, sheets = tmp_path / "page.html", tmp_path / "page.pdf"
    page.write_text(PAGES[name](), encoding="utf-8")
    assert BROWSER is not None
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
        "--disable-component-update", "--disable-sync", "--no-first-run", f"--user-data-dir={tmp_path / 'profile'}",
        "--virtual-time-budget=10000", "--no-pdf-header-footer", f"--print-to-pdf={sheets}", page.as_uri(),
    ]  # fmt: skip
    environment = os.environ | {"HOME": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert sheets.exists(), done.stderr[-2000:]
    count = len(re.findall(rb"/Type\s*/Page\b", sheets.read_bytes()))
    assert 1 <= count <= MOST_SHEETS.get(name, 4)
