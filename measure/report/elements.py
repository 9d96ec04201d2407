"""Parts of pages as HTML that take plain text: tables, lists, commands to copy. What they are given is escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

_CODE = re.compile("`([^`]+)`")
_ZOOM = {"in": "Zoom in", "out": "Zoom out", "earlier": "Earlier", "later": "Later", "all": "Whole run"}


@dataclass(frozen=True)
class Step:
    """A sentence that says what to do, and the commands for it."""

    text: str
    commands: tuple[str, ...] = ()


def code_markup(text: str) -> Markup:
    """``text`` as HTML; what stands between backticks becomes code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))


def section(title: str, *parts: Markup) -> Markup:
    """A part of a page under a heading."""
    return Markup("<section><h2>{}</h2>\n{}</section>\n").format(title, Markup("\n").join(parts))


def paragraph(text: str, *, note: bool = False) -> Markup:
    """A paragraph; what stands between backticks becomes code."""
    return Markup('<p class="note">{}</p>' if note else "<p>{}</p>").format(code_markup(text))


def bullets(texts: Iterable[str]) -> Markup:
    """A list of findings."""
    items = Markup("").join(Markup("<li>{}</li>").format(code_markup(text)) for text in texts)
    return Markup('<ul class="findings">{}</ul>').format(items)


def table(label: str, heads: Sequence[str], rows: Iterable[Sequence[object]], *, texts: int = 0) -> Markup:
    """A table that scrolls sideways, and turns into cards on a phone; the first cell of a row is its heading.

    ``texts``: so many columns after the first are text, the others numbers, aligned to the right. A cell of `Markup`
    stands as it is.
    """
    head = Markup("").join(
        Markup('<th scope="col"{}>{}</th>').format(_text_class(0 < n <= texts), one) for n, one in enumerate(heads)
    )
    body = []
    for first, *others in rows:
        cells = Markup("").join(
            Markup("<td{}>{}</td>").format(_text_class(n < texts), one) for n, one in enumerate(others)
        )
        body.append(Markup('<tr><th scope="row">{}</th>{}</tr>').format(first, cells))
    return Markup(
        '<div class="scroll" tabindex="0" role="group" aria-label="{}"><table class="cards"><thead><tr>{}</tr></thead>'
        "<tbody>\n{}\n</tbody></table></div>"
    ).format(label, head, Markup("\n").join(body))


def _text_class(is_text: bool) -> Markup:
    return Markup(' class="text"') if is_text else Markup("")


def command(text: str) -> Markup:
    """A command line with a button that copies it."""
    return Markup(
        '<div class="command"><code>{0}</code>\n<button type="button" class="needs-script" data-copy="{0}" '
        'aria-label="Copy the command {0}">Copy</button></div>'
    ).format(text)


def to_do(headline: str, steps: Sequence[Step], otherwise: str) -> Markup:
    """What to do, with commands to copy; ``otherwise`` is said when there are no ``steps``."""
    first = Markup("<p><b>{}</b></p>\n").format(headline) if headline else Markup("")
    items = Markup("").join(
        Markup("<li>{}{}</li>\n").format(code_markup(step.text), Markup("").join(map(command, step.commands)))
        for step in steps
    )
    rest = Markup('<ol class="steps">{}</ol>').format(items) if steps else paragraph(otherwise)
    return Markup('<section class="todo"><h2>What to do</h2>\n{}{}</section>').format(first, rest)


def zoom_buttons() -> Markup:
    """The buttons that zoom a figure."""
    return Markup("\n").join(
        Markup('<button type="button" data-zoom="{}">{}</button>').format(name, words) for name, words in _ZOOM.items()
    )


def data_link(name: str, address: str, words: str = "Data of this figure (CSV)") -> Markup:
    """A link that saves the table at ``address``, a data URI, as ``name``.csv."""
    return Markup('<a download="{}.csv" href="{}">{}</a>').format(name, address, words)
