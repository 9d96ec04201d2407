"""Translations of a program kept on disk whole, so that the next process begins where the last one got to.

Which blocks are translated together depends on when the background thread got to them, so objects kept one by
one would not be asked for again. What is kept here is the outcome: every block that was discovered, as its
facts and interpreter operations, and the optimised regions that control still arrives at, as host code; and how often
blocks ran outside of those, so that what became hot too late for one process is translated at the beginning of the
next.

One file for each program has its blocks, and one for each selection the regions translated for it. They are named
by a hash of everything they depend on: the program, the emulator's own sources, the host's processor, LLVM. The
guest's code is in the first as well and compared with its memory before use (`emulator.engine.remembered`), so that
code which is mapped or written later can never be taken for what it was. Regions contain the numbers of blocks, so
they come with those and are taken only where the numbers are the same.
"""

from __future__ import annotations

import functools
import hashlib
import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emulator.engine.operations import OPERATION_DTYPE
from emulator.engine.ways import Ways
from emulator.events import BLOCK_DTYPE, INSTRUCTION_DTYPE, TraceSelection
from emulator.kept import PROGRAMS, cache_directory, read_checked, write_checked

GONE = 0xFFFFFFFF  # instead of a number of operations


class SavedRegion(NamedTuple):
    """An optimised region as `Region` has it: where it is entered, the blocks in it by pc, those of callees, where
    computed jumps may lead, and its host code."""

    name: str
    entries: tuple[int, ...]
    blocks: tuple[int, ...]
    callees: tuple[int, ...]
    ways: Ways
    image: bytes


class SavedRegions(NamedTuple):
    """What was translated for a selection. ``executions``: how often each block ran outside of regions, uint32."""

    regions: tuple[SavedRegion, ...]
    executions: NDArray[np.uint32]


class SavedCode(NamedTuple):
    """What was known about a program's code.

    ``blocks``, ``instructions``: rows of `BlockFacts`; ``operations``: of the interpreter, all blocks' one after
    the other, ``n_operations`` of them each (0: the interpreter has not met the block; `GONE`: the block was forgotten,
    it has only a number). ``code``: the guest's code that the others are about, as far as it was known for certain:
    ascending stretches, start and bytes.
    """

    blocks: NDArray[np.void]
    instructions: NDArray[np.void]
    operations: NDArray[np.void]
    n_operations: NDArray[np.uint32]
    call_targets: tuple[int, ...]
    code: tuple[tuple[int, bytes], ...]


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
    """The files for one program. ``program``: its bytes; ``host``: processor and compiler, as text; ``layout``: what
    decides where its libraries come to lie."""

    def __init__(self, program: bytes, host: str, layout: str = "") -> None:
        self._identity = f"{hashlib.sha256(program).hexdigest()}\0{layout}\0{sources_identity()}\0{host}"

    def _path(self, selection: TraceSelection | None) -> Path:
        """Of the regions for ``selection``; of the code with None."""
        part = "code" if selection is None else f"{selection}"
        name = hashlib.sha256(f"{self._identity}\0{part}".encode()).hexdigest()
        kind = "code" if selection is None else "regions"
        return cache_directory() / PROGRAMS / name[:2] / f"{name[2:]}.{kind}"

    def load_code(self) -> SavedCode | None:
        """What was saved of the code; None when there is nothing."""
        found = _unpack(read_checked(self._path(None)))
        if found is None:
            return None
        about, rest = found
        code = tuple((start, bytes(rest.take(n_bytes))) for start, n_bytes in about["code"])
        dtypes = (BLOCK_DTYPE, INSTRUCTION_DTYPE, OPERATION_DTYPE, np.uint32)
        arrays = [rest.rows(count, dtype) for count, dtype in zip(about["counts"], dtypes, strict=True)]
        return SavedCode(arrays[0], arrays[1], arrays[2], arrays[3], tuple(about["call_targets"]), code)

    def save_code(self, saved: SavedCode) -> None:
        """Keep it for later processes."""
        arrays = (saved.blocks, saved.instructions, saved.operations, saved.n_operations)
        about = {
            "counts": [len(array) for array in arrays],
            "code": [(start, len(part)) for start, part in saved.code],
            "call_targets": saved.call_targets,
        }
        body = [part for _, part in saved.code] + [array.tobytes() for array in arrays]
        write_checked(self._path(None), _pack(about, body))

    def load_regions(self, selection: TraceSelection, blocks: NDArray[np.void]) -> SavedRegions:
        """What there is for ``selection``, if ``blocks``, the rows saved, begin as those it was made with."""
        found = _unpack(read_checked(self._path(selection)))
        executions = np.zeros(len(blocks), np.uint32)
        if found is None:
            return SavedRegions((), executions)
        about, rest = found
        n_blocks = about["n_blocks"]
        if len(blocks) < n_blocks or _numbering(blocks[:n_blocks]) != about["numbering"]:
            return SavedRegions((), executions)
        executions[:n_blocks] = rest.rows(n_blocks, np.uint32)
        regions = tuple(
            SavedRegion(
                name,
                tuple(entries),
                tuple(pcs),
                tuple(callees),
                {pc: tuple(to) for pc, to in ways},
                bytes(rest.take(n_bytes)),
            )
            for name, entries, pcs, callees, ways, n_bytes in about["regions"]
        )
        return SavedRegions(regions, executions)

    def save_regions(self, selection: TraceSelection, blocks: NDArray[np.void], saved: SavedRegions) -> None:
        """Keep it for later processes; ``saved.executions``: of ``blocks``."""
        about = {
            "n_blocks": len(blocks),
            "numbering": _numbering(blocks),
            "regions": [
                (r.name, r.entries, r.blocks, r.callees, list(r.ways.items()), len(r.image))
                for r in saved.regions
            ],
        }
        images = [region.image for region in saved.regions]
        write_checked(self._path(selection), _pack(about, [saved.executions.tobytes(), *images]))


class _Rest:
    """What follows the description in a file."""

    def __init__(self, raw: memoryview) -> None:
        self._raw = raw

    def take(self, n_bytes: int) -> memoryview:
        part, self._raw = self._raw[:n_bytes], self._raw[n_bytes:]
        return part

    def rows(self, count: int, dtype: Any) -> NDArray[Any]:
        kind = np.dtype(dtype)
        return np.frombuffer(self.take(count * kind.itemsize), kind)


def _pack(about: dict[str, Any], body: Sequence[bytes]) -> list[bytes]:
    text = json.dumps(about).encode()
    return [struct.pack("<I", len(text)), text, *body]


def _unpack(raw: bytes | None) -> tuple[dict[str, Any], _Rest] | None:
    if raw is None:
        return None
    (length,) = struct.unpack_from("<I", raw)
    return json.loads(raw[4 : 4 + length]), _Rest(memoryview(raw)[4 + length :])


def _numbering(blocks: NDArray[np.void]) -> str:
    """What tells which number each block has."""
    return hashlib.sha256(blocks["pc"].tobytes()).hexdigest()


def spans_of(blocks: NDArray[np.void]) -> NDArray[np.int64]:
    """Start and end of the stretches of code that ``blocks`` (rows of `BlockFacts`) cover, ascending, (n, 2)."""
    order = np.argsort(blocks["pc"], kind="stable")
    starts, ends = blocks["pc"][order].astype(np.int64), blocks["end_pc"][order].astype(np.int64)
    ends = np.maximum.accumulate(ends)
    first = np.ones(len(blocks), np.bool_)  # of a stretch
    first[1:] = starts[1:] > ends[:-1]
    last = np.roll(first, -1)
    return np.column_stack([starts[first], ends[last]])
