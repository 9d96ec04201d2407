"""Tables for terminals of any width: words are broken at spaces, long names after ``_``, ``:``, ``/`` and ``.``.

A table that is wider than the terminal even so is shown as cards, an entry a line, so that nothing is cut off.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_PIECE = re.compile(r"\S+?(?:[_:/]+(?=[^\s_:/])|\.(?=[^\W\d])|(?=\s|$))")  # not inside of numbers such as 0.05
_BORDER, _BETWEEN = 1, 3  # characters of a column's borders and padding


def print_table(
    console: Console, title: str, headings: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()
) -> None:
    """Print a table. ``title``, ``headings`` and cells are markup; columns whose numbers are in ``right`` are aligned
    to the right. Where it does not fit, each row becomes a card: its first cell, and a line for each other.

    With headings that are all empty the table has no head.
    """
    from rich.table import Table
    from rich.text import Text

    heads = [Text.from_markup(heading) for heading in headings]
    cells = [[Text.from_markup(cell) for cell in row] for row in rows]
    widths = _widths([[head, *column] for head, *column in zip(heads, *cells, strict=True)], console.width)
    if widths is None:
        _print_cards(console, title, heads, cells)
        return
    _print_title(console, title)
    table = Table(show_header=any(headings))
    for number, (head, width) in enumerate(zip(heads, widths, strict=True)):
        side = "right" if number in right else "left"
        table.add_column(wrapped(head, width), justify=side, no_wrap=True, width=width)  # type: ignore[arg-type]
    for row in cells:
        table.add_row(*(wrapped(cell, width) for cell, width in zip(row, widths, strict=True)))
    console.print(table, soft_wrap=False)


def without_middle(text: str, width: int) -> str:
    """``text`` in at most ``width`` characters: of a longer one the begin and the end, around ``...``."""
    if len(text) <= width:
        return text
    kept = max(0, width - 3)
    return f"{text[: kept - kept // 2]}...{text[len(text) - kept // 2 :]}"


def wrapped(text: Text, width: int) -> Text:
    """``text`` in lines of up to ``width`` characters: broken at spaces, in words that are longer than a line where
    names can be broken, and elsewhere only in a name without such a place."""
    from rich.text import Text

    lines = []
    for line in text.split("\n", allow_blank=True):
        starts = _starts_of_lines(line.plain, width)
        for part in line.divide(starts):
            part.rstrip()
            lines.append(part)
    return Text("\n").join(lines)


def _starts_of_lines(text: str, width: int) -> list[int]:
    """Where lines after the first begin."""
    starts: list[int] = []
    begin = 0
    for word in re.finditer(r"\S+", text):
        if word.end() - begin <= width:
            continue
        if word.start() > begin:
            begin = word.start()
            starts.append(begin)
        if word.end() - begin <= width:
            continue
        for piece in _PIECE.finditer(text, word.start(), word.end()):
            if piece.end() - begin > width and piece.start() > begin:
                begin = piece.start()
                starts.append(begin)
            while piece.end() - begin > width:
                begin += width
                starts.append(begin)
    return starts


def _widths(columns: Sequence[Sequence[Text]], width: int) -> list[int] | None:
    """Widths of columns of cells, of which the widest are made narrower to fit into ``width``; None: they do not."""
    lines = [[line for cell in column for line in cell.plain.split("\n")] for column in columns]
    found = [max(map(len, one)) for one in lines]
    least = [max((len(piece) for line in one for piece in _PIECE.findall(line)), default=0) for one in lines]
    room = width - _BORDER - _BETWEEN * len(columns)
    while sum(found) > room:
        reducible = [n for n, one in enumerate(found) if one > least[n]]
        if not reducible:
            return None
        found[max(reducible, key=lambda n: found[n])] -= 1
    return found


def _print_title(console: Console, title: str) -> None:
    from rich.text import Text

    console.print(wrapped(Text.from_markup(title), console.width), style="bold", highlight=False)


def _print_cards(console: Console, title: str, heads: Sequence[Text], cells: Sequence[Sequence[Text]]) -> None:
    from rich.text import Text

    _print_title(console, title)
    for first, *others in cells:
        console.print(wrapped(first, console.width), style="bold", highlight=False)
        for head, cell in zip(heads[1:], others, strict=True):
            name = " ".join(head.plain.split())
            if not cell:
                continue
            text = Text.assemble(f"{name}: " if name else "", Text(" ").join(cell.split("\n")))
            lines = wrapped(text, console.width - 2).split("\n")
            console.print(Text("\n").join(Text("  ") + line for line in lines), highlight=False)
