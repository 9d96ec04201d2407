"""`measure init`: a campaign for a program, written from what the program does."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from rich.console import Console

from measure.campaign.event_counts import count_events, run_untimed
from measure.first_campaign import command, trial_run
from measure.first_campaign.command import tell_written
from measure.first_campaign.software_choice import Choice
from measure.perturbation.uninformative_metrics import TIED, MetricFinding
from measure.run_types import BASELINE
from measure.runs.builds import Builds
from measure.runs.campaign_file import load_campaign
from tests.measure.demo_program import PROGRAM
from tests.measure.first_campaign.init_command import counted, failed, measure

ROOT = Path(__file__).parents[3]
WORDS = """\
#include <math.h>
#include <stdio.h>
#include <string.h>
double weigh(const char *word, int length) {
    double sum = 0;
    for (int i = 0; i < length; i++) sum += sqrt(word[i]);
    return sum;
}
int main(int argc, char **argv) {
    char word[40]; double sum = 0;
    FILE *file = argc > 1 ? fopen(argv[1], "r") : stdin;
    if (!file) { fprintf(stderr, "no input\\n"); return 3; }
    for (int again = 0; again < 30; again++, rewind(file))
        while (fscanf(file, "%39s", word) == 1) sum += weigh(word, strlen(word));
    printf("%g\\n", sum);
    return 0;
}
"""
UNEVEN = """\
#include <stdio.h>
static unsigned long table[64];
__attribute__((noinline)) unsigned long divide(unsigned long n, int times) {
    for (int i = 0; i < times; i++) n = 1000000007ul / (n | 1) + i;
    return n;
}
__attribute__((noinline)) void add(int times) {
    for (int i = 0; i < times; i++) table[i % 64] += i ^ table[(i + 1) % 64];
}
int main(void) {
    unsigned long n = 3;
    for (int i = 0; i < 60; i++) {
        add(300 + i * 37 % 200);
        n = divide(n + i, 40 + i * 13 % 30);
    }
    printf("%lu %lu\\n", n, table[5]);
    return 0;
}
"""


def test_the_file_says_what_the_program_does(folder: Path) -> None:
    """It names functions by file and line, and metrics that fire too rarely to vary are left out."""
    (folder / "demo.c").write_text(PROGRAM)
    result = measure("init", "demo.c")
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in folder.iterdir()) == ["demo.c", "demo.yaml", "desktop.yaml"]
    text = (folder / "demo.yaml").read_text()
    campaign, document = load_campaign(folder / "demo.yaml")
    assert (campaign.program.source, campaign.machine) == (folder / "demo.c", folder / "desktop.yaml")
    assert {name: (spec.event, spec.function) for name, spec in campaign.software_metrics.items()} == {
        "next_entries": ("entry", "next"), "work_loops": ("loop", "work"),
    }  # fmt: skip
    assert re.search(r"# work, demo\.c:5: \d\d% of all instructions, most in line 5\n", text)
    assert re.search(r"work_loops: \{event: loop, function: work\}  # 78,000 events; adds about \d+% ", text)
    told = sum(float(percent) for percent in re.findall(r"events; adds about ([\d.]+)% of the instructions", text))
    plain = Builds(campaign, document, 1_000_000_000, print)[BASELINE, 0].elf_path
    plain_instructions = run_untimed(campaign, plain, {}).instructions
    counted_instructions = count_events(campaign, document).instructions
    assert told == pytest.approx(100 * (counted_instructions / plain_instructions - 1), rel=0.2)
    cycles, records = re.findall(r"A run takes ([\d,]+) cycles .* about ([\d,]+) records", text)[0]
    length = campaign.sampling.interval[0]
    assert int(cycles.replace(",", "")) // length == int(records.replace(",", ""))
    assert 400 <= int(records.replace(",", "")) <= 850
    assert "left out: PAPI_FP_OPS (no events)" in text
    assert "PAPI_FP_OPS" not in campaign.hardware_metrics
    assert 2 <= len(campaign.hardware_metrics) <= 8

    (second,) = re.findall(r"\n  # (next_entries: \{.*, method: second_run\})\n", text)  # none fires more often
    (folder / "second.yaml").write_text(re.sub(r"\n  next_entries: .*", f"\n  {second}", text))
    changed, _ = load_campaign(folder / "second.yaml")
    assert {name: spec.method for name, spec in changed.software_metrics.items()} == {
        "next_entries": "second_run", "work_loops": "counter",
    }  # fmt: skip

    before = (folder / "demo.yaml").read_bytes()
    assert "demo.yaml exists already" in failed("demo.c")
    assert "demo.cc: no such file or directory" in failed("demo.cc")  # not that its campaign exists
    assert (folder / "demo.yaml").read_bytes() == before
    assert measure("init", "demo.c", "--force", "--machine", ROOT / "configs/machines/strongarm.yaml").exit_code == 0
    other, _ = load_campaign(folder / "demo.yaml")
    assert other.machine == ROOT / "configs/machines/strongarm.yaml"


def test_a_program_with_uneven_records_of_cycles_gets_records_of_instructions(folder: Path) -> None:
    """Its report would call the figures wrong, and name such records."""
    (folder / "turns.c").write_text(UNEVEN)
    result = measure("init", "turns.c")
    assert result.exit_code == 0, result.output
    campaign, _ = load_campaign(folder / "turns.yaml")
    length, unit = campaign.sampling.interval
    assert unit == "instructions"
    text = (folder / "turns.yaml").read_text()
    told = " ".join(text.replace("\n# ", " ").split())
    assert re.search(r"[1-9]\d% of the records are more than 10% longer or shorter than 1,000 cycles, and all of", told)
    assert "# Records are as short as is sensible" in text
    instructions, records = re.findall(r"A run takes .*\(([\d,]+) instructions\), .* about ([\d,]+) records", text)[0]
    assert int(instructions.replace(",", "")) // length == int(records)
    assert campaign.hardware_metrics[0] == "PAPI_TOT_CYC"  # it varies; each record has as many instructions
    assert "PAPI_TOT_INS" not in text
    assert f"records: about {records} in a run" in result.output
    (folder / "demo.c").write_text(PROGRAM)
    assert measure("init", "demo.c").exit_code == 0
    assert load_campaign(folder / "demo.yaml")[0].sampling.interval[1] == "cycles"


def test_openmp_that_is_left_out_is_told_once(folder: Path) -> None:
    """It was told while the program was built, and again at the end."""
    (folder / "demo.c").write_text(PROGRAM)
    result = measure("init", "demo.c", "--flags", "-O1 -fopenmp")
    assert result.exit_code == 0, result.output
    assert " ".join(result.output.split()).count("OpenMP is not there") == 1


def test_one_software_metric_that_is_left_of_many_is_told() -> None:
    def told(n_left_out: int, events: int = 100, notices: tuple[str, ...] = (), starts_tasks: bool = False) -> str:
        counter: Any = SimpleNamespace(name="walk_entries", counts=SimpleNamespace(events=events))
        left_out: Any = (SimpleNamespace(),) * n_left_out
        choice = Choice((counter,), left_out, (), 3, notices, starts_tasks)
        out = io.StringIO()
        trial: Any = SimpleNamespace(records=100, steady=(), instructions=10_000)
        tell_written(Console(file=out, width=100), Path("cmark.yaml"), trial, choice, "")
        return " ".join(out.getvalue().split())

    assert "! 16 other counters hardly vary from record to record" in told(16)
    assert "! 1 other counter hardly varies from record to record" in told(1)
    assert "hardly" not in told(0)
    assert "likely to perturb" not in told(0)
    assert "so are likely to perturb: walk_entries about 30%. The file says how a second run" in told(0, 1000)
    assert "second run" not in told(0, 1000, starts_tasks=True)
    not_optimised = "Compiled without optimisation (no -O in the flags): a.c"
    assert f"! {not_optimised}." in told(0, notices=(not_optimised,))


@pytest.mark.slow
def test_a_campaign_for_a_program_that_reads_a_file_runs_as_written(folder: Path) -> None:
    (folder / "words.c").write_text(WORDS)
    (folder / "in").mkdir()
    (folder / "in/text.txt").write_text("some words that are weighed again and again " * 8)
    result = measure("init", "words.c", "--out", "in/words.yaml", "--", "in/text.txt")
    assert result.exit_code == 0, result.output
    campaign, _ = load_campaign(folder / "in/words.yaml")
    assert campaign.program.files == {"/in/text.txt": folder / "in/text.txt"}
    assert "weigh_loops" in campaign.software_metrics
    ran = measure("run", "in/words.yaml", "--workers", "1", "--set", "baselines=3", "--set", "replicates=2")
    assert ran.exit_code == 0, ran.output
    summary = json.loads((folder / "results/words/summary.json").read_text())
    assert list(summary["variants"]) == list(campaign.variant_sets())
    assert summary["failures"] == []


@pytest.mark.slow
def test_a_campaign_for_a_project_with_a_makefile_can_be_run(folder: Path) -> None:
    project = folder / "demo"
    (project / "src").mkdir(parents=True)
    head, body = PROGRAM.split("int main")
    (project / "src/work.c").write_text(head)
    declared = "#include <stdio.h>\nvoid work(int n);\n#define table ((unsigned[9]){0})\nint main"
    (project / "src/main.c").write_text(declared + body)
    (project / "makefile").write_text(
        "all: bin/demo bin/other\nbin/%: src/%.o src/work.o\n\tmkdir -p bin && $(CC) -o $@ $^\n"
        "bin/demo: src/main.o src/work.o\n\tmkdir -p bin && $(CC) -o $@ $^\n"
        "src/other.c: src/main.c\n\tcp $< $@\nCFLAGS = -O2\n"
    )
    told = failed("demo/src", "--build", "true")
    assert "links no program with $CC: if it calls another compiler, say how it is built with --build COMMAND" in told
    assert "would be inside demo" in failed("demo", "--out", "demo/c.yaml")
    told = failed("demo", "--build", "make CC=$CC", "--binary", "demo")
    assert "left no file 'demo'; it linked bin/demo, bin/other. Say with --binary what it makes" in told
    result = measure("init", "demo")  # of two programs, the one with the directory's name
    assert result.exit_code == 0, result.output
    written = yaml.safe_load((folder / "demo.yaml").read_text())
    assert written["program"] == {"build": "make -j$(nproc) CC=$CC", "directory": "demo", "binary": "bin/demo"}
    assert "work_loops" in written["software_metrics"]
    assert re.search(r"# work, work\.c:5: ", (folder / "demo.yaml").read_text())
    ran = measure("run", "--counts", "demo.yaml")
    assert ran.exit_code == 0, ran.output
    assert "never fires" not in ran.output


def test_functions_of_one_name_in_files_of_one_name_are_counted_apart(folder: Path) -> None:
    """Both were counted as one metric, which was said to be in the file of the hotter one."""
    for place, rounds in (("log", 3), ("store", 9)):
        (folder / "demo" / place).mkdir(parents=True)
        (folder / "demo" / place / "util.c").write_text(
            "__attribute__((noinline)) static unsigned check(unsigned n)\n"
            f"{{ for (unsigned i = 0; i < {rounds} + n % 5; i++) n = n * 31 + i; return n; }}\n"
            f"unsigned {place}_all(unsigned n) {{ return check(n); }}\n"
        )
    (folder / "demo/main.c").write_text(
        "#include <stdio.h>\nunsigned log_all(unsigned), store_all(unsigned);\nint main(void) {\n"
        "  unsigned n = 1; for (int i = 0; i < 4000; i++) n = n % 5 > 1 ? store_all(n) : log_all(n);\n"
        '  printf("%u\\n", n); return 0; }\n'
    )
    result = measure(
        "init", "demo", "--build", "(cd log && $CC -O1 -c util.c) && $CC -O1 -o demo main.c log/util.o store/util.c"
    )
    assert result.exit_code == 0, result.output
    found = load_campaign(folder / "demo.yaml")[0].software_metrics
    files = {name: spec.file for name, spec in found.items() if spec.function == "check" and spec.event == "entry"}
    assert sorted(files) == ["check_2_entries", "check_entries"]
    assert {*files.values()} == {"store/util.c", "log/util.c"}
    assert "# check, log/util.c:1: " in (folder / "demo.yaml").read_text()
    events = [count for name, (_, _, count) in counted(folder / "demo.yaml").items() if name in files]
    assert (len(events), sum(events)) == (2, 4000)


def test_a_metric_that_is_nearly_tied_is_taken_after_others(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nearly = MetricFinding("PAPI_LD_INS", "hardware", "tied", ("baseline",), 0.45, 1, 800, 1e6)

    def findings(tables: Any, names: Any, kind: Any, tied: float = TIED) -> list[MetricFinding]:
        return [nearly] if tied < nearly.share else []

    monkeypatch.setattr(trial_run, "metric_findings", findings)
    (folder / "demo.c").write_text(PROGRAM)
    result = measure("init", "demo.c")
    assert result.exit_code == 0, result.output
    chosen = load_campaign(folder / "demo.yaml")[0].hardware_metrics
    assert "PAPI_SR_INS" in chosen
    assert "PAPI_LD_INS" not in chosen  # of eight


def test_a_program_whose_time_goes_in_libraries_gets_counters_of_its_own_functions(folder: Path) -> None:
    (folder / "fill.c").write_text(
        """#include <stdio.h>
        #include <string.h>
        static char room[1 << 16];
        static __attribute__((noinline)) unsigned pick(unsigned n) { return n * 77 % sizeof room; }
        int main(void) {
            unsigned sum = 0, n = 0;
            do { memset(room, n, sizeof room); sum += room[pick(n)]; } while (++n < 300);
            printf("%u\\n", sum);
        }"""
    )
    result = measure("init", "fill.c")
    assert result.exit_code == 0, result.output
    assert counted(folder / "fill.yaml")["pick_entries"] == ("entry", "pick", 300)
    text = (folder / "fill.yaml").read_text()
    assert re.search(r"# pick, fill.c:4: 0\.\d+% of all instructions", text)
    assert re.search(r"  # taken for want of others: pick_entries \(\d\d% tied\)\n", text)
    told = " ".join(result.output.split())
    assert re.search(r"! pick_entries \(.* tied\), main_loops \(.* tied\): no counter of the program's functions", told)


def test_a_program_that_does_the_same_all_the_time_is_warned_of(folder: Path) -> None:
    (folder / "steady.c").write_text(
        "volatile long sum; int main(void) { for (long i = 0; i < 2000000; i++) sum += i; return 0; }\n"
    )
    result = measure("init", "steady.c")
    assert result.exit_code == 0, result.output
    assert re.search(r"! PAPI_\w+ \([\d.]+% tied\).*: too few metrics vary", " ".join(result.output.split()))
    text = (folder / "steady.yaml").read_text()
    assert re.search(r"  # taken for want of others: PAPI_\w+ \([\d.]+% tied\)\n", text)
    (folder / "demo.c").write_text(PROGRAM)
    assert "too few metrics" not in measure("init", "demo.c").output


def test_counters_that_hardly_vary_in_the_records_are_left_out(folder: Path) -> None:
    """`start` runs at the beginning only, and so in less than half of the records."""
    (folder / "parts.c").write_text(
        PROGRAM.replace(
            "int main(",
            "__attribute__((noinline)) void start(int n) { for (int i = 0; i < 9; i++) table[i] += next() + n; }\n"
            "int main(",
        ).replace("{\n    for", "{\n    for (int i = 0; i < 1500; i++) start(i);\n    for", 1)
    )
    assert "start(i)" in (folder / "parts.c").read_text()
    result = measure("init", "parts.c")
    assert result.exit_code == 0, result.output
    text = (folder / "parts.yaml").read_text()
    campaign, _ = load_campaign(folder / "parts.yaml")
    assert set(campaign.software_metrics) == {"next_entries", "work_loops"}
    assert re.search(
        r"\n  work_loops: .*\n  # left out: (?:.*,)?[ \n#]*start_entries \(\d\d% tied\)(?:.*\n)+?"
        r"  # \(tied: one value fills so much of the records, more than 50%\)\n  # A second run counts, ",
        text,
    )
    assert "no counter of the program's functions varies" not in result.output


@pytest.mark.slow
def test_a_program_may_end_with_another_status_than_0(folder: Path) -> None:
    (folder / "demo.c").write_text(PROGRAM.replace("return 0;", 'printf("found 3\\n"); return 3;'))
    told = failed("demo.c")
    assert "ended with exit status 3; its last words on stdout: " in told
    assert "found 3 Give arguments" in told
    assert "if it ends so when all is well, --exit-status 3" in told
    result = measure("init", "demo.c", "--exit-status", "3")
    assert result.exit_code == 0, result.output
    assert yaml.safe_load((folder / "demo.yaml").read_text())["program"] == {"source": "demo.c", "exit_status": 3}
    few = ("--workers", "1", "--set", "baselines=2", "--set", "replicates=1", "--set", "controls=false")
    for options in (("--counts",), ("--dry-run", *few), few):
        ran = measure("run", *options, "demo.yaml")
        assert ran.exit_code == 0, ran.output
    ran = measure("run", *few, "demo.yaml", "--set", "program.exit_status=4", "--out", "other")
    assert ran.exit_code == 1
    assert "the program ended with exit status 3, expected 4" in " ".join(ran.output.split())


def test_what_a_link_misses_is_taken_from_the_files_beside(folder: Path) -> None:
    head, body = PROGRAM.split("int main")
    (folder / "work.c").write_text(head.replace("static unsigned", "unsigned"))
    declared = "#include <stdio.h>\nextern unsigned table[]; void work(int n);\nint main"
    (folder / "demo.c").write_text(declared + body)
    (folder / "unused.c").write_text("int unused(void) { return 1; }\n")
    result = measure("init", "demo.c")
    assert result.exit_code == 0, result.output
    assert yaml.safe_load((folder / "demo.yaml").read_text())["program"] == {"sources": ["demo.c", "work.c"]}
    assert "defined in work.c, taken, too" in " ".join(result.output.split())
    told = failed("demo.c", "work.c", "--out", "other.yaml")
    assert "work.c: a source of the program, given as an argument that it runs with: leave it out" in told
    assert "has no function main" in failed("unused.c")
    (folder / "library.c").write_text(
        "#ifndef LIBRARY_H\n#define LIBRARY_H\n#endif\nint twice(int n) { return 2 * n; }\n"
        "#if defined(WITH_MAIN)\n#ifdef _WIN32\n#else\nint main(void) {\n  return twice(0);\n}\n#endif\n#endif\n"
    )
    told = " ".join(failed("library.c").split())
    assert "library.c:8: the function main is there only where WITH_MAIN is defined: give --flags '-O2 -D" in told
    assert not (folder / "unused.yaml").exists()


def test_what_cannot_become_a_campaign_is_told(folder: Path) -> None:
    (folder / "words.c").write_text(WORDS)
    assert "reads its standard input, and none was given: say what it reads with --stdin FILE" in failed("words.c")
    told = failed("words.c", "--", "missing.txt")
    assert told.startswith("measure: words.c: the program ended with exit status 3; its last words on stderr: no input")
    assert "no input Files that it looked for last and that are not there: /missing.txt Give arguments" in told
    assert "--file /NAME=FILE where it opens the relative path NAME, as it runs in /; if it ends so" in told
    assert told.rstrip().endswith("The files that it saw: none")
    (folder / "a.txt").touch()
    told = failed("words.c", "--file", "a.txt", "--file", "/in/b.txt=a.txt", "--", "missing.txt")
    assert "The files that it saw: /a.txt, /in/b.txt" in told
    (folder / "short.txt").write_text("word\n")
    assert "words.c: the program runs too short: " in failed("words.c", "--", "short.txt")
    (folder / "polite.c").write_text(
        '#include <stdio.h>\nint main(int n, char **a) { if (!fopen(a[1], "r")) puts("cannot open it"); return 0; }\n'
    )
    told = failed("polite.c", "--", "missing.txt")
    assert "or a loop around it; its last words on stdout: cannot open it Files that it looked for last and" in told
    assert told.rstrip().endswith("that are not there: /missing.txt")
    (folder / "writes.c").write_text(
        '#include <stdio.h>\nint main(int n, char **a) { remove(a[1]); return !fopen(a[1], "w"); }\n'
    )
    told = failed("writes.c", "--", "a.txt")  # its output of an earlier run
    assert "Given files that it tried to change, which it may only read: /a.txt. Name an output that does" in told
    (folder / "part" / "src").mkdir(parents=True)
    (folder / "part" / "Makefile").write_text("all:\n")
    (folder / "part" / "src" / "one.c").write_text('#include "config.h"\nint main(void) { return 0; }\n')
    told = failed("part/src/one.c")
    assert "'config.h' file not found" in told
    assert told.rstrip().endswith("Its project has a build of its own, which knows what it needs: measure init part")
    (folder / "stops.c").write_text(
        "#include <stdio.h>\n#include <stdlib.h>\n"
        'int main(void) { fputs("a job ended with exit status 2\\n", stderr); abort(); }\n'
    )
    told = failed("stops.c")
    assert "ended by signal 6 (SIGABRT); its last words on stderr: a job ended with exit status 2" in told
    assert "--exit-status" not in told
    (folder / "gap.c").write_text("int far(int); int main(void) { return far(1); }\n")
    told = failed("gap.c")
    assert "undefined symbol: far" in told
    assert "No other source file beside it seems to define far." in told
    assert "measure init DIRECTORY --build '$CC -O2 -I INCLUDE " in told
    (folder / "types.c").write_text("int main(void) { int8_t a = 1; uint32_t b = a; return b; }\n")
    told = failed("types.c", "--flags", "-O1")
    assert "types.c:1: use of undeclared identifier 'int8_t'" in told or "unknown type name 'int8_t'" in told
    assert "musl, the C library here, do not. Include them: --flags '-O1 -include stdint.h'" in told
    (folder / "wrong.c").write_text("int main(void) { return x; }\n")
    assert "wrong.c:1: use of undeclared identifier 'x'" in failed("wrong.c")
    (folder / "empty").mkdir()
    assert "empty: has no C or C++ file, configure script, makefile or CMakeLists.txt" in failed("empty")
    (folder / "two").mkdir()
    (folder / "two/makefile").write_text("all:\n\tfalse\n")
    (folder / "two/CMakeLists.txt").touch()
    cmake = "cmake -S . -B build -DCMAKE_BUILD_TYPE=Release && cmake --build build -j$(nproc)"
    assert f"It has another build, too; to take that: --build '{cmake}'" in failed("two")
    told = failed("two", "--build", "true", "--binary", "x")
    assert told.endswith("left no file 'x'; it linked nothing with $CC. Say with --binary what it makes")
    told = failed("two", "--build", "echo ld.lld: error: undefined symbol: main; false", "--binary", "x")
    assert "error: undefined symbol: main" in told
    assert "give the file that has it, or the whole directory" not in told  # which was given
    assert "--binary ../x: expected a path below two, such as src/mine" in failed("two", "--binary", "../x")
    assert "no such file or directory" in failed("none.c")
    for option in ("--build", "--binary"):
        assert failed("none", option, "x").startswith("measure: none: no such file or directory; expected a C or C++ ")
    assert "is no C or C++ file" in failed("short.txt")
    assert "--build means nothing for one source file" in failed("words.c", "--build", "make")
    assert "expected an absolute one: /a" in failed("words.c", "--file", "a=short.txt")
    assert "--stdin none: no such file" in failed("words.c", "--stdin", "none")
    assert "none.yaml: cannot be read" in failed("words.c", "--machine", "none.yaml")
    (folder / "machine.txt").write_text("name: small\nclock: 3\n")
    assert "machine.txt:2: clock: unknown key" in failed("words.c", "--machine", "machine.txt")
    (folder / "desktop.yaml").write_text("name: other\n")
    assert "desktop.yaml exists already and is another machine" in failed("words.c")
    assert sorted(path.name for path in folder.glob("*.yaml")) == ["desktop.yaml"]


def test_interrupted_there_are_no_runs_to_go_on_with(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(program: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "check_exists", interrupt)
    result = measure("init", "words.c")
    assert (result.exit_code, result.output) == (130, "measure: interrupted\n")


def test_campaigns_of_one_program_have_results_of_their_own_and_tell_what_it_wrote_to_stderr(folder: Path) -> None:
    complaint = 'fputs("first\\n[b] not defined\\n", stderr); return 0;'
    (folder / "demo.c").write_text(PROGRAM.replace("return 0;", complaint))
    assert complaint in (folder / "demo.c").read_text()
    result = measure("init", "demo.c", "--out", "large input.yaml")
    assert result.exit_code == 0, result.output
    assert load_campaign(folder / "large input.yaml")[0].name == "large-input"
    told = " ".join(result.output.split())
    assert "! The program succeeded, and wrote to standard error: [b] not defined If that is an error, " in told
    (folder / "demo.c").write_text(PROGRAM)
    result = measure("init", "demo.c")
    assert load_campaign(folder / "demo.yaml")[0].name == "demo"
    assert "wrote to standard error" not in result.output


def test_a_program_that_runs_long_gets_its_limit(folder: Path) -> None:
    (folder / "demo.c").write_text(PROGRAM)
    told = failed("demo.c", "--limit", "100k")
    assert "the program did not end within 100,000 instructions" in told
    assert told.endswith("if it has to run so long, give more than it executes, such as --limit 50G")
    assert not (folder / "demo.yaml").exists()
    assert measure("init", "demo.c", "--limit", "50G").exit_code == 0
    campaign, _ = load_campaign(folder / "demo.yaml")
    assert campaign.limits.instructions == 50_000_000_000
    assert measure("init", "demo.c", "--force").exit_code == 0
    assert load_campaign(folder / "demo.yaml")[0].limits.instructions == 10_000_000_000
    assert "--limit: expected a count" in failed("demo.c", "--limit", "many").replace("'--limit'", "--limit")


def test_a_header_that_is_not_found_is_looked_for_near_the_source(folder: Path) -> None:
    (folder / "app.c").write_text('#include "parts/one.h"\nint main(void) { return ONE - 1; }\n')
    told = failed("app.c")
    assert "parts/one.h is not there: only the C and C++ libraries and the program's own sources are." in told
    assert "measure init DIRECTORY --build COMMAND" in told
    (folder / "include/parts").mkdir(parents=True)
    (folder / "include/parts/one.h").write_text("#define ONE 1\n")
    told = failed("app.c", "--flags", "-O1")
    assert "parts/one.h is in the folder include, where the compiler does not look for it" in told
    assert "--flags '-O1 -I include'" in told


def test_a_source_for_another_processor_is_refused_with_what_to_do(folder: Path) -> None:
    (folder / "app.c").write_text('int main(void) { int a; __asm__("rdtsc" : "=a"(a)); return a; }\n')
    told = failed("app.c")
    assert "the emulated machine is a RISC-V" in told
    assert "`machine: {host: perf}`" in told
