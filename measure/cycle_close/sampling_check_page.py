"""The result of a sampling check, in the terminal and as a page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from measure.cycle_close.sampling_check import (
    SamplingCheck,
    SamplingConfiguration,
    SamplingResult,
    equivalent_from,
)
from measure.perturbation.analysis_types import Perturbation
from measure.report.style import (
    INK,
    MUTED,
    VERDICT_MARKERS,
    VERDICT_STYLES,
    VERDICTS,
    as_data_uri,
    new_figure,
    short,
)

if TYPE_CHECKING:
    from rich.console import Console

_STYLE = """
body { font: 15px/1.5 "DejaVu Sans", Verdana, sans-serif; color: #1c2733; max-width: 1060px; margin: 2em auto;
  padding: 0 1em; }
h1 { font-size: 1.5em; margin-bottom: .1em; } h2 { font-size: 1.1em; margin-top: 2em; }
p.lead { color: #5b6875; margin-top: 0; }
table { border-collapse: collapse; width: 100%; } th, td { padding: .35em .7em; text-align: right; }
th { border-bottom: 2px solid #5b6875; font-weight: 600; } td { border-bottom: 1px solid #d5dbe1; }
th:first-child, td:first-child, td.text, th.text { text-align: left; }
img { max-width: 100%; } .scroll { overflow-x: auto; }
"""


def describe(configuration: SamplingConfiguration) -> str:
    """The settings that differ from the paper's, in words."""
    paper = SamplingConfiguration.model_validate({})
    changed = []
    for name, value in configuration.model_dump().items():
        if value == getattr(paper, name):
            continue
        words = name.replace("_", " ")
        if not isinstance(value, bool):
            words += f" {value:,}" if isinstance(value, int) else f" {value}"
        changed.append(words)
    return ", ".join(changed) or "as in the paper"


def headline(results: Sequence[SamplingResult]) -> str:
    """The result of the check in one or two sentences."""
    good = [one.name for one in results if one.verdict == "equivalent"]
    if good:
        return f"Equivalent to full simulation: {', '.join(good)}."
    within = [one.name for one in results if one.inner.verdict == "equivalent"]
    if within:
        return f"Equivalent within a run: {', '.join(within)}. Across runs, none is shown to be."
    return "No sampling configuration is shown to be equivalent to full simulation."


def swept(check: SamplingCheck, results: Sequence[SamplingResult]) -> list[str]:
    """For each setting of the sweep, a sentence with the first value from which on sampling is equivalent."""
    sentences = []
    for setting, found in equivalent_from(check, results).items():
        name, last = setting.replace("_", " "), check.sweep[setting][-1]
        inner, both = found["inner"], found["both"]
        if inner is None:
            sentences.append(f"{name}: at {last}, the last value tried, not shown to be equivalent within a run.")
            continue
        across = "not even at the last value" if both is None else f"from {both} on"
        sentences.append(f"{name}: equivalent within a run from {inner} on; across runs, too, {across}.")
    return sentences


def _coloured(found: Perturbation) -> str:
    return f'<span style="color:{VERDICTS[found.verdict]}">{found.verdict}, {worst(found):.2f}</span>'


def worst(found: Perturbation) -> float:
    """The largest change of z that is defined; nan when none is."""
    changes = [abs(pair.delta_z) for pair in found.pairs if np.isfinite(pair.delta_z)]
    return max(changes, default=float("nan"))


def print_check(console: Console, check: SamplingCheck, results: Sequence[SamplingResult]) -> None:
    """Print a table, then the findings on configurations that are not equivalent."""
    from rich.table import Table

    table = Table(title=f"{check.name}: sampling against {check.baselines} full simulations", title_justify="left")
    for heading in ("configuration", "verdict", "simulated", "speed-up", "within a run", "across runs"):
        table.add_column(heading, justify="right" if heading in ("simulated", "speed-up") else "left")
    for one in results:
        table.add_row(
            one.name, f"[{VERDICT_STYLES[one.verdict]}]{one.verdict}[/]",
            f"{100 * one.simulated:.2f}%", f"{one.speedup:.1f}x",
            f"{one.inner.verdict} ({worst(one.inner):.2f})", f"{one.outer.verdict} ({worst(one.outer):.2f})",
        )  # fmt: skip
    console.print(table)
    console.print(headline(results), style="bold")
    for sentence in swept(check, results):
        console.print(sentence)
    console.print("In brackets: the largest change of z, of which "
                  f"{check.delta:g} still counts as none.", style="dim")  # fmt: skip
    for one in results:
        for where, found in (("within a run", one.inner), ("across runs", one.outer)):
            for finding in found.findings[:2]:
                console.print(f"- {one.name}, {where}: {finding}", markup=False)


def _figure(check: SamplingCheck, results: Sequence[SamplingResult]) -> Any:
    """The changes of z of each configuration, pair by pair, with the band that counts as none."""
    figure, axes = new_figure(9.8, 1.2 + 0.62 * len(results), 1, 2, sharey=True)
    for axis, (title, kind) in zip(axes, (("Within a run", "inner"), ("Across runs", "outer")), strict=True):
        axis.axvspan(-check.delta, check.delta, color="#e7f2ec", zorder=0)
        axis.axvline(0, color=MUTED, linewidth=0.8)
        for place, one in enumerate(results):
            found: Perturbation = getattr(one, kind)
            pairs = [pair for pair in found.pairs if np.isfinite(pair.delta_z)]
            spread = np.linspace(-0.24, 0.24, len(pairs)) if len(pairs) > 1 else [0.0]
            for pair, offset in zip(sorted(pairs, key=lambda pair: pair.delta_z), spread, strict=True):
                colour = VERDICTS[pair.verdict]
                if np.isfinite(pair.ci).all():
                    axis.plot(pair.ci, [place + offset] * 2, color=colour, linewidth=1.0, alpha=0.55)
                axis.plot(pair.delta_z, place + offset, VERDICT_MARKERS[pair.verdict], color=colour, markersize=3.2)
        axis.set_title(title)
        axis.set_xlabel("change of z, every pair of metrics with its interval", color=INK)
        axis.set_yticks(range(len(results)), [one.name for one in results])
    axes[0].invert_yaxis()
    return figure


def render_check(check: SamplingCheck, results: Sequence[SamplingResult]) -> str:
    """The page as text, self-contained."""
    rows = []
    for one in results:
        colour = VERDICTS[one.verdict]
        rows.append(
            f"<tr><td>{escape(one.name)}</td><td class=text>{escape(describe(one.configuration))}</td>"
            f'<td class=text style="color:{colour};font-weight:600">{one.verdict}</td>'
            f"<td>{100 * one.simulated:.2f}%</td><td>{one.speedup:.1f}</td>"
            f"<td>{_coloured(one.inner)}</td><td>{_coloured(one.outer)}</td></tr>"
        )
    findings = "".join(
        f"<li><b>{escape(one.name)}</b>, {where}: {escape(finding)}</li>"
        for one in results
        for where, found in (("within a run", one.inner), ("across runs", one.outer))
        for finding in found.findings[:3]
    )
    metrics = ", ".join(short(metric) for metric in check.hardware_metrics)
    picture = as_data_uri(_figure(check, results))
    return f"""<!doctype html><html lang="en"><head><meta charset="utf-8">
<title>{escape(check.name)}: sampling check</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head><body>
<h1>{escape(headline(results))}</h1>
<p class="lead">{escape(check.name)}: cycle-close traces of {check.sampling.interval[0]:,} instructions an interval,
{check.replicates} of each configuration, against {check.baselines} full simulations. Metrics: {escape(metrics)}.</p>
{"".join(f"<p>{escape(one)}</p>" for one in swept(check, results))}
<div class="scroll"><table><tr><th>configuration</th><th class=text>settings</th><th class=text>verdict</th>
<th>simulated</th><th>times faster</th>
<th>within a run, largest change of z</th><th>across runs</th></tr>{"".join(rows)}</table></div>
<p>A change of z up to {check.delta:g} counts as none. <i>Equivalent</i> means that every pair's interval lies within
it; <i>perturbed</i>, that some pair's interval lies beyond it, at {100 * check.alpha:g}% over all pairs together.</p>
<h2>Every pair of metrics</h2><img alt="Changes of z by sampling configuration" src="{picture}">
<h2>Findings</h2><ul>{findings}</ul></body></html>
"""
