"""``measure perturb``: reads traces of other tools, compares them, writes report.html and summary.json, and prints the
verdict."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from measure.console.progress import Status
from measure.foreign.compare import Levels, compare, summary_of
from measure.foreign.gather import gather, grouped, matching
from measure.report.html import render
from measure.report.terminal import print_places, print_result
from measure.result_files import SUMMARY_NAME, check_results_place, write_result, write_text_atomically
from measure.verdict_files.deliver import deliver
from measure.verdict_files.options import NO_OPTIONS, VerdictOptions
from measure.verdict_files.pair_tables import write_pairs
from measure.verdict_files.verdict_summary import write_verdicts
from measure.verdict_files.verdict_table import table_of


def run_perturb(
    baseline: Sequence[str],
    runs: Sequence[str],
    directory: Path,
    levels: Levels,
    *,
    metrics: Sequence[str] = (),
    format: str | None = None,
    console: Console,
    verdicts: VerdictOptions = NO_OPTIONS,
) -> int:
    """Compare traces, deliver the ``verdicts``, and return the command's exit status.

    Writes ``directory``/summary.json, report.html, verdicts.json, pairs.csv and pairs.parquet. ``baseline``: file
    patterns; ``runs``: ``NAME=PATTERN`` or ``PATTERN``. Raises `MeasureError`.
    """
    check_results_place(directory, "measure perturb")
    verdicts.check_places()
    paths = [path for pattern in baseline for path in matching(pattern)]
    with Status(console, "reading traces") as status:
        gathered = gather(paths, grouped(runs), metrics=metrics, format=format)
        data = compare(gathered, levels, directory.name, lambda what: status.update(f"comparing runs: {what}"))
        write_result(directory / SUMMARY_NAME, summary_of(data, gathered))
        write_pairs(data, directory)
        write_verdicts(data, directory)
        status.update("drawing the report")
        write_text_atomically(directory / "report.html", render(data))
    print_result(console, data)
    print_places(console, directory)
    return deliver(table_of(data), verdicts)
