"""What an earlier process left of a program's code, taken as soon as the guest has the same code in memory.

A dynamically linked program has its libraries only some way into its run, and a process may not use them all. So
code is taken stretch by stretch: when control arrives in one that is waited for, all that are in memory by then are
compared, and what is equal is known from there on, with the optimised regions that lie wholly in known code.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from emulator.engine.archive import Archive, SavedCode, SavedRegion, SavedRegions, spans_of
from emulator.engine.blocks import BlockCache
from emulator.engine.discovery import Pages
from emulator.engine.operations import OPERATION_DTYPE
from emulator.engine.tiers import Tier
from emulator.events import TraceSelection

_NEAR_BYTES = 4096


class Noted(Protocol):
    """Code as it was decoded, or taken as `note` said."""

    def note(self, start: int, code: bytes) -> None:
        """It was taken as decoded: a change of it is to be found."""

    def note_later(self, decoded: Callable[[], tuple[NDArray[np.int64], NDArray[np.uint16]]]) -> None:
        """The same of what ``decoded`` tells, half the addresses of halfwords and those, when somebody asks."""

    def within(self, start: int, n_bytes: int) -> tuple[NDArray[np.uint16], NDArray[np.bool_]]:
        """Its halfwords from ``start`` on, and which of them were noted."""


class CodeSource(Protocol):
    """An address space, as far as its code goes."""

    pages: Pages
    code: Noted

    def peek(self, start: int, n_bytes: int) -> bytes | None:
        """Code in memory; None where there is none."""


class Remembered:
    """``saved``: what the archive had; block facts from row ``first`` on are its rows."""

    def __init__(self, archive: Archive, saved: SavedCode, source: CodeSource, first: int) -> None:
        self.saved, self.first = saved, first
        self._archive, self._source = archive, source
        self._regions: dict[TraceSelection, SavedRegions] = {}
        starts = np.array([start for start, _ in saved.code], np.int64)
        ends = np.array([start + len(code) for start, code in saved.code], np.int64)
        blocks = saved.blocks
        self._pcs = blocks["pc"].astype(np.int64)
        self._stretch = np.searchsorted(starts, self._pcs, side="right") - 1
        inside = (self._stretch >= 0) & (blocks["end_pc"] <= ends[self._stretch]) if len(ends) else False
        self._stretch[
            ~np.broadcast_to(inside, len(blocks))
        ] = -1  # blocks whose code was gone when it was saved
        self._starts = starts.tolist()
        self._waiting = set(range(len(saved.code)))
        self._here = np.zeros(len(saved.code) + 1, np.bool_)  # the last one for -1

    def awaits(self, pc: int) -> bool:
        """Whether the block at ``pc`` is in code that has not been in memory yet."""
        place = bisect_right(self._starts, pc) - 1
        return place in self._waiting and bool(np.any((self._pcs == pc) & (self._stretch == place)))

    def arrive(self) -> NDArray[np.int64]:
        """Compare what is waited for with what is in memory; rows of ``saved.blocks`` that are known now."""
        arrived = np.zeros(len(self._here), np.bool_)
        for place in sorted(self._waiting):
            start, code = self.saved.code[place]
            found = self._source.peek(start, len(code))
            if found is None:
                continue
            self._waiting.discard(place)
            if found == code:
                self._source.code.note(start, code)
                arrived[place] = True
        self._here |= arrived
        return np.flatnonzero(arrived[self._stretch])

    def regions(self, tier: Tier, cache: BlockCache) -> list[SavedRegion]:
        """Regions for ``tier`` that are in known code and that it has not got."""
        has = {region.name for region in tier.regions}
        return [
            region
            for region in self._all(tier.selection).regions
            if region.name not in has and all(self._is_known(pc, cache) for pc in region.blocks)
        ]

    def waiting_regions(self, selection: TraceSelection) -> list[SavedRegion]:
        """Regions in code that has not been in memory yet: of libraries that this process has not used."""
        waiting = set(self._pcs[np.isin(self._stretch, list(self._waiting))].tolist())
        return [region for region in self._all(selection).regions if not waiting.isdisjoint(region.blocks)]

    def executions(self, selection: TraceSelection) -> NDArray[np.uint32]:
        """How often the blocks of ``saved`` ran in an earlier process, outside of regions for ``selection``."""
        return self._all(selection).executions

    def here(self) -> NDArray[np.int64]:
        """Rows of ``saved.blocks`` that are known by now."""
        return np.flatnonzero(self._here[self._stretch])

    def waiting_code(self) -> list[tuple[int, bytes]]:
        """The stretches that have not been in memory yet."""
        return [self.saved.code[place] for place in sorted(self._waiting)]

    def _all(self, selection: TraceSelection) -> SavedRegions:
        if selection not in self._regions:
            # Regions contain numbers of blocks where something counts or records them.
            fits = self.first == 0 or not emits_numbers(selection)
            blocks = self.saved.blocks
            self._regions[selection] = (
                self._archive.load_regions(selection, blocks)
                if fits
                else SavedRegions((), np.zeros(len(blocks), np.uint32))
            )
        return self._regions[selection]

    def _is_known(self, pc: int, cache: BlockCache) -> bool:
        number = cache.number_of(pc)
        row = -1 if number is None else number - self.first
        return 0 <= row < len(self._pcs) and self._pcs[row] == pc and bool(self._here[self._stretch[row]])


def remember(archive: Archive, cache: BlockCache, source: CodeSource) -> Remembered | None:
    """Begin with what ``archive`` has, whose block facts are added to those of ``cache``."""
    saved = archive.load_code()
    if saved is None:
        return None
    first = cache.facts.extend(saved.blocks, saved.instructions)
    return Remembered(archive, saved, source, first)


def emits_numbers(selection: TraceSelection) -> bool:
    """Whether translations for it contain the numbers of blocks."""
    return selection.blocks or selection.counts


def code_to_save(
    cache: BlockCache,
    descriptors: NDArray[np.void],
    call_targets: Iterable[int],
    source: CodeSource,
    alone: bool,
    remembered: Remembered | None,
) -> SavedCode:
    """What is known by now. ``descriptors``: of blocks that the interpreter has met.

    ``alone``: all block facts are of this address space, and blocks keep their numbers; otherwise only its own blocks
    are saved, under new ones.
    """
    facts, known = cache.facts, cache.numbers()
    rows = np.arange(facts.n_blocks) if alone else np.array(sorted(known), np.int64)
    blocks = facts.blocks[rows].copy()
    alive = blocks[np.isin(rows, np.fromiter(known, np.int64, len(known)))]
    stretches = _stretches(spans_of(alive), source)
    if remembered is not None and alone:
        stretches = _united([*stretches, *remembered.waiting_code()])
    lengths = blocks["n_instructions"].astype(np.int64)
    instructions = facts.instructions
    if not alone:
        firsts = np.repeat(blocks["first_instruction"].astype(np.int64), lengths)
        begins = np.cumsum(lengths) - lengths
        instructions = instructions[firsts + np.arange(lengths.sum()) - np.repeat(begins, lengths)]
        blocks["first_instruction"] = begins
    place = np.full(facts.n_blocks, -1)  # of a block's descriptor
    place[descriptors["number"]] = np.arange(len(descriptors))
    met = place[rows]
    n_operations = np.where(met < 0, 0, descriptors["n_operations"][met]).astype(np.uint32)
    sizes = n_operations[met >= 0].astype(np.int64) * OPERATION_DTYPE.itemsize
    raw = _gathered(descriptors["operations"][met[met >= 0]].astype(np.int64), sizes)
    return SavedCode(
        blocks, instructions, np.frombuffer(raw, OPERATION_DTYPE), n_operations, tuple(call_targets),
        tuple(stretches),
    )  # fmt: skip


def _gathered(addresses: NDArray[np.int64], sizes: NDArray[np.int64]) -> bytes:
    """What is at these host addresses, one behind the other; what lies so already, as most does, is copied at once."""
    ends = addresses + sizes
    is_border = addresses[1:] != ends[:-1]
    starts = np.concatenate([addresses[:1], addresses[1:][is_border]])
    ends = np.concatenate([ends[:-1][is_border], ends[-1:]])
    return b"".join(map(ctypes.string_at, starts.tolist(), (ends - starts).tolist()))


def _stretches(spans: NDArray[np.int64], source: CodeSource) -> list[tuple[int, bytes]]:
    """The code in ``spans``; those that lie near each other in one piece, which is compared faster than many."""
    found: list[tuple[int, bytes]] = []
    far = np.flatnonzero(spans[1:, 0] - spans[:-1, 1] > _NEAR_BYTES) + 1
    for group in np.split(spans, far) if len(spans) else ():
        start, n_bytes = int(group[0, 0]), int(group[-1, 1] - group[0, 0])
        code, known = source.code.within(start, n_bytes)
        lows, highs = (group - start).T >> 1
        n_known = np.concatenate([[0], np.cumsum(known)])
        is_known = n_known[highs] - n_known[lows] == highs - lows
        whole = source.peek(start, n_bytes)
        if (
            whole is not None
            and is_known.all()
            and not (known & (code != np.frombuffer(whole, np.uint16))).any()
        ):
            found.append((start, whole))
        else:
            found += [
                (start + 2 * low, code[low:high].tobytes())
                for low, high in zip(lows[is_known].tolist(), highs[is_known].tolist(), strict=True)
            ]
    return found


def _united(stretches: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """Ascending, and one where they overlap or touch; what comes first counts."""
    found: list[tuple[int, bytes]] = []
    for start, code in sorted(stretches, key=lambda stretch: stretch[0]):
        if found and start <= found[-1][0] + len(found[-1][1]):
            begin, before = found[-1]
            found[-1] = begin, before + code[begin + len(before) - start :]
        else:
            found.append((start, code))
    return found
