"""The result of a partition search as one self-contained page with pictures."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from measure.partitioning.result import PartitionResult
from measure.report.style import INK, MUTED, VERDICTS, as_data_uri, new_figure

_MOST_METRICS_DRAWN = 60
_COLOURS = {
    "good": VERDICTS["equivalent"],
    "bad": VERDICTS["perturbed"],
    "undecided": VERDICTS["inconclusive"],
}
_STATUS_COLOURS = {"validated": _COLOURS["good"], "not validated": _COLOURS["undecided"], "not tested": MUTED}
_WORDS = {"good": "good", "bad": "perturbs", "undecided": "undecided"}
_STYLE = """
body { font: 15px/1.5 "DejaVu Sans", Verdana, sans-serif; color: #1c2733; max-width: 1060px; margin: 2em auto;
  padding: 0 1em; }
h1 { font-size: 1.5em; margin-bottom: .1em; } h2 { font-size: 1.1em; margin-top: 2em; }
p.lead { color: #5b6875; margin-top: 0; }
table { border-collapse: collapse; width: 100%; } th, td { padding: .35em .7em; text-align: left;
  vertical-align: top; border-bottom: 1px solid #d5dbe1; }
th { border-bottom: 2px solid #5b6875; } .scroll { overflow-x: auto; }
.good { color: #1f7a55; font-weight: 600; } .bad { color: #b3401f; font-weight: 600; }
img { max-width: 100%; }
.undecided { color: #8a6d1b; font-weight: 600; }
"""


def render_page(outcome: PartitionResult) -> str:
    """The report as one self-contained page."""
    chosen = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in outcome.rows())
    rejected = "".join(
        f"<tr><td>{escape(', '.join(outcome.names(group)))}</td>"
        f'<td class="{verdict.state}">{verdict.state}</td><td>{escape(verdict.reason)}</td></tr>'
        for group, verdict in outcome.rejected()
    )
    sets = "".join(f"<li>{escape(', '.join(one))}</li>" for one in outcome.hardware)
    sentences = "".join(f"<li>{escape(one)}</li>" for one in outcome.sentences())
    return f"""<!doctype html><html lang="en"><head><meta charset="utf-8">
<title>{escape(outcome.name)}: partition</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head><body>
<h1>{escape(outcome.headline)}</h1>
<p class="lead">Software metrics that can be collected together without changing how the hardware metrics relate,
within runs and across aligned ones.</p>
<ul>{sentences}</ul>
{_pictures(outcome)}
<h2>The groups</h2><div class="scroll"><table><tr><th>group</th><th>software metrics</th>
<th>verdict, closest to the limit</th><th>on fresh runs</th></tr>{chosen}</table></div>
<h2>Hardware metrics</h2><ul>{sets}</ul>
<h2>Groups that were rejected, and why</h2><div class="scroll"><table><tr><th>software metrics</th><th>verdict</th>
<th>which pair, by how much</th></tr>{rejected}</table></div></body></html>
"""


def _pictures(outcome: PartitionResult) -> str:
    """The pictures with their captions, as far as there are data for them."""
    pictures = []
    if outcome.groups and len(outcome.metrics) <= _MOST_METRICS_DRAWN:
        words = "Which metrics are collected together; green: validated on fresh runs, yellow: not, grey: not tested."
        pictures.append((membership(outcome), words))
    if any(np.isfinite(verdict.change) for verdict in outcome.tested.values()):
        pictures.append(
            (
                tested_groups(outcome),
                "Every group that was tested. Groups are not monotone: more metrics may perturb less, so each verdict "
                "says something about its own group only.",
            )
        )
    return "".join(
        f'<figure><img alt="{escape(words)}" src="{as_data_uri(figure)}">'
        f"<figcaption>{escape(words)}</figcaption></figure>"
        for figure, words in pictures
    )


def membership(outcome: PartitionResult) -> Any:
    """A row per metric, a column per group of the result."""
    groups = outcome.groups
    figure, axes = new_figure(2.6 + 0.5 * len(groups), 0.9 + 0.22 * len(outcome.metrics))
    for column, one in enumerate(groups):
        colour = _STATUS_COLOURS[one.status]
        axes.plot([column] * len(one.group), sorted(one.group), "s", color=colour, markersize=8)
    axes.set_yticks(range(len(outcome.metrics)), outcome.metrics, fontsize=8)
    axes.set_xticks(range(len(groups)), [one.name for one in groups], fontsize=8)
    placed = frozenset[int]().union(*(one.group for one in groups))
    for metric in outcome.best.uncovered - placed:
        axes.text(0, metric, "in no good group", color=_COLOURS["bad"], fontsize=8, va="center", ha="center")
    axes.set_xlim(-0.6, max(len(groups), 2) - 0.4)
    axes.set_ylim(len(outcome.metrics) - 0.4, -0.6)
    return figure


def tested_groups(outcome: PartitionResult) -> Any:
    """The largest change of z of every tested group over its number of metrics."""
    figure, axes = new_figure(7.4, 3.6)
    axes.axhspan(0, outcome.delta, color="#e8f1ec", zorder=0)
    jitter = np.random.default_rng(0)
    places = {
        group: (len(group) + jitter.uniform(-0.18, 0.18), abs(verdict.change))
        for group, verdict in outcome.tested.items()
        if np.isfinite(verdict.change)
    }
    for state, colour in _COLOURS.items():
        drawn = [place for group, place in places.items() if outcome.tested[group].state == state]
        if drawn:
            axes.plot(
                *zip(*drawn, strict=True), "o", color=colour, markersize=4.5, alpha=0.75, markeredgewidth=0,
                label=f"{_WORDS[state]} ({len(drawn)})",
            )  # fmt: skip
    for place in (places[group] for group in outcome.best.groups if group in places):
        axes.plot(*place, "o", markersize=10, markerfacecolor="none", color=INK)
    axes.set_xlabel("software metrics in the group; circled: chosen")
    axes.set_ylabel("largest |change of z|")
    axes.set_title(f"Shaded: up to {outcome.delta:g} counts as none", color=MUTED, fontsize=8.5, fontweight="normal")
    axes.set_ylim(bottom=0)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(title="verdict of its runs", title_fontsize=8.5)
    return figure
