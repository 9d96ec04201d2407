"""What other processes left of a program's code, taken as soon as the guest has the same code in memory.

A dynamically linked program has its libraries only some way into its run, and a process may not use them all. So
code is taken stretch by stretch: when control arrives in one that is waited for, all that are in memory by then are
compared, and what is equal is known from there on, with the optimised regions that lie wholly in known code.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from emulator.engine.archive import GONE, SavedCode, SavedRegion, spans_of
from emulator.engine.blocks import BlockCache
from emulator.engine.discovery import Pages
from emulator.engine.operations import OPERATION_DTYPE
from emulator.engine.programs import Knowledge, NumberedCode
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
    """``knowledge``: what was left, of code that may come into memory; ``numbers``: of the blocks of ``saved``."""

    def __init__(self, knowledge: Knowledge, source: CodeSource) -> None:
        self.saved, self.numbers = knowledge.code
        self.knowledge = knowledge
        self._source = source
        self._ordered_numbers: list[int] = self.numbers.tolist()
        saved = self.saved
        starts = np.array([start for start, _ in saved.code], np.int64)
        ends = np.array([start + len(code) for start, code in saved.code], np.int64)
        blocks = saved.blocks
        self._pcs = blocks["pc"].astype(np.int64)
        self._stretch = np.searchsorted(starts, self._pcs, side="right") - 1
        inside = (self._stretch >= 0) & (blocks["end_pc"] <= ends[self._stretch]) if len(ends) else False
        # Blocks whose code was gone when it was saved, even if there was other code.
        self._stretch[~np.broadcast_to(inside, len(blocks)) | (saved.n_operations == GONE)] = -1
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
            for region in self._all(tier.selection)
            if region.name not in has and all(self._is_known(pc, cache) for pc in region.blocks)
        ]

    def waiting_regions(self, selection: TraceSelection) -> list[SavedRegion]:
        """Regions in code that has not been in memory yet: of libraries that this process has not used."""
        waiting = set(self._pcs[self.waiting_rows()].tolist())
        return [region for region in self._all(selection) if not waiting.isdisjoint(region.blocks)]

    def executions(self, selection: TraceSelection) -> NDArray[np.uint32]:
        """How often the blocks of ``saved`` ran in other processes, outside of regions for ``selection``."""
        return self.knowledge.regions(selection).executions

    def here(self) -> NDArray[np.int64]:
        """Rows of ``saved.blocks`` that are known by now."""
        return np.flatnonzero(self._here[self._stretch])

    def waiting_rows(self) -> NDArray[np.int64]:
        """Those in code that has not been in memory yet."""
        return np.flatnonzero(np.isin(self._stretch, list(self._waiting)))

    def waiting_code(self) -> list[tuple[int, bytes]]:
        """The stretches that have not been in memory yet."""
        return [self.saved.code[place] for place in sorted(self._waiting)]

    def operations(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
        """Where those of these blocks are in the host's memory, and how many; 0 where there are none."""
        counts = np.where(self.saved.n_operations == GONE, 0, self.saved.n_operations)
        starts = np.cumsum(counts.astype(np.int64)) - counts
        return self.saved.operations.ctypes.data + starts[rows] * OPERATION_DTYPE.itemsize, counts[rows]

    def _all(self, selection: TraceSelection) -> tuple[SavedRegion, ...]:
        return self.knowledge.regions(selection).regions

    def _is_known(self, pc: int, cache: BlockCache) -> bool:
        number = cache.number_of(pc)
        if number is None:
            return False
        row = bisect_left(self._ordered_numbers, number)
        return (
            row < len(self._ordered_numbers)
            and self._ordered_numbers[row] == number
            and bool(self._here[self._stretch[row]])
        )


def code_to_leave(
    cache: BlockCache,
    descriptors: NDArray[np.void],
    call_targets: Iterable[int],
    source: CodeSource,
    remembered: Remembered | None,
    all_numbers: bool,
) -> NumberedCode:
    """What is known by now, and what is remembered and still waited for. ``descriptors``: of blocks that the
    interpreter has met.

    ``all_numbers``: all block facts are of this address space, and blocks that are known no more are among them: so all
    keep their numbers.
    """
    facts, known = cache.facts, np.array(sorted(cache.numbers()), np.int64)
    n_operations = np.zeros(facts.n_blocks, np.uint32)
    addresses = np.zeros(facts.n_blocks, np.int64)
    numbers = known
    if remembered is not None:
        rows = remembered.waiting_rows()
        waiting = remembered.numbers[rows]
        numbers = np.union1d(numbers, waiting)
        addresses[waiting], n_operations[waiting] = remembered.operations(rows)
    alive = numbers
    if all_numbers:
        numbers = np.arange(facts.n_blocks)
    addresses[descriptors["number"]] = descriptors["operations"]
    n_operations[descriptors["number"]] = descriptors["n_operations"]
    blocks = facts.blocks[numbers]
    stretches = _stretches(spans_of(facts.blocks[known]), source)
    if remembered is not None:
        stretches = _united([*stretches, *remembered.waiting_code()])
    instructions = facts.instructions
    if not all_numbers:
        instructions = facts.instructions_of(numbers)
        lengths = blocks["n_instructions"].astype(np.int64)
        blocks["first_instruction"] = np.cumsum(lengths) - lengths
    met = alive[n_operations[alive] > 0]
    counts = n_operations[numbers]
    counts[~np.isin(numbers, alive)] = GONE
    sizes = n_operations[met].astype(np.int64) * OPERATION_DTYPE.itemsize
    operations = np.frombuffer(_gathered(addresses[met], sizes), OPERATION_DTYPE)
    saved = SavedCode(blocks, instructions, operations, counts, tuple(call_targets), tuple(stretches))
    return NumberedCode(saved, numbers)


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
