"""What the reproductions share beside `measure.report.style`: units of axes, small files, tables in pages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from measure.errors import MeasureError

_MOST_BYTES = 150_000
_DPI = 120
_COLOURS = (256, 64, 32)


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table as Markdown, a line a row."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(str(cell) for cell in line)} |\n" for line in lines)


def between_marks(page: Path, text: str, name: str, within: str | None = None) -> str:
    """The text of ``page`` (or ``within``, if it was changed already) with ``text`` between the marks ``name``.

    Raises `MeasureError` when it has no such marks.
    """
    begin, end = f"<!-- {name} -->", "<!-- end -->"
    before, found, rest = (within or page.read_text(encoding="utf-8")).partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise MeasureError(f"{page}: expected the marks {begin} and {end}, for the table to go between")
    return f"{before}{begin}\n{text}{end}{after}"


def instruction_unit(most: float) -> tuple[float, str]:
    """What to divide instructions by, and the axis's label, for axes that go up to ``most``."""
    return (1e9, "instructions [billions]") if most >= 1e9 else (1e6, "instructions [millions]")


def save_small(figure: Any, path: Path) -> None:
    """The figure as a PNG of at most 150 kB, with as few colours as that takes; grids lie below what is drawn."""
    from PIL import Image

    for axis in figure.axes:
        axis.set_axisbelow(True)
    figure.savefig(path, dpi=_DPI, format="png")
    whole = Image.open(path).convert("RGB")
    for colours in _COLOURS:
        whole.quantize(colours, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
            path, format="PNG", optimize=True
        )
        if path.stat().st_size <= _MOST_BYTES:
            return
