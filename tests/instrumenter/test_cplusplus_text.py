"""C++ text that is easily read wrongly, and what counters count in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from instrumenter.building.program_build import Build, build_program
from instrumenter.errors import SpecError
from instrumenter.spec.software_metrics import MetricSpec
from tests.instrumenter.test_counter_forms import counts_of


def built(folder: Path, text: str, flag: str = "-O1", /, **metrics: dict[str, Any]) -> Build:
    """The program ``text`` with counters."""
    source = folder / "demo.cpp"
    source.write_text(text)
    specs = {name: MetricSpec.model_validate(spec) for name, spec in metrics.items()}
    return build_program([source], [flag, "-std=c++20"], specs)


@pytest.mark.parametrize(
    "condition",
    ["x > 1'000", "x > 0x3'e8", 'x > 1000 && *R"x(")x"', "x > 1000 && *u8\"'\" && L'\\'' && 1'0.5", "x > 1'000_same"],
)
@pytest.mark.parametrize("statement", ["r = k('a'); else r = 2;", "r = k('(');", "{ r = 'a'; } else { r = ')'; }"])
def test_a_condition_with_quotes_in_numbers_and_raw_strings(condition: str, statement: str, tmp_path: Path) -> None:
    """It counted the `else`, refused good code, or ended in a traceback."""
    text = f"""
constexpr int operator""_same(unsigned long long value) {{ return value; }}
static int k(int c) {{ return c * 2; }}
static int f(int x) {{ int r = 0; if ({condition}) {statement} return r; }}
int main() {{ int s = 0; for (int i = 0; i < 3000; i++) s += f(i); return s == 1; }}
"""
    build = built(tmp_path, text, branches={"event": "branch", "function": "f"})
    assert counts_of(build) == {"branches": 1999}


def test_arrays_by_new_whose_length_has_brackets(tmp_path: Path) -> None:
    text = """
