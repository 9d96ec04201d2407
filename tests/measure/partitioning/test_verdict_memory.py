"""The memory of verdicts on groups, across campaigns and processes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from measure.errors import StoreError
from measure.partitioning.search_types import Verdict
from measure.partitioning.verdict_memory import Memory


def test_memory_keeps_verdicts_across_campaigns(tmp_path: Path) -> None:
    definitions = [{"event": "entry", "function": name} for name in "abc"]
    path = tmp_path / "deep" / "memory.sqlite"
    first = Memory(path, "context", definitions)
    verdict = Verdict("bad", "why", ("x", "y"), -0.5, "outer", 7)
    first.put(frozenset({0, 2}), verdict)
    first.put(frozenset({1}), Verdict("undecided"))
    first.close()
    reordered = Memory(path, "context", definitions[::-1])
    assert reordered.get(frozenset({2, 0})) is None  # counters in another order are another program
    assert set(reordered.all()) == {frozenset({1})}
    reordered.close()
    renumbered = Memory(path, "context", [definitions[k] for k in (0, 2, 1)])
    assert renumbered.get(frozenset({0, 1})) == verdict
    assert renumbered.get(frozenset({0})) is None
    known = renumbered.all()
    assert set(known) == {frozenset({0, 1}), frozenset({2})}
    assert np.isnan(known[frozenset({2})].change)
    assert Memory(path, "other", definitions).all() == {}
    assert set(Memory(path, "context", definitions[:2]).all()) == {frozenset({1})}
    renumbered.put(frozenset({1}), Verdict("good"))
    assert renumbered.all()[frozenset({1})].good


def test_damaged_memory_is_named(tmp_path: Path) -> None:
    path = tmp_path / "memory.sqlite"
    path.write_bytes(b"no database" * 100)
    with pytest.raises(StoreError, match=r"memory\.sqlite: verdicts cannot be kept there"):
        Memory(path, "context", [])
