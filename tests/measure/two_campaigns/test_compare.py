"""`measure compare`: the command and its page."""

from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from measure.analysis.stored_runs import load_results
from measure.cli import main
from measure.runs.program_identity import different_programs
from measure.two_campaigns.comparison import CampaignsCompared
from measure.two_campaigns.design_facts import differing_facts, unlike_designs
from tests.measure.demo_program import CAMPAIGN, PROGRAM
from tests.measure.fake_runs import fake_runs_in_this_process
from tests.measure.report.page_structure import csv_in
from tests.measure.shown_tables import widest_row

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results `first`, `same` (the same seed, heavy counts less) and `other` (another seed and machine)."""
    folder = tmp_path_factory.mktemp("two")
    (folder / "demo.c").write_text(PROGRAM)
    (folder / "c.yaml").write_text(CAMPAIGN)
    desktop = f"machine={ROOT}/configs/machines/desktop.yaml"
    for name, settings in (
        ("first", []), ("same", ["variants.heavy=[rounds]", "delta=0.3"]),
        ("other", ["seed=2", "outer=false", desktop, "variants={heavy: [perturbing], alone: [rounds]}"]),
    ):  # fmt: skip
        given = [text for one in settings for text in ("--set", one)]
        with fake_runs_in_this_process():
            made = measure("run", folder / "c.yaml", "--out", folder / name, "--target", "fake", *given)
        assert made.exit_code == 0, made.output
    return folder


def measure(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def remove_runs(directory: Path, variant: str) -> None:
    plan = load_results(directory)[0].plan
    for spec, key in zip(plan.specs, plan.keys, strict=True):
        if spec.variant == variant:
            (directory / "traces" / f"{key}.parquet").unlink()


@pytest.mark.slow
def test_a_variant_that_ceases_to_perturb_is_shown_by_a_test(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result = measure("compare", results / "first", results / "same", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "compare.json").read_text())
    across = {one["a"]: one["verdict"] for one in found["variants"]["heavy"]["across_runs"]}
    assert across["PAPI_TOT_INS"] == "perturbed"
    assert across["PAPI_LD_INS"] == "equivalent"
    heavy, light = found["variants"]["heavy"], found["variants"]["light"]
    assert (heavy["before"]["verdict"], heavy["after"]["verdict"]) == ("perturbed", "equivalent")
    assert heavy["difference"]["verdict"] == "perturbed"
    assert heavy["difference"]["paired"] is True
    worst = heavy["pairs"][0]
    assert worst["difference"] == pytest.approx(worst["delta_z"][1] - worst["delta_z"][0])
    assert (light["difference"]["verdict"], light["before"]["verdict"]) == ("equivalent", "equivalent")
    assert list(found["variants"]) == ["heavy", "light"]  # the gravest first
    assert found["delta"] == 0.2
    design = {fact["name"]: (fact["before"], fact["after"]) for fact in found["design"]}
    assert design == {"variants.heavy": ("rounds, perturbing", "rounds"), "delta": ("0.2", "0.3")}
    told = " ".join(result.output.split())
    assert "PAPI_TOT_INS across runs" in told
    assert "heavy: perturbed before, equivalent after; the instrumentation changes relations otherwise" in told
    assert widest_row(result.output) <= 80
    page = (tmp_path / "compare.html").read_text()
    assert "Null hypothesis: the instrumentation changes the relation of the two metrics, or of a metric" in page
    assert '<th scope="row">variants.heavy</th>' in page
    rows = csv_in(page, "changes-heavy")[1:]
    in_a_run = [(row[0], row[1], row[12]) for row in rows if row[0] != row[1]]
    assert in_a_run == [(one["a"], one["b"], one["verdict"]) for one in heavy["pairs"]]
    assert [row[0] for row in rows if row[0] == row[1]] == [one["a"] for one in heavy["across_runs"]]


def test_other_seeds_are_not_paired_and_other_variants_are_named(results: Path, tmp_path: Path) -> None:
    result = measure("compare", results / "first", results / "other", "--out", tmp_path, "--delta", "0.5")
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "compare.json").read_text())
    assert found["variants"]["heavy"]["difference"]["paired"] is False
    assert found["variants"]["heavy"]["difference"]["verdict"] == "equivalent"
    assert found["delta"] == 0.5
    assert (found["only_before"], found["only_after"]) == (["light"], ["alone"])
    names = [fact["name"] for fact in found["design"]]
    assert "seed" in names
    assert "machine clock_hz" in names
    assert "machine, further values" in names
    assert any("light: only in " in finding for finding in found["findings"])


def test_results_that_are_compared_with_themselves_are_told(results: Path, tmp_path: Path) -> None:
    result = measure("compare", results / "first", results / "first", "--out", tmp_path / "out")
    assert result.exit_code == 0
    assert "AFTER are one directory" in result.output


def test_results_with_the_same_runs_show_nothing(results: Path, tmp_path: Path) -> None:
    """A copy, or the results of a change that did not reach the program."""
    shutil.copytree(results / "first", tmp_path / "copy")
    compare = ("compare", results / "first", tmp_path / "copy", "--out", tmp_path / "out")
    result = measure(*compare)
    assert result.exit_code == 0
    told = " ".join(result.output.split())
    notice = (
        f"All compared runs of {results / 'first'} and {tmp_path / 'copy'}, baselines included, have the same numbers: "
        "they are the same runs, and no evidence of their own, so that nothing is shown."
    )
    assert told.replace(" ", "").startswith(notice.replace(" ", ""))  # paths are broken where a line ends
    assert "shown to be the same" not in told
    assert "heavy: perturbed before and after; the runs have the same numbers in both campaigns, so that" in told
    assert "so give both campaigns" not in told
    found = json.loads((tmp_path / "out/compare.json").read_text())
    assert found["repeated"] == ["light", "heavy"]
    assert found["findings"][0].startswith(notice)
    assert {one["difference"]["verdict"] for one in found["variants"].values()} == {"not assessable"}
    assert "they are the same runs" in (tmp_path / "out/compare.html").read_text()
    assert measure(*compare, "--fail-on", "perturbed").exit_code == 0
    assert measure(*compare, "--fail-on", "inconclusive").exit_code == 3


def test_a_variant_that_a_change_does_not_reach_is_told(results: Path, tmp_path: Path) -> None:
    """The runs of `light` are the same in both, those of `heavy` are not."""
    measure("compare", results / "first", results / "same", "--out", tmp_path / "out")
    found = json.loads((tmp_path / "out/compare.json").read_text())
    assert found["repeated"] == ["light"]
    assert found["variants"]["light"]["difference"]["verdict"] == "equivalent"
    assert (
        "light: runs and baselines have the same numbers in both campaigns, as the program is the same, so that no "
        "difference can show."
    ) in found["findings"]


def test_other_metrics_take_a_row_each_and_another_program_is_told(results: Path) -> None:
    before = load_results(results / "first")[0].plan
    campaign = before.campaign
    kept, left_out = list(campaign.software_metrics)
    after = replace(
        before,
        builds={},
        program_digest="of another program",
        campaign=campaign.model_copy(
            update={
                "software_metrics": {kept: campaign.software_metrics[kept]},
                "program": campaign.program.model_copy(update={"source": Path("lookup.c")}),
            }
        ),
    )
    facts = {fact.name: fact for fact in differing_facts(before, after)}
    metric = facts.pop(f"software_metrics.{left_out}")
    assert metric.before.startswith("event ")
    assert metric.after == "-"
    assert not any("software_metrics" in name for name in facts)
    assert different_programs(before, before) is None
    assert different_programs(before, after) == ("demo.c", "lookup.c")
    unlike = unlike_designs(before, after, ("a", "b"))
    assert len(unlike) == 1
    found = CampaignsCompared("a", "b", (), (), (), (), (), ("1 run is missing.",), 0.2, 0.05, unlike=unlike)
    assert found.findings[0].startswith("a measures demo.c, and b lookup.c: their relations may differ without any")
    assert found.findings[1:] == ("1 run is missing.",)


def test_what_alone_makes_relations_differ_is_said_first(results: Path, tmp_path: Path) -> None:
    """Records of 20,000 cycles and of 10,000 instructions stood in the table of designs only, and the verdict laid the
    difference to the instrumentation."""
    before = load_results(results / "first")[0].plan
    assert unlike_designs(before, before, ("a", "b")) == ()
    program = before.campaign.program.model_copy(update={"args": ("7",)})
    sampling = before.campaign.sampling.model_copy(update={"every": "10000 instructions", "mode": "signal"})
    after = replace(
        before,
        machine_text="{}",
        campaign=before.campaign.model_copy(update={"program": program, "sampling": sampling}),
    )
    unlike = unlike_designs(before, after, ("a", "b"))
    length = before.campaign.sampling.described
    assert unlike[0] == (
        f"Records are not of one length ({length} in a, 10,000 instructions in b): this alone changes correlations; "
        "sample all runs alike."
    )
    assert unlike[1].startswith("Records are not taken in one way (mode ideal in a and signal in b): ")
    assert unlike[2].startswith("The machines differ (two descriptions of ")
    assert unlike[3].startswith("The programs have other arguments (none in a, 7 in b): this alone")
    result = measure("compare", results / "first", results / "other", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert result.output.startswith("The machines differ (")
    assert json.loads((tmp_path / "compare.json").read_text())["findings"][0].startswith("The machines differ (")
    page = (tmp_path / "compare.html").read_text()
    assert page.count("The machines differ (") == 1
    assert page.index("The machines differ (") < page.index("<li>heavy: ")


def test_a_variant_without_runs_leaves_the_others_comparable(results: Path, tmp_path: Path) -> None:
    shutil.copytree(results / "first", tmp_path / "copy")
    remove_runs(tmp_path / "copy", "light")
    assert measure("report", tmp_path / "copy").exit_code == 0
    result = measure("compare", results / "same", tmp_path / "copy", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "out/compare.json").read_text())
    assert list(found["variants"]) == ["heavy", "light"]
    assert found["variants"]["light"]["before"]["verdict"] == "equivalent"
    assert found["variants"]["light"]["after"]["verdict"] == "not assessable"
    assert any(one.startswith("light: not compared, as") for one in found["findings"])
    assert any("/copy lacks " in one and "runs: `measure run" in one for one in found["findings"])


def test_results_without_baselines_are_refused(results: Path, tmp_path: Path) -> None:
    """It was a traceback of numpy."""
    shutil.copytree(results / "same", tmp_path / "copy")
    remove_runs(tmp_path / "copy", "baseline")
    result = measure("compare", results / "first", tmp_path / "copy", "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert (
        "copy: 0 baseline runs succeeded, expected at least 2: nothing to compare with. `measure run" in result.output
    )


def test_what_makes_a_campaign_wrong_comes_first(results: Path, tmp_path: Path) -> None:
    """A control that failed was not said, and the verdict stood as if it had not."""
    shutil.copytree(results / "same", tmp_path / "copy")
    summary = tmp_path / "copy/summary.json"
    stored = json.loads(summary.read_text())
    stored["invalidating"] = ["The positive control was not found."]
    stored["failed_controls"] = {"positive control": "The positive control was not found."}
    summary.write_text(json.dumps(stored))
    arguments = ("compare", results / "first", tmp_path / "copy", "--out", tmp_path / "out", "--junit", tmp_path / "j")
    result = measure(*arguments)
    assert result.exit_code == 0
    sentence = f"{tmp_path / 'copy'}: The positive control was not found."
    assert "".join(result.output.split()).startswith("".join(f"!! {sentence}".split()))
    found = json.loads((tmp_path / "out/compare.json").read_text())
    assert found["invalidating"] == [sentence] == found["findings"][:1]
    page = (tmp_path / "out/compare.html").read_text()
    assert page.index("Read this first") < page.index(sentence) < page.index('class="verdicts"')
    assert page.count(sentence) == 1
    cases = {case.get("name"): case.find("error") for case in ET.parse(tmp_path / "j").iter("testcase")}
    assert cases[f"{tmp_path / 'copy'}: positive control"] is not None
    assert measure(*arguments, "--fail-on", "perturbed").exit_code == 3


def test_what_cannot_be_compared_is_told(results: Path, tmp_path: Path) -> None:
    def refused(before: Path, after: Path) -> str:
        result = measure("compare", before, after, "--out", tmp_path / "out")
        assert result.exit_code == 2, result.output
        assert not (tmp_path / "out").exists()
        return " ".join(result.output.split())

    first = results / "first"
    assert "no such directory; expected one that `measure run` left" in refused(first, tmp_path / "none")
    assert "has no results of a campaign" in refused(first, tmp_path)
    shutil.copytree(first, tmp_path / "copy")
    summary = tmp_path / "copy/summary.json"
    stored = json.loads(summary.read_text())
    del stored["variants"]["light"]
    summary.write_text(json.dumps(stored))
    assert "has no verdict on light: `measure report" in refused(first, tmp_path / "copy")
    summary.write_text("{")
    assert "summary.json is missing or damaged: `measure report" in refused(first, tmp_path / "copy")
    summary.write_text(json.dumps({**stored, "schema": 1}))
    assert "summary.json: got schema 1, expected 2: `measure report" in refused(first, tmp_path / "copy")
    plan = json.loads((tmp_path / "copy/plan.json").read_text())
    plan["campaign"]["variants"] = {"elsewhere": ["rounds"]}
    (tmp_path / "copy/plan.json").write_text(json.dumps(plan))
    summary.write_text(json.dumps(stored))
    assert "expected at least one of the same name" in refused(first, tmp_path / "copy")
