"""What users are told: exact messages for metrics and sources that cannot be instrumented."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from instrumenter.building.generated_sources import Generated, generate, preprocess_all
from instrumenter.building.program_build import SamplerConfig, build_program
from instrumenter.compiler.toolchain import GUEST_TARGET, Toolchain
from instrumenter.errors import CompileFailure, InstrumenterError, SourceError, SpecError
from instrumenter.spec.software_metrics import MetricSpec

PROGRAM = """\
int puts(const char *);
struct item { int value; } items[3];
int global;
static int search(int depth)
{
    int count = 0;
    for (int i = 0; i < depth; i++)
        count += i;
    return count;
}
int main(void)
{
    int (*pointer)(int) = search;
    int *way = &global;
    struct item *first = items;
    return search(3) - 3 + pointer(0) + *way + first->value;
}
"""


def instrument(text: str, **metrics: dict[str, Any]) -> Generated:
    specs = {name: MetricSpec.model_validate(spec) for name, spec in metrics.items()}
    return generate({Path("src/game.c"): text}, [], specs, target=GUEST_TARGET)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"event": "entry", "function": "serach"},
         "metric 'm': no function 'serach' in src/game.c; did you mean 'search'?"),
        ({"event": "entry", "function": "zzz"}, "metric 'm': no function 'zzz' in src/game.c"),
        ({"event": "entry", "function": "puts"},
         "metric 'm': function 'puts' is declared but has no body in src/game.c; its calls can be counted: "
         "{event: call, callee: puts}"),
        ({"event": "call", "callee": "sarch"},
         "metric 'm': no callee 'sarch' in src/game.c; did you mean 'search'?"),
        ({"event": "call", "callee": "puts"},
         "metric 'm': no line of src/game.c has its event (call puts); nothing to count"),
        ({"event": "write", "variable": "globl"},
         "metric 'm': no variable 'globl' in src/game.c; did you mean 'global'?"),
        ({"event": "write", "variable": "count"},
         "metric 'm': nothing writes a global or static variable 'count' by name in src/game.c; for a local "
         "variable say in which `function:`"),
        ({"event": "write", "field": "valu"},
         "metric 'm': no field 'valu' in src/game.c; did you mean 'value'?"),
        ({"event": "loop", "function": "main"},
         "metric 'm': no line of src/game.c has its event (loop main); nothing to count"),
        ({"event": "loop", "function": "search", "file": "gama.c"},
         "metric 'm': no functions come from a file 'gama.c'; did you mean 'game.c'?"),
        ({"event": "entry", "function": "search", "add": "deep"},
         "metric 'm': the expression to add, 'deep', is not valid (use of undeclared identifier 'deep') where "
         "the event happens, src/game.c:5"),
        ({"event": "exit", "function": "search", "add": "count++"},
         "metric 'm': the expression to add, 'count++', changes the program (it assigns) where the event happens, "
         "src/game.c:9"),
        ({"event": "entry", "function": "search", "add": "0.5f * depth"},
         "metric 'm': the expression to add, '0.5f * depth', is a floating-point number (float) where the event "
         "happens, src/game.c:5; counters add whole numbers, and would cut off its fraction at each event: write "
         "'(long long)(1000 * (0.5f * depth))' to add up thousandths, or '(long long)(0.5f * depth)' to cut it off"),
        ({"event": "entry", "function": "search", "add": "depth = 1"},
         "metric 'm': the expression to add, 'depth = 1', changes the program (it assigns) where the event "
         "happens, src/game.c:5"),
    ],
)  # fmt: skip
def test_metrics_without_events(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        instrument(PROGRAM, m=spec)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"event": "entry"}, "event `entry` needs exactly one of `function:`, got none of them"),
        ({"event": "write", "variable": "a", "field": "b"},
         "event `write` needs exactly one of `variable:` or `field:`, got `variable:` and `field:`"),
        ({"event": "entry", "function": "f", "callee": "g"}, "`callee:` means nothing for event `entry`"),
        ({"event": "alloc_bytes", "add": "1"},
         "`add:` means nothing for event `alloc_bytes`: it adds the bytes asked for"),
        ({"event": "entry", "function": "f("}, "got 'f(': its brackets do not match"),
        ({"event": "write", "field": "a.b.c"}, "got 'a.b.c', expected a field's name, or `struct_tag.name`"),
        ({"event": "entry", "function": "f", "add": "x; y"}, "got 'x; y', expected one C expression"),
        ({"event": "entry", "function": "f", "add": "x) + (y"},
         "got 'x) + (y', expected one C expression: its parentheses do not match"),
        ({"event": "entry", "function": "f", "add": "x // y"}, "got 'x // y', expected one C expression"),
    ],
)  # fmt: skip
def test_metrics_that_make_no_sense(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        MetricSpec.model_validate(spec)
    assert str(caught.value.errors()[0]["ctx"]["error"]) == message


def test_a_number_can_be_added() -> None:
    assert MetricSpec.model_validate({"event": "entry", "function": "f", "add": 2}).add == "2"


ADDED = """
unsigned long strlen(const char *);
int puts(const char *), declared(int) __attribute__((pure));
static long sum;
static __int128 wide;
static int writes(void) { return ++sum, 5; }
static int calls_it(int x) { int y = x; y++; return y > 3 ? writes() : 2; }
static int pure(int x) { int y[2]; y[0] = x; y[1] = 1; y[1]++; return x ? pure(y[0] - 1) : 0; }
static int through(int *x) { *x = 3; return 1; }
int work(int x, const char *p, int (*f)(int)) { return x; }
static int late(void) { return 4; }
int main(void) { return work(1, "a", declared) + late(); }
"""
_UNDECLARED = ", which is not declared where the event happens, src/game.c:10"
_LATE = _UNDECLARED + " ('late' stands at src/game.c:11): declare it before, or add what is known there"


@pytest.mark.parametrize(
    ("add", "message"),
    [
        ("writes()", "changes the program ('writes' writes 'sum') where the event happens, src/game.c:10"),
        ("calls_it(x)", "changes the program ('writes' writes 'sum') where the event happens, src/game.c:10"),
        ("late()", "calls 'late'" + _LATE),
        ("nowhere()", "calls 'nowhere'" + _UNDECLARED + ": declare it before, or add what is known there"),
        ("wide", "is wider than 64 bits (__int128) where the event happens, src/game.c:10; counters have 64 bits, and "
         "would cut it: write '(long long)(wide)' for its lower 64 bits"),
        ("p + 1", "is a pointer (const char *) where the event happens, src/game.c:10; counters would add its address: "
         "write '(uintptr_t)(p + 1)' if that is meant ('(unsigned long)(p + 1)' without <stdint.h>), else what it "
         "points to"),
        ("(unsigned long)p + *p", None), ("strlen(p) + abs(x)", None), ("declared(x) + pure(x)", None),
        ("__builtin_popcount(x)", None),
        ("puts(p)", "it calls 'puts', which may change the program"),
        ("f(x)", "it calls a function through a pointer, which may change the program"),
        ("through(&x)", "it calls 'through', which writes through a pointer or to an object"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", [{}, {"local": True}])
def test_what_an_expression_to_add_does(add: str, message: str | None, form: dict[str, Any]) -> None:
    spec = {"event": "entry", "function": "work", "add": add, **form}
    if message is None:
        assert instrument(ADDED, m=spec).warnings == ()
    elif message.startswith("it calls"):
        assert instrument(ADDED, m=spec).warnings == (
            f"src/game.c:10: metric 'm': the expression to add, '{add}', is evaluated at each event, and {message}; "
            "if it changes nothing, declare that with __attribute__((pure))",
        )
    else:
        with pytest.raises(SpecError) as caught:
            instrument(ADDED, m=spec)
        assert str(caught.value) == f"metric 'm': the expression to add, '{add}', {message}"


def test_a_parameter_of_the_callee_is_not_known_in_callers() -> None:
    spec = {"event": "call", "callee": "search", "add": "depth"}
    with pytest.raises(SpecError) as caught:
        instrument(PROGRAM, m=spec)
    assert str(caught.value) == (
        "metric 'm': the expression to add, 'depth', is not valid (use of undeclared identifier 'depth') where the "
        "event happens, src/game.c:16. An expression of event `call` is evaluated in the caller, and 'depth' is a "
        "parameter of 'search': count entries instead, {event: entry, function: search, add: \"depth\"}"
    )
    instead = instrument(PROGRAM, m={"event": "entry", "function": "search", "add": "depth"})
    assert instead.places == {"m": {"src/game.c:5": 1}}
    with pytest.raises(SpecError) as caught:
        instrument(PROGRAM, m=spec | {"add": "dept"})
    assert "count entries" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "spec", "message"),
    [
        ("int main(void) { return x; }", {"event": "entry", "function": "main"},
         "src/game.c cannot be analysed:\n  src/game.c:1: use of undeclared identifier 'x'"),
        ('# 40 "parser.y"\nint main(void) { return 0 }', {"event": "entry", "function": "main"},
         "src/game.c cannot be analysed:\n  parser.y:40: expected ';' after return statement"),
        ("\n__attribute__((naked)) void f(void) { __asm__(\"ret\"); }", {"event": "entry", "function": "f"},
         "src/game.c:2: 'f' is a naked function: only assembly can stand in it"),
        ("int f(int n) { return n; } int g(int n) { return n; }\nint main(void) {\n"
         "  return _Generic(1, int: f, default: g)(0);\n}", {"event": "call", "callee": "f"},
         "src/game.c:3: metric 'm': this _Generic call may reach f, g; it cannot be counted as a call of one of "
         "them"),
    ],
)  # fmt: skip
def test_sources_that_cannot_be_instrumented(text: str, spec: dict[str, Any], message: str) -> None:
    with pytest.raises(SourceError) as caught:
        instrument(text, m=spec)
    assert str(caught.value) == message
    place = caught.value.place
    assert (place is None) == ("cannot be analysed" in message)  # which may be at several places
    assert place is None or message.startswith(f"{place[0]}:{place[1]}: ")


def test_warnings_of_what_is_not_counted() -> None:
    generated = instrument(
        PROGRAM.replace("return search(3)", "items[0].value = 1; global = 2; return search(3)"),
        calls={"event": "call", "callee": "search"},
        whole={"event": "write", "variable": "items"},
        plain={"event": "write", "variable": "global"},
    )  # fmt: skip
    assert generated.sites == {"calls": 1, "whole": 1, "plain": 1}
    assert generated.warnings == (
        "src/game.c:13: metric 'calls': the address of 'search' is taken here; calls through it are not counted",
        "src/game.c:14: metric 'plain': the address of 'global' is taken here; writes through it are not counted",
        "src/game.c:15: metric 'whole': 'items' becomes a pointer here; writes through it are not counted",
    )


def test_a_loop_that_a_case_leads_into() -> None:
    """Duff's device: its first turn begins behind the counter."""
    text = """\
static void copy(char *to, const char *from, int n)
{
    int turns = (n + 3) / 4;
    switch (n % 4) {
    case 0: do { *to++ = *from++;
    case 3: *to++ = *from++;
    default: *to++ = *from++;
        } while (--turns > 0);
    }
    for (int i = 0; i < n; i++) switch (to[i]) { case 1: to[i] = 2; }
}
int main(void) { char to[9]; copy(to, "12345678", 7); return to[0] != '1'; }
"""
    generated = instrument(text, turns={"event": "loop", "function": "copy"})
    assert generated.sites == {"turns": 2}
    assert generated.warnings == (
        "src/game.c:5: metric 'turns': a `case` leads into this loop; an iteration that begins there is not counted",
    )


