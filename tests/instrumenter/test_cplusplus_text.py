"""C++ text that is easily read wrongly, and what counters count in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from instrumenter.building.program_build import Build, build_program
from instrumenter.errors import SpecError
from instrumenter.spec.software_metrics import MetricSpec
from tests.instrumenter.test_counter_forms import counts_of


def built(folder: Path, text: str, flag: str = "-O1", **metrics: dict[str, Any]) -> Build:
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
