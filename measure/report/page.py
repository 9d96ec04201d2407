"""The look that all pages share: a base template, one style sheet and one script, put into each page as text.

A page is one self-contained HTML file: it loads nothing from a network, follows the system's dark mode, fits a phone,
prints, and can be read without its script.
"""

from __future__ import annotations

import base64
import csv
import functools
import io
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measure.report.style import DARK_VERDICTS, VERDICTS, as_data_uri

if TYPE_CHECKING:
    import jinja2
    from markupsafe import Markup

FOLDER = Path(__file__).parent
_INLINED = re.compile(r'\{\{ inlined\("([\w.]+)"\) \}\}')
_BLOCK = re.compile(r"\{% block (\w+) %\}\{% endblock %\}")


@dataclass(frozen=True)
class Figure:
    """A drawn figure of a page. ``image``, ``data``: data URIs of the picture and of its numbers as CSV;
    ``text``: what the picture shows, for those who do not see it; ``caption``: what to see in it."""

    image: str
    data: str
    name: str
    text: str
    caption: str


def drawn(figure: Any, columns: Sequence[str], rows: Iterable[Sequence[object]], *, name: str, text: str,
          caption: str) -> Figure:  # fmt: skip
    """A matplotlib ``figure`` with the numbers that it shows, a row of ``columns`` each; ``name``: of the CSV file."""
    return Figure(as_data_uri(figure), csv_uri(columns, rows), name, text, caption)


def csv_uri(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table as the address of a CSV file that is inside the page."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return "data:text/csv;base64," + base64.b64encode(text.getvalue().encode()).decode("ascii")


def render_page(template: str, folder: Path = FOLDER, **context: Any) -> str:
    """The page of ``template`` in ``folder``, which extends ``base.html.jinja`` or stands alone, as text."""
    return _environment(folder).get_template(template).render(**context)


def plain_page(**blocks: str) -> str:
    """The page of ``base.html.jinja`` with its blocks given as HTML, as text.

    Loading Jinja and compiling templates takes 50 ms of processor time; a command that must be fast fills the base so.
    """
    base = (FOLDER / "base.html.jinja").read_text(encoding="utf-8")
    base = _INLINED.sub(lambda found: inlined(found[1]), base).replace("{{ palette }}", palette())
    return _BLOCK.sub(lambda found: blocks.get(found[1], ""), base)


@functools.cache
def _environment(folder: Path) -> jinja2.Environment:
    """Templates in ``folder`` and beside this module; compiled once."""
    import jinja2

    from measure.report import elements

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([folder, FOLDER]), autoescape=True,
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters.update(code=elements.code_markup)
    environment.globals.update(
        inlined=inlined, palette=palette(), embedded_json=embedded_json, verdict_class=verdict_class,
        to_do=elements.to_do, zoom_buttons=elements.zoom_buttons,
    )  # fmt: skip
    return environment


def inlined(name: str) -> Markup:
    """The text of a file beside this module, to stand in the page as it is."""
    from markupsafe import Markup

    return Markup((FOLDER / name).read_text(encoding="utf-8").rstrip())


def palette() -> Markup:
    """The colours of the verdicts as properties of the style sheet, for light and dark pages."""
    from markupsafe import Markup

    def properties(colours: dict[str, str]) -> str:
        return " ".join(f"--{verdict_class(verdict)}:{colour};" for verdict, colour in colours.items())

    light, dark = properties(VERDICTS), properties(DARK_VERDICTS)
    return Markup(f":root {{ {light} }}\n@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}")


def embedded_json(data: Any) -> Markup:
    """``data`` as JSON that can stand in a script element. Raises ValueError for nan, which JSON has not."""
    from markupsafe import Markup

    return Markup(json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"))


def verdict_class(verdict: str) -> str:
    """The name of a verdict's class in the style sheet."""
    return verdict.replace(" ", "-")
