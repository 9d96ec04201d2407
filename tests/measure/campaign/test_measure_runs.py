"""The measure command from campaign to report on the fake target, and on one small real program."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from measure.analysis.analysis import SUMMARY_JSON_SCHEMA
from measure.cli import main
from measure.console.command_words import shown_path
from tests.measure.demo_program import source_file
from tests.measure.fake_runs import fake_runs_in_this_process

ROOT = Path(__file__).parents[3]

PROGRAM = """\
#include <stdio.h>
#include <stdlib.h>
static unsigned state = 1, table[4096];
unsigned next(void) { state = state * 1664525u + 1013904223u; return state >> 8; }
void work(int n) { for (int i = 0; i < n; i++) table[next() % 4096] += i; }
int main(int argc, char **argv) {
    if (argc > 1 && atoi(argv[1]) == 7) { fputs("seven is bad\\n", stderr); return 3; }
    for (int round = 0; round < 60; round++) work(500 + 400 * (round % 5));
    printf("%u\\n", table[5]);
    return 0;
}
"""
CAMPAIGN = """\
name: demo
program: {{source: demo.c, args: [{argument}]}}
machine: {machine}
sampling: {{every: 4000 cycles}}
hardware_metrics: [PAPI_TOT_INS, PAPI_LD_INS, PAPI_BR_MSP]
software_metrics:
  rounds: {{event: entry, function: work}}
  perturbing: {{event: call, callee: next}}
variants: {{light: [rounds], heavy: [rounds, perturbing]}}
baselines: {baselines}
replicates: {replicates}
controls: false
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "demo.c").symlink_to(source_file(PROGRAM))
    write_campaign(tmp_path)
    return tmp_path


def write_campaign(
    folder: Path, argument: str = "1", baselines: int = 4, replicates: int = 2, extra: str = "outer: false\n"
) -> None:
    """Without alignments, unless ``extra`` says otherwise, and with few runs: enough to be stored, lost or compared."""
    machine = ROOT / "configs" / "machines" / "desktop.yaml"
    text = CAMPAIGN.format(argument=argument, machine=machine, baselines=baselines, replicates=replicates)
    (folder / "c.yaml").write_text(text + extra)


