"""Prints a campaign's result: what makes it wrong, uninformative metrics, verdicts, worst pairs, then what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.markup import escape

from measure.console.tables import print_table
from measure.perturbation.analysis_types import Pair
from measure.perturbation.wording import in_words, p_number, pair_in_words, percent, rho_text
from measure.report.finding_groups import grouped
from measure.report.model import ReportData, VariantReport
from measure.report.next_steps import next_steps
from measure.report.style import VERDICT_STYLES
from measure.result_files import SUMMARY_NAME

_WORST = 5


def print_result(console: Console, data: ReportData, results: str = "") -> None:
    """Print tables that fit 80 columns. ``results``: as `next_steps`; commands name it, so that they can be copied."""
    for sentence in data.invalidating:
        console.print(f"!! {escape(sentence)}", style="bold red", highlight=False)
    for sentence in data.before_verdicts:
        console.print(f"! {escape(sentence)}", style="yellow", highlight=False)
    if data.variants or data.without_runs:
        _print_verdicts(console, data)
    else:
        console.print(escape(f"{data.title}: {data.subtitle}"), style="bold", highlight=False)
    if data.controls:
        console.print(escape(f"Controls: {data.controls}"), highlight=False)
    for variant in data.variants:
        if pairs := _worst(variant):
            _print_worst(console, variant, pairs)
    _print_findings(console, data, results)


def print_places(console: Console, directory: Path) -> None:
    """Print where report and summary are: in ``directory``."""
    console.print(f"Report: {directory / 'report.html'}   Summary: {directory / SUMMARY_NAME}", style="dim")


def _worst(variant: VariantReport) -> list[Pair]:
    """The pairs of the gravest verdict within a run, of these the ones that changed most, as a table shows them.

    Where the verdict speaks of a measurable change, the last is the pair with the smallest p-value, if no other has it.
    """
    result = variant.inner
    pairs = [pair for pair in result.pairs if np.isfinite(pair.delta_z)]
    shown = pairs[:_WORST]
    measurable = [pair for pair in pairs if pair.p_adjusted <= result.level]
    if measurable and not any(pair in measurable for pair in shown):
        shown[-1] = min(measurable, key=lambda pair: pair.p_adjusted)
    return shown


def _print_findings(console: Console, data: ReportData, results: str) -> None:
    """Print the findings under their headings, and last what to do next, where the eye is when a command ends.

    Pairs that a table shows are not told again, unless there is a note on them.
    """
    in_tables = {
        variant.heading(variant.inner): {pair.name for pair in _worst(variant) if not pair.note}
        for variant in data.variants
    }
    groups = grouped(data.said, data.variants)
    for group in groups:
        told = in_tables.get(group.heading, set())
        untold = replace(group, findings=tuple(one for one in group.findings if one.pair not in told))
        sentences = untold.sentences(results)
        if sentences and len(groups) > 1:
            console.print(f"{escape(group.heading or 'The whole campaign')}:", highlight=False)
        for text in sentences:
            console.print(f"- {escape(text)}", highlight=False)
    for step in next_steps(data, results):
        if step.finding is None:  # nothing is wrong: what the results are good for
            text = " ".join([step.text, *(f"`{command}`" for command in step.commands)])
            console.print(f"- Next: {escape(text[:1].lower() + text[1:])}", highlight=False)


def _print_verdicts(console: Console, data: ReportData) -> None:
    """Print the table of variants with their verdicts and costs."""
    rows = []
    for variant in data.variants:
        compared = [f"within: {in_words(variant.inner)}"]
        if variant.outer_held_out is not None:
            compared.append(f"across: {in_words(variant.outer_held_out)}")
        verdict = _styled(variant.verdict, variant.verdict)
        if variant.caveat:
            verdict += ", but"
            compared.insert(0, variant.caveat)
        costs = (percent(float(v.mean())) for v in (variant.instructions_percent, variant.cycles_percent))
        rows.append((escape(variant.name), verdict, "\n".join(costs), escape(";\n".join(compared))))
    for one in data.without_runs:
        rows.append((escape(one.name), _styled(one.verdict, one.verdict), "-", escape(f"no verdict: {one.reason}")))
    headings = ("variant", "verdict", f"instructions,\n{data.time_name}", "within a run, and\nacross aligned runs")
    print_table(console, escape(f"{data.title}: {data.subtitle}"), headings, rows, right=[2])


def _print_worst(console: Console, variant: VariantReport, pairs: Sequence[Pair]) -> None:
    rows = [
        (
            escape(pair.name.replace("PAPI_", "")), rho_text(pair.baseline_rho), rho_text(pair.run_rho),
            f"{pair.delta_z:+.2f}", p_number(pair.p_adjusted),
            _styled(pair.verdict, pair_in_words(pair, variant.inner.level)),
        )
        for pair in pairs
    ]  # fmt: skip
    headings = ("pair", "rho\nbefore", "rho\nafter", "change\nof z", "p (all\npairs)", "verdict")
    title = escape(f"{variant.name}: pairs within a run, the gravest verdict and the largest change first")
    print_table(console, title, headings, rows, right=range(1, 5))


def _styled(verdict: str, words: str) -> str:
    return f"[{VERDICT_STYLES[verdict]}]{words}[/]"
