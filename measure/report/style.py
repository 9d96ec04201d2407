"""Sizes, colours and fonts of all figures. The colours can be told apart without colour vision
(Okabe and Ito, "Color Universal Design", 2008)."""

from __future__ import annotations

import base64
import io
from typing import Any, Literal

INK, MUTED, RULE = "#1c2733", "#5b6875", "#d5dbe1"
BASELINE = "#5b6875"
VARIANTS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
VERDICTS = {
    "perturbed": "#b3401f",
    "changed": "#a5527f",
    "inconclusive": "#8a6d1b",
    "equivalent": "#1f7a55",
    "not assessable": "#5b6875",
}
DARK_VERDICTS = {
    "perturbed": "#f58f6c",
    "changed": "#e39cc3",
    "inconclusive": "#d8b653",
    "equivalent": "#5cc596",
    "not assessable": "#a3b0bc",
}
"""The same on a dark page."""
VERDICT_MARKERS = {"perturbed": "D", "changed": "^", "inconclusive": "s", "equivalent": "o", "not assessable": "x"}
VERDICT_STYLES = {
    "perturbed": "bold red",
    "changed": "bold magenta",
    "inconclusive": "bold yellow",
    "equivalent": "bold green",
    "not assessable": "bold cyan",
}
"""Of the terminal."""
LINES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8c564b")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")

_SETTINGS: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.5,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "svg.fonttype": "path",
}


def short(metric: str) -> str:
    """A metric name without the prefix that all presets share."""
    return metric.removeprefix("PAPI_")


def new_figure(
    width: float, height: float, rows: int = 1, columns: int = 1,
    layout: Literal["constrained"] | None = "constrained", **options: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """A figure of ``width`` x ``height`` inches with its axes, without a display; ``layout`` is None when the caller
    sets the margins. A notebook shows it where it is the value of a cell."""
    import matplotlib

    matplotlib.rcParams.update(_SETTINGS)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout=layout)
    figure._repr_png_ = lambda: _png(figure)  # type: ignore[attr-defined]
    return figure, figure.subplots(rows, columns, **options)


def _png(figure: Any) -> bytes:
    """The figure as a PNG image."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()


def as_data_uri(figure: Any) -> str:
    """The figure as an image that can stand in a page. Its text stays text, which takes a third of the room."""
    import matplotlib

    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
