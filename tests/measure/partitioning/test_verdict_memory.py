"""The memory of verdicts on groups, across campaigns and processes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from common.source_digest import source_digest
from measure.errors import StoreError
from measure.partitioning import oracle
from measure.partitioning.oracle import JUDGING_SOURCES, CampaignOracle, GroupSettings
from measure.partitioning.search_types import GroupVerdict
from measure.partitioning.verdict_memory import Memory
from measure.runs.campaign_file import load_campaign
from measure.runs.store import Store
from tests.measure.demo_program import PROGRAM, SMALL_CAMPAIGN
from tests.test_layers import MODULES, imports

# Modules that judge nothing: they make runs, which have keys of their own, store, look up and name.
WITHOUT_VERDICTS = (
    "measure.runs.campaign_model", "measure.judging.comparison", "measure.runs.executor",
    "measure.runs.looks", "measure.runs.plan", "measure.run_types", "measure.runs.store",
    "measure.errors", "measure.partitioning.verdict_memory",
)  # fmt: skip


def test_memory_keeps_verdicts_across_campaigns(tmp_path: Path) -> None:
    definitions = [{"event": "entry", "function": name} for name in "abc"]
    path = tmp_path / "deep" / "memory.sqlite"
    first = Memory(path, "context", definitions)
    verdict = GroupVerdict("bad", "why", ("x", "y"), -0.5, "outer", 7)
    first.put(frozenset({0, 2}), verdict)
    first.put(frozenset({1}), GroupVerdict("undecided"))
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
    renumbered.put(frozenset({1}), GroupVerdict("good"))
    assert renumbered.all()[frozenset({1})].good


def test_damaged_memory_is_named(tmp_path: Path) -> None:
    path = tmp_path / "memory.sqlite"
    path.write_bytes(b"no database" * 100)
    with pytest.raises(StoreError, match=r"memory\.sqlite: verdicts cannot be kept there"):
        Memory(path, "context", [])


def test_verdicts_are_remembered_for_all_that_judges_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "p.c").write_text(PROGRAM)
    (tmp_path / "c.yaml").write_text(SMALL_CAMPAIGN)

    def context(*changes: str) -> str:
        with Store(tmp_path / "out") as store:
            campaign, document = load_campaign(tmp_path / "c.yaml", changes)
            return CampaignOracle(campaign, document, store, GroupSettings(6), target="fake").context()

    before = context()
    assert context() == before
    changes = ("alignment.step_penalty=0", "alignment.band=0.5", "outer=false", "alpha=0.01", "volatile=false")
    assert len({before, *map(context, changes)}) == 1 + len(changes)
    assert context("controls=false", "variants.some=[work]") == before  # which a search does not have
    monkeypatch.setattr(oracle, "source_digest", lambda paths: source_digest(paths)[::-1])
    assert context() != before


def test_the_sources_of_verdicts_are_all_that_judges() -> None:
    wanted, found = ["measure.partitioning.oracle"], set()
    while wanted:
        module = wanted.pop()
        if module in found or module in WITHOUT_VERDICTS or not module.startswith("measure."):
            continue
        found.add(module)
        wanted += [name for name in imports(MODULES[module]) if name in MODULES]
    assert not {name for name in found if not any(MODULES[name].is_relative_to(path) for path in JUDGING_SOURCES)}
    assert all(path.exists() for path in JUDGING_SOURCES)
