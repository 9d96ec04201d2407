"""`measure init`: a campaign for a program, written from what the program does."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from measure.campaign.campaign_file import load_campaign
from measure.campaign.event_counts import count_events
from measure.cli import main
from measure.first_campaign.software_choice import _metric_name
from tests.measure.demo_program import PROGRAM

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


SHAPES = """\
#include <cstdio>
#include <vector>
namespace geo { inline namespace v1 {
template <class T> class Stack {
    std::vector<T> items;
 public:
    void push(const T &item) { items.push_back(item); }
    T sum() const { T total = T(); for (const T &one : items) total += one; return total; }
}; } }
namespace {
[[gnu::noinline]] unsigned mix(unsigned h, const char *text) { while (*text) h = h * 33 + *text++; return h; }
unsigned mix(unsigned h, unsigned long n) {
    for (unsigned long i = 0; i < n; i++) h ^= h >> 3 ^ h << 7;
    return h;
} }
int main() {
    geo::Stack<int> ints; geo::Stack<double> doubles; unsigned total = 0;
    auto score = [&](unsigned a) {
        for (unsigned i = 0; i < a % 9; i++) total = total * 7 ^ i;
        return total;
    };
    for (unsigned round = 0; round < 2000; round++) {
        ints.push(round); doubles.push(round);
        total += mix(round, "hello world") + mix(round, round % 60ul) + score(round);
        if (round % 100 == 0) total += ints.sum() + (int)doubles.sum();
    }
    std::printf("%u\\n", total);
}
"""

REFUSED = """\
#include <cstdio>
#include <vector>
template <class T> struct Outer { struct Inner { T value; }; };
unsigned turn(const std::vector<unsigned> &given) {
    unsigned h = given[0];
    for (int i = 0; i < 20; i++) h ^= h >> 3 ^ h << 5;
    return h;
}
unsigned turn(const Outer<unsigned>::Inner &given) {
    unsigned h = given.value;
    for (int i = 0; i < 30; i++) h ^= h >> 3 ^ h << 5;
    return h;
}
unsigned turn(unsigned h) { for (int i = 0; i < 20; i++) h ^= h >> 5 ^ h << 3; return h; }
int main() {
    std::vector<unsigned> one{1}; unsigned total = 0;
    for (unsigned n = 0; n < 3000; n++) { one[0] = n; total += turn(one) + turn(n) + turn(Outer<unsigned>::Inner{n}); }
    std::printf("%u\\n", total);
}
"""


def measure(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def failed(*arguments: object) -> str:
    """The message of a command that finds bad input, on one line."""
    result = measure("init", *arguments)
    assert result.exit_code == 2, result.output
    return " ".join(result.output.split())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_file_says_what_the_program_does(folder: Path) -> None:
    """It names functions by file and line, and metrics that fire too rarely to vary are left out."""
    (folder / "demo.c").write_text(PROGRAM)
    result = measure("init", "demo.c")
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in folder.iterdir()) == ["demo.c", "demo.yaml", "desktop.yaml"]
    text = (folder / "demo.yaml").read_text()
    campaign, _ = load_campaign(folder / "demo.yaml")
    assert (campaign.program.source, campaign.machine) == (folder / "demo.c", folder / "desktop.yaml")
    assert {name: (spec.event, spec.function) for name, spec in campaign.software_metrics.items()} == {
        "next_entries": ("entry", "next"), "work_loops": ("loop", "work"),
    }  # fmt: skip
    assert re.search(r"# work, demo\.c:5: \d\d% of all instructions, most in line 5\n", text)
    assert re.search(r"work_loops: \{event: loop, function: work\}  # 78,000 events; adds about \d+% ", text)
    cycles, records = re.findall(r"A run takes ([\d,]+) cycles .* about ([\d,]+) records", text)[0]
    length = campaign.sampling.interval[0]
    assert int(cycles.replace(",", "")) // length == int(records.replace(",", ""))
    assert 400 <= int(records.replace(",", "")) <= 850
    assert "left out: PAPI_FP_OPS (no events)" in text
    assert "PAPI_FP_OPS" not in campaign.hardware_metrics
    assert 2 <= len(campaign.hardware_metrics) <= 8

    before = (folder / "demo.yaml").read_bytes()
    assert "demo.yaml exists already" in failed("demo.c")
    assert (folder / "demo.yaml").read_bytes() == before
    assert measure("init", "demo.c", "--force", "--machine", ROOT / "configs/machines/strongarm.yaml").exit_code == 0
    other, _ = load_campaign(folder / "demo.yaml")
    assert other.machine == ROOT / "configs/machines/strongarm.yaml"


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
    ran = measure("run", "in/words.yaml")
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
    assert "links no program with $CC" in told
    assert "would be inside demo" in failed("demo", "--out", "demo/c.yaml")
    result = measure("init", "demo")  # of two programs, the one with the directory's name
    assert result.exit_code == 0, result.output
    written = yaml.safe_load((folder / "demo.yaml").read_text())
    assert written["program"] == {"build": "make CC=$CC", "directory": "demo", "binary": "bin/demo"}
    assert "work_loops" in written["software_metrics"]
    assert re.search(r"# work, work\.c:5: ", (folder / "demo.yaml").read_text())
    ran = measure("run", "--counts", "demo.yaml")
    assert ran.exit_code == 0, ran.output
    assert "never fires" not in ran.output


def counted(path: Path) -> dict[str, tuple[str, str | None, int]]:
    """Event, function and number of events of each software metric of a campaign file."""
    campaign, document = load_campaign(path)
    return {
        one.metric: (spec.event, spec.function, one.events)
        for one in count_events(campaign, document).metrics
        for spec in [campaign.software_metrics[one.metric]]
    }


@pytest.mark.slow
def test_cplusplus_functions_are_named_as_metrics_take_them(folder: Path) -> None:
    """A lambda, the instances of a template together, and one overload of several; each counted right."""
    (folder / "shapes.cpp").write_text(SHAPES)
    result = measure("init", "shapes.cpp")
    assert result.exit_code == 0, result.output
    assert counted(folder / "shapes.yaml") == {
        "mix_entries": ("entry", "mix(unsigned int, unsigned long)", 2000),
        "main_lambda_18_entries": ("entry", "main::lambda@18", 2000),
        "Stack_push_entries": ("entry", "geo::Stack::push", 2 * 2000),
        "mix_loops": ("loop", "mix(unsigned int, unsigned long)", sum(n % 60 for n in range(2000))),
        "Stack_sum_loops": ("loop", "geo::Stack::sum", 2 * sum(range(1, 2000, 100))),
    }
    assert re.search(
        r"# geo::Stack::sum, shapes.cpp:8: [\d.]+% of all instructions", (folder / "shapes.yaml").read_text()
    )


def test_overloads_that_cannot_be_told_apart_are_counted_together(folder: Path) -> None:
    """Overloads whose types the debug information writes otherwise than the source are counted together."""
    (folder / "shapes.cpp").write_text(REFUSED)
    result = measure("init", "shapes.cpp")
    assert result.exit_code == 0, result.output
    found = counted(folder / "shapes.yaml")
    assert {one for one in found.values() if one[0] == "entry"} == {
        ("entry", "turn", 3 * 3000), ("entry", "turn(unsigned int)", 3000),
        ("entry", "turn(const std::vector<unsigned int> &)", 3000),
    }  # fmt: skip


CPLUSPLUS_BUILDS = {
    "makefile": "CXXFLAGS = -O2\nshapes: shapes.o scale.o\n\t$(CXX) -o $@ $^\n",
    "Makefile": "CC = g++\nCFLAGS = -O2\nshapes: shapes.cpp\n\t$(CC) $(CFLAGS) -o $@ $^\n",
    "CMakeLists.txt": "cmake_minimum_required(VERSION 3.10)\nproject(shapes C CXX)\n"
                      "add_executable(shapes shapes.cpp scale.c)\n",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("build", "command"), [
    ("makefile", "make CC=$CC CXX=$CXX"), ("Makefile", "make CC=$CXX CXX=$CXX"),
    ("CMakeLists.txt", "cmake -S . -B build -DCMAKE_BUILD_TYPE=Release && cmake --build build -j2"),
])  # fmt: skip
def test_a_campaign_for_a_project_of_both_languages(folder: Path, build: str, command: str) -> None:
    project = folder / "shapes"
    project.mkdir()
    (project / build).write_text(CPLUSPLUS_BUILDS[build])
    if build == "Makefile":
        (project / "shapes.cpp").write_text(SHAPES)
    else:
        scaled = SHAPES.replace("int main() {", 'extern "C" unsigned scale(unsigned);\nint main() {')
        (project / "shapes.cpp").write_text(scaled.replace("total += mix", "total += scale(round) + mix"))
        (project / "scale.c").write_text(
            "unsigned scale(unsigned n) { unsigned h = n; for (int i = 0; i < 90; i++) h ^= h >> 5 ^ i; return h; }"
        )
    if build == "CMakeLists.txt" and shutil.which("cmake") is None:
        pytest.skip("needs cmake")
    result = measure("init", "shapes")
    assert result.exit_code == 0, result.output
    assert yaml.safe_load((folder / "shapes.yaml").read_text())["program"]["build"] == command
    found = counted(folder / "shapes.yaml")
    assert found["mix_entries"] == ("entry", "mix(unsigned int, unsigned long)", 2000)
    if build != "Makefile":
        assert found["scale_loops"] == ("loop", "scale", 2000 * 90)


COROUTINE = """\
#include <coroutine>
#include <cstdio>
struct Numbers {
    struct promise_type {
        unsigned value;
        Numbers get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
        std::suspend_always initial_suspend() noexcept { return {}; }
        std::suspend_always final_suspend() noexcept { return {}; }
        std::suspend_always yield_value(unsigned n) noexcept { value = n; return {}; }
        void return_void() {}
        void unhandled_exception() {}
    };
    std::coroutine_handle<promise_type> handle;
};
static unsigned turn(unsigned n) { for (unsigned i = 0; i < n % 30; i++) n ^= n << 5 ^ n >> 7 ^ i; return n; }
Numbers numbers(unsigned n) {
    for (unsigned i = 0, h = 1; i < n; i++) {
        for (unsigned k = 0; k < i % 40; k++) h = h * 33 ^ k;
        co_yield h;
    }
}
int main() {
    Numbers all = numbers(2500);
    unsigned sum = 0;
    for (all.handle.resume(); !all.handle.done(); all.handle.resume()) sum += turn(all.handle.promise().value);
    std::printf("%u\\n", sum);
}
"""


@pytest.mark.slow
def test_what_cannot_be_instrumented_is_left_out_and_flags_are_given(folder: Path) -> None:
    """A coroutine is the hottest function, and the language's standard is not the default."""
    (folder / "numbers.cpp").write_text(COROUTINE)
    assert "Flags of the compiler, such as -std=c++20" in failed("numbers.cpp")
    result = measure("init", "numbers.cpp", "--flags", "-O2 -std=c++20")
    assert result.exit_code == 0, result.output
    found = counted(folder / "numbers.yaml")
    assert found["turn_entries"] == ("entry", "turn", 2500)
    assert not any(name.startswith("numbers") for name in found)
    text = (folder / "numbers.yaml").read_text()
    assert "# Compiled with `flags: [-O2, -std=c++20]` and linked" in text
    assert load_campaign(folder / "numbers.yaml")[0].program.flags == ("-O2", "-std=c++20")


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
    assert re.search(r"# pick, fill.c:4: 0\.\d+% of all instructions", (folder / "fill.yaml").read_text())


