"""Explanations as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from measure.explanation.explanation_types import Change, Explanation, estimate, share_text, unexplained
from measure.explanation.relations import Relation
from measure.explanation.summary import CYCLES_ARE, remedy_words, rho, sentences, short_place
from measure.perturbation.wording import percent
from measure.report import page
from measure.report.elements import data_link
from measure.report.style import INK, MUTED, VERDICTS, new_figure, short

_MOST_RELATIONS = 4  # with a waterfall
_LEGEND = (
    "Each bar is what a part adds to z (orange: towards the instrumented program, blue: against it); strokes: 95% "
    "intervals over pairs of runs. See which bar is longest: this is the cause to remove first. A bar whose stroke "
    "reaches back to where it begins may be none."
)
_TOWARDS, _AGAINST = "#d55e00", "#0072b2"


def render_page(campaign: str, explanations: Sequence[Explanation], fine: Mapping[str, str]) -> str:
    """The page as text."""
    figures = {
        one.variant: [_waterfalls(one, n) for n in range(min(len(one.relations), _MOST_RELATIONS))]
        for one in explanations
    }
    return page.render_page(
        "page.html.jinja", Path(__file__).parent,
        campaign=campaign, explanations=explanations, fine=fine, figures=figures,
        sentences=sentences, share_text=share_text, short=short, shares=_shares, remedies=_remedies,
        percent=percent, remedy_words=remedy_words, missing_effects=_missing_effects, effect=_effect,
        short_place=short_place, cycles_are=CYCLES_ARE, relation=_relation, unexplained=unexplained,
    )  # fmt: skip


def _effect(values: NDArray[np.float64], relation: int) -> str:
    """A change of z with its interval."""
    found = estimate(values[:, relation])
    return f"{found.mean:+.2f} ({found.low:+.2f} to {found.high:+.2f})"


def _missing_effects(one: Explanation) -> str:
    """The metrics whose sets of runs were not made: neither without them alone, nor with them alone."""
    known = {effect.metric for effect in one.effects}
    return ", ".join(part.name for part in one.metrics.parts if part.name not in known)


def _relation(relation: Relation) -> str:
    """The relation with short names of metrics."""
    a, b = (short(metric) for metric in relation)
    return f"{a} across runs" if a == b else f"{a} – {b}"


def _waterfalls(one: Explanation, relation: int) -> page.Figure:
    """The waterfalls of one relation, by mechanism and by metric."""
    rows = max(len(one.mechanisms.parts), len(one.metrics.parts)) + 2
    figure, axes = new_figure(10.4, 0.36 * rows + 1.0, 1, 2)
    base = float(np.nanmean(one.baseline_z[:, relation]))
    run = float(np.nanmean(one.run_z[:, relation]))
    name = _relation(one.relations[relation])
    _waterfall(axes[0], f"{name}, by mechanism", one.mechanisms, relation, base, run)
    _waterfall(axes[1], f"{name}, by software metric", one.metrics, relation, base, run)
    return page.drawn(
        figure,
        ("parts_by", "part", "change_of_z", "low", "high"),
        [("", "plain program", base, "", ""), ("", "instrumented program", run, "", "")]
        + [
            (by, part.name, step.mean, step.low, step.high)
            for by, change in (("mechanism", one.mechanisms), ("software metric", one.metrics))
            for part in change.parts
            for step in [part.of(relation)]
        ],
        name=f"causes-{one.variant}-{relation + 1}", text=f"Waterfalls of {name} in {one.variant}",
        caption=f"{name}: rho {rho(one.baseline_z[:, relation]):.2f} in the plain program, "
        f"{rho(one.run_z[:, relation]):.2f} in the instrumented one. The longest bars: "
        f"{_longest(one.mechanisms, relation)}, and {_longest(one.metrics, relation)}. {'' if relation else _LEGEND}",
    )  # fmt: skip


def _longest(change: Change, relation: int) -> str:
    """The part that adds most to the change of a relation, with what it adds."""
    steps = {part.name: part.of(relation).mean for part in change.parts}
    name = max(steps, key=lambda part: abs(steps[part]))
    return f"{name} ({steps[name]:+.2f})"


def _shares(one: Explanation) -> Markup:
    """A link to the data of the table of shares."""
    rows = []
    for by, change in (("mechanism", one.mechanisms), ("software metric", one.metrics)):
        for part in change.parts:
            share = change.share(part)
            rows.append((by, part.name, share.mean, share.low, share.high, part.about))
    address = page.csv_uri(("parts_by", "part", "share", "low", "high", "what_it_is"), rows)
    return data_link(f"shares-{one.variant}", address, "Data of this table (CSV)")


def _remedies(one: Explanation) -> Markup:
    """A link to the data of the table of remedies."""
    rows = [
        (remedy.name, remedy.verdict, remedy.left, remedy.cycles_percent, remedy.gives_up, remedy.about)
        for remedy in one.remedies
    ]
    address = page.csv_uri(("remedy", "verdict", "largest_change_of_z", "cycles_percent", "gives_up", "about"), rows)
    return data_link(f"remedies-{one.variant}", address, "Data of this table (CSV)")


def _waterfall(axes: Any, title: str, change: Change, relation: int, base: float, run: float) -> None:
    """Bars from the plain program's z to the instrumented program's, a step a part."""
    labels = ["plain program", *(part.name for part in change.parts), "instrumented"]
    axes.use_sticky_edges = False
    at = base
    towards = np.sign(run - base)
    axes.plot([base], [0], "D", color=INK, markersize=6)
    for row, part in enumerate(change.parts, start=1):
        step = part.of(relation)
        colour = _TOWARDS if step.mean * towards >= 0 else _AGAINST
        axes.barh(row, step.mean, left=at, color=colour, height=0.6, zorder=2)
        if np.isfinite(step.low):
            axes.errorbar(
                at + step.mean, row, xerr=[[step.mean - step.low], [step.high - step.mean]], color=INK, capsize=3,
                linewidth=1, zorder=3,
            )  # fmt: skip
        axes.plot([at + step.mean] * 2, [row, row + 1], color=MUTED, linewidth=0.8, zorder=1)
        at += step.mean
    last = len(change.parts) + 1
    axes.plot([base] * 2, [0, 1], color=MUTED, linewidth=0.8, zorder=1)
    axes.plot([run], [last], "D", color=VERDICTS["perturbed"], markersize=6)
    axes.set_yticks(range(last + 1), labels)
    axes.invert_yaxis()
    axes.margins(x=0.08)
    axes.locator_params(axis="x", nbins=6)
    axes.set_xlabel("z of the relation (atanh of rho)")
    axes.set_title(title)
