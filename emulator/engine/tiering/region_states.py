"""The life of a region: its states, the events that change them, and the one table of the changes that are allowed.

Most regions live so: a block becomes hot and is queued; a thread takes it, chooses the blocks that are compiled with
it, compiles them and publishes the code; at last the guest changes the code, or the tier is closed. Regions of an
earlier process of the program begin as pending: their code must be in guest memory first.

`RegionStates` holds the regions of one tier. It alone writes `Region.state`. Everything else that the translator asks
(which blocks are queued, which have a region, which regions contain a block) is a query over the states, or an index
that `RegionStates.change` keeps. Threads: the guest's thread and the compiling thread both change states; a change is
atomic.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum

from emulator.engine.blocks import Block
from emulator.engine.branch_counters import NO_SUMS, Sums
from emulator.engine.emit.indirect_targets import IndirectTargets
from emulator.native_code.code_image import NO_CODE, CodeImage


class RegionState(Enum):
    """What has become of a region. The value says it in words, for messages."""

    COLD = "not wanted yet"
    QUEUED = "its head is hot and waits in the queue"
    FORMING = "the blocks around its head are being chosen"
    PENDING = "saved by an earlier process, and not compared with guest memory yet"
    ORDERED = "planned by an earlier process, and to be compiled before any queued block"
    COMPILING = "being compiled"
    PUBLISHED = "in the dispatch table"
    PLANNED = "chosen too late for this process, and saved for the next one"
    INVALIDATED = "its guest code is not what it was made from"
    DROPPED = "not needed any more"
    FAILED = "forming or compiling it has raised an exception"


class RegionEvent(Enum):
    """What happens to a region. The value says it in words, for messages."""

    HOT = "its head has reached the hotness threshold"
    STORED = "it is read from the translation store"
    TAKEN = "a thread begins to work on it"
    CHOSEN = "its blocks are known, and it is compiled at once"
    LEFT = "its blocks are known, and it is left to the next process"
    REVALIDATED = "guest memory has its code, and the store has no host code of it"
    PUBLISH = "its host code is entered in the dispatch table"
    COVERED = "another region got its head as an entry"
    CODE_CHANGED = "guest memory has other code"
    STOPPED = "the compiling thread stops, or the tier is closed"
    FAIL = "an exception"


_S, _E = RegionState, RegionEvent
TRANSITIONS: dict[tuple[RegionState, RegionEvent], RegionState] = {
    (_S.COLD, _E.HOT): _S.QUEUED,
    (_S.COLD, _E.STORED): _S.PENDING,
    (_S.QUEUED, _E.TAKEN): _S.FORMING,
    (_S.QUEUED, _E.COVERED): _S.DROPPED,
    (_S.QUEUED, _E.CODE_CHANGED): _S.INVALIDATED,
    (_S.QUEUED, _E.STOPPED): _S.DROPPED,
    (_S.FORMING, _E.CHOSEN): _S.COMPILING,
    (_S.FORMING, _E.LEFT): _S.PLANNED,
    (_S.FORMING, _E.FAIL): _S.FAILED,
    (_S.PENDING, _E.PUBLISH): _S.PUBLISHED,
    (_S.PENDING, _E.REVALIDATED): _S.ORDERED,
    (_S.PENDING, _E.CODE_CHANGED): _S.INVALIDATED,
    (_S.PENDING, _E.STOPPED): _S.DROPPED,
    (_S.ORDERED, _E.TAKEN): _S.COMPILING,
    (_S.ORDERED, _E.STOPPED): _S.DROPPED,
    (_S.COMPILING, _E.PUBLISH): _S.PUBLISHED,
    (_S.COMPILING, _E.FAIL): _S.FAILED,
    (_S.PUBLISHED, _E.CODE_CHANGED): _S.INVALIDATED,
    (_S.PUBLISHED, _E.STOPPED): _S.DROPPED,
    (_S.PLANNED, _E.CODE_CHANGED): _S.INVALIDATED,
    (_S.PLANNED, _E.STOPPED): _S.DROPPED,
}
"""The next state by state and event; a pair that is missing is refused. Code of a region that is ORDERED or COMPILING
never changes: `Background.excluding` first finishes or stops such a region."""

ENDED = frozenset({_S.INVALIDATED, _S.DROPPED, _S.FAILED})
"""States that no event leaves; `RegionStates` forgets such a region."""
CLAIMING = frozenset({_S.ORDERED, _S.COMPILING, _S.PUBLISHED, _S.PLANNED})
"""States in which the region's entries count as translated, and its blocks as copied once more."""


