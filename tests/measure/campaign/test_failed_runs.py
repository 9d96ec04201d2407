"""What a report says of runs that failed or were never made, and of variants that so have none."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner, Result

import measure as library
from measure.analysis.analysis import SUMMARY_JSON_SCHEMA
from measure.cli import main
from measure.errors import MeasureError
from measure.verdict_files.verdict_summary import VERDICTS_JSON_SCHEMA
from tests.measure.demo_program import source_file
from tests.measure.fake_runs import fake_runs_in_this_process

PROGRAM = """\
void work(int n) { (void)n; }
void other(int n) { work(n); }
int main(void) { for (int i = 0; i < 9; i++) other(i); return 0; }
"""
CAMPAIGN = f"""\
name: demo
program: {{source: demo.c}}
machine: {Path(__file__).parents[3] / "configs" / "machines" / "desktop.yaml"}
sampling: {{every: 4000 cycles}}
hardware_metrics: [PAPI_TOT_INS, PAPI_LD_INS, PAPI_BR_MSP]
software_metrics:
  rounds: {{event: entry, function: work}}
  failing: {{event: entry, function: other}}
variants: {{fails: [failing], light: [rounds], both: [rounds, failing]}}
baselines: 6
replicates: 6
outer: false
"""


def command(*arguments: object) -> Result:
    with fake_runs_in_this_process():
        return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "demo.c").symlink_to(source_file(PROGRAM))
    (tmp_path / "c.yaml").write_text(CAMPAIGN)
    return tmp_path


def run(folder: Path, *options: object) -> Result:
    return command("run", folder / "c.yaml", "--out", folder / "out", "--target", "fake", *options)


def words(result: Result) -> str:
    return " ".join(result.output.split())


def summary_of(folder: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((folder / "out" / "summary.json").read_text())
    jsonschema.validate(found, SUMMARY_JSON_SCHEMA)
    return found


def test_variants_whose_runs_all_fail_are_named_wherever_verdicts_are(folder: Path) -> None:
    result = run(folder, "--junit", folder / "j.xml", "--markdown", folder / "m.md")
    assert result.exit_code == 1, result.output
    told = words(result)
    assert "!! 12 of 30 runs failed (6 of 6 of fails, 6 of 6 of both), and verdicts are of the others" in told
    assert "!! fails has no verdict: none of its 6 runs is there (6 failed)." in told
    assert "0 to 6 runs of each variant" in told
    assert re.search(r"│ both +│ not assessable", result.output)
    variants = summary_of(folder)["variants"]
    assert isinstance(variants, dict)
    assert variants["both"]["verdict"] == "not assessable"
    assert variants["both"]["inner"] is None
    assert variants["both"]["in_words"]["inner"] == "no verdict: none of its 6 runs is there (6 failed)"
    found = json.loads((folder / "out" / "verdicts.json").read_text())
    jsonschema.validate(found, VERDICTS_JSON_SCHEMA)
    assert {one["name"]: one["verdict"] == "not assessable" for one in found["variants"]} == {
        "light": False, "fails": True, "both": True,
    }  # fmt: skip
    page = (folder / "out" / "report.html").read_text()
    assert "Without a verdict: fails, both." in page
    assert '<div class="name">both</div><div class="word">not assessable</div>' in page
    junit = (folder / "j.xml").read_text()
    assert '<testcase classname="fails" name="within a run" time="0">' in junit
    assert 'errors="12"' in junit
    assert "| both | not assessable |" in (folder / "m.md").read_text()


def test_a_report_of_stored_runs_knows_the_failed_ones(folder: Path) -> None:
    assert run(folder, "--junit", folder / "run.xml").exit_code == 1
    made = summary_of(folder)
    again = run(folder)
    assert "12 runs failed; the report is of the others" in words(again)  # all of them were tried again
    result = command("report", folder / "out", "--junit", folder / "report.xml", "--fail-on", "inconclusive")
    assert result.exit_code == 1, result.output
    assert "makes them" not in words(result)
    assert "`measure run` tries them again, but each fails again until the program, its input" in words(result)
    told = summary_of(folder)
    assert told["failures"] == made["failures"]
    assert told["runs"] == {"done": 18, "reused": 18, "failed": 12}
    for name in ("run.xml", "report.xml"):
        assert (folder / name).read_text().count('type="run failed"') == 12


def test_a_comparison_of_campaigns_names_the_variants_without_runs(folder: Path) -> None:
    assert run(folder).exit_code == 1
    assert run(folder, "--out", folder / "second", "--set", "seed=2").exit_code == 1
    result = command(
        "compare", folder / "out", folder / "second", "--out", folder / "compared", "--junit", folder / "c.xml",
        "--fail-on", "inconclusive",
    )  # fmt: skip
    assert result.exit_code == 3, result.output
    assert re.search(r"│ both +│ not assessable +│ not assessable +│ not assessable", result.output)
    assert "both: not compared, as" in words(result)
    found = json.loads((folder / "compared" / "compare.json").read_text())
    assert found["variants"]["both"]["difference"]["verdict"] == "not assessable"
    assert '<testcase classname="both" name="difference of two campaigns"' in (folder / "c.xml").read_text()
    page = (folder / "compared" / "compare.html").read_text()
    assert '<div class="name">both</div><div class="word">not assessable</div>' in page
    table = library.compare(folder / "out", folder / "second").verdicts.set_index("variant")
    assert table.loc["both", "verdict"] == "not assessable"
    assert table.loc["both", "runs_after"] == 0


def test_an_explanation_says_which_variants_have_no_runs(folder: Path) -> None:
    assert run(folder).exit_code == 1
    result = command("explain", folder / "out", "--variant", "both")
    assert result.exit_code == 2, result.output
    assert "no run of both is there, so nothing can be explained" in words(result)


def test_a_library_call_knows_the_failed_runs_and_the_variants_without_any(folder: Path) -> None:
    assert run(folder).exit_code == 1
    result = library.load(folder / "out", progress=False)
    assert len(result.failures) == 12
    assert result.failures[0].startswith("fails/0: the program ended with exit status 3")
    table = result.verdicts.set_index("variant")
    assert table.loc["both", "verdict"] == "not assessable"
    assert table.loc["both", "runs"] == 0
    assert "both not assessable" in repr(result)
    with pytest.raises(MeasureError, match=r"both was not compared: none of its 6 runs is there \(6 failed\)"):
        result.pairs("both")


def test_a_variant_whose_runs_were_never_made_is_open_in_continuous_integration(folder: Path) -> None:
    (folder / "c.yaml").write_text(
        CAMPAIGN.replace(
            "fails: [failing], light: [rounds], both: [rounds, failing]", "light: [rounds], rare: [rare]"
        ).replace("  failing:", "  rare:")
    )
    assert run(folder).exit_code == 0
    plan = json.loads((folder / "out" / "plan.json").read_text())
    for one in plan["runs"]:
        if one["spec"]["variant"] == "rare":
            (folder / "out" / "traces" / f"{one['key']}.parquet").unlink()
    result = command("report", folder / "out", "--fail-on", "inconclusive")
    assert result.exit_code == 3, result.output
    told = words(result)
    assert told.startswith("!! 6 of 24 runs are missing: `measure run` makes them.")
    assert "!! rare has no verdict: none of its 6 runs is there (6 not made yet)." in told
    assert json.loads((folder / "out" / "verdicts.json").read_text())["verdict"] != "equivalent"


def test_controls_raise_no_alarm_while_planned_runs_are_missing(folder: Path) -> None:
    (folder / "c.yaml").write_text(
        CAMPAIGN.replace("fails: [failing], light: [rounds], both: [rounds, failing]", "a: [rounds]")
    )
    assert run(folder).exit_code == 0
    for one in json.loads((folder / "out" / "plan.json").read_text())["runs"]:
        if one["spec"]["replicate"] > 1:
            (folder / "out" / "traces" / f"{one['key']}.parquet").unlink()
    result = command("report", folder / "out")
    assert result.exit_code == 0, result.output
    told = words(result)
    assert told.startswith("!! 12 of 18 runs are missing: `measure run` makes them.")
    assert told.count("!!") == 1
    assert "control was not found" not in told
    assert "Controls: they are judged when all planned runs are made" in told
