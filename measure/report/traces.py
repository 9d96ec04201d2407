"""Figures of values over a run that can be zoomed into: their numbers for traces.js, and their place in a page.

Figures of one page share the axis, and so zoom and point together. Nothing is drawn here: the browser draws, so that
a page costs a command a few milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from measure.report.elements import zoom_buttons
from measure.report.packing import bucket_starts, packed, packed_series
from measure.report.page import embedded_json, inlined

Style = Literal["before", "after", "third", "fourth", "fifth"]
"""Grey, orange, green, blue, purple; see style.css. Blue, orange and purple can be told apart without colour vision."""
TRACE_VALUES = 150_000
"""Largest number of values of a figure; longer series are put into buckets."""
MOST_IN_STRIP = 150_000
"""Largest number of intervals whose phases a page has; of more, every other one, and so on."""


@dataclass(frozen=True)
class Line:
    """A series (n,) with a value for each interval, nan where there is none."""

    label: str
    values: NDArray[Any]
    style: Style = "fourth"


@dataclass(frozen=True)
class Row:
    """Lines over one vertical axis. ``zones``: half-open ranges of intervals that are shaded."""

    title: str
    lines: tuple[Line, ...]
    zones: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Strip:
    """The phase (n,) of each interval, in the colour of its group. ``groups`` (n,): index into ``names``, drawn in
    their order; ``points``: numbers of intervals that are marked."""

    title: str
    phases: NDArray[Any]
    groups: NDArray[Any]
    names: tuple[tuple[str, Style], ...]
    points: tuple[int, ...] = ()


@dataclass(frozen=True)
class Square:
    """A symmetric matrix (m, m) over the run: m stretches of as many intervals each, as far as they divide."""

    title: str
    values: NDArray[np.float64]
    largest: float


@dataclass(frozen=True)
class TraceFigure:
    """A figure over ``edges`` (n + 1,), where the intervals begin and end. ``name``: of its CSV file; ``unit``: of the
    axis; ``interval``: what an interval is called; ``caption``: what to see in it. One of ``rows``, ``strip`` and
    ``square`` is drawn."""

    name: str
    edges: NDArray[np.int64]
    unit: str
    interval: str
    caption: str
    rows: tuple[Row, ...] = ()
    strip: Strip | None = None
    square: Square | None = None
    shown: tuple[str, ...] = field(default=())
    """Titles of the rows that are shown at first; all when empty."""

    def html(self) -> Markup:
        """The place of the figure in its page."""
        return Markup(
            '<figure class="needs-script" data-traces="{0}"><div class="tools" role="group" '
            'aria-label="Zoom of the figure {0}">\n{1}</div>\n<figcaption>{2} <button type="button" data-csv>'
            "Data of this figure (CSV)</button></figcaption></figure>"
        ).format(self.name, zoom_buttons(), self.caption)


def scripts(figures: Sequence[TraceFigure]) -> Markup:
    """What draws the ``figures``, for the end of their page."""
    return Markup('<script type="application/json" id="traces">{}</script>\n<script>\n{}\n{}\n</script>').format(
        embedded_json([_data(one) for one in figures]), inlined("plots.js"), inlined("traces.js")
    )


def _data(figure: TraceFigure) -> dict[str, Any]:
    """A figure as plain JSON types."""
    n = len(figure.edges) - 1
    found: dict[str, Any] = {
        "name": figure.name, "unit": figure.unit, "interval": figure.interval, "shown": list(figure.shown),
        "intervals": n,
    }  # fmt: skip
    starts = np.arange(n, dtype=np.int64)
    if figure.rows:
        series = sum(len(row.lines) for row in figure.rows)
        buckets = bucket_starts(n, TRACE_VALUES // series)
        found["rows"] = [
            {
                "title": row.title,
                "zones": figure.edges[np.array(row.zones, np.int64).reshape(-1, 2)].tolist(),
                "lines": [
                    {"label": one.label, "style": one.style, "parts": packed_series(one.values, buckets)}
                    for one in row.lines
                ],
            }
            for row in figure.rows
        ]
        starts = buckets if len(buckets) else starts
    if figure.strip is not None:
        strip = figure.strip
        starts = starts[:: -(-n // MOST_IN_STRIP)]
        found["strip"] = {
            "title": strip.title, "phases": packed(strip.phases[starts]), "groups": packed(strip.groups[starts]),
            "names": [{"label": label, "style": style} for label, style in strip.names],
            "points": [[float(np.mean(figure.edges[one : one + 2])), int(strip.phases[one])] for one in strip.points],
        }  # fmt: skip
    if figure.square is not None:
        square, m = figure.square, len(figure.square.values)
        starts = np.arange(m) * n // m
        found["square"] = {
            "title": square.title, "largest": square.largest,
            "values": packed(square.values[np.tril_indices(m)]),
        }  # fmt: skip
    found["first"] = starts.tolist() if len(starts) < n else None
    found["edges"] = _edges(figure.edges[np.append(starts, n)])
    return found


def _edges(edges: NDArray[np.int64]) -> dict[str, Any]:
    """Edges as the first one and lengths; exact also where packed numbers are not."""
    lengths = np.diff(edges)
    exact = np.ptp(lengths) < 2**16 - 1
    return {"start": int(edges[0]), "lengths": packed(lengths) if exact else lengths.tolist()}
