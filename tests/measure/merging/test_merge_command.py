"""``measure merge`` on a directory of results: what it writes reads back, and what is wrong with it is said."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner, Result
from markupsafe import escape

import measure as measure_library
from measure.cli import _Commands
from measure.merging.cli import merge
from measure.merging.command import labels, load_results
from measure.merging.merge_runs import MergeError
from measure.runs.executor import Outcome, execute_plan
from tests.measure.demo_program import source_file
from tests.measure.report.page_structure import csv_in, figures_without_caption_or_data, problems
from tests.measure.shown_tables import widest_row

ROOT = Path(__file__).parents[3]
CAMPAIGN = f"""\
name: demo
program: {{source: demo.c}}
machine: {ROOT / "configs" / "machines" / "desktop.yaml"}
sampling: {{every: 4000 cycles}}
hardware_metrics: [PAPI_TOT_INS, PAPI_LD_INS, PAPI_BR_MSP]
software_metrics:
  rounds: {{event: entry, function: work}}
  calls: {{event: call, callee: work}}
variants: {{light: [rounds], other: [calls]}}
baselines: 2
replicates: 2
controls: false
"""
PROGRAM = "void work(void) {}\nint main(void) { for (int i = 0; i < 9; i++) work(); return 0; }\n"


def make_results(folder: Path, campaign: str = CAMPAIGN, name: str = "out") -> Outcome:
    from measure.runs.campaign_file import load_campaign
    from measure.runs.plan import make_plan
    from measure.runs.plan_file import save_plan
    from measure.runs.store import Store

    if not (folder / "demo.c").exists():
        (folder / "demo.c").symlink_to(source_file(PROGRAM))
    (folder / "c.yaml").write_text(campaign)
    plan = make_plan(*load_campaign(folder / "c.yaml"), lambda message: None, "fake")
    with Store(folder / name) as store:
        save_plan(plan, folder / name)
        return execute_plan(plan.specs, store, workers=1)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("campaign")
    make_results(folder)
    return folder / "out"


@pytest.fixture
def results(made: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    import shutil

    return Path(shutil.copytree(made, tmp_path / "out"))


def measure(*arguments: object) -> Result:
    group = _Commands("measure")
    group.add_command(merge)
    return CliRunner().invoke(group, ["merge", *map(str, arguments)])


def test_exports_read_back_alike(results: Path, tmp_path: Path) -> None:
    done = measure(results)
    assert done.exit_code == 0, done.output
    assert "5 metrics on the 300 records of baseline/0" in done.output
    table = pd.read_parquet(results / "merged.parquet")
    about = json.loads((results / "merged.metadata.json").read_text())
    assert table.attrs == about
    assert list(table.columns[4:9]) == ["PAPI_TOT_INS", "PAPI_LD_INS", "PAPI_BR_MSP", "rounds", "calls"]
    for metric, source in about["metrics"].items():
        assert table[metric].sum() == source["total"]
    group, replicate = about["metrics"]["rounds"]["run"].split("/")
    own = next(
        run for run in load_results(results).runs if (run.spec.variant, str(run.spec.replicate)) == (group, replicate)
    )
    assert own.trace.columns(("rounds",)).sum() == about["metrics"]["rounds"]["total"]

    assert measure(results, "--out", tmp_path / "m.csv").exit_code == 0
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "m.csv"), table.reset_index(drop=True))
    assert json.loads((tmp_path / "m.metadata.json").read_text()) == about

    assert measure(results, "--out", tmp_path / "m.json").exit_code == 0
    chrome = json.loads((tmp_path / "m.json").read_text())
    assert chrome["otherData"] == about
    events = [e for e in chrome["traceEvents"] if e["ph"] == "C" and e["name"] == "rounds"]
    assert [e["args"]["count"] for e in events] == [*table["rounds"], 0]
    expected = table["begin_cycles"] * 1e6 / about["clock_hz"]
    assert [e["ts"] for e in events][:-1] == pytest.approx(list(expected))
    named = {e["pid"]: e["args"]["name"] for e in chrome["traceEvents"] if e["ph"] == "M"}
    assert named[events[0]["pid"]] == about["metrics"]["rounds"]["run"]


def test_the_page_is_beside_the_merged_trace_under_its_name(results: Path, tmp_path: Path) -> None:
    (results / "summary.json").write_text(json.dumps({"schema": 2, "variants": {"light": {"verdict": "perturbed"}}}))
    done = measure(results, "--out", tmp_path / "m.csv")
    assert done.exit_code == 0, done.output
    assert f"Page: {tmp_path / 'm.html'}" in done.output.replace("\n", "")
    page = (tmp_path / "m.html").read_text()
    about = json.loads((tmp_path / "m.metadata.json").read_text())
    assert problems(page) == []
    assert figures_without_caption_or_data(page) == []
    for warning in about["warnings"]:
        assert f"<li>{escape(warning)}</li>" in page
    head, *rows = csv_in(page, "sources")
    assert head[:5] == ["metric", "run", "verdict", "events_in_run", "events_in_merged_trace"]
    told = {metric: (one["run"], one.get("verdict", ""), str(one["total"])) for metric, one in about["metrics"].items()}
    assert {row[0]: (row[1], row[2], row[3]) for row in rows} == told
    assert all(row[3] == row[4] for row in rows)  # totals are conserved
    assert 'data-copy="measure explain' in page
    again = measure(results, "--out", tmp_path / "m.parquet")  # its own page is written anew
    assert again.exit_code == 0, again.output


def test_the_commands_of_the_page_merge_as_the_page_says(results: Path, tmp_path: Path) -> None:
    given = ("--baseline", "1", "--scale", "rank", "--step-penalty", "0.0", "--channel", "PAPI_LD_INS")
    done = measure(results, *given, "--out", tmp_path / "m.parquet")
    assert done.exit_code == 0, done.output
    page = (tmp_path / "m.html").read_text()
    again = f"measure merge {results} {' '.join(given)}"
    assert f'data-copy="{again} --out {tmp_path}/m.json"' in page
    assert f'data-copy="{again} --align progress --out {tmp_path}/m-progress.parquet"' in page


def test_no_page_takes_the_place_of_another_merges(results: Path, tmp_path: Path) -> None:
    by_progress = (results, "--align", "progress")
    for options in ((results, "--out", tmp_path / "m.parquet"), (*by_progress, "--out", tmp_path / "m.parquet")):
        assert measure(*options).exit_code == 0  # the same trace, merged anew
    page = (tmp_path / "m.html").read_text()
    done = measure(results, "--out", tmp_path / "m.json")
    assert done.exit_code == 2
    assert "m.html: is the page of m.parquet, which is another merge" in " ".join(done.output.split())
    assert (tmp_path / "m.html").read_text() == page
    assert not (tmp_path / "m.json").exists()
    assert measure(*by_progress, "--out", tmp_path / "m.json").exit_code == 0
    (tmp_path / "m.json").unlink()
    assert measure(results, "--out", tmp_path / "m.csv").exit_code == 0  # the page's trace is gone


def test_no_page_but_its_own_is_written_over(results: Path, tmp_path: Path) -> None:
    (results / "report.html").write_text("<!doctype html>a report")
    done = measure(results, "--out", results / "report.parquet")
    assert done.exit_code == 2
    assert "report.html: is no page of `measure merge`" in done.output.replace("\n", "")
    assert not (results / "report.parquet").exists()
    assert (results / "report.html").read_text() == "<!doctype html>a report"
    done = measure(results, "--out", tmp_path / "m.html", "--format", "csv")
    assert done.exit_code == 2
    assert "give the trace another ending" in " ".join(done.output.split())


def rows_of(shown: str) -> list[str]:
    """The rows of the table, each with the lines that continue it."""
    cells = [line.split("│")[1:-1] for line in shown.splitlines() if line.startswith("│")]
    begins = [n for n, row in enumerate(cells) if row[0].strip()]
    return [
        " ".join(cell for row in cells[begin:end] for cell in row)
        for begin, end in zip(begins, [*begins[1:], len(cells)], strict=True)
    ]


def test_groups_that_perturb_are_avoided_and_otherwise_warned_of(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    def judged(light: str, other: str, across: str = "") -> Result:
        variants = {
            name: {"verdict": word, "inner": {"verdict": word}, "outer_held_out": {"verdict": across or word}}
            for name, word in (("light", light), ("other", other))
        }
        (results / "summary.json").write_text(json.dumps({"schema": 2, "variants": variants}))
        return measure(results)

    shown = judged("perturbed", "equivalent").output
    assert widest_row(shown) <= 80
    for metric, verdict in (("rounds", "perturbed"), ("calls", "equivalent"), ("PAPI_TOT_INS", "baseline/0")):
        assert any(metric in row.split() and verdict in row.split() for row in rows_of(shown))
    words = " ".join(shown.split())
    assert "rounds from light/" in words
    assert "collecting this variant perturbs the program" in words
    about = json.loads((results / "merged.metadata.json").read_text())
    assert (about["metrics"]["rounds"]["verdict"], about["metrics"]["calls"]["verdict"]) == (
        "perturbed", "equivalent",
    )  # fmt: skip
    assert sum("perturbs" in warning for warning in about["warnings"]) == 1
    for verdict, warning in (
        ("changed", "collecting this variant changes how metrics relate, by an unknown amount"),
        ("inconclusive", "whether collecting this variant perturbs the program is open"),
        ("not assessable", "whether collecting this variant perturbs the program cannot be assessed"),
    ):
        assert warning in " ".join(judged(verdict, "equivalent").output.split())
    assert "collecting this variant" not in judged("equivalent", "equivalent").output
    shown = judged("equivalent", "equivalent", across="not assessable").output
    assert widest_row(shown) <= 80
    assert "this variant is equivalent, but not assessable across runs" in " ".join(shown.split())
    assert "all may be related" not in (results / "merged.html").read_text()
    about = json.loads((results / "merged.metadata.json").read_text())["metrics"]["rounds"]
    assert (about["verdict"], about["caveat"]) == ("equivalent", "not assessable across runs")


def test_several_directories_bring_their_hardware_metrics(results: Path, tmp_path: Path) -> None:
    text = CAMPAIGN.replace("name: demo", "name: more").replace("PAPI_BR_MSP", "PAPI_L1_DCM")
    other = make_results(tmp_path, text, "more").runs
    done = measure(results, tmp_path / "more", "--out", tmp_path / "m.parquet")
    assert done.exit_code == 0, done.output
    table = pd.read_parquet(tmp_path / "m.parquet")
    assert {"PAPI_BR_MSP", "PAPI_L1_DCM", "rounds", "calls"} <= set(table.columns)
    source = table.attrs["metrics"]["PAPI_L1_DCM"]["run"]
    assert source.startswith("more:")
    totals = {
        f"more:{run.spec.variant}/{run.spec.replicate}": run.trace.columns(("PAPI_L1_DCM",)).sum() for run in other
    }
    assert table["PAPI_L1_DCM"].sum() == totals[source]


def test_directories_of_one_last_name_keep_their_verdicts_and_columns(results: Path, tmp_path: Path) -> None:
    """The verdict on the variant of one directory stood beside the metric of the other, and a column was lost."""
    for folder, metric, verdict in (("x", "steps", "perturbed"), ("y", "walks", "equivalent")):
        (tmp_path / folder).mkdir()
        text = CAMPAIGN.replace("rounds", metric).replace("{light: [steps], other: [calls]}", "{v: [steps]}")
        text = text.replace("{light: [walks], other: [calls]}", "{v: [walks]}")
        make_results(tmp_path / folder, text, "s")
        verdicts = {"schema": 2, "variants": {"v": {"verdict": verdict}}}
        (tmp_path / folder / "s/summary.json").write_text(json.dumps(verdicts))
    done = measure(results, tmp_path / "x/s", tmp_path / "y/s", "--out", tmp_path / "m.csv")
    assert done.exit_code == 0, done.output
    about = json.loads((tmp_path / "m.metadata.json").read_text())["metrics"]
    told = {metric: (about[metric]["run"][:-1], about[metric]["verdict"]) for metric in ("steps", "walks")}
    assert told == {"steps": ("x/s:v/", "perturbed"), "walks": ("y/s:v/", "equivalent")}
    columns = list(pd.read_csv(tmp_path / "m.csv").columns)
    assert {f"records:{about[metric]['run']}" for metric in ("steps", "walks")} <= set(columns)
    twice = measure(results, tmp_path / "x/s", tmp_path / "x/../x/s")
    assert twice.exit_code == 2
    assert "/x/../x/s twice, expected directories of different results" in twice.output.replace("\n", "")


def other_campaign(folder: Path, program: str, name: str = "demo.c") -> Path:
    """Results of ``program`` with a metric that the other campaigns of this module lack."""
    folder.mkdir()
    (folder / name).write_text(program)
    text = CAMPAIGN.replace("demo.c", name).replace("rounds", "more").replace("other: [calls]", "")
    make_results(folder, text)
    return folder / "out"


def test_runs_of_different_programs_are_refused(results: Path, tmp_path: Path) -> None:
    """Their counts were put on the records of the first program without a word."""
    other = other_campaign(tmp_path / "p", PROGRAM.replace("9", "8"), "lookup.c")
    done = measure(results, other)
    assert done.exit_code == 1
    assert f"{results} measures demo.c, and {other} lookup.c: expected the same program on the same" in done.output
    with pytest.raises(MergeError, match=r"measures demo\.c, and .* lookup\.c"):
        measure_library.merge([results, other])


def test_runs_of_two_versions_of_a_program_are_refused(results: Path, tmp_path: Path) -> None:
    other = other_campaign(tmp_path / "p", PROGRAM.replace("i < 9", "i < 8"))
    done = measure(results, other)
    assert done.exit_code == 1
    assert f"{results} and {other} measure two versions of demo.c: its sources, flags" in done.output


@pytest.mark.parametrize("name", ["demo.c", "copy.c"])
def test_one_program_in_two_folders_is_merged(tmp_path: Path, name: str) -> None:
    """Comments, and paths of sources as `assert` has them, make no other program; nor does another file name."""
    program = "#include <assert.h>\nint one = 1;\n" + PROGRAM.replace("return", "assert(one); return")
    first = other_campaign(tmp_path / "p", program if name == "demo.c" else PROGRAM)
    (tmp_path / "q").mkdir()
    (tmp_path / "q" / name).write_text((program + "// A copy.\n") if name == "demo.c" else PROGRAM)
    text = CAMPAIGN.replace("variants: {light: [rounds], other: [calls]}", "variants: {other: [calls]}")
    make_results(tmp_path / "q", text.replace("demo.c", name))
    merged = measure_library.merge([first, tmp_path / "q/out"])
    assert {"more", "calls"} <= set(merged.columns)
    assert not any("two versions" in warning for warning in merged.attrs["warnings"])


def test_where_it_is_not_known_whether_two_programs_are_one_that_is_said_first(results: Path, tmp_path: Path) -> None:
    """As for plans of earlier versions, which have no digest of the program."""
    other = other_campaign(tmp_path / "p", PROGRAM.replace("i < 9", "i < 8"))
    plan = json.loads((other / "plan.json").read_text())
    del plan["program_digest"]
    (other / "plan.json").write_text(json.dumps(plan))
    done = measure(results, other, "--out", tmp_path / "m.csv")
    assert done.exit_code == 0, done.output
    sentence = f"{results} and {other} may measure two versions of demo.c: the programs without counters were built in"
    assert json.loads((tmp_path / "m.metadata.json").read_text())["warnings"][0].startswith(sentence)
    assert "- " + sentence[:30] in done.output
    page = (tmp_path / "m.html").read_text()
    assert page.index("may measure two versions") < page.index("The metrics over time")


@pytest.mark.parametrize(
    ("directories", "expected"),
    [
        (["/r/a"], ["a"]),
        (["/r/a", "/r/b", "/q/c"], ["a", "b", "c"]),
        (["/r/x/s", "/r/y/s", "/r/t"], ["x/s", "y/s", "t"]),
        (["/s", "/r/s", "/q/r/s"], ["/s", "/r/s", "q/r/s"]),
    ],
)
def test_the_label_of_a_directory_is_the_shortest_end_that_no_other_has(
    directories: list[str], expected: list[str]
) -> None:
    assert labels([Path(one) for one in directories]) == tuple(expected)


def test_a_directory_of_baselines_alone_brings_its_hardware_metrics(results: Path, tmp_path: Path) -> None:
    """As `measure partition` leaves them where there are more sets of hardware metrics than groups."""
    lines = CAMPAIGN.replace("PAPI_BR_MSP", "PAPI_L1_DCM").splitlines()
    kept = [line for line in lines if not line.startswith(("software_metrics", "  ", "variants"))]
    make_results(tmp_path, "\n".join(kept), "bare")
    for directories in ((results, tmp_path / "bare"), (tmp_path / "bare", results)):
        done = measure(*directories, "--out", tmp_path / "both.parquet")
        assert done.exit_code == 0, done.output
        metrics = set(pd.read_parquet(tmp_path / "both.parquet").columns)
        assert {"PAPI_BR_MSP", "PAPI_L1_DCM", "rounds", "calls"} <= metrics
    refused = measure(tmp_path / "bare")
    assert refused.exit_code == 1
    assert "its campaign has none: name some under `software_metrics:`" in refused.output


def test_another_baseline_and_progress(results: Path) -> None:
    done = measure(results, "--baseline", 1, "--align", "progress", "--format", "csv", "--channel", "PAPI_LD_INS")
    assert done.exit_code == 0, done.output
    about = json.loads((results / "merged.metadata.json").read_text())
    assert about["baseline"] == "baseline/1"
    assert about["metrics"]["calls"]["cost"] is None
    assert about["metrics"]["calls"]["align"] == "progress"
    assert pd.read_csv(results / "merged.csv")["calls"].sum() == about["metrics"]["calls"]["total"]
    missing = measure(results, "--baseline", 5)
    assert missing.exit_code == 2
    assert "there is no baseline 5: expected one of 0, 1" in missing.output


def test_damaged_traces_are_left_out_and_named(results: Path) -> None:
    plan = json.loads((results / "plan.json").read_text())
    groups = {run["key"]: run["spec"]["variant"] for run in plan["runs"]}
    light = next(key for key, group in groups.items() if group == "light")
    trace = results / "traces" / f"{light}.parquet"
    trace.write_bytes(trace.read_bytes()[:-50])
    done = measure(results)
    assert done.exit_code == 0, done.output
    words = " ".join(done.output.split())
    assert "is damaged" in words
    assert "1 of 6 runs are missing" in words
    for key, group in groups.items():
        if group == "baseline":
            (results / "traces" / f"{key}.parquet").unlink()
    done = measure(results)
    assert done.exit_code == 1
    assert "has no baseline that can be read" in done.output


def test_directories_without_results_are_refused(results: Path, tmp_path: Path) -> None:
    for directory in (tmp_path / "none", tmp_path):
        done = measure(directory)
        assert done.exit_code == 2
        assert "has no results of a campaign" in done.output
    assert not (tmp_path / "none").exists()
    done = measure(results, "--out", tmp_path / "merged.xlsx")
    assert done.exit_code == 2
    assert "got the ending '.xlsx', expected one of .parquet, .csv, .json" in done.output
    (results / "plan.json").write_text("{}")
    done = measure(results)
    assert done.exit_code == 2
    assert "is damaged" in done.output


def test_a_place_that_cannot_be_written_is_found_before_the_work(results: Path, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    for directory in (results, tmp_path / "no results"):  # nothing is read before
        done = measure(directory, "--out", gone / "m.parquet")
        assert done.exit_code == 2
        assert f"{gone / 'm.parquet'}: no such directory: {gone}; make it first" in done.output
    assert not gone.exists()
    done = measure(results, "--out", results)
    assert done.exit_code == 2
    assert f"{results}: is a directory, expected the name of a file" in done.output
    before = sorted(results.iterdir())
    for place in ("/proc/m.parquet", "/proc/self/m.csv"):  # not even root writes there
        done = measure(results, "--out", place)
        assert isinstance(done.exception, SystemExit)
        assert done.exit_code == 1
        assert f"measure: {place} cannot be written: " in done.output
    assert sorted(results.iterdir()) == before


def test_a_file_system_that_becomes_read_only_is_told(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a file system refuses even the removal of a file that is not there."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(pd.DataFrame, "to_parquet", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    done = measure(results)
    assert isinstance(done.exception, SystemExit)
    assert done.exit_code == 1
    assert "merged.parquet cannot be written: Read-only file system" in done.output


def test_metrics_that_counted_nothing_are_warned_of(tmp_path: Path) -> None:
    make_results(tmp_path, CAMPAIGN.replace("rounds", "silent"))
    done = measure(tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert "silent counted no event: nothing can be said about it" in " ".join(done.output.split())
