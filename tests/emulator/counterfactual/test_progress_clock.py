"""A clock of a program's progress, against a naive walk over the record."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.counterfactual.progress_clock import ProgressClock, places_in_other_run, run_targets
from emulator.counterfactual.progress_kernel import follow_progress
from emulator.events import ACCESS_LOAD, BlockFacts

QUICK = settings(max_examples=60, derandomize=True, deadline=None)
Block = list[tuple[bool, bool]]  # of each instruction: whether the clock ticks, whether it accesses memory


def facts_of(blocks: list[Block]) -> tuple[BlockFacts, list[int]]:
    """The facts of blocks of 4-byte instructions, and the addresses at which the clock ticks."""
    facts, ticks, pc = BlockFacts(), [], 0x1000
    for block in blocks:
        rows = []
        for ticks_here, accesses in block:
            rows.append((pc, 4, 0, ACCESS_LOAD if accesses else 0, 4 if accesses else 0, 0, 0, 0, 0))
            ticks += [pc] if ticks_here else []
            pc += 4
        facts.append(rows, None)
    return facts, ticks


def stream_of(blocks: list[Block], executed: list[int], with_addresses: bool) -> list[int]:
    found = []
    for number in executed:
        found.append(number)
        found += [7] * sum(accesses for _, accesses in blocks[number]) if with_addresses else []
    return found


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[Block], list[int]]:
    blocks = draw(st.lists(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=5), min_size=1,
                           max_size=5))  # fmt: skip
    return blocks, draw(st.lists(st.integers(0, len(blocks) - 1), min_size=1, max_size=30))


@QUICK
@given(runs(), st.booleans(), st.data())
def test_places_and_targets_are_those_of_a_naive_walk(
    run: tuple[list[Block], list[int]], with_addresses: bool, data: st.DataObject
) -> None:
    blocks, executed = run
    facts, ticks = facts_of(blocks)
    marks = sorted(data.draw(st.sets(st.integers(0, len(executed)), max_size=6)))
    after = np.cumsum([len(blocks[n]) for n in executed])
    done = np.cumsum([sum(ticks_here for ticks_here, _ in blocks[n]) for n in executed])
    targets = np.unique(data.draw(st.lists(st.integers(1, int(done[-1]) + 2), max_size=6))).astype(np.int64)
    clock = ProgressClock(ticks, targets, with_addresses=with_addresses)
    for begin, end in zip([0, *marks], [*marks, len(executed)], strict=True):
        words = stream_of(blocks, executed[begin:end], with_addresses)
        clock.consume(facts, np.array(words, np.uint32))
        if (end in marks and begin != end) or end == 0:
            clock.mark()
    marked = [end for begin, end in zip([0, *marks], marks, strict=False) if begin != end or end == 0]
    places = clock.places()
    progress, instructions = [0, *done.tolist()], [0, *after.tolist()]
    assert (clock.progress, clock.instructions) == (progress[-1], instructions[-1])
    assert places.progress.tolist() == [progress[n] for n in marked]
    assert places.instructions.tolist() == [instructions[n] for n in marked]
    for place, n in enumerate(marked):
        made = [k for k in range(1, len(progress)) if progress[k] > progress[k - 1]]
        assert places.last[place] == max((instructions[k] for k in made if k <= n), default=0)
        assert places.following[place] == min((instructions[k] for k in made if k > n), default=instructions[-1])
    wanted = [next((i for p, i in zip(progress, instructions, strict=True) if p >= t), -1) for t in targets.tolist()]
    assert clock.reached.tolist() == wanted


@QUICK
@given(runs())
def test_the_kernel_is_its_python_function(run: tuple[list[Block], list[int]]) -> None:
    blocks, executed = run
    stream = np.array(stream_of(blocks, executed, True), np.uint32)
    n_accesses = np.array([sum(a for _, a in block) for block in blocks], np.int64)
    length = np.array([len(block) for block in blocks], np.int64)
    ticks = np.array([sum(t for t, _ in block) for block in blocks], np.int64)
    targets = np.arange(1, 6)
    found = []
    for function in (follow_progress, follow_progress.py_func):
        reached, state = np.full(5, -1, np.int64), np.array([0, 0, 0, -1, 0], np.int64)
        function(stream, n_accesses, length, ticks, targets, reached, state)
        found.append((reached.tolist(), state.tolist()))
    assert found[0] == found[1]


@QUICK
@given(runs(), st.data())
def test_places_in_the_same_run_are_themselves(run: tuple[list[Block], list[int]], data: st.DataObject) -> None:
    """Also where the clock does not tick, at which the fraction of instructions decides."""
    blocks, executed = run
    facts, ticks = facts_of(blocks)
    clock = ProgressClock(ticks)
    marks = data.draw(st.lists(st.booleans(), min_size=len(executed), max_size=len(executed)))
    for number, marked in zip(executed, marks, strict=True):
        clock.consume(facts, np.array([number], np.uint32))
        if marked:
            clock.mark()
    again = ProgressClock(ticks, run_targets(clock.places().progress))
    again.consume(facts, np.array(executed, np.uint32))
    assert places_in_other_run(clock.places(), again).tolist() == clock.places().instructions.tolist()


def test_a_longer_run_has_its_places_at_the_same_progress() -> None:
    """Counters' instructions between the ticks: 2 in the first block, 1 in the second."""
    plain: list[Block] = [[(True, False)] * 3, [(False, False)] * 4]
    counted: list[Block] = [[(True, False)] * 3 + [(False, False)] * 2, [(False, False)] * 5]
    executed = [0, 1, 0, 1, 1, 0]
    facts, ticks = facts_of(plain)
    clock = ProgressClock(ticks)
    for number in executed:
        clock.consume(facts, np.array([number], np.uint32))
        clock.mark()
    places = clock.places()
    assert places.gap_instructions.tolist() == [7, 7, 11, 11, 11, 0]
    facts, ticks = facts_of(counted)
    other = ProgressClock(ticks, run_targets(places.progress))
    other.consume(facts, np.array(executed, np.uint32))
    # Between ticks the fraction of instructions decides: 5 of 10, 5 of 15, 10 of 15.
    assert places_in_other_run(places, other).tolist() == [5, 10, 15, 20, 25, 30]
    early = cast(ProgressClock, SimpleNamespace(reached=np.array([-1] * 6), instructions=9))
    assert places_in_other_run(places, early).max() == 9
