"""Translations of a program kept on disk, so that the next process begins where the last one got to.

Which blocks are translated together depends on when the background thread got to them, so objects kept one by
one would not be asked for again. What is kept here is the outcome: the optimised regions that control still arrives at,
as host code, and the guest's code that they were made from. Blocks are not: discovering those that a process runs takes
less than reading all that processes ever ran.

One file for each program and selection, named by a hash of everything that it depends on: the program, the emulator's
own sources, the host's processor, LLVM. The guest's code is compared with its memory before use
(`emulator.engine.remembered`), so that code which is mapped or written later can never be taken for what it was.
"""

from __future__ import annotations

import functools
import hashlib
import json
import struct
from pathlib import Path
from typing import NamedTuple

from emulator.engine.ways import Ways
from emulator.events import TraceSelection
from emulator.kept import PROGRAMS, cache_directory, read_checked, write_checked


class SavedRegion(NamedTuple):
    """An optimised region as `Region` has it: where it is entered, the blocks in it by pc, those of callees, where
    computed jumps may lead, and its host code; b"" for one that was worth to be translated, when there was no time."""

    name: str
    entries: tuple[int, ...]
    blocks: tuple[int, ...]
    callees: tuple[int, ...]
    ways: Ways
    image: bytes


class SavedRegions(NamedTuple):
    """What was translated for a selection, or is to be. ``code``: the guest's code that it is made from: ascending
    stretches, start and bytes."""

    regions: tuple[SavedRegion, ...]
    code: tuple[tuple[int, bytes], ...]


NOTHING_SAVED = SavedRegions((), ())


@functools.cache
def sources_identity() -> str:
    """A hash of the sources that decide what a translation looks like."""
    digest = hashlib.sha256()
    emulator = Path(__file__).parent.parent
    for folder in (emulator / "engine", emulator / "isa"):
        for path in sorted(folder.glob("*.py")):
            digest.update(path.read_bytes())
    digest.update((emulator / "events.py").read_bytes())
    return digest.hexdigest()


class Archive:
    """The files for one program. ``program``: tells its contents, and what decides where its libraries come to lie;
    ``host``: processor and compiler, as text."""

    def __init__(self, program: str, host: str) -> None:
        self._identity = f"{program}\0{sources_identity()}\0{host}"

    def _path(self, selection: TraceSelection) -> Path:
        name = hashlib.sha256(f"{self._identity}\0{selection}".encode()).hexdigest()
        return cache_directory() / PROGRAMS / name[:2] / f"{name[2:]}.regions"

    def load(self, selection: TraceSelection) -> SavedRegions:
        """What there is for ``selection``."""
        raw = read_checked(self._path(selection))
        if raw is None:
            return NOTHING_SAVED
        (length,) = struct.unpack_from("<I", raw)
        about, at = json.loads(raw[4 : 4 + length]), 4 + length

        def take(n_bytes: int) -> bytes:
            nonlocal at
            at += n_bytes
            return raw[at - n_bytes : at]

        code = tuple((start, take(n_bytes)) for start, n_bytes in about["code"])
        regions = tuple(
            SavedRegion(
                name,
                tuple(entries),
                tuple(pcs),
                tuple(callees),
                {pc: tuple(to) for pc, to in ways},
                take(n_bytes),
            )
            for name, entries, pcs, callees, ways, n_bytes in about["regions"]
        )
        return SavedRegions(regions, code)

    def save(self, selection: TraceSelection, saved: SavedRegions) -> None:
        """Keep it for later processes."""
        about = {
            "code": [(start, len(part)) for start, part in saved.code],
            "regions": [
                (r.name, r.entries, r.blocks, r.callees, list(r.ways.items()), len(r.image))
                for r in saved.regions
            ],
        }
        text = json.dumps(about).encode()
        parts = [part for _, part in saved.code] + [region.image for region in saved.regions]
        write_checked(self._path(selection), [struct.pack("<I", len(text)), text, *parts])
