"""The comparison of two campaigns as one self-contained HTML page, in the look of the report."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path

from measure.perturbation.wording import number_text, p_number
from measure.report import page
from measure.report.style import INK, MUTED, RULE, VERDICTS, new_figure
from measure.two_campaigns.comparison import NULL_HYPOTHESIS, CampaignsCompared
from measure.two_campaigns.variant_change import VariantChange

_MOST_DRAWN = 45


def render_page(found: CampaignsCompared) -> str:
    """The page as text."""
    return page.render_page(
        "page.html.jinja", Path(__file__).parent,
        found=found, figures={one.name: _changes(one, found.delta) for one in found.variants},
        p_number=p_number, number=_change, interval=_interval, null_hypothesis=NULL_HYPOTHESIS,
    )  # fmt: skip


_change = partial(number_text, sign=True)


def _interval(ends: tuple[float, float]) -> str:
    if all(map(math.isinf, ends)):
        return "none: too few runs"
    return f"{_change(ends[0])} to {_change(ends[1])}" if all(map(math.isfinite, ends)) else "-"


def _changes(one: VariantChange, delta: float) -> page.Figure:
    """Both changes of z of each pair, joined by a line in the colour of the verdict on their difference."""
    defined = [pair for pair in one.pairs if math.isfinite(pair.test.difference)]
    pairs = defined[:_MOST_DRAWN]
    figure, axes = new_figure(9.6, 0.6 + 0.26 * max(3, len(pairs)))
    axes.axvspan(-delta, delta, color=RULE, alpha=0.5, linewidth=0)
    axes.axvline(0, color=MUTED, linewidth=0.8)
    for row, pair in enumerate(pairs):
        ends, colour = (pair.test.before, pair.test.after), VERDICTS[pair.test.verdict]
        axes.plot(ends, (row, row), color=colour, linewidth=2.2, zorder=2)
        axes.plot(ends[0], row, "o", markersize=6, markerfacecolor="white", markeredgecolor=INK, zorder=3)
        axes.plot(ends[1], row, "D", markersize=6, color=colour, zorder=3)
    axes.set_yticks(range(len(pairs)), [pair.short_name for pair in pairs])
    axes.set_ylim(len(pairs) - 0.4, -0.6)
    axes.set_xlabel("change of z by the instrumentation: circle before, diamond after")
    axes.grid(axis="y", visible=False)
    of_all = (
        f" The {len(pairs)} of {len(defined)} pairs that differ most; the data have all."
        if defined[len(pairs) :]
        else ""
    )
    return page.drawn(
        figure,
        ("a", "b", "change_of_z_before", "change_of_z_after", "difference", "low", "high", "low_over_all",
         "high_over_all", "p_over_all", "verdict_before", "verdict_after", "verdict_on_difference"),
        [
            (pair.a, pair.b, pair.test.before, pair.test.after, pair.test.difference, *pair.test.ci,
             *pair.test.simultaneous, pair.test.p_adjusted, pair.before, pair.after, pair.test.verdict)
            for pair in one.pairs
        ],
        name=f"changes-{one.name}", text=f"Changes of z before and after in {one.name}",
        caption="How much the instrumentation changed each relation in the first campaign (circle) and in the second "
        "(diamond). Colour: the verdict on the difference; shaded: a change that counts as none. See which lines are "
        f"long, and which lead out of the shaded zone or into it.{of_all}",
    )  # fmt: skip
