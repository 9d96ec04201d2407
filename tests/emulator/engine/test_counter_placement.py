"""Counters on branches: whatever way control takes through a region, they tell how often each block was executed."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.engine.branch_counters import (
    MAX_COUNTERS,
    NO_SUMS,
    BranchCounters,
    Sums,
    sums_of,
    unpacked_sums,
)
from emulator.engine.emit.counter_placement import MAX_BLOCKS_OF_DEBT, MAX_COUNTED_TARGETS, CounterPlacement
from emulator.engine.emit.dataflow import Dataflow
from emulator.engine.tiering.region_states import Region
from emulator.errors import EmulatorError
from emulator.events import TraceSelection
from emulator.machine import Machine
from instrumenter.building.program_build import build_program

GUEST = Path(__file__).parents[1] / "guest"
COUNTS = TraceSelection(counts=True)


class Walk:
    """Random ways through a region: what is executed, and what its counters say."""

    def __init__(self, placement: CounterPlacement, entries: list[int], successors: dict[int, list[int]]) -> None:
        self.placement, self.entries, self.successors = placement, entries, successors
        self.executed: Counter[int] = Counter()
        self.counters: Counter[int] = Counter()
        self.owed: Counter[int] = Counter()  # counted at a fault

    def go(self, choose: random.Random, steps: int, leave: float = 0.1) -> None:
        """Enter the region and leave it at the latest after ``steps`` blocks."""
        placement, pc, copy = self.placement, choose.choice(self.entries), 0
        for step in range(steps):
            if step and choose.random() < leave / 2:  # the budget is used up
                self._count(placement.at_start(pc))
                return
            self.executed[pc] += 1
            if choose.random() < leave / 2:  # an access faults
                self.owed.update(placement.after(pc))
                return
            following = self.successors[pc]
            if not following or step == steps - 1 or choose.random() < leave:
                break
            before, pc = pc, choose.choice(following)
            if placement.pays_before_jump(before):
                self._count(placement.at_exit(before))
            copy = (copy + 1) % placement.copies(pc) if pc == before else 0
            self._count(placement.on_branch(before, pc, copy))
        self._count(placement.at_exit(pc))

    def _count(self, counter: int | None) -> None:
        if counter is not None:
            self.counters[counter] += 1

    def told(self) -> dict[int, int]:
        """Executions that the counters tell, by pc."""
        found = Counter(self.owed)
        sums = self.placement.sums
        for counter, n in self.counters.items():
            for pc, times in sums[counter]:
                found[pc] += n * times
        return {pc: n for pc, n in found.items() if n}


def block_of(pc: int, successors: list[int], n_instructions: int = 4) -> Any:
    """A block as far as `CounterPlacement` looks at it."""
    target = successors[0] if successors else None
    row = SimpleNamespace(mnemonic="beq" if len(successors) == 2 else "jal")
    last = SimpleNamespace(row=row)
    return SimpleNamespace(
        pc=pc, slow=False, transfers=True, target_pc=target, last=last, instructions=n_instructions * [None]
    )


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_counters_tell_all_executions(data: st.DataObject) -> None:
    pcs = [16 * (n + 1) for n in range(data.draw(st.integers(1, 12)))]
    successors = {pc: data.draw(st.lists(st.sampled_from(pcs), max_size=6)) for pc in pcs}
    entries = data.draw(st.lists(st.sampled_from(pcs), min_size=1, unique=True))
    jumps = {pc: tuple(to) for pc, to in successors.items() if len(to) > 2}
    placement = CounterPlacement({pc: block_of(pc, successors[pc]) for pc in pcs}, entries, successors, jumps)
    paid = [pc for pc in pcs if placement.pays_before_jump(pc)]
    assert all(len(jumps[pc]) > MAX_COUNTED_TARGETS for pc in paid)
    assert all(placement.on_branch(pc, to) is None for pc in paid for to in jumps[pc])
    walk = Walk(placement, entries, successors)
    choose = random.Random(data.draw(st.integers(0, 1000)))
    for _ in range(20):
        walk.go(choose, 30)
    assert walk.told() == dict(walk.executed)


def test_a_loop_with_branches_is_counted_once_an_iteration() -> None:
    # 16 is entered; 32 may skip 48; 64 goes back to 16 or leaves.
    successors = {16: [32], 32: [64, 48], 48: [64], 64: [16]}
    placement = CounterPlacement({pc: block_of(pc, to) for pc, to in successors.items()}, [16], successors, {})
    for way in ([16, 32, 48, 64, 16], [16, 32, 64, 16]):
        counted = [placement.on_branch(pc, to) for pc, to in itertools.pairwise(way)]
        assert sum(one is not None for one in counted) == 1


def test_copies_of_a_short_loop_count_apart() -> None:
    """An increment would wait for the last one of the same counter."""
    successors = {16: [32], 32: [32, 48], 48: []}
    loop = {n: {16: block_of(16, [32]), 32: block_of(32, [32, 48], n), 48: block_of(48, [])} for n in (3, 40)}
    placement = CounterPlacement(loop[3], [16], successors, {})
    n_copies = placement.copies(32)
    assert n_copies > 2
    numbers = [placement.on_branch(32, 32, copy) for copy in range(n_copies)]
    assert len(set(numbers)) == n_copies
    assert len({placement.sums[number] for number in numbers if number is not None}) == 1
    assert CounterPlacement(loop[40], [16], successors, {}).copies(32) == 1
    assert [placement.copies(pc) for pc in (16, 48)] == [1, 1]


def test_a_debt_that_would_be_long_is_paid() -> None:
    pcs = [16 * (n + 1) for n in range(4 * MAX_BLOCKS_OF_DEBT)]
    successors = {pc: [to] for pc, to in itertools.pairwise(pcs)} | {pcs[-1]: []}
    placement = CounterPlacement({pc: block_of(pc, successors[pc]) for pc in pcs}, pcs[:1], successors, {})
    assert max(len(placement.before(pc)) for pc in pcs) <= MAX_BLOCKS_OF_DEBT
    walk = Walk(placement, pcs[:1], successors)
    walk.go(random.Random(1), len(pcs), leave=0)
    assert walk.told() == dict.fromkeys(pcs, 1)
    assert 0 < walk.counters.total() <= 8


@pytest.fixture(scope="module")
def regions() -> list[Region]:
    elf = build_program([GUEST / "ways.c"], ["-O2"]).elf_path
    with Machine(elf, ["2000"], background=False, optimise_executions=500) as machine:
        machine.observe(COUNTS)
        machine.run()
        assert machine.translator is not None
        return list(machine.translator.tier.regions)


def test_regions_of_a_program_are_counted_on_few_branches(regions: list[Region]) -> None:
    n_executed = n_counted = 0
    for region in regions:
        flow = Dataflow(region.blocks, region.entries, region.indirect_targets, COUNTS, False, False)
        placement = CounterPlacement(region.blocks, region.entries, flow.successors, region.indirect_targets)
        walk = Walk(placement, region.entries, flow.successors)
        choose = random.Random(1)
        for _ in range(500):
            walk.go(choose, 200, leave=0.01)
        assert walk.told() == dict(walk.executed)
        n_executed += walk.executed.total()
        n_counted += walk.counters.total()
    assert n_executed > 5000
    assert n_counted < 0.8 * n_executed  # on ways that take both sides of every branch equally often


# --- what counters stand for
def sums(*lists: list[int]) -> Sums:
    terms = [term for one in lists for term in one]
    return Sums(np.array([len(one) for one in lists], np.uint16), np.array(terms, np.int16))


def test_sums_of_counters() -> None:
    found = sums_of([[(32, 1)], [(16, 2), (48, -1)]], [16, 32, 48])
    assert found.n_terms.tolist() == [1, 3]
    assert found.terms.tolist() == [1, 0, 0, ~2]
    again = unpacked_sums(found.packed())
    assert [one.tolist() for one in again] == [one.tolist() for one in found]
    assert unpacked_sums(NO_SUMS.packed()).packed() == NO_SUMS.packed()


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_adding_up_is_what_one_would_add_by_hand(data: st.DataObject) -> None:
    n_blocks = 9
    term = st.integers(0, 3).flatmap(lambda place: st.sampled_from([place, ~place]))
    counters = BranchCounters(np.zeros(1 << 10, np.int64))
    expected = np.zeros(n_blocks, np.int64)
    for _ in range(data.draw(st.integers(1, 4))):
        region = data.draw(st.lists(st.lists(term, max_size=5), max_size=5))
        numbers = np.array(data.draw(st.lists(st.integers(0, n_blocks - 1), min_size=4, max_size=4)), np.int32)
        first = counters.add(sums(*region), numbers)
        for place, terms in enumerate(region):
            times = data.draw(st.integers(0, 7))
            counters.values[first + place] += times
            for one in terms:
                expected[numbers[one if one >= 0 else ~one]] += times if one >= 0 else -times
    counts = np.zeros(n_blocks, np.int64)
    counters.add_up(counts)
    assert counts.tolist() == expected.tolist()
    assert not counters.values.any()


def test_equal_regions_share_their_counters() -> None:
    counters = BranchCounters(np.zeros(100, np.int64))
    one, other = np.array([5, 6], np.int32), np.array([5, 7], np.int32)
    assert counters.add(sums([0], [0, 1]), one) == 0
    assert counters.add(sums([0], [0, 1]), other) == 2
    assert counters.add(sums([0], [0, 1]), one) == 0
    assert int(counters.n[0]) == 4


def test_too_many_counters_are_refused() -> None:
    counters = BranchCounters(np.zeros(1, np.int64))
    counters.n[0] = MAX_COUNTERS - 1
    with pytest.raises(EmulatorError, match="got more than 2,097,152 counters of branches"):
        counters.add(sums([0], [1]), np.arange(2, dtype=np.int32))
