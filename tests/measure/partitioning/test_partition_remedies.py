"""What a partition search says comes next where its campaign was explained."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from measure.analysis.explained import stored_findings
from measure.partitioning.command import _remedies
from measure.perturbation.finding import RESULTS
from measure.runs.campaign_file import load_campaign
from measure.runs.plan import make_plan
from measure.runs.plan_file import save_plan
from tests.measure.demo_program import PROGRAM, SMALL_CAMPAIGN, source_file


def test_the_remedies_are_those_that_the_explanation_of_the_campaign_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.c").symlink_to(source_file(PROGRAM))
    (tmp_path / "c.yaml").write_text(SMALL_CAMPAIGN)
    campaign, document = load_campaign(tmp_path / "c.yaml")
    plan = make_plan(campaign, document, lambda text: None, "fake")
    results = tmp_path / "results" / campaign.name
    assert _remedies(campaign) is None
    (results / "explain").mkdir(parents=True)
    save_plan(plan, results)
    assert _remedies(campaign) is None
    remedy = {"sentence": 1, "in_results": f"Best: a; `measure run {RESULTS}/explain/all.yaml` runs it."}
    told = {
        "all": {"sentences": ["Why.", "Best remedy: a."], "remedy": remedy},
        "b": {"sentences": ["Why."], "remedy": None},
    }
    (results / "explain" / "explain.json").write_text(json.dumps({"plan": plan.history.design, "variants": told}))
    assert _remedies(campaign) == (f"measure run results/{campaign.name}/explain/all.yaml",)
    # another campaign of the name is to be explained itself
    assert _remedies(campaign.model_copy(update={"delta": 0.1})) is None
    assert stored_findings(results, plan) is not None
    for change in ("alignment.step_penalty=0", "alignment.band=0.5", "outer=false", "delta=0.1"):
        judged_otherwise = make_plan(*load_campaign(tmp_path / "c.yaml", [change]), lambda text: None, "fake")
        assert judged_otherwise.keys == plan.keys
        assert stored_findings(results, judged_otherwise) is None