int main()
{
    int a[] = {3, 4};
    int *p = new int[a[0]], *q = new int(a[1]), *r = new int[2]{int(a[0]), 2};
    int sum = p[0] * 0 + *q + *r;
    delete[] p; delete q; delete[] r;
    return sum == 1'000;
}
"""
    news = {name: {"event": "call", "callee": f"operator {name}"} for name in ("new", "new[]")}
    assert counts_of(built(tmp_path, text, **news)) == {"new": 1, "new[]": 2}


SCALE = """
template <class T> static double scale(T x) { return x * 0.5; }
static double half(double x) { return x * 0.5; }
int main() { double d = 0; for (int i = 0; i < 40; i++) d += scale(-0.75 * i) + half(-0.75 * i); return d > 0; }
"""


@pytest.mark.parametrize("atomic", [False, True])
def test_an_expression_with_a_fraction(atomic: bool, tmp_path: Path) -> None:
    """Of negative ones the sum was any number. With atomic counters nothing looked at expressions in C++."""
    source = tmp_path / "demo.cpp"
    source.write_text(SCALE)
    add = {"whole": "(long long)(100 * x)", "cut": "(long long)(x)"}
    specs = {name: MetricSpec(event="entry", function="half", add=added) for name, added in add.items()}
    specs["template"] = MetricSpec(event="entry", function="scale", add="x")
    build = build_program([source], ["-O1"], specs, atomic=atomic)
    found = {name: count - (1 << 64) for name, count in counts_of(build).items()}
    cut = -sum(int(0.75 * i) for i in range(40))
    assert found == {"whole": -58_500, "cut": cut, "template": cut}
    with pytest.raises(SpecError, match=r"'x', is a floating-point number \(double\) where .*demo.cpp:3; counters add"):
        build_program([source], ["-O1"], {"m": MetricSpec(event="entry", function="half", add="x")}, atomic=atomic)


INITIALISERS = """
#include <cstdlib>
static int hits;
int lookup(int k) { hits++; return k * 3; }
constexpr int twice(int k) { return 2 * k; }
static int table = lookup(1), many[] = {lookup(1), lookup(2)};
const int four = twice(2);
int room[four];
struct Settings {
    int a = lookup(2);
    int b{lookup(5)};
    static const int size = twice(3);
    static inline int kept = lookup(7);
    int buffer[size];
    Settings() : b(lookup(3)) {}
};
template <class T> struct Box { T value = lookup(1); };
static int more(int x, int y = lookup(4)) { return x + y; }
static int constant(int x, int y = twice(4)) { return x + y; }
auto lambda = [](int a, int b = lookup(1)) { return a + b; };
void *block = std::malloc(3);
namespace inner { thread_local int own = lookup(3); struct In { static int shared; }; int In::shared = lookup(2); }
int main()
{
    int sum = table + many[1] + lambda(1);
    auto [quotient, rest] = std::div(lookup(1), 2);
    for (int i = 0; i < 10; i++) {
        Settings settings;
        Box<long> box;
        sum += settings.a + settings.b + more(i) + constant(i) + box.value + quotient;
    }
    return hits + inner::own == 1 || sum == 1;
}
"""


@pytest.mark.parametrize("flag", ["-O0", "-O2"])
def test_calls_in_initialisers_of_globals_members_and_parameters(flag: str, tmp_path: Path) -> None:
    """What the compiler evaluates, such as the lengths of arrays, stays constant and is no call."""
    metrics = {f"{event}_{name}": {"event": event, key: name} for name in ("lookup", "twice")
               for event, key in (("call", "callee"), ("entry", "function"))}  # fmt: skip
    metrics |= {"allocations": {"event": "alloc"}, "bytes": {"event": "alloc_bytes"}}
    found = counts_of(built(tmp_path, INITIALISERS, flag, **metrics))
    assert found["call_lookup"] == found["entry_lookup"] == 48
    assert found == {**found, "call_twice": 10, "entry_twice": 10, "allocations": 1, "bytes": 3}


def test_an_initialiser_that_cannot_be_analysed_is_warned_of(tmp_path: Path) -> None:
    text = (
        "int f() { return 1; }\nstruct Bits { int narrow : 4 = f(); int wide = f(); };\n"
        "int main() { return !Bits().wide; }\n"
    )
    build = built(tmp_path, text, calls={"event": "call", "callee": "f"})
    assert [one.split(": ", 1)[1] for one in build.warnings] == [
        "metric 'calls': the initialiser of this bit-field cannot be analysed; what happens in it is not counted"
    ]


@pytest.mark.parametrize("flag", ["-O0", "-O2"])
def test_constants_that_others_need_stay_constant(flag: str, tmp_path: Path) -> None:
    """Their initialisers could not hold a counter: the program did not compile."""
    text = """