class TransitionRefused(Exception):
    """An event that the state of a region does not allow: a mistake of the translator."""

    def __init__(self, region: Region, event: RegionEvent) -> None:
        expected = ", ".join(e.name for s, e in TRANSITIONS if s is region.state) or "none, for this state is final"
        super().__init__(
            f"region {region.name} is {region.state.name} ({region.state.value}) and got the event {event.name} "
            f"({event.value}); expected one of: {expected}"
        )


@dataclass(eq=False)
class Region:
    """A region, from the block that asks for it to its end.

    ``head``: pc of that block, the first of the entries. ``state``: written by `RegionStates` alone.

    While the region is QUEUED or FORMING there is nothing else. Afterwards: ``entries``: pcs at which control may
    enter; ``pcs``: its blocks; ``callees``: the blocks that were copied in because others of the region call them;
    ``indirect_targets``; ``blocks``: by pc, empty in a region from the translation store, whose blocks are decoded on
    demand. From PUBLISHED on: ``image``: its host code; ``address``: where that is loaded; ``sums``: what its counters
    stand for.

    ``from_store``: an earlier process chose its blocks; ``has_stored_code``: the store has its host code, too.
    """

    head: int
    entries: list[int] = field(default_factory=list)
    pcs: tuple[int, ...] = ()
    callees: frozenset[int] = frozenset()
    indirect_targets: IndirectTargets = field(default_factory=dict)
    blocks: dict[int, Block] = field(default_factory=dict)
    from_store: bool = False
    has_stored_code: bool = False
    address: int = 0
    image: CodeImage = NO_CODE
    sums: Sums = NO_SUMS
    state: RegionState = RegionState.COLD

    @property
    def name(self) -> str:
        """The symbol of its host function."""
        return f"o{self.head:x}"

    @property
    def own_pcs(self) -> set[int]:
        """Its blocks without the callees'."""
        return {*self.pcs} - self.callees

    @property
    def code_bytes(self) -> int:
        """Size of its host code."""
        return self.image.symbols[self.name][1]


