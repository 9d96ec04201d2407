"""`measure run --counts`: events and places of every software metric, from one run without timing."""

from __future__ import annotations

import io
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from instrumenter.building.program_build import build_program
from measure.built_in.machine import built_in_machine
from measure.campaign.event_counts import CountedRun, count_events, print_counts
from measure.cli import main
from measure.errors import CampaignError, RunError
from measure.runs.campaign_file import load_campaign
from tests.measure.demo_program import source_file
from tests.measure.shown_tables import widest_row

ROOT = Path(__file__).parents[3]
PROGRAM = """\
#include <stdio.h>
#include <stdlib.h>
static int total; void *kept;
void work(int n) { for (int i = 0; i < n; i++) total += i; }
void never(int n) { total -= n; }
void wrong(void) { exit(3); }
int main(int argc, char **argv) {
    char line[9];
    while (fgets(line, sizeof line, stdin)) work(atoi(line));
    if (argc > 1) never(atoi(argv[1]));
    if (argc > 2) wrong();
    work(5); work(0); kept = malloc(40);
    return 0;
}
"""
CAMPAIGN = f"""\
name: counted
program: {{source: demo.c, stdin: numbers.txt}}
machine: {ROOT}/configs/machines/desktop.yaml
hardware_metrics: [PAPI_TOT_INS, PAPI_LD_INS]
software_metrics:
  entries: {{event: entry, function: work}}
  sum: {{event: entry, function: work, add: "n"}}
  calls: {{event: call, callee: work}}
  loops: {{event: loop, function: work}}
  nothing: {{event: entry, function: never, add: "n"}}
  heap: {{event: alloc_bytes}}
variants: {{light: [entries], heavy: [entries, sum, calls, loops]}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "demo.c").symlink_to(source_file(PROGRAM))
    (tmp_path / "numbers.txt").write_text("3\n4\n")
    (tmp_path / "c.yaml").write_text(CAMPAIGN)
    return tmp_path


def counted(folder: Path) -> CountedRun:
    return count_events(*load_campaign(folder / "c.yaml"))


def measure(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_counts_and_places_are_exact(folder: Path) -> None:
    found = {one.metric: one for one in counted(folder).metrics}
    assert list(found) == ["entries", "sum", "calls", "loops", "nothing", "heap"]
    assert {name: (one.events, one.total) for name, one in found.items()} == {
        "entries": (4, 4), "sum": (4, 12), "calls": (4, 4), "loops": (12, 12), "nothing": (0, 0),
        "heap": (1, 40),
    }  # fmt: skip
    places = {name: {Path(place).name: n for place, n in one.places.items()} for name, one in found.items()}
    assert places == {
        "entries": {"demo.c:4": 1}, "sum": {"demo.c:4": 1}, "calls": {"demo.c:9": 1, "demo.c:12": 2},
        "loops": {"demo.c:4": 1}, "nothing": {"demo.c:5": 1}, "heap": {"demo.c:12": 1},
    }  # fmt: skip
    assert {name: one.sites for name, one in found.items()} == {
        name: sum(one.places.values()) for name, one in found.items()
    }


def test_what_never_fires_is_said_first_and_all_fits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result = measure("run", "--counts", folder / "c.yaml")
    assert result.exit_code == 0, result.output
    assert widest_row(result.output) <= 80
    told = " ".join(result.output.replace("│", " ").split())
    assert told.startswith("! nothing never fires: 0 events at 1 place (demo.c:5). Its runs would say nothing")
    assert f"or take it out ({folder}/c.yaml:10)." in result.output.replace("\n", "")
    assert "demo.c:12 (2" in told
    assert re.search(r"events in one run of [\d,]+ instructions, with those of all these counters", told)
    assert "- light: 4 events a run" in told
    assert "- heavy: 24 events a run" in told
    assert f"! In no variant, so that no run collects them: nothing, heap ({folder}/c.yaml:12)." in told
    every = measure(
        "run", "--counts", folder / "c.yaml", "--set", "variants={all: [nothing, heap, entries, sum, calls, loops]}"
    )
    assert "In no variant" not in every.output
    one_by_one = measure("run", "--counts", folder / "c.yaml", "--set", "cumulative={orders: 1}")
    assert one_by_one.exit_code == 0, one_by_one.output
    assert "In no variant" not in one_by_one.output
    assert sorted(path.name for path in folder.iterdir()) == ["c.yaml", "demo.c", "numbers.txt"]
    assert measure("run", "--counts", folder / "c.yaml", "--out", folder / "out").exit_code == 2


def test_what_a_counter_may_miss_is_said(folder: Path) -> None:
    campaign, document = load_campaign(folder / "c.yaml")
    found = replace(count_events(campaign, document), warnings=("metric 'heap': allocations are not counted",))
    text = io.StringIO()
    print_counts(found, campaign, document, Console(file=text, width=80))
    assert "! About a counter: metric 'heap': allocations are not counted." in text.getvalue()


def test_the_example_of_the_documents_counts(tmp_path: Path) -> None:
    """Its `add:` names a parameter, which only the function itself knows."""
    text = (ROOT / "docs" / "campaigns.md").read_text()
    example = text[text.index("name: mine\n") :]
    (tmp_path / "c.yaml").write_text(example[: example.index("```")])
    shutil.copy(built_in_machine(), tmp_path)  # as `measure init` does
    (tmp_path / "input.txt").write_text("a bcd\n")
    (tmp_path / "mine.c").write_text(
        "#include <stdio.h>\n#include <string.h>\nstatic char kept[9][9]; static int n;\n"
        "int lookup(const char *word) { for (int i = 0; i < n; i++) if (!strcmp(kept[i], word)) return 1; return 0; }\n"
        "void insert(const char *word, int len) { memcpy(kept[n++], word, len + 1); }\n"
        "int main(int argc, char **argv) {\n"
        '  char word[9]; FILE *file = fopen(argv[1], "r"); if (!file) return 1;\n'
        '  while (fscanf(file, "%8s", word) == 1) if (!lookup(word)) insert(word, strlen(word));\n'
        "  return 0; }\n"
    )
    found = {one.metric: (one.events, one.total) for one in counted(tmp_path).metrics}
    assert found == {"lookups": (2, 2), "probes": (1, 1), "bytes": (2, 4)}


def test_what_cannot_be_counted_is_told(folder: Path) -> None:
    path = folder / "c.yaml"
    path.write_text(CAMPAIGN.replace("stdin: numbers.txt", "args: [1, 2]"))
    with pytest.raises(RunError, match="ended with exit status 3") as failure:
        counted(folder)
    assert (failure.value.program_status, failure.value.at_limit) == (3, False)
    path.write_text(CAMPAIGN.replace("callee: work", "callee: wrk"))
    with pytest.raises(CampaignError, match=r"c\.yaml:8: .*no callee 'wrk'.*did you mean 'work'"):
        counted(folder)
    path.write_text(CAMPAIGN.replace("PAPI_LD_INS]", "PAPI_LD_INZ]"))  # which would be told after hours
    told = measure("run", "--counts", path)
    assert (told.exit_code, "cannot count 'PAPI_LD_INZ'" in " ".join(told.output.split())) == (2, True)
    path.write_text(CAMPAIGN[: CAMPAIGN.index("software_metrics:")])
    with pytest.raises(CampaignError, match="has no software_metrics, so nothing to count"):
        counted(folder)
    path.write_text(CAMPAIGN + "limits: {instructions: 100}\n")
    with pytest.raises(RunError, match="did not end within 100 instructions") as failure:
        counted(folder)
    assert (failure.value.program_status, failure.value.at_limit) == (None, True)


def test_a_second_run_of_a_program_with_threads_is_refused_before_the_runs(folder: Path) -> None:
    # `--counts` showed a table, and then every run of the variant failed.
    (folder / "demo.c").unlink()
    (folder / "demo.c").write_text(PROGRAM.replace("work(5);", "if (!fork()) _exit(0); work(5);").replace(
        "#include <stdio.h>", "#include <stdio.h>\n#include <unistd.h>"
    ))  # fmt: skip
    campaign = folder / "c.yaml"
    campaign.write_text(CAMPAIGN.replace("function: work}\n  sum", "function: work, method: second_run}\n  sum"))
    done = measure("run", "--counts", campaign)
    assert done.exit_code == 2
    told = " ".join(done.output.split())
    assert "c.yaml:6: got method second_run for entries, but the program starts threads or processes" in told
    campaign.write_text(CAMPAIGN)
    assert count_events(*load_campaign(campaign)).starts_tasks


def test_a_program_without_counters_that_the_counted_one_executes_is_told(folder: Path) -> None:
    # Its events were missing, while its instructions were counted, and nothing said so. Itself, it executes counted.
    (folder / "demo.c").unlink()
    (folder / "demo.c").write_text(
        "#include <unistd.h>\n#include <sys/wait.h>\nint total;\nvoid work(int n) { total += n; }\n"
        "void wait_for(const char *program) {\n"
        '    if (!fork()) { execl(program, "worker", (char *)0); _exit(9); }\n    wait(0);\n}\n'
        "int main(int argc, char **argv) {\n    work(argc);\n"
        '    if (argc > 1) { wait_for("/worker"); wait_for("/proc/self/exe"); wait_for("/missing"); }\n'
        "    return 0;\n}\n"
    )
    (folder / "other.c").write_text("int main(void) { return 0; }\n")
    (folder / "worker").write_bytes(build_program([folder / "other.c"], ["-O1"]).elf_path.read_bytes())
    (folder / "worker").chmod(0o755)
    path = folder / "c.yaml"
    head, _, _ = CAMPAIGN.partition("  sum:")
    path.write_text(
        head.replace("stdin: numbers.txt", "args: [x], files: {/worker: worker}") + "variants: {light: [entries]}\n"
    )
    counted = count_events(*load_campaign(path))
    assert [one.events for one in counted.metrics] == [2]
    assert counted.uncounted == counted.notices[-1:]
    shown = io.StringIO()
    print_counts(counted, *load_campaign(path), Console(file=shown, width=400))
    assert (
        "! The program executed /worker, which has no counters of this campaign: what it does is in" in shown.getvalue()
    )
    path.write_text(path.read_text().replace("/worker: worker", "/unused: worker"))
    assert count_events(*load_campaign(path)).uncounted == ()
