"""Pending translations: saved regions that become valid once the guest has the same code in memory; and the ranges of
guest code (start and bytes) that are saved for this comparison.

A dynamically linked program maps its libraries only some way into its run, and a process may not use them all. So
code is compared range by range: when control enters a pending region, all ranges that are in memory by then are
compared, and the regions that lie wholly in equal ranges become valid.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from emulator.engine.decode.discovery import Pages
from emulator.engine.persist.translation_store import SavedRegion, SavedRegions
from emulator.engine.tiering.region_states import Region, RegionEvent, RegionStates

_NEAR_BYTES = 4096


class ShadowCode(Protocol):
    """Code as it was when decoded (`CodeShadow`)."""

    def within(self, start: int, n_bytes: int) -> tuple[NDArray[np.uint16], NDArray[np.bool_]]:
        """The halfwords of ``[start, start + n_bytes)``, and which of them were decoded."""


class CodeSource(Protocol):
    """The code of an address space."""

    pages: Pages
    code_shadow: ShadowCode

    def peek(self, start: int, n_bytes: int) -> bytes | None:
        """Code in memory; None where some of the range is not executable."""


class PendingTranslations:
    """Takes the regions of ``saved`` into ``states`` as pending, and tells which of them become valid in ``source``."""

    def __init__(self, saved: SavedRegions, source: CodeSource, states: RegionStates) -> None:
        self._source = source
        self._states = states
        self._code = saved.code
        self._starts = np.array([start for start, _ in saved.code], np.int64)
        self._unmapped = set(range(len(saved.code)))  # ranges that were not in memory yet
        self._saved = {states.begin(_pending(one), RegionEvent.STORED): one for one in saved.regions}
        # For each pending region the ranges that have not been compared.
        self._needs = {region: self._ranges_of(region) for region in self._saved}
        self.pending_entries: set[int] = set()
        """The entries (pcs) of pending regions."""
        self._update_entries()

    def revalidate(self) -> list[tuple[Region, SavedRegion]]:
        """Compare the ranges that have come into memory; the regions that are valid from now on, which the caller
        publishes or orders."""
        equal, differs = set[int](), set[int]()
        for place in sorted(self._unmapped):
            start, code = self._code[place]
            found = self._source.peek(start, len(code))
            if found is not None:
                self._unmapped.discard(place)
                (equal if found == code else differs).add(place)
        valid = []
        for region, needs in list(self._needs.items()):
            needs -= equal
            if needs and not needs & differs:
                continue
            del self._needs[region]
            saved = self._saved.pop(region)
            if not needs and self._is_unchanged(self._ranges_of(region) - equal):
                valid.append((region, saved))
            else:
                self._states.change(region, RegionEvent.CODE_CHANGED)
        self._update_entries()
        return valid

    def _is_unchanged(self, places: set[int]) -> bool:
        """Whether ranges that were equal when they were compared are equal still."""
        return all(self._source.peek(self._code[n][0], len(self._code[n][1])) == self._code[n][1] for n in places)

    def unmapped(self) -> tuple[list[SavedRegion], list[tuple[int, bytes]]]:
        """The regions still pending, in libraries that this process has not mapped, and their code."""
        places = {place for region in self._saved for place in self._ranges_of(region)}
        return [*self._saved.values()], [self._code[place] for place in sorted(places)]

    def _update_entries(self) -> None:
        self.pending_entries = {pc for region in self._saved for pc in region.entries}

    def _ranges_of(self, region: Region) -> set[int]:
        return set((np.searchsorted(self._starts, region.pcs, side="right") - 1).tolist())


def _pending(saved: SavedRegion) -> Region:
    """A region of an earlier process, still without its host code: most are never entered."""
    return Region(
        saved.entries[0], list(saved.entries), saved.blocks, frozenset(saved.callees), saved.indirect_targets,
        from_store=True, has_stored_code=bool(saved.image),
    )  # fmt: skip


def block_spans(blocks: NDArray[np.void]) -> NDArray[np.int64]:
    """Start and end of each contiguous range that ``blocks`` (rows of `BlockFacts`) cover, ascending, (n, 2)."""
    order = np.argsort(blocks["pc"], kind="stable")
    starts, ends = blocks["pc"][order].astype(np.int64), blocks["end_pc"][order].astype(np.int64)
    ends = np.maximum.accumulate(ends)
    first = np.ones(len(blocks), np.bool_)  # the first block of a range
    first[1:] = starts[1:] > ends[:-1]
    last = np.roll(first, -1)
    return np.column_stack([starts[first], ends[last]])


def code_ranges(spans: NDArray[np.int64], source: CodeSource) -> list[tuple[int, bytes]]:
    """Start and bytes of the code in ``spans``, as it was when decoded. A span that was not decoded as a whole is left
    out. Neighbouring spans become one range if memory is unchanged: one range is compared faster than many."""
    found: list[tuple[int, bytes]] = []
    far = np.flatnonzero(spans[1:, 0] - spans[:-1, 1] > _NEAR_BYTES) + 1
    for group in np.split(spans, far) if len(spans) else ():
        start, n_bytes = int(group[0, 0]), int(group[-1, 1] - group[0, 0])
        code, known = source.code_shadow.within(start, n_bytes)
        lows, highs = (group - start).T >> 1
        n_known = np.concatenate([[0], np.cumsum(known)])
        is_known = n_known[highs] - n_known[lows] == highs - lows
        whole = source.peek(start, n_bytes)
        if whole is not None and is_known.all() and not (known & (code != np.frombuffer(whole, np.uint16))).any():
            found.append((start, whole))
        else:
            found += [
                (start + 2 * low, code[low:high].tobytes())
                for low, high in zip(lows[is_known].tolist(), highs[is_known].tolist(), strict=True)
            ]
    return found


def merged_code(ranges: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """The ranges ascending, merged where they overlap or touch; the range with the lower start wins an overlap."""
    found: list[tuple[int, bytes]] = []
    for start, code in sorted(ranges, key=lambda one: one[0]):
        if found and start <= found[-1][0] + len(found[-1][1]):
            begin, before = found[-1]
            found[-1] = begin, before + code[begin + len(before) - start :]
        else:
            found.append((start, code))
    return found
