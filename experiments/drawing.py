"""What the figures of the reproductions share beside `measure.report.style`: units of axes, small files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_MOST_BYTES = 150_000
_DPI = 120
_COLOURS = (256, 64, 32)


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
        whole.quantize(colours, dither=Image.Dither.NONE).save(path, format="PNG", optimize=True)
        if path.stat().st_size <= _MOST_BYTES:
            return
