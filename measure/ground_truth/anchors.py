"""Anchors: events of a program that instrumentation can neither add nor remove nor put in another order.

Calls of functions and stores to named variables and to the heap happen when the source says so, in every build of
one program on one input, unless the compiler inlined a call here and not there, or merged two stores. What it did
is not guessed: a candidate becomes an anchor when it happens equally often in all builds (`measure.ground_truth.
calibration`). Anchors are known by name, since each build has them at addresses of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from emulator.linux.elf import ElfImage, Symbol
from emulator.linux.process import STACK_GUARD_BYTES, STACK_TOP, Layout
from emulator.memory import page_ceiling
from measure.errors import MeasureError

HEAP = "heap"
_OURS = "__measure"

Kind = tuple[tuple[int, ...], tuple[tuple[int, int], ...]]
"""As `emulator.probes.EventCounter` takes it: addresses of instructions, and ranges of stores."""


def candidates(image: ElfImage) -> dict[str, Kind]:
    """Calls of each function, stores to each variable and to the heap, by name; not where two share a name."""
    seen: dict[str, list[Symbol]] = {}
    for symbol in image.symbols:
        seen.setdefault(symbol.name, []).append(symbol)
    found: dict[str, Kind] = {}
    for name, symbols in seen.items():
        symbol = symbols[0]
        if len(symbols) > 1 or name.startswith(_OURS):
            continue
        if symbol.is_function:
            found[f"call {name}"] = (symbol.address,), ()
        elif symbol.size_bytes:
            found[f"store {name}"] = (), ((symbol.address, symbol.address + symbol.size_bytes),)
    heap_end = STACK_TOP - Layout().stack_bytes - STACK_GUARD_BYTES
    found[HEAP] = (), ((page_ceiling(image.end), heap_end),)
    return found


def kind_of(image: ElfImage, names: Iterable[str]) -> Kind:
    """All anchors of ``names`` as one kind of event. Raises `MeasureError` for one that the program lacks."""
    known = candidates(image)
    pcs: list[int] = []
    ranges: list[tuple[int, int]] = []
    for name in names:
        if name not in known:
            raise MeasureError(f"{image.name} has no anchor '{name}': expected one of each build's own")
        pcs += known[name][0]
        ranges += known[name][1]
    return tuple(pcs), tuple(ranges)


def shared(images: Sequence[ElfImage]) -> tuple[str, ...]:
    """Names of the candidates that all of ``images`` have."""
    names = [candidates(image) for image in images]
    return tuple(name for name in names[0] if all(name in other for other in names[1:]))
