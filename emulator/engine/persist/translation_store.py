"""The translation store: optimised regions of a program on disk, so that the next process begins with them.

Which blocks form a region depends on timing, so regions kept one by one, by their IR text, would not be found again.
The store keeps the set of regions that control still enters, as host code, and the guest code that they were made from.
It does not keep blocks: discovering the blocks that a process runs takes less time than reading all that processes
ever ran.

There is one file for each program and selection, named by a hash of everything that it depends on: the program, the
emulator's sources, the host's processor, LLVM. Before use the guest code is compared with memory
(`emulator.engine.persist.pending`), so code that was mapped or written later is never mistaken for it.
"""

from __future__ import annotations

import functools
import hashlib
import json
import struct
from pathlib import Path
from typing import NamedTuple

from common.file_cache import PROGRAMS, cache_directory, read_checked, write_checked
from common.source_digest import kept_source_digest
from emulator.engine.emit.indirect_targets import IndirectTargets
from emulator.events import TraceSelection


class SavedRegion(NamedTuple):
    """An optimised region: its entries, its blocks, and those of callees, all by pc; its indirect targets; its packed
    host code, b"" for a region that is planned but was not built in time, and what its counters stand for, packed."""

    name: str
    entries: tuple[int, ...]
    blocks: tuple[int, ...]
    callees: tuple[int, ...]
    indirect_targets: IndirectTargets
    image: bytes
    sums: bytes = b""


class SavedRegions(NamedTuple):
    """The regions of a selection, built or planned. ``code``: the guest code that they are made from, as ascending
    ranges: start and bytes."""

    regions: tuple[SavedRegion, ...]
    code: tuple[tuple[int, bytes], ...]


NOTHING_SAVED = SavedRegions((), ())


@functools.cache
def sources_identity() -> str:
    """A hash of the sources that translations depend on."""
    emulator = Path(__file__).parents[2]
    parts = ("engine", "isa", "kernels", "native_code", "events.py")
    return kept_source_digest([emulator / part for part in parts])


class TranslationStore:
    """The files of one program. ``program``: identifies its contents and the placement of its libraries; ``host``:
    identifies processor and compiler."""

    def __init__(self, program: str, host: str) -> None:
        self._identity = f"{program}\0{sources_identity()}\0{host}"

    def _path(self, selection: TraceSelection) -> Path:
        name = hashlib.sha256(f"{self._identity}\0{selection}".encode()).hexdigest()
        return cache_directory() / PROGRAMS / name[:2] / f"{name[2:]}.regions"

    def load(self, selection: TraceSelection) -> SavedRegions:
        """The saved regions of ``selection``; none where there is no file."""
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
                {pc: tuple(to) for pc, to in indirect_targets},
                take(n_bytes),
                take(n_sums_bytes),
            )
            for name, entries, pcs, callees, indirect_targets, n_bytes, n_sums_bytes in about["regions"]
        )
        return SavedRegions(regions, code)

    def save(self, selection: TraceSelection, saved: SavedRegions) -> None:
        """Replace the saved regions of ``selection`` on disk."""
        about = {
            "code": [(start, len(part)) for start, part in saved.code],
            "regions": [
                (r.name, r.entries, r.blocks, r.callees, list(r.indirect_targets.items()), len(r.image), len(r.sums))
                for r in saved.regions
            ],
        }
        text = json.dumps(about).encode()
        parts = [part for _, part in saved.code] + [
            part for region in saved.regions for part in (region.image, region.sums)
        ]
        write_checked(self._path(selection), [struct.pack("<I", len(text)), text, *parts])
