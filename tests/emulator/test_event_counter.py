"""Many kinds of events counted at once, against the other probes and against a naive count."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from emulator.events import ACCESS_LOAD, ACCESS_STORE, BlockFacts
from emulator.probes import BlockCounter, EventCounter

Kinds = list[tuple[list[int], list[tuple[int, int]]]]


def naive(facts: BlockFacts, stream: NDArray[np.uint32], kinds: Kinds, uncounted: range) -> list[int]:
    totals = [0] * len(kinds)
    words = iter(stream.tolist())
    for number in words:
        block = facts.blocks[number]
        first = int(block["first_instruction"])
        for row in facts.instructions[first : first + int(block["n_instructions"])]:
            address = next(words) if row["access"] else None
            for kind, (pcs, ranges) in enumerate(kinds):
                totals[kind] += pcs.count(int(row["pc"]))
                if address is not None and row["access"] & ACCESS_STORE and int(row["pc"]) not in uncounted:
                    totals[kind] += sum(low <= address < high for low, high in ranges)
    return totals


def instruction(pc: int, access: int) -> tuple[int, ...]:
    return (pc, 4, 0, access, 4 if access else 0, 0, 0, 0, 0)


@pytest.mark.parametrize("seed", range(5))
def test_counts_are_those_of_a_naive_walk(seed: int) -> None:
    rng = np.random.default_rng(seed)
    facts = BlockFacts()
    kinds: Kinds = [
        ([0x1000, 0x1010, 0x1010], []),
        ([], [(100, 200), (300, 301)]),
        ([0x1004], [(150, 350)]),
        ([], [(0, 400)]),
        ([], []),
    ]
    uncounted = range(0x1008, 0x1010)
    counter = EventCounter(kinds, [(uncounted.start, uncounted.stop)])
    expected = np.zeros(len(kinds), np.int64)
    for _ in range(4):  # blocks become known while it counts; they overlap
        for _ in range(int(rng.integers(1, 6))):
            start = 0x1000 + 4 * int(rng.integers(0, 8))
            access = rng.choice([0, ACCESS_LOAD, ACCESS_STORE, ACCESS_LOAD | ACCESS_STORE], rng.integers(1, 9))
            rows: Any = [instruction(start + 4 * n, int(one)) for n, one in enumerate(access)]
            facts.append(rows, None)
        words: list[int] = []
        for number in rng.integers(0, facts.n_blocks, 200):
            words.append(int(number))
            words += rng.integers(0, 400, facts.blocks[number]["n_accesses"]).tolist()
        stream = np.array(words, np.uint32)
        counter.consume(facts, stream)
        expected += naive(facts, stream, kinds, uncounted)
        assert counter.totals().tolist() == expected.tolist()
    assert (expected[:4] > 0).all()
    assert expected[4] == 0


def test_without_anything_to_count() -> None:
    counter = EventCounter([])
    counter.consume(BlockFacts(), np.zeros(0, np.uint32))
    assert counter.totals().shape == (0,)


def test_agrees_with_the_counter_of_blocks() -> None:
    facts = BlockFacts()
    rows: Any = [instruction(0x1000, ACCESS_STORE), instruction(0x1004, ACCESS_LOAD), instruction(0x1008, 0)]
    facts.append(rows, None)
    facts.append(rows[1:], None)
    stream = np.array([0, 50, 60, 1, 70, 0, 60, 50], np.uint32)
    counter, blocks = EventCounter([([0x1004], []), ([], [(50, 60)])]), BlockCounter(True)
    for one in (counter, blocks):
        one.consume(facts, stream)
    assert counter.totals().tolist() == [blocks.executions_by_pc(facts)[0x1004], 1] == [3, 1]
