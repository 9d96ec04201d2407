"""Counters in C++: each count against what the program counts itself, and against the emulator's probes."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile

from emulator.machine import Machine
from emulator.probes import EventCounter
from instrumenter.building.generated_sources import generate, preprocess_all
from instrumenter.building.program_build import Build, build_program
from instrumenter.compiler.toolchain import Toolchain
from instrumenter.errors import InstrumenterError, SpecError
from instrumenter.find.cplusplus.parse import parse_leniently
from instrumenter.find.probes import ProbeError, ProbeFinder
from instrumenter.projects.project import Project, ProjectRecipe
from instrumenter.spec.software_metrics import MetricSpec

PROGRAM = r"""
#include <cstdio>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

namespace geo {

int writes = 0;

class Shape {
public:
    Shape() : uses_(0) { made++; }
    virtual ~Shape() { made--; }
    virtual double area() const = 0;
    void use() { uses_++; total += 1; }
    static int made, total;

protected:
    int uses_;
};
int Shape::made = 0, Shape::total = 0;

class Box : public Shape {
public:
    Box(double width, double height) : width_(width), height_(height) {}
    ~Box() override {}
    double area() const override { return width_ * height_; }
    Box &operator+=(double more) { width_ += more; return *this; }
    explicit operator bool() const { return width_ > 0; }

private:
    double width_, height_;
};

int operator""_twice(unsigned long long value) { return 2 * static_cast<int>(value); }

int scaled(int value) { return value > 5 ? 2 * value : value; }
double scaled(double value) { return 2 * value; }
int scaled(int value, const char *name) { return value + name[0]; }

template <class T, int N> class Stack {
public:
    void push(const T &value)
    {
        if (items_.size() < N)
            items_.push_back(value);
    }
    T pop();

private:
    std::vector<T> items_;
};
template <class T, int N> T Stack<T, N>::pop()
{
    T last = items_.back();
    items_.pop_back();
    return last;
}

template <class T> bool operator<(const Box &box, T area) { return box.area() * 0 < area; }

template <class T> T larger(T a, T b) { return a < b ? b : a; }

constexpr int square(int value) { return value * value; }

int risky(int value)
{
    Box guard(1, value);
    if (value % 3 == 0)
        throw std::runtime_error("by three");
    return value + static_cast<int>(guard.area()) * 0;
}

namespace {
int hidden(int value) { return value + 1; }
}

}  // namespace geo

struct Copied {
    int value = 0;
    Copied() = default;
    Copied(const Copied &) = default;
};

