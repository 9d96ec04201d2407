"""Numbers of blocks in basic block vectors: the same whatever the emulator knew of the program before."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from emulator.engine.persist import translation_store
from emulator.events import BLOCK_DTYPE
from emulator.execution.block_numbers import BlockNumbers
from emulator.execution.intervals import Intervals
from emulator.machine import Machine
from instrumenter.building.program_build import build_program
from measure.program_phases.bbv import BasicBlockVectors
from measure.program_phases.profile import profile_blocks

GUEST = Path(__file__).parents[1] / "guest"
Row = dict[int, int]  # executions by the block's place in a table


def table_of(pcs: list[int], order: list[int]) -> NDArray[np.void]:
    """Blocks at distinct addresses, with lengths that follow from them, discovered in this ``order``."""
    table = np.zeros(len(pcs), BLOCK_DTYPE)
    for number, block in enumerate(order):
        table[number]["pc"] = pcs[block]
        table[number]["n_instructions"] = 1 + pcs[block] % 7
    return table


def intervals_of(rows: list[Row], number_of: dict[int, int]) -> Intervals:
    entries = [sorted((number_of[block], times) for block, times in row.items()) for row in rows]
    flat = [entry for row in entries for entry in row]
    starts = np.cumsum([0, *map(len, entries)])
    return Intervals(
        np.zeros(len(rows), np.int64), starts, np.array([one for one, _ in flat], np.uint32),
        np.array([times for _, times in flat], np.int64),
    )  # fmt: skip


def naive(rows: list[Row], pcs: list[int]) -> list[tuple[int, int]]:
    """Number and instructions of each entry."""
    numbers: dict[int, int] = {}
    found = []
    for row in rows:
        for block in sorted(row, key=lambda one: pcs[one]):
            numbers.setdefault(block, len(numbers) + 1)
        found += sorted((numbers[block], times * (1 + pcs[block] % 7)) for block, times in row.items())
    return found


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_numbers_do_not_depend_on_the_order_of_discovery(data: st.DataObject) -> None:
    pcs = data.draw(st.lists(st.integers(0, 1 << 30), unique=True, min_size=1, max_size=9))
    row = st.dictionaries(st.integers(0, len(pcs) - 1), st.integers(1, 1 << 40), max_size=len(pcs))
    rows = data.draw(st.lists(row, max_size=8))
    order = data.draw(st.permutations(range(len(pcs))))
    cut = data.draw(st.integers(0, len(rows)))
    number_of = {block: number for number, block in enumerate(order)}
    numbers = BlockNumbers()
    found: list[tuple[int, int]] = []
    for part in (rows[:cut], rows[cut:]):
        mine, instructions = numbers.vectors(intervals_of(part, number_of), table_of(pcs, list(order)))
        found += zip(mine.tolist(), instructions.tolist(), strict=True)
    assert found == naive(rows, pcs)
    assert numbers.n_blocks == len({block for row in rows for block in row})


def test_vectors_are_the_same_when_translations_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`measure phases` found other phases the second time, for blocks had other numbers."""
    monkeypatch.setattr(translation_store, "cache_directory", lambda: tmp_path)
    program = build_program([GUEST / "mixture.c"], ["-O2"], libraries=["-lm"]).elf_path

    def process() -> tuple[BasicBlockVectors, NDArray[np.void]]:
        options = {"keep_translations": True, "background": False, "optimise_executions": 4}
        with Machine(program, ["1"], **options) as machine:  # type: ignore[arg-type]
            vectors = profile_blocks(machine, 5000).vectors
            machine.save_translations()
            return vectors, machine.facts.blocks.copy()

    (first, discovered), (second, known) = process(), process()
    assert not np.array_equal(discovered[: len(known)], known[: len(discovered)])
    for name in ("data", "indices", "indptr", "block_ids"):
        assert np.array_equal(getattr(first, name), getattr(second, name)), name
