"""The time that comparing takes: alignments are counted as the comparison makes them, and timed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from measure.analysis.analysis import analyse
from measure.judging.comparing_time import alignments, comparing_seconds
from measure.perturbation import outer
from measure.perturbation.similarity import SimilarityRule, align_in_threads
from measure.runs.campaign_file import load_campaign
from measure.runs.executor import Outcome
from measure.runs.plan import make_plan
from measure.targets.fake import FakeTarget
from tests.measure.demo_program import PROGRAM, SMALL_CAMPAIGN, source_file


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "p.c").symlink_to(source_file(PROGRAM))
    (tmp_path / "c.yaml").write_text(SMALL_CAMPAIGN)
    return tmp_path / "c.yaml"


@pytest.mark.parametrize("settings", [(), ("controls=false", "baselines=8", "replicates=6"), ("outer=false",)])
def test_alignments_are_those_that_the_comparison_makes(
    path: Path, settings: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign, document = load_campaign(path, settings)
    plan = make_plan(campaign, document, lambda text: None, "fake")
    # No two traces are the same: those would be aligned once.
    runs = tuple(FakeTarget().execute(replace(spec, seed=n)) for n, spec in enumerate(plan.specs))
    made: Counter[bool | str] = Counter()

    def aligner(pairs: Any, how: SimilarityRule, done: Any) -> Any:
        made[how.held_out] += len(pairs)
        return align_in_threads(pairs, how, done)

    assay = outer.assay

    def assayed(baselines: Any, how: SimilarityRule) -> Any:
        found = assay(baselines, how)
        made["assayed"] += found.shape[0] * found.shape[1]
        return found

    monkeypatch.setattr(outer, "assay", assayed)
    analyse(plan, Outcome(runs, (), 0, ()), aligner=aligner)
    found = alignments(campaign)
    assert (found.held_out, found.joint, found.assayed) == (made[True], made[False], made["assayed"])


def test_the_time_grows_with_records_and_runs(path: Path) -> None:
    campaign, _ = load_campaign(path)
    short, long = comparing_seconds(campaign, 300), comparing_seconds(campaign, 40_000)
    assert 0 < short < long / 20  # beyond what is timed, with the square
    without = campaign.model_copy(update={"outer": False})
    assert comparing_seconds(without, 40_000) < short
