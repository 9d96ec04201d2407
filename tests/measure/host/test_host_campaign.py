"""Campaigns on this machine's own processor, from the file to the report, and what they refuse."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

import measure
from instrumenter.compiler.toolchain import HOST_TARGET
from instrumenter.projects.project import Project, ProjectRecipe
from measure.cli import main
from measure.errors import CampaignError
from measure.host.metrics import METRICS, why_not
from measure.runs.campaign_file import load_campaign
from measure.runs.plan_file import load_plan

PROGRAM = r"""
#include <stdlib.h>
#include <string.h>
volatile unsigned long sink;
void work(long n) { for (long i = 0; i < n; i++) sink += i; }
int main(void)
{
    for (int round = 0; round < 60; round++) {
        size_t bytes = 300000 + 300000 * (round % 4);
        char *block = malloc(bytes);
        memset(block, round, bytes);
        sink += block[round];
        work(400000 + 200000 * (round % 3));
        free(block);
    }
    return 0;
}
"""
CAMPAIGN = """\
name: real
program: {source: real.c, flags: [-O1]}
machine: {host: perf}
sampling: {every: 200 us}
hardware_metrics: [page-faults, tsc]
software_metrics: {calls: {event: entry, function: work}}
variants: {light: [calls]}
baselines: 6
replicates: 6
"""
needs_perf = pytest.mark.skipif(bool(why_not("page-faults")), reason=f"here {why_not('page-faults')}")


def campaign_file(folder: Path, text: str = CAMPAIGN) -> Path:
    (folder / "real.c").write_text(PROGRAM)
    (folder / "real.yaml").write_text(text)
    return folder / "real.yaml"


@pytest.mark.slow
@needs_perf
def test_from_file_to_report(tmp_path: Path) -> None:
    path = campaign_file(tmp_path)
    out = tmp_path / "out"
    done = CliRunner().invoke(main, ["run", str(path), "--out", str(out)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "time" in done.output
    summary = json.loads((out / "summary.json").read_text())
    assert summary["provenance"]["machine"].startswith("the host: ")
    assert summary["variants"]["light"]["verdict"]
    assert "(+" in done.output or "(-" in done.output or "unknown" in done.output
    assert load_plan(out).campaign.host is not None
    again = CliRunner().invoke(main, ["run", str(path), "--out", str(out)], catch_exceptions=False)
    assert "18 from before" in json.loads((out / "summary.json").read_text())["provenance"]["runs"], again.output
    trace = measure.load(out).trace("light", 0)
    assert trace.attrs["units"]["begin_cycles"] == "nanoseconds"
    assert trace.index.name == "seconds"
    assert 0.001 < trace.index[-1] < 60
    for command in (["explain", str(out)], ["merge", str(out), "--out", str(tmp_path / "m.parquet")]):
        result = CliRunner().invoke(main, command)
        assert (result.exit_code, command[0]) in ((2, "explain"), (0, "merge")), result.output
    compared = CliRunner().invoke(main, ["compare", str(out), str(out), "--out", str(tmp_path / "both")])
    assert "agree on 1 of 1 variants" in " ".join(compared.output.split())


@pytest.mark.slow
@needs_perf
def test_a_program_that_starts_threads_and_forks_is_the_first_finding(tmp_path: Path) -> None:
    path = campaign_file(tmp_path, CAMPAIGN.replace(": 6", ": 3") + "controls: false\n")
    starting = "int main(void)\n{\n    if (fork() == 0) { work(1000); exit(0); }\n"
    thread = "void *thread(void *none) { work(300000); return none; }\n"
    once = "if (round == 30) { pthread_t one; pthread_create(&one, 0, thread, 0); pthread_join(one, 0); }\n"
    source = "#include <pthread.h>\n#include <unistd.h>\n" + PROGRAM.replace("int main(void)\n{\n", thread + starting)
    source = source.replace("        size_t bytes", once + "        size_t bytes")
    (tmp_path / "real.c").write_text(source)
    out = tmp_path / "out"
    done = CliRunner().invoke(main, ["run", str(path), "--out", str(out)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    told = "Other threads than the main one ran in 6 of 6 runs (for up to "
    summary = json.loads((out / "summary.json").read_text())
    assert summary["findings"][0].startswith(told)
    assert summary["findings"][1].startswith("The program started processes in 6 of 6 runs (at most 1 in a run;")
    assert summary["invalidating"] == summary["findings"][:2]
    assert f"!! {told}" in " ".join(done.output.split())
    page = (out / "report.html").read_text()
    assert page.index("Read this first: figures do not hold") < page.index(told) < page.index("What to do</h2>")
    assert page.count(told) == 1


def project_file(folder: Path, compiler: str = "$(CC)") -> Path:
    """A campaign of the same program as a project with a makefile of its own."""
    (folder / "project").mkdir()
    (folder / "project" / "real.c").write_text(PROGRAM)
    rules = f"app: real.o\n\t{compiler} -o app real.o\nreal.o: real.c\n\t{compiler} -O1 -c real.c\n"
    (folder / "project" / "Makefile").write_text(rules)
    program = "{directory: project, build: make, binary: app}"
    text = CAMPAIGN.replace("{source: real.c, flags: [-O1]}", program).replace(": 6", ": 3") + "controls: false\n"
    (folder / "real.yaml").write_text(text)
    return folder / "real.yaml"


@pytest.mark.slow
@needs_perf
def test_a_project_with_its_own_build(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = CliRunner().invoke(main, ["run", str(project_file(tmp_path)), "--out", str(out)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    counted = [measure.load(out).trace("light", replicate)["calls"].sum() for replicate in range(3)]
    assert all(55 <= calls <= 60 for calls in counted)  # 60 calls; the first and the last record are no whole intervals
    build = ProjectRecipe.of(Project(tmp_path / "project", "make", "app"), None, target=HOST_TARGET).build({})
    assert subprocess.run([build.elf_path], check=False).returncode == 0  # a program of this machine


@pytest.mark.skipif(not shutil.which("gcc"), reason="there is no other compiler on this machine")
def test_a_project_that_another_compiler_builds_is_refused(tmp_path: Path) -> None:
    """What it makes is for the right processor, and counts nothing."""
    done = CliRunner().invoke(main, ["run", str(project_file(tmp_path, "gcc")), "--out", str(tmp_path / "out")])
    assert done.exit_code == 2, done.output
    said = " ".join(done.output.split())
    assert "real.yaml:2: 'app' is linked by another compiler: the build did not use $CC" in said


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("every: 200 us", "every: 4000 cycles", 4, "the host samples by processor time"),
        ("every: 200 us", "every: 1 us", 4, "expected at least 50 us"),
        ("every: 200 us", "mode: ideal, every: 1 ms", 4, "the program itself reads the counters"),
        pytest.param("{host: perf}", "{host: perf, cpu: 99999}", 3, "expected one that may be used", marks=needs_perf),
        ("{host: perf}", "{host: papi}", 3, "perf"),
        ("{host: perf}", "{hosts: perf}", 3, "hosts"),
        ("function: work}", "function: work, method: probe}", 6, "a probe watches an emulated program"),
        ("replicates: 6", "ground_truth: true", 9, "needs runs that no processor can make"),
        ("replicates: 6", "explain: true", 9, "needs runs that no processor can make"),
        ("replicates: 6", "variance_runs: 2", 9, "cannot be drawn one by one"),
        ("replicates: 6", "noise: {cache_state: false}", 9, "leave the key out"),
        ("replicates: 6", "noise: {interrupts: 5000}", 9, "has interrupts of its own"),
    ],
)
def test_what_the_host_cannot_do_is_told_with_its_line(
    tmp_path: Path, old: str, new: str, line: int, message: str
) -> None:
    path = campaign_file(tmp_path, CAMPAIGN.replace(old, new))
    done = CliRunner().invoke(main, ["run", str(path), "--out", str(tmp_path / "out")])
    assert done.exit_code == 2, done.output
    assert f"real.yaml:{line}: " in done.output
    assert message in " ".join(done.output.split())
    assert not (tmp_path / "out").exists()


def test_time_has_no_meaning_on_an_emulated_machine(tmp_path: Path) -> None:
    path = campaign_file(tmp_path, CAMPAIGN.replace("{host: perf}", "real.c"))
    with pytest.raises(CampaignError, match=r"real\.yaml:4: sampling\.every: got '200 us', expected cycles"):
        load_campaign(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--workers", "2"], "disturb one another"),
        (["--scheduler", "local:2"], "made on the host"),
        (["--counts"], "--counts works on an emulated machine only"),
        (["--dry-run"], "--dry-run works on an emulated machine only"),
    ],
)
def test_options_that_need_the_emulator(tmp_path: Path, options: list[str], message: str) -> None:
    done = CliRunner().invoke(main, ["run", str(campaign_file(tmp_path)), *options])
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())


def test_a_partition_needs_the_emulator(tmp_path: Path) -> None:
    text = CAMPAIGN.replace("function: work}", "function: work}, mains: {event: entry, function: main}")
    done = CliRunner().invoke(main, ["partition", str(campaign_file(tmp_path, text)), "--out", str(tmp_path / "out")])
    assert done.exit_code == 2
    assert "measure partition works on an emulated machine only" in " ".join(done.output.split())


def test_missing_metrics_are_told_before_anything_is_built(tmp_path: Path) -> None:
    path = campaign_file(tmp_path, CAMPAIGN.replace("[page-faults, tsc]", "[page-faults, PAPI_FP_INS, PAPI_TOT_INX]"))
    for command in (["run", str(path), "--out", str(tmp_path / "out")], ["metrics", str(path)]):
        done = CliRunner().invoke(main, command)
        assert done.exit_code == 2
        text = " ".join(done.output.split())
        assert "real.yaml:5: PAPI_FP_INS: it is no metric of a host" in text
        assert "real.yaml:5: PAPI_TOT_INX: it is no metric of a host" in text
    assert not (tmp_path / "out").exists()


def test_metrics_of_this_host_are_listed() -> None:
    done = CliRunner().invoke(main, ["metrics", "host"], catch_exceptions=False)
    assert done.exit_code == 0
    for name in METRICS:
        assert name in done.output
