"""``measure perturb``: reads traces of other tools, compares them, writes report.html and summary.json, and prints the
verdict."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from measure.campaign.store import check_results_place, write_text_atomically
from measure.campaign.terminal import print_result
from measure.console.progress import Status
from measure.foreign.compare import Levels, compare, summary_of
from measure.foreign.gather import gather, grouped, matching
from measure.report.html import render


def run_perturb(
    baseline: Sequence[str],
    runs: Sequence[str],
    directory: Path,
    levels: Levels,
    *,
    metrics: Sequence[str] = (),
    format: str | None = None,
    console: Console,
) -> None:
    """Compare traces; writes ``directory``/summary.json and report.html. ``baseline``: file patterns; ``runs``:
    ``NAME=PATTERN`` or ``PATTERN``. Raises `MeasureError`."""
    check_results_place(directory)
    paths = [path for pattern in baseline for path in matching(pattern)]
    with Status(console, "reading traces") as status:
        gathered = gather(paths, grouped(runs), metrics=metrics, format=format)
        data = compare(gathered, levels, directory.name, lambda what: status.update(f"comparing runs: {what}"))
        text = json.dumps(summary_of(data, gathered), indent=1, allow_nan=False)
        write_text_atomically(directory / "summary.json", text)
        status.update("drawing the report")
        write_text_atomically(directory / "report.html", render(data))
    print_result(console, data)
    console.print(f"Report: {directory / 'report.html'}   Summary: {directory / 'summary.json'}", style="dim")
