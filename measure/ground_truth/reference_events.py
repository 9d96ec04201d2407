"""Reference events: events of a program that instrumentation cannot add, remove or reorder.

The source determines calls of functions and stores to named variables and to the heap, in every build of one
program on one input, unless the compiler inlined a call or merged two stores in only some builds. The compiler's
choices are not guessed: a candidate becomes a reference event when it happens equally often in all builds
(`measure.ground_truth.calibration`). Reference events are identified by name, since addresses differ between builds.

Stores of memcpy and its like are none: how many make a copy depends on how the data are aligned, which differs between
code layouts of one build.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from emulator.linux.loader.elf import ElfImage, Symbol
from emulator.linux.loader.process_image import STACK_GUARD_BYTES, STACK_TOP, Layout
from emulator.memory import page_ceiling
from measure.errors import MeasureError

HEAP = "heap"
_OURS = "__measure"
_COPIES = frozenset((
    "memcpy", "memmove", "memset", "mempcpy", "memccpy", "bzero", "strcpy", "strncpy", "strcat", "strncat", "strlcpy",
    "strlcat", "stpcpy", "stpncpy", "wmemcpy", "wmemmove", "wmemset", "__memcpy", "__memmove", "__memset", "__mempcpy",
    "__strcpy", "__stpcpy", "__stpncpy",
))  # fmt: skip
"""Functions of libraries that store words or bytes, as data are aligned."""

Kind = tuple[tuple[int, ...], tuple[tuple[int, int], ...]]
"""An event as `emulator.probes.EventCounter` takes it: addresses of instructions, and address ranges of stores."""


def candidates(image: ElfImage) -> dict[str, Kind]:
    """Calls of each function, stores to each variable and to the heap, by name; ambiguous names are left out."""
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


def code_of_copies(image: ElfImage) -> list[tuple[int, int]]:
    """Address ranges of the functions whose stores are no reference events."""
    return [
        (symbol.address, symbol.address + symbol.size_bytes)
        for symbol in image.symbols
        if symbol.is_function and symbol.name in _COPIES
    ]


def kind_of(image: ElfImage, names: Iterable[str]) -> Kind:
    """All reference events of ``names`` as one kind. Raises `MeasureError` for a name that the program lacks."""
    kinds = candidates(image)
    pcs: list[int] = []
    ranges: list[tuple[int, int]] = []
    for name in names:
        if name not in kinds:
            raise MeasureError(f"{image.name} has no reference event '{name}': expected a call or store of the program")
        pcs += kinds[name][0]
        ranges += kinds[name][1]
    return tuple(pcs), tuple(ranges)


def shared(images: Sequence[ElfImage]) -> tuple[str, ...]:
    """Names of the candidates that are in all of ``images``."""
    names = [candidates(image) for image in images]
    return tuple(name for name in names[0] if all(name in other for other in names[1:]))
