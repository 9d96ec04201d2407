"""What other processes translated of a program, taken as soon as the guest has the same code in memory.

A dynamically linked program has its libraries only some way into its run, and a process may not use them all. So
code is compared stretch by stretch: when control arrives at a region that is waited for, all stretches that are in
memory by then are compared, and the regions that lie wholly in what is equal may be taken.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from emulator.engine.archive import SavedRegion, SavedRegions
from emulator.engine.discovery import Pages

_NEAR_BYTES = 4096


class Noted(Protocol):
    """Code as it was decoded: a change of it is to be found."""

    def within(self, start: int, n_bytes: int) -> tuple[NDArray[np.uint16], NDArray[np.bool_]]:
        """Its halfwords from ``start`` on, and which of them were noted."""


class CodeSource(Protocol):
    """An address space, as far as its code goes."""

    pages: Pages
    code: Noted

    def peek(self, start: int, n_bytes: int) -> bytes | None:
        """Code in memory; None where there is none."""


class Remembered:
    """The regions of ``saved`` that may still be taken in ``source``."""

    def __init__(self, saved: SavedRegions, source: CodeSource) -> None:
        self._source = source
        self._code = saved.code
        self._starts = np.array([start for start, _ in saved.code], np.int64)
        self._waiting = set(range(len(saved.code)))  # stretches
        self._regions = {region.name: region for region in saved.regions}
        self._needs = {region.name: self._stretches_of(region) for region in saved.regions}
        self.awaited: set[int] = set()
        """Where the regions that are waited for are entered."""
        self._await()

    def arrive(self) -> list[SavedRegion]:
        """Compare what is waited for with what is in memory; the regions that may be taken from now on."""
        here, differs = set[int](), set[int]()
        for place in sorted(self._waiting):
            start, code = self._code[place]
            found = self._source.peek(start, len(code))
            if found is not None:
                self._waiting.discard(place)
                (here if found == code else differs).add(place)
        taken = []
        for name, needs in list(self._needs.items()):
            needs -= here
            if not needs and self._is_there(self._stretches_of(self._regions[name]) - here):
                taken.append(self._regions[name])
            if not needs or needs & differs:
                del self._needs[name], self._regions[name]
        self._await()
        return taken

    def _is_there(self, places: set[int]) -> bool:
        """Whether these stretches, which were in memory when they were compared, have not been changed since."""
        return all(
            self._source.peek(self._code[n][0], len(self._code[n][1])) == self._code[n][1] for n in places
        )

    def waiting(self) -> tuple[list[SavedRegion], list[tuple[int, bytes]]]:
        """Regions in code that has not been in memory yet, that of libraries that are not in use, and the code."""
        regions = list(self._regions.values())
        places = {place for region in regions for place in self._stretches_of(region)}
        return regions, [self._code[place] for place in sorted(places)]

    def _await(self) -> None:
        self.awaited = {pc for region in self._regions.values() for pc in region.entries}

    def _stretches_of(self, region: SavedRegion) -> set[int]:
        return set((np.searchsorted(self._starts, region.blocks, side="right") - 1).tolist())


def spans_of(blocks: NDArray[np.void]) -> NDArray[np.int64]:
    """Start and end of the stretches of code that ``blocks`` (rows of `BlockFacts`) cover, ascending, (n, 2)."""
    order = np.argsort(blocks["pc"], kind="stable")
    starts, ends = blocks["pc"][order].astype(np.int64), blocks["end_pc"][order].astype(np.int64)
    ends = np.maximum.accumulate(ends)
    first = np.ones(len(blocks), np.bool_)  # of a stretch
    first[1:] = starts[1:] > ends[:-1]
    last = np.roll(first, -1)
    return np.column_stack([starts[first], ends[last]])


def stretches_of(spans: NDArray[np.int64], source: CodeSource) -> list[tuple[int, bytes]]:
    """The code in ``spans``, as far as it is known for certain; those that lie near each other in one piece, which is
    compared faster than many."""
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


def united(stretches: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """Ascending, and one where they overlap or touch; what comes first counts."""
    found: list[tuple[int, bytes]] = []
    for start, code in sorted(stretches, key=lambda stretch: stretch[0]):
        if found and start <= found[-1][0] + len(found[-1][1]):
            begin, before = found[-1]
            found[-1] = begin, before + code[begin + len(before) - start :]
        else:
            found.append((start, code))
    return found
