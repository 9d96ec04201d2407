"""Verdicts as files: tables of pairs, JSON, queries of the documents, and what continuous integration reads."""

from __future__ import annotations

import csv
import json
import math
import re
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import click
import jsonschema
import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner, Result

import measure as library
from measure.cli import main
from measure.report.pair_columns import PAIR_COLUMNS
from measure.verdict_files.annotations import github_lines
from measure.verdict_files.deliver import deliver
from measure.verdict_files.junit import junit_text
from measure.verdict_files.markdown import markdown_text
from measure.verdict_files.options import FailOn, VerdictOptions
from measure.verdict_files.verdict_summary import verdict_document
from measure.verdict_files.verdict_table import Judgement, VerdictTable, invalidations_of, table_of
from tests.measure.demo_program import CAMPAIGN, PROGRAM
from tests.measure.fake_runs import fake_runs_in_this_process
from tests.measure.report.synthetic_report import synthetic_report

ROOT = Path(__file__).parents[3]
DOCUMENTS = ["README.md"] + [
    f"docs/{name}.md"
    for name in ("campaigns", "continuous_integration", "explain", "other_commands", "partition_and_merge",
                 "phases_and_traces", "tutorial")
]  # fmt: skip
TABLE = VerdictTable(
    "a <campaign>", ("variant", "verdict"), (("one|two", "perturbed\n*very*"),),
    (
        Judgement("one", "within a run", "perturbed", "changed: 100%,\nby far\x00"),
        Judgement("one", "across aligned runs", "not assessable", "unknown"),
        Judgement("two", "within a run", "equivalent", "the same"),
        Judgement("two", "across aligned runs", "changed", "size open"),
    ),
    ("A finding.",),
    ("A run of two failed: it <crashed>",),
)  # fmt: skip


