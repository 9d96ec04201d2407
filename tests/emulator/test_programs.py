"""What the processes of a guest leave to each other of a program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.engine import archive as archive_module
from emulator.engine.archive import Archive, SavedCode, SavedRegion, SavedRegions
from emulator.engine.operations import OPERATION_DTYPE
from emulator.engine.programs import NumberedCode, Program, aligned
from emulator.events import BLOCK_DTYPE, INSTRUCTION_DTYPE, NOTHING, BlockFacts, TraceSelection

COUNTED = TraceSelection(counts=True)
A_REGION = SavedRegion("o1", (8,), (8,), (), {}, b"")


def code(numbers: list[int], facts: BlockFacts) -> NumberedCode:
    """Of blocks that begin at 8 times their numbers."""
    blocks = np.zeros(len(numbers), BLOCK_DTYPE)
    blocks["pc"] = 8 * np.array(numbers, np.int64)
    facts.n_blocks = max(facts.n_blocks, *(number + 1 for number in numbers))
    empty: Any = [np.zeros(0, dtype) for dtype in (INSTRUCTION_DTYPE, OPERATION_DTYPE)]
    saved = SavedCode(blocks, *empty, np.zeros(len(numbers), np.uint32), (), ())
    return NumberedCode(saved, np.array(numbers, np.int64))


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archive:
    monkeypatch.setattr(archive_module, "cache_directory", lambda: tmp_path)
    return Archive(b"program", "host")


@given(st.dictionaries(st.integers(0, 20), st.integers(0, 1 << 32 - 1)), st.sets(st.integers(0, 20)))
def test_values_of_other_numbers(values: dict[int, int], wanted: set[int]) -> None:
    numbers = sorted(values)
    executions = np.array([values[n] for n in numbers], np.uint32)
    found = aligned(np.array(numbers, np.int64), executions, np.array(sorted(wanted), np.int64))
    assert found.tolist() == [values.get(number, 0) for number in sorted(wanted)]


def test_the_process_that_knows_most_counts() -> None:
    program, facts = Program(b"program", "", None), BlockFacts()
    assert program.knowledge(facts) is None
    program.learn(code([1, 5], facts), {NOTHING: SavedRegions((A_REGION,), np.array([7, 9], np.uint32))})
    program.learn(code([1], facts), {})
    known = program.knowledge(facts)
    assert known is not None
    assert known.code.numbers.tolist() == [1, 5]
    program.learn(code([1, 3, 5], facts), {COUNTED: SavedRegions((), np.array([1, 2, 3], np.uint32))})
    known = program.knowledge(facts)
    assert known is not None
    assert known.regions(NOTHING).regions == (A_REGION,)
    assert known.regions(NOTHING).executions.tolist() == [7, 0, 9]
    assert known.regions(COUNTED).executions.tolist() == [1, 2, 3]


@pytest.mark.parametrize(("numbers", "keeps"), [([0, 1, 2], True), ([0, 1, 3], False)])
def test_what_contains_numbers_is_for_who_has_them(archive: Archive, numbers: list[int], keeps: bool) -> None:
    facts = BlockFacts()
    program = Program(b"program", "", archive)
    assert program.knowledge(facts) is None
    regions = SavedRegions((A_REGION,), np.array([1, 2, 3], np.uint32))
    program.learn(code(numbers, facts), {NOTHING: regions, COUNTED: regions})
    program.write()
    for before in (0, 4):
        facts = BlockFacts()
        facts.n_blocks = before
        known = Program(b"program", "", archive).knowledge(facts)
        assert known is not None
        assert known.code.numbers.tolist() == [before, before + 1, before + 2]
        assert facts.blocks["pc"][before:].tolist() == [8 * number for number in numbers]
        assert known.regions(NOTHING).regions == (A_REGION,)
        assert known.regions(NOTHING).executions.tolist() == [1, 2, 3]
        assert known.regions(COUNTED).regions == ((A_REGION,) if keeps and not before else ())