class RegionStates:
    """The regions of one tier, by state.

    Indexes, which `change` keeps and others only read: ``entries``: pcs at which a region in a claiming state
    (`CLAIMING`) is entered; ``copies``: by pc, the number of such regions that contain the block other than as a
    callee's; ``in_published``: by pc, the number of published regions that contain the block.
    """

    def __init__(self) -> None:
        self.entries: set[int] = set()
        self.copies: Counter[int] = Counter()
        self.in_published: Counter[int] = Counter()
        # In the order in which they reached the state.
        self._by_state: dict[RegionState, dict[Region, None]] = {s: {} for s in RegionState if s not in ENDED}
        self._queued: dict[int, Region] = {}  # by head
        self._lock = threading.RLock()

    # --- queries
    def having(self, *states: RegionState) -> list[Region]:
        """The regions in these states: state by state, and in the order in which they reached it."""
        with self._lock:
            return [region for state in states for region in self._by_state[state]]

    def has_any(self, *states: RegionState) -> bool:
        """Whether a region is in one of these states."""
        return any(self._by_state[state] for state in states)

    def is_queued(self, pc: int) -> bool:
        """Whether the block at ``pc`` is the head of a queued region."""
        return pc in self._queued

    # --- changes
    def begin(self, region: Region, event: RegionEvent) -> Region:
        """Take in a new region, by `RegionEvent.HOT` or `RegionEvent.STORED`; returns it."""
        self.change(region, event)
        return region

    def change(self, region: Region, event: RegionEvent) -> None:
        """Change the state of ``region``, and the indexes. Raises `TransitionRefused`."""
        with self._lock:
            before, after = region.state, _state_after(region, event)
            self._by_state[before].pop(region, None)
            region.state = after
            if after not in ENDED:
                self._by_state[after][region] = None
            self._update_indexes(region, before, after)

    def take(self, region: Region) -> bool:
        """Begin to work on a queued or ordered region; False when another thread has taken it, or it has ended."""
        with self._lock:
            if region.state not in (RegionState.QUEUED, RegionState.ORDERED):
                return False
            self.change(region, RegionEvent.TAKEN)
            return True

    @contextmanager
    def working_on(self, region: Region) -> Iterator[None]:
        """A context that forms or compiles ``region``, which becomes FAILED when an exception leaves it."""
        try:
            yield
        except BaseException:
            if region.state in (RegionState.FORMING, RegionState.COMPILING):
                self.change(region, RegionEvent.FAIL)
            raise

    def drop_covered(self) -> None:
        """Drop the queued regions whose head is an entry of another region by now."""
        with self._lock:
            for region in [region for pc, region in self._queued.items() if pc in self.entries]:
                self.change(region, RegionEvent.COVERED)

    def invalidate(self, pcs: Collection[int]) -> list[Region]:
        """End the regions made from the blocks at ``pcs``, whose code the guest has changed. Returns the
        published ones."""
        with self._lock:
            for pc in self._queued.keys() & pcs:
                self.change(self._queued[pc], RegionEvent.CODE_CHANGED)
            found = self.having(RegionState.PLANNED)
            if not self.in_published.keys().isdisjoint(pcs):
                found += self.having(RegionState.PUBLISHED)
            changed = set(pcs)
            gone = [region for region in found if not changed.isdisjoint(region.pcs)]
            published = [region for region in gone if region.state is RegionState.PUBLISHED]
            for region in gone:
                self.change(region, RegionEvent.CODE_CHANGED)
            return published

    def stop(self) -> None:
        """Drop all regions that wait for the compiling thread."""
        with self._lock:
            for region in self.having(RegionState.QUEUED, RegionState.ORDERED):
                self.change(region, RegionEvent.STOPPED)

    def close(self) -> list[Region]:
        """Drop all regions, of which none may be FORMING or COMPILING. Returns the published ones."""
        with self._lock:
            published = self.having(RegionState.PUBLISHED)
            for regions in self._by_state.values():
                for region in regions:
                    region.state = _state_after(region, RegionEvent.STOPPED)
                regions.clear()
            for index in (self.entries, self.copies, self.in_published, self._queued):
                index.clear()  # at once: keeping them region by region would take milliseconds
            return published

    def _update_indexes(self, region: Region, before: RegionState, after: RegionState) -> None:
        """Keep the indexes after a change from ``before`` to ``after``."""
        if before is RegionState.QUEUED:
            self._queued.pop(region.head, None)
        elif after is RegionState.QUEUED:
            self._queued[region.head] = region
        if (before in CLAIMING) != (after in CLAIMING):
            if after in CLAIMING:
                self.copies.update(region.own_pcs)
                self.entries.update(region.entries)
            else:
                self.copies.subtract(region.own_pcs)
                # An older region may have one of these entries, too. It counts as free, for the dispatch table has no
                # entry there any more.
                self.entries.difference_update(region.entries)
        if after is RegionState.PUBLISHED:
            self.in_published.update(region.pcs)
        elif before is RegionState.PUBLISHED:
            for pc in region.pcs:
                self.in_published[pc] -= 1
                if not self.in_published[pc]:
                    del self.in_published[pc]


def _state_after(region: Region, event: RegionEvent) -> RegionState:
    """The state of ``region`` after ``event``. Raises `TransitionRefused`."""
    after = TRANSITIONS.get((region.state, event))
    if after is None:
        raise TransitionRefused(region, event)
    return after