def command(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign `c.yaml` and its results on the fake target: `light` is equivalent, `heavy` perturbed."""
    folder = tmp_path_factory.mktemp("verdicts")
    (folder / "demo.c").write_text(PROGRAM)
    (folder / "c.yaml").write_text(CAMPAIGN)
    with fake_runs_in_this_process():
        made = command("run", folder / "c.yaml", "--out", folder / "results/mine", "--target", "fake")
    assert made.exit_code == 0, made.output
    return folder


# --- exports
@pytest.mark.slow
def test_pairs_are_the_same_in_csv_parquet_and_library(folder: Path) -> None:
    results = folder / "results/mine"
    table = pq.read_table(results / "pairs.parquet")
    assert table.column_names == list(PAIR_COLUMNS)
    assert table.schema.field("ci_low").metadata[b"description"].startswith(b"Lower end")
    rows = table.to_pylist()
    with (results / "pairs.csv").open() as file:
        texts = list(csv.DictReader(file))
    assert len(rows) == len(texts) == 2 * (3 + 3)  # variants: pairs within a run, metrics across runs
    for row, text in zip(rows, texts, strict=True):
        for name, value in row.items():
            read = text[name]
            if isinstance(value, float):
                assert float(read) == value
            else:
                assert read == {None: "", True: "true", False: "false"}.get(value, str(value))
    result = library.load(results)
    for row in rows:
        if row["relation"] == "inner":
            pair = result.pairs(row["variant"]).set_index(["a", "b"]).loc[(row["a"], row["b"])]
            assert pair["verdict"] == row["verdict"]
    outer = [row for row in rows if row["relation"] == "outer"]
    assert all(row["a"] == row["b"] and row["simultaneous_low"] == -math.inf for row in outer)
    assert {row["verdict"] for row in rows if row["variant"] == "heavy" and row["relation"] == "inner"} >= {"perturbed"}


def test_verdicts_follow_their_published_schema(folder: Path) -> None:
    schema = json.loads(command("schema", "verdicts").output)
    jsonschema.Draft202012Validator.check_schema(schema)
    document = json.loads((folder / "results/mine/verdicts.json").read_text())
    jsonschema.validate(document, schema)
    assert document["verdict"] == "perturbed"
    light, heavy = document["variants"]
    assert (light["name"], light["verdict"], heavy["verdict"]) == ("light", "equivalent", "perturbed")
    assert light["inner"]["pairs"] == {"equivalent": 3}
    summary = json.loads((folder / "results/mine/summary.json").read_text())
    assert {one["name"]: one["verdict"] for one in document["variants"]} == {
        name: one["verdict"] for name, one in summary["variants"].items()
    }
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**document, "more": 1}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**document, "verdict": "fine"}, schema)


def test_the_queries_of_the_documents_work(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    queries = re.findall(r"```sql\n(.*?)```", (ROOT / "docs/queries.md").read_text(), re.DOTALL)
    # In a process of its own: at the end of one, DuckDB's bindings complain about what pytest still refers to.
    code = "import duckdb, json, sys; print(json.dumps([duckdb.sql(q).fetchall() for q in json.load(sys.stdin)]))"
    done = subprocess.run([sys.executable, "-c", code], input=json.dumps(queries), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = [[tuple(row) for row in rows] for rows in json.loads(done.stdout)]
    verdicts, changed, metrics, campaigns, runs = found
    assert sum(row[-1] for row in verdicts) == 12
    assert ("light", "inner", "equivalent", 3) in verdicts
    assert {row[0] for row in changed} == {"heavy"}
    assert metrics[0][:2] == ("PAPI_TOT_INS", 2)
    assert [row[:3] for row in campaigns] == [("mine", "heavy", "perturbed"), ("mine", "light", "equivalent")]
    assert len(runs) == 5
    assert all(row[1:] == (300, 4000) for row in runs)


# --- continuous integration
@pytest.mark.parametrize(
    ("verdict", "perturbed", "inconclusive"),
    [("perturbed", 3, 0), ("changed", 3, 0), ("inconclusive", 0, 3), ("not assessable", 0, 3), ("equivalent", 0, 0)],
)
def test_the_exit_status_is_that_of_the_verdict(verdict: str, perturbed: int, inconclusive: int) -> None:
    table = replace(TABLE, judgements=(Judgement("one", "within a run", verdict, ""), TABLE.judgements[2]))
    assert deliver(table, VerdictOptions()) == 0
    assert deliver(table, VerdictOptions(("perturbed",))) == perturbed
    assert deliver(table, VerdictOptions(("inconclusive",))) == inconclusive
    assert deliver(table, VerdictOptions(("perturbed", "inconclusive"))) == max(perturbed, inconclusive)


@pytest.mark.parametrize(
    ("failed", "perturbed", "inconclusive"), [("null control", 3, 3), ("positive control", 3, 3), (None, 0, 3)]
)
def test_what_makes_verdicts_wrong_fails_a_job_and_is_in_every_file(
    failed: str | None, perturbed: int, inconclusive: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """A job was green, with nothing in its files but prose, although a control of the campaign had failed."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    told = "The runs *are* wrong."
    data = replace(
        synthetic_report(4, variants=1), invalidating=(told,), failed_controls={failed: told} if failed else {}
    )
    assert data.verdict == "equivalent"
    junit, markdown = tmp_path / "v.xml", tmp_path / "v.md"

    def delivered(*fail_on: FailOn) -> tuple[int, str, str]:
        status = deliver(table_of(data), VerdictOptions(fail_on, junit, markdown))
        (case,) = (one for one in ET.parse(junit).iter("testcase") if one.get("name") == (failed or "finding 1"))
        assert "**Read this first:**\n\n- The runs \\*are\\* wrong.\n\n| variant |" in markdown.read_text()
        title = f"{failed} failed" if failed else "read this first"
        annotations = capsys.readouterr().out.splitlines()
        (kind,) = (one.split()[0] for one in annotations if one.endswith(f" title={title}::{told}"))
        return status, case[0].tag, kind

    assert delivered() == (0, "error" if failed else "skipped", "::warning")
    assert delivered("perturbed") == (perturbed, *(("error", "::error") if perturbed else ("skipped", "::warning")))
    assert delivered("inconclusive") == (inconclusive, "error", "::error")
    assert delivered("perturbed", "inconclusive") == (3, "error", "::error")
    document = verdict_document(data)
    jsonschema.validate(document, json.loads(command("schema", "verdicts").output))
    assert (document["valid"], document["invalidating"]) == (False, [told])
    assert document["failed_controls"] == ({failed: told} if failed else {})


def test_findings_of_two_campaigns_are_told_once_each() -> None:
    """A directory that is compared with itself has each sentence twice."""
    assert [one.name for one in invalidations_of(("a", "b", "a"), {"null control": "b"})] == [
        "finding 1",
        "null control",
    ]


@pytest.mark.slow
def test_files_and_annotations_name_what_is_perturbed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    result = command(
        "run", "c.yaml", "--out", "results/mine", "--target", "fake", "--fail-on", "perturbed",
        "--junit", tmp_path / "v.xml", "--markdown", tmp_path / "v.md",
    )  # fmt: skip
    assert result.exit_code == 3, result.output
    errors = [line for line in result.output.splitlines() if line.startswith("::")]
    assert errors[0].startswith("::error file=c.yaml,line=9,title=heavy%2C within a run%3A perturbed::changed by more")
    suite = ET.parse(tmp_path / "v.xml").getroot()
    assert suite.attrib == {"tests": "4", "failures": str(len(errors)), "errors": "0", "skipped": "0"}
    assert {case.get("classname") for case in suite.iter("testcase") if case.find("failure") is not None} == {"heavy"}
    summary = (tmp_path / "v.md").read_text()
    assert "| heavy | perturbed | " in summary
    assert "Next: `measure explain results/mine` says why" in summary  # it had no directory, and no code
    monkeypatch.delenv("GITHUB_ACTIONS")
    again = command("report", "results/mine", "--fail-on", "inconclusive,perturbed")
    assert again.exit_code == 3
    assert "::" not in again.output


def test_compare_and_perturb_have_the_same_options(folder: Path, tmp_path: Path) -> None:
    results = folder / "results/mine"
    compared = command("compare", results, results, "--out", tmp_path / "c", "--fail-on", "perturbed,inconclusive",
                       "--junit", tmp_path / "c.xml", "--markdown", tmp_path / "c.md")  # fmt: skip
    assert compared.exit_code == 3, compared.output  # the same runs show nothing
    assert ET.parse(tmp_path / "c.xml").getroot().get("tests") == "2"
    assert "| light | equivalent | equivalent | not assessable |" in (tmp_path / "c.md").read_text()
    specs = json.loads((results / "plan.json").read_text())["runs"]
    of = {
        name: [results / f"traces/{run['key']}.parquet" for run in specs if run["spec"]["variant"] == name]
        for name in ("baseline", "heavy")
    }
    given = ["perturb", "--baseline", *of["baseline"], "--run", *of["heavy"], "--no-align", "--out", tmp_path / "p"]
    given += ["--metrics", "PAPI_TOT_INS,PAPI_LD_INS,PAPI_BR_MSP", "--fail-on", "perturbed"]
    assert command(*given, "--junit", tmp_path / "p.xml").exit_code == 3
    assert sorted(path.name for path in (tmp_path / "p").iterdir()) == [
        "pairs.csv", "pairs.parquet", "report.html", "summary.json", "verdicts.json",
    ]  # fmt: skip
    assert ET.parse(tmp_path / "p.xml").getroot().get("failures") == "1"


def test_bad_options_are_told_before_any_work(folder: Path, tmp_path: Path) -> None:
    told = command("report", folder / "results/mine", "--fail-on", "pertrubed")
    assert told.exit_code == 2
    assert "got 'pertrubed', expected perturbed or inconclusive; did you mean 'perturbed'?" in told.output
    for option in ("--junit", "--markdown"):
        told = command("report", folder / "results/mine", option, tmp_path / "none/v.xml")
        assert told.exit_code == 2
        assert "no such directory" in told.output
        assert "Controls" not in told.output


def test_junit_has_failures_skips_and_errors_and_no_characters_that_xml_forbids() -> None:
    root = ET.fromstring(junit_text(TABLE, {"perturbed", "changed"}).split("\n", 1)[1])
    assert root.attrib == {"tests": "5", "failures": "2", "errors": "1", "skipped": "1"}
    cases = {(case.get("classname"), case.get("name")): [child.tag for child in case] for case in root.iter("testcase")}
    assert cases == {
        ("one", "within a run"): ["failure"], ("one", "across aligned runs"): ["skipped"],
        ("two", "within a run"): ["system-out"], ("two", "across aligned runs"): ["failure"],
        ("runs", "failed run 1"): ["error"],
    }  # fmt: skip
    failure = root.find(".//failure")
    assert failure is not None
    assert failure.text == "perturbed: changed: 100%,\nby far?"


def test_markdown_and_annotations_escape_what_means_something_there() -> None:
    text = markdown_text(TABLE)
    assert text.startswith("## a \\<campaign\\>\n")
    assert "| one\\|two | perturbed \\*very\\* |\n" in text
    assert "- A run of two failed: it \\<crashed\\>\n" in text
    code = markdown_text(replace(TABLE, findings=("a < b: `measure run a_b.yaml`, or `x`, or a ` alone",)))
    assert code.endswith("- a \\< b: `measure run a_b.yaml`, or `x`, or a \\` alone\n")
    lines = github_lines(TABLE, {"changed"})
    assert [line.split(" ")[0] for line in lines] == ["::warning", "::notice", "::error", "::error"]
    assert lines[0] == "::warning title=one%2C within a run%3A perturbed::changed: 100%25,%0Aby far\x00"


def test_annotations_find_the_line_of_a_variant_in_the_file_that_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.yaml").write_text("name: x\nvariants:\n  one: [a]\n")
    (tmp_path / "c.yaml").write_text("extends: base.yaml\nvariants:\n\n  two: [b]\n")
    lines = github_lines(replace(TABLE, campaign_file=str(tmp_path / "c.yaml")), ())
    assert lines[0].startswith("::warning file=base.yaml,line=3,title=one")
    assert lines[2].startswith("::warning file=c.yaml,line=4,title=two")
    gone = github_lines(replace(TABLE, campaign_file=str(tmp_path / "gone.yaml")), ())
    assert gone[0].startswith("::warning title=one")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_commands_of_the_documents_have_these_options(name: str) -> None:
    text = (ROOT / name).read_text()
    for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL):
        assert yaml.safe_load(block)
    lines = re.findall(r"(?:^|run: |&& )measure (\w[\w-]*) ([^#&\n]*)", text, re.MULTILINE)
    assert lines
    for command_name, rest in lines:
        found = main.commands[command_name]
        with click.Context(found) as context:
            words = [word for word in shlex.split(rest) if word != "\\"]
            found.make_parser(context).parse_args(words)  # raises for an option that does not exist


# --- completion
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_gets_a_completion_script(shell: str) -> None:
    """As docs/other_commands.md says it; click makes the script."""
    result = CliRunner().invoke(main, [], prog_name="measure", env={"_MEASURE_COMPLETE": f"{shell}_source"})
    assert result.exit_code == 0, result.output
    assert "_MEASURE_COMPLETE" in result.output


def test_completion_knows_commands_and_options() -> None:
    def completed(words: str) -> list[str]:
        position = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
        result = CliRunner().invoke(
            main, [], prog_name="measure", env={"_MEASURE_COMPLETE": "bash_complete", **position}
        )
        return [line.split(",")[1] for line in result.output.splitlines()]

    assert "init" in completed("measure in")
    assert "--fail-on" in completed("measure run --fail")
