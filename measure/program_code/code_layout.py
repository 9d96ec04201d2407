"""Moves that let an instrumented program's code and data be seen where the plain program has them.

A function goes to its place in the plain program, without its counters' bytes. One that does not fit there, because
the compiler made it otherwise, goes far beyond the program, to an address with the same place in every page and cache
set index below 1 MiB; so does one that the plain program lacks. Data goes by sections and by the symbols in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emulator.linux.loader.elf import ElfImage, Symbol
from measure.program_code.counter_code import program_image, read_code

_BEYOND = 0x4000_0000  # above images and heaps, below the area of mmap
_ROOM = 0x10_0000  # for each function that does not fit
_PAGE_BYTES = 4096
Moves = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class LayoutMoves:
    """``code``, ``data``: moves as `emulator.counterfactual.core` takes them."""

    code: Moves
    data: Moves


def layout_moves(instrumented: Path, plain: Path, counter_instructions: Sequence[int]) -> LayoutMoves:
    """Moves from the layout of ``instrumented`` to that of ``plain``, both static programs."""
    image, goal = program_image(instrumented), program_image(plain)
    code = _code_moves(image, goal, sorted(counter_instructions))
    return LayoutMoves(tuple(code), tuple(_data_moves(instrumented, plain, image, goal)))


def functions_of(image: ElfImage) -> dict[str, Symbol]:
    """Functions by name, one for each address; of several with one name the later ones are ``name#2`` and so on."""
    by_address: dict[int, Symbol] = {}
    for symbol in image.symbols:
        if symbol.is_function and symbol.size_bytes:
            held = by_address.get(symbol.address)
            if held is None or (symbol.size_bytes, symbol.name) > (held.size_bytes, held.name):
                by_address[symbol.address] = symbol
    found: dict[str, Symbol] = {}
    seen: dict[str, int] = {}
    for _, symbol in sorted(by_address.items()):
        seen[symbol.name] = number = seen.get(symbol.name, 0) + 1
        found[symbol.name if number == 1 else f"{symbol.name}#{number}"] = symbol
    return found


def _code_moves(image: ElfImage, goal: ElfImage, counters: Sequence[int]) -> list[tuple[int, int]]:
    """The moves of code; functions that do not fit into their place of ``goal``, or have none, go elsewhere."""
    places = functions_of(goal)
    moves: list[tuple[int, int]] = []
    n_elsewhere = 0
    for name, function in sorted(functions_of(image).items(), key=lambda item: item[1].address):
        low, high = function.address, function.address + function.size_bytes
        inside = [(pc, 4 if read_code(image, pc, 1)[0] & 3 == 3 else 2) for pc in counters if low <= pc < high]
        size = function.size_bytes - sum(length for _, length in inside)
        place = places.get(name)
        if place is not None and size <= place.size_bytes:
            start = place.address
        else:
            start = (place.address if place is not None else low) + _BEYOND + n_elsewhere * _ROOM
            n_elsewhere += 1
        distance = start - low
        moves.append((low, distance))
        for pc, length in inside:
            distance -= length
            moves.append((pc + length, distance))
        moves.append((high, 0))
    return _distinct(moves)


def _distinct(moves: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The moves with each begin once, the last one that was given."""
    return sorted(dict(moves).items())


def _data_moves(instrumented: Path, plain: Path, image: ElfImage, goal: ElfImage) -> list[tuple[int, int]]:
    """The moves of data: by section, by symbols within, and of the heap by whole pages."""
    sections, there = _data_sections(instrumented), _data_sections(plain)
    objects = {symbol.name: symbol for symbol in _objects(goal)}
    moves: list[tuple[int, int]] = []
    for name, (low, high) in sorted(sections.items(), key=lambda item: item[1]):
        distance = there[name][0] - low if name in there else 0
        moves.append((low, distance))
        for symbol in _objects(image):
            if low <= symbol.address < high and symbol.name in objects:
                moves.append((symbol.address, objects[symbol.name].address - symbol.address))
        moves.append((high, 0))
    moves.append((_ceiling(image.end), _ceiling(goal.end) - _ceiling(image.end)))
    moves.append((_BEYOND, 0))
    return _distinct(moves)


def _objects(image: ElfImage) -> list[Symbol]:
    """Variables with a size and a name that only one of them has, by address."""
    found = [s for s in image.symbols if not s.is_function and s.size_bytes]
    names = [s.name for s in found]
    return [s for s in found if names.count(s.name) == 1]


def _data_sections(path: Path) -> dict[str, tuple[int, int]]:
    """``[low, high)`` of the loaded sections without code, by name."""
    from elftools.elf.constants import SH_FLAGS
    from elftools.elf.elffile import ELFFile

    with path.open("rb") as file:
        elf: Any = ELFFile(file)
        found = {}
        for section in elf.iter_sections():
            flags = section["sh_flags"]
            loaded = flags & SH_FLAGS.SHF_ALLOC and not flags & (SH_FLAGS.SHF_EXECINSTR | SH_FLAGS.SHF_TLS)
            if loaded and section["sh_size"]:
                found[section.name] = section["sh_addr"], section["sh_addr"] + section["sh_size"]
        return found


def _ceiling(address: int) -> int:
    return -(-address // _PAGE_BYTES) * _PAGE_BYTES