def test_metrics_of_operators_are_named_by_words() -> None:
    names = ["Box::operator+=", "Box::operator()", "operator<<", "Box::operator bool", "Box::~Box", "operator<=>"]
    assert [_metric_name(name, "entries", ()) for name in names] == [
        "Box_operator_plus_assign_entries", "Box_operator_call_entries", "operator_left_entries",
        "Box_operator_bool_entries", "Box_end_of_Box_entries", "operator_compare_entries",
    ]  # fmt: skip
    assert _metric_name("operator+", "loops", {"operator_plus_loops"}) == "operator_plus_2_loops"


TWIN = """\
namespace {{ unsigned mix(unsigned n) {{ for (int i = 0; i < 60; i++) n ^= n << 3 ^ i; return n; }} }}
auto step_{0} = [](unsigned n) {{ for (int i = 0; i < {1}; i++) n ^= n << 7 ^ i; return n; }};
unsigned {0}(unsigned n) {{ return mix(n) + step_{0}(n); }}
"""


@pytest.mark.slow
def test_functions_of_one_name_in_two_files_are_counted_apart(folder: Path) -> None:
    """A function without linkage, and a lambda outside of functions that begins on the same line."""
    project = folder / "twins"
    project.mkdir()
    (project / "one.cpp").write_text(TWIN.format("one", 40))
    (project / "two.cpp").write_text(TWIN.format("two", 50))
    (project / "main.cpp").write_text(
        "unsigned one(unsigned), two(unsigned);\n"
        "int main() { unsigned sum = 0; for (int i = 0; i < 3000; i++) sum += one(i) + two(i % 2); return sum & 0; }\n"
    )
    result = measure("init", "twins")
    assert result.exit_code == 0, result.output
    metrics = load_campaign(folder / "twins.yaml")[0].software_metrics
    found = {
        (event, function, metrics[name].file): events
        for name, (event, function, events) in counted(folder / "twins.yaml").items()
    }
    assert found == {
        ("entry", "mix", "one.cpp"): 3000, ("entry", "mix", "two.cpp"): 3000, ("entry", "lambda@2", "two.cpp"): 3000,
        ("loop", "mix", "one.cpp"): 180_000, ("loop", "mix", "two.cpp"): 180_000,
    }  # fmt: skip


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
    assert "has no function main" in failed("unused.c")
    assert not (folder / "unused.yaml").exists()


def test_what_cannot_become_a_campaign_is_told(folder: Path) -> None:
    (folder / "words.c").write_text(WORDS)
    assert "reads its standard input, and none was given: say what it reads with --stdin FILE" in failed("words.c")
    told = failed("words.c", "--", "missing.txt")
    assert told.startswith("measure: words.c: the program ended with exit status 3; its last words on stderr: no input")
    assert "--file FILE" in told
    (folder / "short.txt").write_text("word\n")
    assert "words.c: the program runs too short: " in failed("words.c", "--", "short.txt")
    (folder / "gap.c").write_text("int far(int); int main(void) { return far(1); }\n")
    told = failed("gap.c")
    assert "undefined symbol: far" in told
    assert "No source file beside it defines far." in told
    (folder / "wrong.c").write_text("int main(void) { return x; }\n")
    assert "wrong.c:1: use of undeclared identifier 'x'" in failed("wrong.c")
    (folder / "empty").mkdir()
    assert "empty: has no C or C++ file, configure script, makefile or CMakeLists.txt" in failed("empty")
    assert "no such file or directory" in failed("none.c")
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
