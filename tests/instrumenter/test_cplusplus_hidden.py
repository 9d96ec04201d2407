"""Parts of C++ statements and expressions that libclang's visitor leaves out, or shows without their outermost part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from instrumenter.building.generated_sources import explain_no_events
from instrumenter.find.find import find_source_events
from instrumenter.find.sites import FoundSites
from instrumenter.spec.software_metrics import MetricSpec
from tests.instrumenter.test_counter_forms import counts_of
from tests.instrumenter.test_cplusplus_text import built

HIDDEN = """
#include <initializer_list>
#include <typeinfo>
static int n, calls;
[[gnu::noinline]] static int f(int x) { calls++; return x + 1; }
struct Range { int values[2]; int *begin() { return values; } int *end() { return values + 2; } };
static Range range(int x) { return {{x, 1}}; }
struct Base { virtual ~Base() = default; } base;
static Base &some(int) { return base; }
struct Thrower { int x; Thrower(int a) try : x(f(a)) { throw f(a); } catch (int) { f(a); } };
static int trying(int x) try { if (f(x)) throw 1; return 0; } catch (...) { return f(x); }
enum class Colour { red, blue };
template <class T> static T generic(T t)
{
    if constexpr (int x = f(n++); sizeof(T) > 1) t += x;
    for (int k = f(n++); T v : {t, t}) t += v + k;
    return [t, k = f(n++)] { return t + k; }();
}
int main()
{
    int r = 0;
    for (int i = 0; i < 10; i++) {
        auto l = [k = f(i), m = n++, q(f(i)), s{f(i)}, c = [&] { return f(i); }, t = (i > 4 ? 1 : 2)]
            { return k + m + q + s + c() + t; };
        r += l();
        switch (int x = f(n++); x & 1) { case 0: r++; }
        switch (n++; Colour y = Colour(f(i) % 2)) { case Colour::red: switch (int z = f(int(y)); z) { case 1: r++; } }
        switch(int x=i;x)default:switch(int y=x;y)
            case 1: r += f(y);
        for (auto v = range(f(n++)); int &q : v.values) q += f(q);
        for (int a = f(i); int b : {1, 2}) for (int c = f(b); int d : {c, f(a)}) r += d;
        for (auto get = [&] { return f(n++); }; int b : {get(), get()})
            r += b;
        if (int x = f(n++); x > 3) r++;
        if (n++; i) r++;
        int lengths[f(i)];
        r += sizeof lengths > 3 && typeid(some(f(i))) == typeid(Base);
        r += trying(i) + generic(i) + (f)(i) + (::f)(i);
        try { Thrower thrower(i); } catch (...) { r++; }
    }
    return f(calls + r + n) == 1 ? 99 : 0;
}
"""

NESTED = """
int f(int), n;
int main()
{
    switch (int x = ({ switch (int y = f(n++); y) { default:; } 1; }); x) { default: n++; }
}
"""

LAMBDAS = """
struct Sum { long s; void all() { [this](int x) { s += x; }(3); } };
long total;
static int many(int x)
{
    int r = 0;
    auto own = [&](int x) {
        int mine = 0;
        total += x;
        x++, mine++;
        r += x;
    };
    int mine = 1, bound = 2;
    mine++, x++, total++, r++;
    own(x);
    return [&inner = bound] { return inner++; }() + mine;
}
"""


def sites(text: str, **metrics: dict[str, Any]) -> FoundSites:
    specs = {name: MetricSpec.model_validate(spec) for name, spec in metrics.items()}
    return find_source_events(text.encode(), "demo.cpp", specs, None, ["-std=gnu++20"], cplusplus=True)


def test_every_call_is_counted_that_the_program_makes(tmp_path: Path) -> None:
    """Calls in captures of lambdas, in init statements and in handlers of whole functions were missed in silence."""
    metrics = {
        "calls": {"event": "call", "callee": "f"}, "entries": {"event": "entry", "function": "f"},
        "written": {"event": "write", "variable": "n"}, "branches": {"event": "branch", "function": "main"},
        "in_lambdas": {"event": "call", "callee": "f", "function": "main::lambda@32"},
    }  # fmt: skip
    build = built(tmp_path, HIDDEN, **metrics)
    found = counts_of(build)
    assert not build.warnings
    assert found["calls"] == found["entries"] > 200
    assert found == found | {"written": 10 * 11, "branches": 5 + 10 + 9, "in_lambdas": 20}


def test_an_init_statement_inside_of_another_is_warned_of() -> None:
    events = sites(NESTED, m={"event": "call", "callee": "f"}, w={"event": "write", "variable": "n"})
    what = "the statement before the semicolon is not analysed here: move it before this statement"
    assert events.warnings == [f"demo.cpp:5: metric '{metric}': {what}" for metric in "mw"]
    assert [site.metric for site in events.sites] == ["w"]
    spec = MetricSpec(event="call", callee="f")
    assert explain_no_events("m", spec, {"demo.cpp": events}) == (
        f"metric 'm': no line of demo.cpp has its event (call f), but demo.cpp:5: {what}"
    )


def test_writes_in_a_lambda_are_warned_of_where_a_metric_counts_those_in_the_function_around_it() -> None:
    """Nothing was said of them. What the lambda declares itself is no reason for a warning."""
    names = ("r", "mine", "total", "x", "bound")
    metrics = {name: {"event": "write", "variable": name, "function": "many"} for name in names}
    events = sites(LAMBDAS, **metrics, s={"event": "write", "field": "Sum::s", "function": "Sum::all"})

    def warning(line: int, metric: str, function: str) -> str:
        return (
            f"demo.cpp:{line}: metric '{metric}': '{metric}' is written here in a lambda, which is a function of its "
            f"own; a metric with `function: '{function}::lambda@{line if metric == 's' else 7}'` counts what it writes"
        )

    assert set(events.warnings) == {
        warning(11, "r", "many"), warning(9, "total", "many"), warning(2, "s", "Sum::all"),
        "demo.cpp:16: metric 'bound': a reference to 'bound' is bound here; writes through it are not counted",
    }  # fmt: skip
    assert [site.metric for site in events.sites] == ["mine", "x", "total", "r"]