int main()
{
    geo::Stack<int, 8> numbers;
    geo::Stack<std::string, 4> names;
    static_assert(geo::square(3) == 9, "");
    int sum = 0;
    for (int i = 0; i < 10; i++) {
        numbers.push(i);
        names.push("n");
        geo::writes = geo::writes + 1;
    }
    for (int i = 0; i < 3; i++)
        sum += numbers.pop();
    sum += static_cast<int>(names.pop().size());
    for (int value : {1, 2, 3, 4, 5, 6, 7}) {
        try {
            sum += geo::risky(value);
        } catch (const std::exception &) {
            sum += 1000;
        }
        sum += geo::scaled(value) + static_cast<int>(geo::scaled(1.5)) + geo::hidden(value);
    }
    sum += geo::scaled(1, "a") + geo::square(sum) * 0 + geo::larger(1, 2) + static_cast<int>(geo::larger(1.0, 2.0));
    Copied copied, again = copied;
    sum += again.value * 0;
    auto twice = [&](int value) { return value > 2 ? 2 * value : value; };
    for (int i = 0; i < 5; i++)
        sum += twice(i);
    std::unique_ptr<geo::Shape> shape(new geo::Box(2, 3));
    shape->use();
    shape->use();
    geo::Box box(1, 1);
    box += 2.0;
    using geo::operator""_twice;
    sum += (box < 3L) * 0 + (box < 4L) * 0;
    sum += 21_twice + static_cast<int>(static_cast<bool>(box));
    int *block = new int[10], *one = new (std::nothrow) int(3);
    alignas(int) char room[sizeof(int)];
    sum += *new (room) int(4) * 0;
    delete[] block;
    delete one;
    std::map<std::string, int> ages{{"a", 1}};
    if (auto found = ages.find("a"); found != ages.end())
        sum++;
    std::printf("%d %d\n", sum, geo::Shape::made);
    return 0;
}
"""
FUNCTIONS: dict[str, tuple[dict[str, Any], int]] = {
    "methods": ({"event": "entry", "function": "geo::Box::area"}, 7),
    "by_last_part": ({"event": "entry", "function": "Shape::use"}, 2),
    "overloads": ({"event": "entry", "function": "geo::scaled"}, 15),
    "one_overload": ({"event": "entry", "function": "geo::scaled(double)"}, 7),
    "two_parameters": ({"event": "entry", "function": "scaled(int, const char *)"}, 1),
    "constructors": ({"event": "entry", "function": "Box::Box"}, 9),
    "base_constructors": ({"event": "entry", "function": "Shape::Shape"}, 9),
    "destructors": ({"event": "entry", "function": "geo::Box::~Box"}, 9),
    "operators": ({"event": "entry", "function": "Box::operator+="}, 1),
    "operator_template": ({"event": "entry", "function": "geo::operator<"}, 2),
    "conversions": ({"event": "entry", "function": "Box::operator bool"}, 1),
    "literals": ({"event": "entry", "function": 'geo::operator""_twice'}, 1),
    "spaced_literals": ({"event": "entry", "function": 'operator "" _twice'}, 1),
    "instances": ({"event": "entry", "function": "Stack::push"}, 20),
    "instance": ({"event": "entry", "function": "Stack<std::string, 4>::push"}, 10),
    "outside_of_class": ({"event": "entry", "function": "Stack<int>::pop"}, 3),
    "function_template": ({"event": "entry", "function": "larger"}, 2),
    "one_of_template": ({"event": "entry", "function": "geo::larger<double>"}, 1),
    "lambda": ({"event": "entry", "function": "main::lambda@120"}, 5),
    "unnamed_namespace": ({"event": "entry", "function": "geo::hidden"}, 7),
    "run_time_calls": ({"event": "entry", "function": "geo::square"}, 1),
}
EVENTS: dict[str, tuple[dict[str, Any], int]] = {
    "left_by_exception_too": ({"event": "exit", "function": "geo::risky"}, 7),
    "exits": ({"event": "exit", "function": "Stack::push"}, 20),
    "branches": ({"event": "branch", "function": "geo::risky"}, 2),
    "branch_of_template": ({"event": "branch", "function": "Stack::push"}, 12),
    "branch_of_instance": ({"event": "branch", "function": "Stack<int, 8>::push"}, 8),
    "branch_with_initialiser": ({"event": "branch", "function": "main"}, 1),
    "condition_of_lambda": ({"event": "branch", "function": "main::lambda@120"}, 2),
    "loops": ({"event": "loop", "function": "main"}, 25),
    "calls": ({"event": "call", "callee": "geo::risky"}, 7),
    "calls_of_method": ({"event": "call", "callee": "Shape::use"}, 2),
    "calls_of_operator": ({"event": "call", "callee": "Box::operator+="}, 1),
    "writes": ({"event": "write", "variable": "geo::writes"}, 10),
    "static_member": ({"event": "write", "variable": "Shape::made"}, 18),
    "members": ({"event": "write", "field": "Box::width_"}, 1),
    "inherited": ({"event": "write", "field": "uses_"}, 2),
    "news": ({"event": "call", "callee": "operator new"}, 2),
    "arrays": ({"event": "call", "callee": "operator new[]"}, 1),
    "deletes": ({"event": "call", "callee": "operator delete"}, 1),
    "allocations": ({"event": "alloc", "function": "main"}, 3),
    "added": ({"event": "entry", "function": "geo::scaled(int)", "add": "value"}, 28),
    "in_local": ({"event": "loop", "function": "main", "local": True}, 25),
}
HEADERS = """algorithm array atomic chrono complex deque fstream functional iostream list map memory mutex random regex
set sstream string thread tuple unordered_map variant vector"""
LAMBDA_LINE = 1 + next(n for n, line in enumerate(PROGRAM.splitlines()) if "auto twice" in line)


def specs(of: Mapping[str, tuple[dict[str, Any], int]]) -> dict[str, MetricSpec]:
    """The metrics, with the line on which the lambda really begins."""
    return {
        name: MetricSpec.model_validate(
            {key: value.replace("@120", f"@{LAMBDA_LINE}") if isinstance(value, str) else value
             for key, value in spec.items()}
        )
        for name, (spec, _) in of.items()
    }  # fmt: skip


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cplusplus") / "shapes.cpp"
    path.write_text(PROGRAM)
    return path


def counts(build: Build) -> tuple[dict[str, int], bytes]:
    """The counters after a run in the guest, and what the program wrote."""
    with Machine(build.elf_path.read_bytes(), background=False) as machine:
        machine.run()
        assert machine.ending is not None
        assert machine.ending.status == 0
        found = {}
        for name, at in build.counters.items():
            place = machine.image.find_symbol(at.symbol)
            assert place is not None
            found[name] = machine.memory.read_int(place.address + at.offset_bytes, 8)
        return found, machine.files.output(1)


@pytest.mark.slow
@pytest.mark.parametrize("level", ["-O0", "-O2"])
def test_every_count_is_what_happens(source: Path, level: str) -> None:
    of = FUNCTIONS | EVENTS
    found, output = counts(build_program([source], [level, "-std=c++20"], specs(of)))
    assert found == {name: expected for name, (_, expected) in of.items()}
    with Machine(build_program([source], [level, "-std=c++20"]).elf_path.read_bytes(), background=False) as machine:
        machine.run()
        assert machine.files.output(1) == output


@pytest.mark.slow
def test_entries_are_what_probes_see(source: Path) -> None:
    """In the plain program, found by its debug information, without any counter."""
    flags = ["-O0", "-std=c++20"]
    metrics = specs(FUNCTIONS)
    plain = build_program([source], flags)
    finder = ProbeFinder(plain.elf_path, preprocess_all([source], flags, Toolchain()), flags, metrics)
    with pytest.raises(ProbeError, match="write its arguments as there"):  # it has another name for std::string
        finder.probe_for("instance")
    metrics.pop("instance")
    probes = [finder.probe_for(metric) for metric in metrics]
    counter = EventCounter([(probe.pcs, ()) for probe in probes])
    with Machine(plain.elf_path.read_bytes(), consumers=[counter], background=False) as machine:
        machine.run()
    assert dict(zip(metrics, counter.totals().tolist(), strict=True)) == {name: FUNCTIONS[name][1] for name in metrics}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"event": "entry", "function": "Copied::Copied"}, "'Copied::Copied' is declared but has no body"),
        ({"event": "entry", "function": "geo::Box::aria"}, "did you mean 'geo::Box::area'"),
        ({"event": "call", "callee": "geo::Box::Box"}, "count its entries"),
        ({"event": "entry", "function": "Stack<int, 8, 2>::push"}, "has 2 template parameters"),
        ({"event": "exit", "function": "geo::risky", "add": "value"}, "not possible with event `exit` in C++"),
    ],
)
def test_what_cannot_be_counted_is_said(source: Path, spec: dict[str, Any], message: str) -> None:
    with pytest.raises(InstrumenterError, match=message):
        build_program([source], ["-O0", "-std=c++20"], {"m": MetricSpec.model_validate(spec)})


def test_allocations_inside_the_library_are_said_not_to_be_counted(tmp_path: Path) -> None:
    source = tmp_path / "grow.cpp"
    source.write_text("#include <vector>\nint main() { std::vector<int> grown; grown.push_back(1); return 0; }\n")
    preprocessed = preprocess_all([source], [], Toolchain())
    said = "allocations inside the C++ library, such as those of its containers and strings, are not counted"
    with pytest.raises(SpecError) as caught:
        generate(preprocessed, [], {"m": MetricSpec(event="alloc")})
    assert str(caught.value) == f"metric 'm': no line of {source} has its event (alloc heap); {said}"
    with_new = {source: preprocessed[source].replace("grown;", "grown; delete new int;")}
    made = generate(with_new, [], {"m": MetricSpec(event="alloc"), "n": MetricSpec(event="entry", function="main")})
    assert made.sites == {"m": 1, "n": 1}
    assert made.warnings == (f"metric 'm': {said}",)
    without = {source: "int main() { delete new int; return 0; }"}
    assert generate(without, [], {"m": MetricSpec(event="alloc")}).warnings == ()


def test_a_name_that_means_several_functions(tmp_path: Path) -> None:
    (tmp_path / "two.cpp").write_text(
        "namespace a { int f(int x) { return x; } } namespace b { int f(int x) { return x; } }\n"
        "int main() { return a::f(0) + b::f(0); }\n"
    )
    with pytest.raises(SpecError, match=r"a::f.*b::f"):
        build_program([tmp_path / "two.cpp"], ["-O0"], {"m": MetricSpec(event="entry", function="f")})


def test_a_name_that_means_another_function_in_another_source_of_a_project(tmp_path: Path) -> None:
    """As with `sources:`; the program that is not measured may use the name for a third function."""
    (tmp_path / "Makefile").write_text(
        "all: app other\napp: main.o out.o\n\t$(CXX) -o $@ $^\nother: other.o\n\t$(CXX) -o $@ $^\n"
        "%.o: %.cpp\n\t$(CXX) -O0 -c $<\n"
    )
    (tmp_path / "main.cpp").write_text(
        "namespace out { int twice(int n); }\nnamespace in { int fold(int n) { return n; } }\n"
        "int main() { return in::fold(0) + out::twice(0); }\n"
    )
    (tmp_path / "out.cpp").write_text(
        "namespace out { int fold(int n) { return n; }\nint twice(int n) { return fold(n) + fold(n); } }\n"
    )
    (tmp_path / "other.cpp").write_text("namespace far { int fold() { return 0; } } int main() { return far::fold(); }")
    project = ProjectRecipe.of(Project(tmp_path, "make all", "app"))
    with pytest.raises(SpecError) as caught:
        project.build({"m": MetricSpec(event="entry", function="fold")})
    assert str(caught.value) == (
        "metric 'm': its function may be any of in::fold (main.cpp), out::fold (out.cpp): give the qualified name"
    )
    assert caught.value.metric == "m"
    assert counts(project.build({"m": MetricSpec(event="entry", function="out::fold")}))[0] == {"m": 2}


@pytest.mark.parametrize("standard", ["c++11", "c++14", "c++17", "c++20"])
def test_every_header_of_the_library_can_be_analysed(tmp_path: Path, standard: str) -> None:
    """Errors in the user's own text are what matters; headers of a newer compiler may have some."""
    includes = "".join(f"#include <{name}>\n" for name in HEADERS.split())
    (tmp_path / "all.cpp").write_text(includes + "int main() { return 0; }\n")
    flags = [f"-std={standard}"]
    text = Toolchain().preprocess(tmp_path / "all.cpp", flags).encode()
    diagnostics, _ = parse_leniently(text, "riscv64-linux-musl", flags)
    assert sum(one.severity >= 3 for one in diagnostics) <= 12


