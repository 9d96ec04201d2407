"""`measure init` for C++: functions are named as metrics take them, and their counters count."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml

from measure.first_campaign.software_choice import _metric_name
from measure.runs.campaign_file import load_campaign
from tests.measure.first_campaign.init_command import counted, failed, measure

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
    for (unsigned i = 0, end = 5 + h / 400; i < end; i++) h ^= h >> 3 ^ h << 5;
    return h;
}
unsigned turn(const Outer<unsigned>::Inner &given) {
    unsigned h = given.value;
    for (unsigned i = 0, end = 5 + h / 400; i < end; i++) h ^= h >> 3 ^ h << 5;
    return h;
}
unsigned turn(unsigned h) { for (unsigned i = 0, end = 5 + h / 400; i < end; i++) h ^= h >> 5 ^ h << 3; return h; }
int main() {
    std::vector<unsigned> one{1}; unsigned total = 0;
    for (unsigned n = 0; n < 12000; n++) { one[0] = n; total += turn(one) + turn(n) + turn(Outer<unsigned>::Inner{n}); }
    std::printf("%u\\n", total);
}
"""


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
        "main_lambda_18_loops": ("loop", "main::lambda@18", sum(n % 9 for n in range(2000))),
    }
    text = (folder / "shapes.yaml").read_text()
    assert re.search(r"# geo::Stack::push, shapes.cpp:7: [\d.]+% of all instructions", text)
    assert re.search(r"  # left out: .*Stack_sum_loops \(\d\d% tied\)", text)  # 20 times in a run


@pytest.mark.slow
def test_overloads_that_cannot_be_told_apart_are_counted_together(folder: Path) -> None:
    """Overloads whose types the debug information writes otherwise than the source are counted together."""
    (folder / "shapes.cpp").write_text(REFUSED)
    result = measure("init", "shapes.cpp")
    assert result.exit_code == 0, result.output
    found = counted(folder / "shapes.yaml")
    assert {one for one in found.values() if one[0] == "entry"} == {
        ("entry", "turn", 3 * 12000), ("entry", "turn(unsigned int)", 12000),
        ("entry", "turn(const std::vector<unsigned int> &)", 12000),
    }  # fmt: skip


