"""The kernels of followed caches against naive caches that see every access."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from emulator.events import HELD_WRITTEN, PAGE_OUT
from emulator.timing import layout
from emulator.timing.followed_caches import FollowedCaches
from emulator.timing.machine_config import MachineConfig
from emulator.timing.machine_events import Event
from emulator.timing.machine_file import load_machine
from tests.emulator.timing.timing_naive import NaiveCache

LINE_BITS, PAGE_BITS, SETS, WAYS = 5, 12, 2, 2
STRONGARM = load_machine(Path(__file__).parents[3] / "configs" / "machines" / "strongarm.yaml")
LATENCY, WALK = STRONGARM.memory.latency_cycles, 30


def machine(policy: str, tlb_policy: str, outstanding: int = 1) -> MachineConfig:
    """Four lines, two pages, and memory below."""
    lines = {"size_bytes": SETS * WAYS << LINE_BITS, "associativity": WAYS, "replacement": policy}
    pages = {"entries": 2, "associativity": 2, "replacement": tlb_policy}
    return STRONGARM.model_copy(
        update={
            "l1d": STRONGARM.l1d.model_copy(update=lines),
            "l1i": STRONGARM.l1i.model_copy(update=lines),
            "dtlb": STRONGARM.dtlb.model_copy(update=pages) if STRONGARM.dtlb else None,
            "itlb": STRONGARM.itlb.model_copy(update=pages) if STRONGARM.itlb else None,
            "pipeline": STRONGARM.pipeline.model_copy(update={"outstanding_misses": outstanding}),
        }
    )


@dataclass
class Tables:
    """Tables of followed lines without a hart, and what translations do with them."""

    data: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(1 << 12, np.uint8))
    code: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(1 << 12, np.uint8))
    data_times: NDArray[np.uint32] = field(default_factory=lambda: np.zeros(1 << 12, np.uint32))
    code_times: NDArray[np.uint32] = field(default_factory=lambda: np.zeros(1 << 12, np.uint32))
    missing: NDArray[np.int64] = field(default_factory=lambda: np.zeros(3, np.int64))
    calls: tuple[Any, ...] = ()
    passed_on: int = 0

    def connect(self, access: Any, fetch: Any) -> None:
        self.calls = access, fetch

    def access(self, line: int, is_store: bool, time: int) -> None:
        self.data_times[line] = time
        if 0 < self.data[line] < PAGE_OUT:
            if is_store:
                self.data[line] = HELD_WRITTEN
            return
        self.missing[:] = line << LINE_BITS, is_store, time
        self.calls[0]()
        self.passed_on += 1


class Naive:
    """A cache and a TLB that see every access, and what they count."""

    def __init__(self, policy: str, tlb_policy: str, generators: tuple[int, int]) -> None:
        self.cache = NaiveCache(SETS, WAYS, policy, generators[0])
        self.tlb = NaiveCache(1, 2, tlb_policy, generators[1])
        self.counts = dict.fromkeys((Event.L1D_MISSES, Event.L1D_WRITEBACKS, Event.DTLB_MISSES), 0)

    def access(self, line: int, is_store: bool) -> None:
        self.counts[Event.DTLB_MISSES] += not self.tlb.lookup(line >> PAGE_BITS - LINE_BITS)[0]
        hit, thrown_out = self.cache.lookup(line, is_store)
        self.counts[Event.L1D_MISSES] += not hit
        self.counts[Event.L1D_WRITEBACKS] += thrown_out is not None


def followed(config: MachineConfig, tables: Tables) -> tuple[FollowedCaches, tuple[int, int]]:
    """Followed caches, and the generators of the data cache and its TLB."""
    caches = FollowedCaches(config, tables, seed=1, place_pages=False)
    longs = caches._longs
    return caches, (
        int(longs[layout.L1D + layout.M_RANDOM]),
        int(longs[layout.DTLB + layout.M_RANDOM]),
    )


def line_of(number: int) -> int:
    """Sixteen lines of each page."""
    return number // 16 << PAGE_BITS - LINE_BITS | number % 16


# Steps between accesses are long enough that the order of times is that of accesses.
ACCESSES = st.lists(
    st.tuples(st.integers(0, 79).map(line_of), st.booleans(), st.integers(1, 40)), min_size=1, max_size=300
)
POLICIES = st.sampled_from(["lru", "fifo", "random"])


@settings(max_examples=100, derandomize=True, deadline=None)
@given(ACCESSES, POLICIES, POLICIES, st.integers(0, 299))
def test_they_count_what_caches_count_that_see_every_access(
    accesses: list[tuple[int, bool, int]], policy: str, tlb_policy: str, saved_at: int
) -> None:
    """Also after they have gone back to a moment once."""
    tables = Tables()
    caches, generators = followed(machine(policy, tlb_policy), tables)
    naive, now, before = Naive(policy, tlb_policy, generators), 1 << 31, np.zeros(len(Event), np.int64)
    moments = []
    for number, (line, is_store, step) in enumerate(accesses):
        if number == saved_at:
            state, before = caches.state(now - (1 << 31)), caches.events.copy()
            for other in range(100, 140):  # what is gone back from
                tables.access(line_of(other), True, now + other)
            caches.restore(state)
        now += step
        moments.append(now)
        tables.access(line, is_store, now)
        naive.access(line, is_store)
    counted = caches.events + before
    assert {event: int(counted[event]) for event in naive.counts} == naive.counts
    held = {tag >> 1: bool(tag & 1) for tag in caches.contents(now - (1 << 31)).tags.tolist()[: SETS * WAYS * 2]}
    expected = {entry[0]: bool(entry[1]) for ways in naive.cache.sets for entry in ways if entry is not None}
    assert expected.items() <= held.items()
    assert tables.passed_on >= naive.counts[Event.L1D_MISSES]


@pytest.mark.parametrize(
    ("outstanding", "apart", "is_store", "saved"),
    [
        (0, 1, False, 0),  # the pipeline stops
        (0, 1, True, 0),
        (1, 1, False, 7 * WALK),  # others wait for the first, but their page walks do not wait for them
        (4, 1, False, 6 * LATENCY),  # two groups: the first ends when its first value is used
        (4, 100, False, 0),  # each value is used before the next miss
        (1, 1, True, LATENCY + 7 * WALK),  # each waits for the MSHR of the one before, and nothing waits for the last
        (1, 100, True, 8 * LATENCY),  # each line arrives before the next store
        (4, 1, True, 8 * LATENCY),  # walks leave time for it
    ],
)
def test_misses_that_do_not_wait_save_cycles(outstanding: int, apart: int, is_store: bool, saved: int) -> None:
    tables = Tables()
    caches, _ = followed(machine("lru", "lru", outstanding), tables)
    for number in range(8):  # each in a page of its own
        tables.access(line_of(16 * number), is_store, (1 << 31) + apart * number)
    assert caches.events[Event.DTLB_MISSES] == caches.events[Event.L1D_MISSES] == 8
    assert int(caches.saved_cycles[0]) == pytest.approx(saved, abs=2 * WALK)
    caches.clear_events()
    assert caches.saved_cycles[0] == caches.events[Event.L1D_MISSES] == 0