template <int n> struct Array { int items[n]; };
constexpr int twice(int k) { return k > 2 ? 2 * k : 0; }
static int lengths(int x)
{
    const int n = sizeof(long) == 8 ? 4 : 8, m = twice(3);
    static const int s = twice(5);
    enum { K = n > 3 ? 7 : 9 };
    Array<n> a{};
    Array<m> b{};
    a.items[0] = x > 5 ? 1 : 2;
    switch (x) { case n: return 1; case s: return twice(K); default: return a.items[0] + b.items[1] + twice(x); }
}
int main() { int s = 0; for (int i = 0; i < 11; i++) s += lengths(i); return s == 1; }
"""
    metrics = {"branches": {"event": "branch", "function": "lengths"}, "calls": {"event": "call", "callee": "twice"}}
    assert counts_of(built(tmp_path, text, flag, **metrics)) == {"branches": 5, "calls": 10}


REFERENCES = """
#include <functional>
#include <utility>
#include <vector>
struct Pair { int x, y; };
int local, argument, result, in_body, member, swapped, read, captured, deduced, wrapped, row[3];
Pair pair;
static void set(int &r) { r = 1; }
static int get(const int &r) { return r; }
static int &give() { return result; }
struct Holder { int &held; Holder(int &given) : held(given) {} Holder() : held(in_body) {} };
template <class T> void set_any(T &&to) { to = 1; }
int main()
{
    local = argument = result = in_body = member = swapped = read = captured = deduced = wrapped = row[0] = pair.x = 1;
    int &alias = local;
    set(argument);
    give() = 2;
    Holder first, second(member);
    for (auto &each : row) each = 2;
    auto &[x, y] = pair;
    std::swap(swapped, row[1]);
    [&] { captured++; }();
    std::vector<int> list;
    list.push_back(read);
    list.emplace_back(read);
    const int &constant = read;
    for (int each : row) list[0] += each;
    auto [copy, other] = pair;
    set_any(deduced);
    std::ref(wrapped).get() = 2;
    return get(read) + constant + copy + other + x + y + alias == 99;
}
"""


def test_references_to_what_is_written_are_warned_of(tmp_path: Path) -> None:
    """Reading through one, or writing in a lambda that captures by reference, is no reason for a warning."""
    names = [
        "local", "argument", "result", "in_body", "member", "swapped", "read", "captured", "deduced", "wrapped", "row",
        "pair",
    ]  # fmt: skip
    build = built(tmp_path, REFERENCES, **{name: {"event": "write", "variable": name} for name in names})
    lines = {name: 1 + REFERENCES.splitlines().index(line) for name, line in {
        "local": "    int &alias = local;", "argument": "    set(argument);",
        "result": "static int &give() { return result; }",
        "in_body": "struct Holder { int &held; Holder(int &given) : held(given) {} Holder() : held(in_body) {} };",
        "member": "    Holder first, second(member);", "row": "    for (auto &each : row) each = 2;",
        "pair": "    auto &[x, y] = pair;", "swapped": "    std::swap(swapped, row[1]);",
        "deduced": "    set_any(deduced);", "wrapped": "    std::ref(wrapped).get() = 2;",
    }.items()}  # fmt: skip
    assert {one.rpartition("/")[2] for one in build.warnings} == {
        f"demo.cpp:{line}: metric '{name}': a reference to '{name}' is bound here; writes through it are not counted"
        for name, line in lines.items()
    }
    assert counts_of(build) == {**dict.fromkeys(names, 1), "captured": 2}


def test_defaults_of_template_arguments_belong_to_specialisations(tmp_path: Path) -> None:
    text = """
template <class A, class B = int> struct Box { A a; void set(A x) { a = x; } };
template <> struct Box<char> { char a; void set(char x) { a = x; } };
template <int n, class T> T scaled(T x) { return n * x; }
template <> int scaled<2>(int x) { return x + x; }
int main()
{
    Box<int> i; Box<char> c; Box<char, long> l;
    for (int k = 0; k < 10; k++) { i.set(k); c.set(k); if (k < 4) l.set(k); }
    return scaled<2>(i.a) + scaled<3>(1) + c.a + l.a == 1;
}
"""
    names = {"Box::set": 24, "Box<int>::set": 10, "Box<char>::set": 14, "Box<char, int>::set": 10,
             "Box<char, long>::set": 4, "scaled<2>": 1, "scaled<2, int>": 1, "scaled<3>": 1}  # fmt: skip
    build = built(tmp_path, text, **{f"m{n}": {"event": "entry", "function": name} for n, name in enumerate(names)})
    assert list(counts_of(build).values()) == list(names.values())


def test_a_function_whose_parameter_has_the_type_auto(tmp_path: Path) -> None:
    text = """
static int taken(auto x) { for (int i = 0; i < x; i++) if (i > 1'0) return 1; return x; }
int main() { int s = 0; for (int k = 0; k < 10; k++) s += taken(k) + taken(1.5); return s == 1; }
"""
    metrics: dict[str, dict[str, Any]] = {event: {"event": event, "function": "taken"} for event in ("entry", "exit")}
    metrics["sum"] = {"event": "entry", "function": "taken", "add": "(int)x"}
    assert counts_of(built(tmp_path, text, **metrics)) == {"entry": 20, "exit": 20, "sum": 55}