def measure(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def run_fake(folder: Path, *options: str) -> Result:
    with fake_runs_in_this_process():
        return measure("run", folder / "c.yaml", "--out", folder / "out", "--target", "fake", *options)


@pytest.mark.slow
def test_variants_with_the_same_metrics_share_their_runs(folder: Path) -> None:
    """Each got some of them twice or more and the others not at all, whichever process was faster."""
    write_campaign(folder, baselines=8, replicates=8)
    text = (folder / "c.yaml").read_text()
    (folder / "c.yaml").write_text(
        text.replace("variants: {light: [rounds], ", "variants: {light: [rounds], same: [rounds], ")
    )
    for workers in ("2", "1"):
        out = folder / f"out{workers}"
        result = measure("run", folder / "c.yaml", "--out", out, "--target", "fake", "--workers", workers)
        assert result.exit_code == 0, result.output
        summary = json.loads((out / "summary.json").read_text())
        assert summary["runs"] == {"done": 32, "reused": 0, "failed": 0}
        variants = summary["variants"]
        assert {name: one["inner"]["n_runs"] for name, one in variants.items()} == dict.fromkeys(variants, 8)
        assert variants["light"]["inner"] == variants["same"]["inner"]
        assert len(list((out / "traces").glob("*.parquet"))) == 24
    summaries = [json.loads((folder / f"out{n}/summary.json").read_text())["variants"] for n in (1, 2)]
    assert summaries[0] == summaries[1]


@pytest.mark.slow
def test_fake_campaign_finds_the_variant_that_perturbs(folder: Path) -> None:
    write_campaign(folder, baselines=20, replicates=4, extra="")
    result = run_fake(folder)
    assert result.exit_code == 0, result.output
    summary = json.loads((folder / "out" / "summary.json").read_text())
    jsonschema.validate(summary, SUMMARY_JSON_SCHEMA)
    assert summary["format"] == "perturbation-run-2"
    assert summary["runs"] == {"done": 28, "reused": 0, "failed": 0}
    assert summary["variants"]["heavy"]["inner"]["verdict"] == "perturbed"
    assert summary["variants"]["light"]["inner"]["verdict"] != "perturbed"
    worst = summary["variants"]["heavy"]["inner"]["pairs"][0]
    assert "PAPI_TOT_INS" in (worst["a"], worst["b"])
    page = (folder / "out" / "report.html").read_text()
    assert "<h1>demo</h1>" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert page.count("data:image/svg+xml") == 5
    assert "perturbed" in result.output
    assert f"`measureexplain{shown_path(str(folder / 'out'))}`sayswhy" in "".join(result.output.split())
    traces = list((folder / "out" / "traces").glob("*.parquet"))
    assert len(traces) == 28
    columns = pq.read_table(traces[0]).column_names
    assert columns[:5] == [
        "begin_cycles",
        "end_cycles",
        "begin_instructions",
        "end_instructions",
        "PAPI_TOT_INS",
    ]


@pytest.mark.filterwarnings("error::UserWarning")  # of drawings without anything to draw
def test_a_campaign_without_software_metrics_says_so(folder: Path) -> None:
    none = ("--set", "software_metrics={}", "--set", "variants={}", "--set", "baselines=4")
    result = run_fake(folder, *none)
    assert result.exit_code == 0, result.output
    words = " ".join(result.output.split())
    assert "4 runs: 4 baselines, compared with nothing: the campaign has no software metrics." in words
    assert "demo: 4 baselines; about" in words
    assert "name some under `software_metrics:` in" in words
    assert f"`measure run --counts {shown_path(str(folder / 'c.yaml'))}` then" in words  # which has metrics then
    assert json.loads((folder / "out" / "summary.json").read_text())["variants"] == {}
    assert "Nothing was compared" in (folder / "out" / "report.html").read_text()


@pytest.mark.slow
def test_second_run_makes_nothing_and_a_damaged_trace_again(folder: Path) -> None:
    assert run_fake(folder).exit_code == 0
    first = (folder / "out" / "summary.json").read_text()
    damaged = sorted((folder / "out" / "traces").glob("*.parquet"))[3]
    damaged.write_bytes(damaged.read_bytes()[:-100])
    result = run_fake(folder)
    assert result.exit_code == 0
    assert "7 runs are there already" in result.output
    assert "is damaged" in result.output
    again = json.loads((folder / "out" / "summary.json").read_text())
    assert again["variants"] == json.loads(first)["variants"]


@pytest.mark.slow
def test_report_of_a_directory_needs_no_sources(folder: Path) -> None:
    assert run_fake(folder).exit_code == 0
    first = json.loads((folder / "out" / "summary.json").read_text())
    (folder / "out" / "report.html").unlink()
    (folder / "demo.c").unlink()
    (folder / "c.yaml").unlink()
    traces = (folder / "out" / "traces").glob("*.parquet")
    next(one for one in traces if "perturbing" in pq.read_schema(one).names).unlink()
    result = measure("report", folder / "out")
    assert result.exit_code == 0, result.output
    assert "1 of 8 runs are missing: `measure run` makes them." in result.output
    assert "demo: 4 baselines, 1 to 2 runs of each variant; about" in " ".join(result.output.split())
    assert (folder / "out" / "report.html").exists()
    again = json.loads((folder / "out" / "summary.json").read_text())
    assert again["runs"] == {"done": 7, "reused": 7, "failed": 0}
    assert again["findings"][0] == again["invalidating"][0] == "1 of 8 runs are missing: `measure run` makes them."
    assert again["variants"].keys() == first["variants"].keys()


def test_report_of_what_has_no_results(folder: Path) -> None:
    (folder / "empty").mkdir()
    result = measure("report", folder / "empty")
    assert result.exit_code == 2
    assert "has no results of a campaign (plan.json: No such file or directory)" in result.output
    assert (
        "none has no results of a campaign: there is no such file or directory"
        in measure("explain", folder / "none").output
    )
    (folder / "empty" / "plan.json").write_text('{"format": "perturbation-plan-3"}')
    result = measure("report", folder / "empty")
    assert result.exit_code == 2
    assert "plan.json is damaged (KeyError); delete it and give the campaign file instead" in result.output
    result = measure("report", folder / "c.yaml", "--out", folder / "none")
    assert result.exit_code == 2
    assert "none: no such directory; `measure run" in result.output
    assert not (folder / "none").exists()


def test_without_runs_to_compare_a_report_is_no_look(folder: Path) -> None:
    # Such a report counted as a look, so that the report on the runs made again told twice the chance of a false alarm.
    assert run_fake(folder).exit_code == 0
    shutil.rmtree(folder / "out" / "traces")
    result = measure("report", folder / "out")
    assert result.exit_code == 1
    assert "0 baseline runs succeeded, expected at least 2" in " ".join(result.output.split())
    assert "look 1 of 1" in " ".join(run_fake(folder).output.split())


def children(pid: int) -> list[int]:
    """Processes that ``pid`` started: workers and multiprocessing's own."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.slow
def test_killed_half_way_it_goes_on(folder: Path) -> None:
    write_campaign(folder, argument="sleep", baselines=12)
    command = [
        sys.executable, "-c", "from measure.cli import main; main()", "run", str(folder / "c.yaml"),
        "--out", str(folder / "out"), "--target", "fake", "--workers", "2",
    ]  # fmt: skip
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    traces = folder / "out" / "traces"
    deadline = time.monotonic() + 60
    while len(list(traces.glob("*.parquet"))) < 3:
        assert time.monotonic() < deadline, "no run was stored"
        time.sleep(0.05)
    workers = children(process.pid)
    assert workers
    process.kill()
    process.wait()
    while any(Path(f"/proc/{worker}").exists() for worker in workers):
        assert time.monotonic() < deadline, "workers outlive their parent"
        time.sleep(0.05)
    kept = len(list(traces.glob("*.parquet")))
    assert 3 <= kept < 16
    early = measure("report", folder / "out")
    assert early.exit_code == 0, early.output
    assert "This is look" not in early.output
    result = run_fake(folder)
    assert result.exit_code == 0, result.output
    assert f"{kept} runs are there already" in result.output
    words = " ".join(result.output.split())
    assert f"look 2, 1 planned ({kept} of 12 + 2, then 12 + 2 runs)" in words  # the report was the first
    assert "This is look 2 at a campaign that planned 1" in words
    assert "This is look 2 at a campaign" in measure("report", folder / "out").output


@pytest.mark.slow
def test_interrupt_keeps_runs_and_says_so(folder: Path) -> None:
    write_campaign(folder, argument="sleep", baselines=12)
    command = [
        sys.executable, "-c", "from measure.cli import main; main()", "run", str(folder / "c.yaml"),
        "--out", str(folder / "out"), "--target", "fake", "--workers", "2",
    ]  # fmt: skip
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background job ignores it
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while len(list((folder / "out" / "traces").glob("*.parquet"))) < 2:
        assert time.monotonic() < deadline, "no run was stored"
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted; finished runs are kept" in stderr
    assert not list((folder / "out" / "traces").glob(".*.part"))


@pytest.mark.slow
def test_failing_runs_are_reported_with_their_reason(folder: Path) -> None:
    write_campaign(folder, argument="fail")
    result = run_fake(folder)
    assert result.exit_code == 1
    assert "the program ended with exit status 3; its last words: boom" in result.output


@pytest.mark.slow
def test_an_interval_that_is_too_long_ends_the_campaign_with_its_place(folder: Path) -> None:
    write_campaign(folder, argument="short")
    result = run_fake(folder)
    assert result.exit_code == 2
    assert f"{folder}/c.yaml:4: the run has only 5 records of 4000 cycles" in result.output.replace("\n", "")
    assert not (folder / "out" / "report.html").exists()


@pytest.mark.slow
def test_two_processes_do_not_share_a_directory(folder: Path) -> None:
    from measure.runs.store import Store

    with Store(folder / "out"):
        result = run_fake(folder)
    assert result.exit_code == 1
    assert "another process is working in" in result.output


@pytest.mark.slow
def test_full_disk_leaves_nothing_half_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import measure.runs.store

    real = measure.runs.store._write_parquet
    written = 0

    def fills_up(path: Path, run: object) -> None:
        nonlocal written
        written += 1
        if written > 4:
            path.write_bytes(b"half a trace")
            raise OSError(28, "No space left on device")
        real(path, run)  # type: ignore[arg-type]

    monkeypatch.setattr(measure.runs.store, "_write_parquet", fills_up)
    result = run_fake(folder)
    assert result.exit_code == 1
    output = " ".join(result.output.split())
    assert "cannot be written: No space left on device; make room" in output
    assert "start again: the runs that are finished stay where they are" in output
    traces = folder / "out" / "traces"
    assert len(list(traces.glob("*.parquet"))) == 4
    assert not list(traces.glob(".*"))


def test_bad_input_has_exit_status_2_and_its_line(folder: Path) -> None:
    path = folder / "c.yaml"
    good = path.read_text()
    for old, new, message in (
        ("PAPI_LD_INS", "PAPI_LD_INZ", "c.yaml:5: "),
        ("function: work", "function: wurk", "c.yaml:7: metric 'rounds': no function 'wurk'"),
        ("demo.c", "none.c", "c.yaml:2: no such file"),
    ):
        path.write_text(good.replace(old, new))
        result = run_fake(folder)
        assert result.exit_code == 2, result.output
        assert message in result.output
        if "LD_INZ" in new:
            assert "the nearest that it can is PAPI_LD_INS" in result.output


def test_schemas_and_metrics_are_printed() -> None:
    for kind in ("campaign", "machine", "summary"):
        assert json.loads(measure("schema", kind).output)["type"] == "object"


def test_metrics_of_a_machine_are_in_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    lines = measure("metrics", ROOT / "configs" / "machines" / "desktop.yaml").output.splitlines()
    place = lines[0].index("cycles")
    assert lines[0].split() == ["PAPI_TOT_CYC", "cycles", "Total", "cycles"]
    assert all(line[place - 2 : place] == "  " and line[place] != " " for line in lines)
    longest = max((line.split()[0] for line in lines), key=len)
    assert f"{longest}  instructions" in "\n".join(lines) or f"{longest}  cycles" in "\n".join(lines)


def test_metrics_of_a_campaign_are_marked_and_unknown_ones_told(folder: Path) -> None:
    path = folder / "c.yaml"
    result = measure("metrics", path)
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert [line.split()[1] for line in lines[1:] if line.startswith("* ")] == [
        "PAPI_TOT_INS", "PAPI_LD_INS", "PAPI_BR_MSP",
    ]  # fmt: skip
    assert lines[-2:] == ["  rounds      entry work", "  perturbing  call next"]
    path.write_text(path.read_text().replace("LD_INS, PAPI_BR_MSP", "LD_INZ, MISSES"))
    result = measure("metrics", path)
    assert result.exit_code == 2
    assert "* PAPI_TOT_INS " in result.output
    assert "c.yaml:5: desktop.yaml cannot count 'PAPI_LD_INZ'; did you mean 'PAPI_LD_INS'?" in result.output
    assert "c.yaml:5: desktop.yaml cannot count 'MISSES'" in result.output
    sampling = measure("metrics", ROOT / "configs/campaigns/sampling.yaml")
    assert sampling.exit_code == 0
    assert "* PAPI_TOT_CYC" in sampling.output
    (folder / "list.yaml").write_text("- a\n")
    assert measure("metrics", folder / "list.yaml").exit_code == 2
    assert measure("metrics", folder / "none.yaml").exit_code == 2


@pytest.mark.parametrize(
    ("place", "status", "message"),
    [
        ("c.yaml", 2, "c.yaml is a file, expected a directory for results"),
        ("c.yaml/below", 2, "c.yaml is a file, expected a directory for results"),
        ("/proc/out", 1, "/proc/out cannot be written: "),
    ],
)
def test_a_place_for_results_is_looked_at_before_the_work(
    folder: Path, place: str, status: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(*_: object) -> None:
        raise AssertionError("programs are built before the place for results was looked at")

    monkeypatch.setattr("measure.campaign.run_command.make_plan", work)
    (folder / "a.csv").write_text("a,b\n1,2\n")
    for arguments in (
        ["run", folder / "c.yaml"],
        ["perturb", "--baseline", folder / "a.csv", "--run", folder / "none.csv"],
    ):
        result = measure(*arguments, "--out", folder / place)
        assert isinstance(result.exception, SystemExit), result.output
        assert result.exit_code == status
        assert message in result.output
    assert not (folder / "out").exists()


def test_programs_are_listed(tmp_path: Path) -> None:
    listed = measure("programs", ROOT / "configs" / "programs.yaml").output
    assert "chess       Chess engine; alpha-beta search" in listed
    assert "tiny (9 M instructions)" in listed
    assert "lupa 2.8" in listed
    missing = measure("programs", tmp_path / "none.yaml")
    assert missing.exit_code == 2
    assert (
        "none.yaml: no such file; expected a catalogue of programs, which a checkout has as configs/pro"
        in missing.output
    )


def test_shipped_campaigns_are_valid() -> None:
    from measure.runs.campaign_file import load_campaign
    from measure.runs.campaign_model import Campaign
    from measure.sampling_check.check import SamplingCheck, load_check

    paths = sorted((ROOT / "configs" / "campaigns").glob("*.yaml"))
    assert paths
    for path in paths:
        if "configurations:" in path.read_text():
            _, document = load_check(path)
            jsonschema.validate(document.data, SamplingCheck.model_json_schema())
        else:
            _, document = load_campaign(path)
            jsonschema.validate(document.data, Campaign.model_json_schema())


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["ideal", "signal"])
def test_a_real_program_end_to_end(folder: Path, mode: str) -> None:
    text = (folder / "c.yaml").read_text().replace("{every:", f"{{mode: {mode}, every:")
    (folder / "c.yaml").write_text(text)
    result = measure("run", folder / "c.yaml", "--out", folder / "out", "--workers", "1")
    assert result.exit_code == 0, result.output
    summary = json.loads((folder / "out" / "summary.json").read_text())
    heavy = summary["variants"]["heavy"]
    assert summary["variants"]["light"]["overhead_percent"]["instructions"] > 0
    assert summary["variants"]["light"]["overhead_percent"]["instructions"] < 1
    assert heavy["overhead_percent"]["instructions"] > 5
    counted = set()
    for path in (folder / "out" / "traces").glob("*.parquet"):
        table = pq.read_table(path)
        if "rounds" in table.column_names:
            counted.add(sum(table.column("rounds").to_pylist()))
    # All 60 calls, less those in the cut intervals at the ends.
    assert counted
    assert all(50 <= count <= 60 for count in counted)


@pytest.mark.slow
def test_a_program_that_fails_or_never_ends(folder: Path) -> None:
    write_campaign(folder, argument="7", baselines=2, replicates=1)
    result = measure("run", folder / "c.yaml", "--out", folder / "out", "--workers", "1")
    assert result.exit_code == 1
    assert "ended with exit status 3; its last words on stderr: seven is bad" in result.output
    write_campaign(folder, baselines=2, replicates=1, extra="limits: {instructions: 50k}\n")
    result = measure("run", folder / "c.yaml", "--out", folder / "out2", "--workers", "1")
    assert result.exit_code == 1
    assert "did not end within 50,000 instructions" in result.output


def test_next_commands_repeat_the_settings(folder: Path) -> None:
    """A campaign that was run with another delta was followed by one with the file's."""
    given = ("--set", "delta=0.01", "--set", "baselines=4", "--set", "replicates=2")
    result = run_fake(folder, *given)
    assert result.exit_code == 0, result.output
    again = measure("report", folder / "out")
    command = f"measure run {shown_path(str(folder / 'c.yaml'))} --set delta=0.01"
    for output in (result.output, again.output):
        assert command.replace(" ", "") in "".join(output.split()), output