# Without headers, whose analysis takes most of the time of the tests above.
MIXES = """\
extern "C" int printf(const char *, ...);
namespace {
[[gnu::noinline]] unsigned mix(unsigned h, const char *text) { while (*text) h = h * 33 + *text++; return h; }
unsigned mix(unsigned h, unsigned long n) {
    for (unsigned long i = 0; i < n; i++) h ^= h >> 3 ^ h << 7;
    return h;
} }
int main() {
    unsigned total = 0;
    for (unsigned round = 0; round < 2000; round++) total += mix(round, "hello world") + mix(round, round % 60ul);
    printf("%u\\n", total);
}
"""
CPLUSPLUS_BUILDS = {
    "makefile": "CXXFLAGS = -O2\nshapes: shapes.o scale.o\n\t$(CXX) -o $@ $^\n",
    "Makefile": "CC = g++\nCFLAGS = -O2\nshapes: shapes.cpp\n\t$(CC) $(CFLAGS) -o $@ $^\n",
    "CMakeLists.txt": "cmake_minimum_required(VERSION 3.10)\nproject(shapes C CXX)\n"
                      "add_executable(shapes shapes.cpp scale.c)\n",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("build", "command"), [
    ("makefile", "make -j$(nproc) CC=$CC CXX=$CXX"), ("Makefile", "make -j$(nproc) CC=$CXX CXX=$CXX"),
    ("CMakeLists.txt", "cmake -S . -B build -DCMAKE_BUILD_TYPE=Release && cmake --build build -j$(nproc)"),
])  # fmt: skip
def test_a_campaign_for_a_project_of_both_languages(folder: Path, build: str, command: str) -> None:
    project = folder / "shapes"
    project.mkdir()
    (project / build).write_text(CPLUSPLUS_BUILDS[build])
    if build == "Makefile":
        (project / "shapes.cpp").write_text(MIXES)
    else:
        scaled = MIXES.replace("int main() {", 'extern "C" unsigned scale(unsigned);\nint main() {')
        (project / "shapes.cpp").write_text(scaled.replace("total += mix", "total += scale(round) + mix"))
        (project / "scale.c").write_text(
            "unsigned scale(unsigned n) {\n"
            "    unsigned h = n;\n    for (unsigned i = 0; i < n / 9; i++) h ^= h >> 5 ^ i;\n    return h;\n}\n"
        )
    if build == "CMakeLists.txt" and shutil.which("cmake") is None:
        pytest.skip("needs cmake")
    result = measure("init", "shapes")
    assert result.exit_code == 0, result.output
    assert yaml.safe_load((folder / "shapes.yaml").read_text())["program"]["build"] == command
    found = counted(folder / "shapes.yaml")
    assert found["mix_loops"] == ("loop", "mix(unsigned int, unsigned long)", sum(n % 60 for n in range(2000)))
    if build != "Makefile":
        assert found["scale_loops"] == ("loop", "scale", sum(n // 9 for n in range(2000)))


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
    told = "".join(result.output.split())  # lines end anywhere in a long path
    assert re.search(r"leftout:\S*numbers.cpp:16:'numbers'isacoroutine:coroutinesarenotinstrumented", told)
    assert told.count("leftout") == 1
    found = counted(folder / "numbers.yaml")
    assert found["turn_entries"] == ("entry", "turn", 2500)
    assert not any(name.startswith("numbers") for name in found)
    text = (folder / "numbers.yaml").read_text()
    assert "# Compiled with `flags: [-O2, -std=c++20]` and linked" in text
    assert load_campaign(folder / "numbers.yaml")[0].program.flags == ("-O2", "-std=c++20")


def test_metrics_of_operators_are_named_by_words() -> None:
    names = ["Box::operator+=", "Box::operator()", "operator<<", "Box::operator bool", "Box::~Box", "operator<=>"]
    assert [_metric_name(name, "entries", ()) for name in names] == [
        "Box_operator_plus_assign_entries", "Box_operator_call_entries", "operator_left_entries",
        "Box_operator_bool_entries", "Box_end_of_Box_entries", "operator_compare_entries",
    ]  # fmt: skip
    assert _metric_name("operator+", "loops", {"operator_plus_loops"}) == "operator_plus_2_loops"


TWIN = """\
namespace {{
unsigned mix(unsigned n) {{ for (unsigned i = 0, end = 10 + n / 30; i < end; i++) n ^= n << 3 ^ i; return n; }} }}
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
        "int main() { unsigned sum = 0; for (int i = 0; i < 3000; i++) sum += one(i) + two(i); return sum & 0; }\n"
    )
    result = measure("init", "twins")
    assert result.exit_code == 0, result.output
    metrics = load_campaign(folder / "twins.yaml")[0].software_metrics
    found = {
        (event, function, metrics[name].file): events
        for name, (event, function, events) in counted(folder / "twins.yaml").items()
    }
    loops = sum(10 + n // 30 for n in range(3000))
    assert found == {
        ("entry", "mix", "one.cpp"): 3000, ("entry", "mix", "two.cpp"): 3000, ("entry", "lambda@3", "two.cpp"): 3000,
        ("loop", "mix", "one.cpp"): loops, ("loop", "mix", "two.cpp"): loops,
    }  # fmt: skip


@pytest.mark.slow
def test_a_function_outside_of_classes_is_told_from_methods_of_its_name(folder: Path) -> None:
    loop = "for (unsigned i = 0, end = 5 + n / 50; i < end; i++) n ^= n << 3 ^ i; return n;"
    (folder / "main.cpp").write_text(
        f"unsigned other(unsigned); volatile unsigned sum; static unsigned turn(unsigned n) {{ {loop} }}\n"
        "int main() { for (int i = 0; i < 3000; i++) sum = sum + turn(i) + other(i); }\n"
    )
    (folder / "other.cpp").write_text(
        f"struct Box {{ unsigned turn(unsigned n) {{ {loop} }} }};\n"
        "unsigned other(unsigned n) { return Box().turn(n); }\n"
    )
    result = measure("init", "main.cpp")
    assert result.exit_code == 0, result.output
    found = counted(folder / "main.yaml")
    assert found["turn_entries"] == ("entry", "::turn", 3000)
    assert found["Box_turn_loops"] == ("loop", "Box::turn", sum(5 + n // 50 for n in range(3000)))
