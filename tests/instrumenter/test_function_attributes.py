"""Attributes go before definitions of functions, which are named by their symbols."""

from __future__ import annotations

import pytest

from instrumenter.errors import SourceError
from instrumenter.rewrite.function_attributes import with_attributes

CPLUSPLUS = """\
namespace { int hidden(int n) { return n; } }
namespace geo {
class Box {
    int n;
    int early() { return late(); }
    int late();
    int late(int more);
public:
    Box(int n) : n(n) {}
    virtual ~Box() {}
};
int Box::late() { return n; }
int Box::late(int more) { return n + more; }
template <class T> T larger(T a, T b) { return a < b ? b : a; }
}
extern "C" { int plain(int n) { return geo::larger(n, hidden(2)); } }
"""


def test_functions_of_c_go_by_their_names() -> None:
    text = "static int f(int a);\nint g(void) { return f(1); }\nstatic int f(int a) { return a; }\n"
    assert with_attributes(text, "a.c", {"f": "noinline", "h": "noinline"}) == (
        text.replace("static int f(int a) {", "__attribute__((noinline)) static int f(int a) {"),
        ("f",),
    )


@pytest.mark.parametrize(("symbol", "definition"), [
    ("_ZN12_GLOBAL__N_16hiddenEi", "int hidden("), ("_ZN3geo3Box5earlyEv", "int early("),
    ("_ZN3geo3Box4lateEv", "int Box::late()"), ("_ZN3geo3Box4lateEi", "int Box::late(int more)"),
    ("_ZN3geo3BoxC2Ei", "Box(int n) :"), ("_ZN3geo3BoxC1Ei", "Box(int n) :"), ("plain", "int plain("),
    ("_ZN3geo3BoxD0Ev", "virtual ~Box()"),
])  # fmt: skip
def test_functions_of_cplusplus_go_by_their_symbols(symbol: str, definition: str) -> None:
    text, found = with_attributes(CPLUSPLUS, "a.cpp", {symbol: "noinline"})
    assert text == CPLUSPLUS.replace(definition, f"__attribute__((noinline)) {definition}")
    assert found == (symbol,)


def test_instances_of_templates_stay_as_they_are() -> None:
    assert with_attributes(CPLUSPLUS, "a.cpp", {"_ZN3geo6largerIiEET_S1_S1_": "noinline"}) == (CPLUSPLUS, ())


def test_text_of_another_language_is_an_error() -> None:
    with pytest.raises(SourceError):
        with_attributes(CPLUSPLUS, "a.c", {"plain": "noinline"})