@pytest.mark.slow
def test_a_project_of_both_languages(tmp_path: Path) -> None:
    """By its own makefile: two sources of C++ that include a header with a template, and one of C."""
    files = {
        "Makefile": "app: main.o list.o sum.o\n\t$(CXX) -O1 -o $@ $^\n%.o: %.cpp\n\t$(CXX) -O1 -std=c++17 -c -o $@ $<\n"
        "%.o: %.c\n\t$(CC) -O1 -c -o $@ $<\n",
        "list.h": "#include <vector>\ntemplate <class T> class List {\npublic:\n"
        "    void add(T value) { values_.push_back(value); }\n    std::vector<T> values_;\n};\n",
        "list.cpp": '#include "list.h"\n'
        "int fill(List<int> &list) { for (int i = 0; i < 6; i++) list.add(i); return 0; }\n",
        "sum.c": "int sum(const int *values, int n)\n"
        "{ int all = 0; for (int i = 0; i < n; i++) all += values[i]; return all; }\n",
        "main.cpp": '#include <cstdio>\n#include "list.h"\n'
        'extern "C" int sum(const int *, int);\nint fill(List<int> &);\n'
        "int main() { List<int> list; fill(list); list.add(7); List<long> longs; longs.add(1);\n"
        '    std::printf("%d\\n", sum(list.values_.data(), (int)list.values_.size())); return 0; }\n',
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    metrics = {
        "added": MetricSpec(event="entry", function="List::add"),
        "ints": MetricSpec(event="entry", function="List<int>::add"),
        "rounds": MetricSpec(event="loop", function="sum"),
    }
    build = ProjectRecipe.of(Project(tmp_path, "make", "app")).build(metrics)
    assert counts(build) == ({"added": 8, "ints": 7, "rounds": 7}, b"22\n")
    wrong = {"m": MetricSpec(event="entry", function="List::ad")}
    with pytest.raises(SpecError, match="did you mean 'List::add'"):
        ProjectRecipe.of(Project(tmp_path, "make", "app")).build(wrong)


def test_a_whole_name_begins_with_colons(tmp_path: Path) -> None:
    """Without them a function outside of classes cannot be told from methods that end in its name."""
    main, other = tmp_path / "main.cpp", tmp_path / "other.cpp"
    main.write_text("int other(int n); int seen; int turn(int n) { return seen = n; }\n"
                    "int main() { return turn(1) + turn(2) + other(3) < 0; }\n")  # fmt: skip
    other.write_text("namespace geo { struct Box { int seen; int turn(int n) { return seen = n; } }; }\n"
                     "int other(int n) { geo::Box a; return a.turn(n) + a.turn(n) + a.turn(n); }\n")  # fmt: skip

    def entries(function: str) -> int:
        spec = MetricSpec(event="entry", function=function)
        return counts(build_program([main, other], ["-O0"], {"turns": spec}))[0]["turns"]

    with pytest.raises(InstrumenterError, match="qualified name, which is '::turn' for turn itself"):
        entries("turn")
    assert (entries("::turn"), entries("::turn(int)"), entries("Box::turn"), entries("::geo::Box::turn")) == (
        2,
        2,
        3,
        3,
    )
    with pytest.raises(InstrumenterError, match="no function '::Box::turn'"):
        entries("::Box::turn")
    writes = MetricSpec(event="write", variable="::seen")
    assert counts(build_program([main, other], ["-O0"], {"writes": writes}))[0] == {"writes": 2}


def test_coroutines_are_refused_as_such(tmp_path: Path) -> None:
    source = tmp_path / "steps.cpp"
    source.write_text(
        "#include <coroutine>\n"
        "struct Task { struct promise_type { Task get_return_object() { return {}; }\n"
        "    std::suspend_never initial_suspend() { return {}; }\n"
        "    std::suspend_never final_suspend() noexcept { return {}; }\n"
        "    void return_void() {} void unhandled_exception() {} }; };\n"
        "Task step(int n) { while (n--) co_await std::suspend_never(); }\n"
        "template <class T> T turn(int n) { while (n--) co_await std::suspend_never(); }\n"
        "int main() {\n"
        "    auto inner = [](int n) -> Task { if (n) co_return; co_return; };\n"
        "    inner(2); step(3); turn<Task>(2); return 0; }\n"
    )
    for function, place in (("step", "6: 'step'"), ("turn", "7: 'turn'"), ("main::lambda@9", "9: 'main::lambda@9'")):
        with pytest.raises(InstrumenterError, match=f"steps.cpp:{place} is a coroutine: coroutines are not"):
            build_program([source], ["-O0", "-std=c++20"], {"m": MetricSpec(event="entry", function=function)})
    assert counts(build_program([source], ["-O0", "-std=c++20"], {
        "m": MetricSpec(event="call", function="main", callee="step")}))[0] == {"m": 1}  # fmt: skip


def test_a_macro_that_is_one_statement_is_no_loop(tmp_path: Path) -> None:
    (tmp_path / "demo.cpp").write_text(
        "#define ONCE(x) do { x; } while (false)\n#define ALSO(x) do { x; } while ((0))\n"
        "#define QUIET(x) do { x; } while ((void)0, 0)\n"
        "int work(int n)\n{\n    ONCE(n++);\n    ALSO(n++);\n    QUIET(n++);\n    do { n++; } while (n < 10);\n"
        "    do { n++; } while (n - 11, n < 11);\n    return n;\n}\n"
        "int main() { return work(1) != 11; }\n"
    )
    build = build_program([tmp_path / "demo.cpp"], ["-O1"], {"loops": MetricSpec(event="loop", function="work")})
    assert build.places == {"loops": {f"{tmp_path}/demo.cpp:{line}": 1 for line in (9, 10)}}


def test_without_its_library_a_program_is_the_same_linked_as_one_of_c(tmp_path: Path) -> None:
    """So a program is the same whether or not the library was there when it was linked."""
    source, loaded = tmp_path / "a.cpp", []
    source.write_text(
        '#include <cstdio>\nstruct A { int n; ~A() { std::printf("%d\\n", n); } } static a{3};\n'
        "int main(int count, char **) { A b{count}; return 0; }\n"
    )
    toolchain = Toolchain()
    toolchain.compile(source, ["-O1", "-fno-exceptions"], tmp_path / "a.o")
    for driver in ("cc", "c++"):
        toolchain.prepare("c++")
        toolchain.link([tmp_path / "a.o"], ["-O2"], tmp_path / driver, driver)
        elf = ELFFile(io.BytesIO((tmp_path / driver).read_bytes()))
        sections = [each for each in elf.iter_sections() if each["sh_flags"] & SH_FLAGS.SHF_ALLOC]
        loaded.append([(each.name, each["sh_addr"], each.data()) for each in sections])
    assert loaded[0] == loaded[1]