def test_no_sources_and_no_such_source(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        build_program([])
    assert str(caught.value) == "no source files given, expected at least one"
    with pytest.raises(SourceError) as caught:
        build_program([tmp_path / "nothing.c"])
    assert str(caught.value) == f"{tmp_path}/nothing.c: no such source file"


def test_compile_errors_are_at_the_users_lines(tmp_path: Path) -> None:
    source = tmp_path / "broken.c"
    source.write_text('#include "missing.h"\nint main(void) { return 0; }\n')
    with pytest.raises(CompileFailure) as caught:
        preprocess_all([source], [], Toolchain(None))
    assert str(caught.value) == (f"{source} cannot be preprocessed:\n  {source}:1: 'missing.h' file not found")
    assert caught.value.errors == (f"{source}:1: 'missing.h' file not found",)
    assert (caught.value.missing_header, caught.value.undefined) == ("missing.h", ())
    source.write_text("int f(void);\n\nint main(void) { return f(1) + g; }\n")
    with pytest.raises(CompileFailure) as caught:
        build_program([source], ["-O0"], target=None)
    assert (caught.value.missing_header, caught.value.undefined) == (None, ())
    assert str(caught.value).splitlines() == [
        "the program does not compile:",
        f"  {source}:3: too many arguments to function call, expected 0, have 1",
        f"  {source}:3: use of undeclared identifier 'g'",
    ]


def test_what_a_link_misses_is_known_by_name(tmp_path: Path) -> None:
    source = tmp_path / "gap.c"
    source.write_text("int far(int); int near(void); int main(void) { return far(near()); }\n")
    with pytest.raises(CompileFailure, match="the program does not compile:\n  undefined symbol: ") as caught:
        build_program([source], ["-O0"], target=None)
    assert sorted(caught.value.undefined) == ["far", "near"]
    assert caught.value.missing_header is None


def test_sampler_configurations_that_make_no_sense() -> None:
    for values, message in [
        ((0, 1), "a sampling interval of 0 ns, expected at least 1"),
        ((1, 30), "30 hardware counters, expected 0 to 29"),
        ((1, 1, 0), "a buffer of 0 records, expected at least 1"),
    ]:
        with pytest.raises(InstrumenterError) as caught:
            SamplerConfig(*values)
        assert str(caught.value) == message


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        ("entry search", {"event": "entry", "function": "search"}),
        ("call puts", {"event": "call", "callee": "puts"}),
        ("call puts in main", {"event": "call", "callee": "puts", "function": "main"}),
        ("write off in md_collect_marks", {"event": "write", "variable": "off", "function": "md_collect_marks"}),
        ("write item.value += 2 * depth", {"event": "write", "field": "item.value", "add": "2 * depth"}),
        ("loop search", {"event": "loop", "function": "search"}),
        ("loop at line 7", {"event": "loop", "line": 7}),
        ("branch main at a.c:12", {"event": "branch", "function": "main", "file": "a.c", "line": 12}),
        ("alloc heap", {"event": "alloc"}),
        ("alloc_bytes heap in main at a.c", {"event": "alloc_bytes", "function": "main", "file": "a.c"}),
    ],
)
def test_a_metric_is_described_by_what_it_counts_and_where(words: str, keys: dict[str, Any]) -> None:
    """It was "write md_collect_marks" for a write to a variable in that function, and "loop heap" for one on a line."""
    assert MetricSpec(**keys).describe() == words
