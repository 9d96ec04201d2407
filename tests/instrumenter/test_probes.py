"""Probes of small programs: addresses and ranges that count right, and refusals that say why."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.machine import Machine
from emulator.probes import EventCounter
from instrumenter.building.generated_sources import preprocess_all
from instrumenter.building.program_build import build_program
from instrumenter.compiler.toolchain import Toolchain
from instrumenter.errors import InstrumenterError
from instrumenter.find.probes import Probe, ProbeError, ProbeFinder
from instrumenter.spec.software_metrics import MetricSpec

PROGRAM = """\
#include <stdlib.h>
#define TWICE(call) do { call; call; } while (0)
struct pair { int first, second; };
int total;
static long table[4];
volatile int flag;
struct pair pairs[2];
static int unused(int x) { return x; }
static inline __attribute__((always_inline)) int doubled(int x) { total += x; return 2 * x; }
int add(int n) { total += n; return n > 2 ? n : 7; }
int down(int n) { if (n == 0) return 0; return down(n - 1); }
int main(void)
{
    static int calls;
    struct pair local = {1, 2};
    for (int i = 0; i < 5; i++)
        add(i);
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 2; j++)
            do
                while (flag > 0)
                    flag--;
            while (0);
    TWICE(add(1)
          + add(2));
    table[1] = table[2] = 3;
    flag = 4;
    while (flag) flag--;
    while (flag++ < 2);
    pairs[1] = local;
    pairs[0].second++;
    calls = doubled(calls) + doubled(2) + down(9);
    if (total < 0) abort();
    int *heap = malloc(4 * sizeof *heap);
    free(heap);
    return 0;
}
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program in a file."""
    path = tmp_path_factory.mktemp("probes") / "small.c"
    path.write_text(PROGRAM)
    return path


def finder(source: Path, flags: list[str], **metrics: dict[str, object]) -> tuple[ProbeFinder, Path]:
    plain = build_program([source], flags)
    specs = {name: MetricSpec.model_validate(spec) for name, spec in metrics.items()}
    return ProbeFinder(plain.elf_path, preprocess_all([source], flags, Toolchain()), flags, specs), plain.elf_path


def count(program: Path, probe: Probe) -> int:
    counter = EventCounter([(probe.pcs, probe.store_ranges)])
    with Machine(program, consumers=[counter], limit_instructions=1_000_000, background=False) as machine:
        assert machine.run().status == 0
    return int(counter.totals()[0])


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"event": "entry", "function": "add"}, 9),
        ({"event": "exit", "function": "add"}, 9),
        ({"event": "entry", "function": "down"}, 10),
        ({"event": "exit", "function": "down"}, 10),
        ({"event": "entry", "function": "unused"}, 0),
        ({"event": "branch", "function": "add"}, 2),
        ({"event": "branch", "function": "main"}, 0),
        ({"event": "branch", "function": "down"}, 1),
        ({"event": "call", "callee": "add"}, 9),
        ({"event": "call", "callee": "add", "line": 17}, 5),
        ({"event": "call", "callee": "malloc"}, 1),
        ({"event": "alloc"}, 1),
        ({"event": "loop", "function": "main", "line": 16}, 5),
        ({"event": "loop", "function": "main", "line": 18}, 3),
        ({"event": "loop", "function": "main", "line": 19}, 6),
        ({"event": "loop", "function": "main", "line": 20}, 0),  # `do ... while (0)` is no loop
        ({"event": "loop", "function": "main", "line": 21}, 0),
        ({"event": "loop", "line": 28}, 4),
        ({"event": "write", "variable": "flag"}, 8),
        ({"event": "write", "variable": "flag", "line": 28}, 4),
        ({"event": "write", "variable": "table"}, 2),
        ({"event": "write", "variable": "calls"}, 1),
        ({"event": "write", "field": "second"}, 1),
    ],
    ids=lambda value: " ".join(str(v) for v in value.values()) if isinstance(value, dict) else str(value),
)
def test_counts_at_O0(source: Path, spec: dict[str, object], expected: int) -> None:
    found, program = finder(source, ["-O0"], metric=spec)
    assert count(program, found.probe_for("metric")) == expected


@pytest.mark.parametrize(
    ("flags", "spec", "message"),
    [
        (["-O0"], {"event": "alloc_bytes"},
         "metric 'm' adds up the bytes asked for; a probe counts how often something happens, not the values of "
         "expressions"),
        (["-O0"], {"event": "entry", "function": "add", "add": "n"},
         "metric 'm' adds up 'n'; a probe counts how often something happens, not the values of expressions"),
        (["-O0"], {"event": "entry", "function": "doubled"},
         "metric 'm': 'doubled' is inlined; its events have no place of their own"),
        (["-O0"], {"event": "loop", "line": 29},
         "{source}:29: metric 'm': the event has no code of its own here"),
        (["-O2"], {"event": "entry", "function": "down"},
         "metric 'm': 'down' calls itself, which optimised code may do by a jump; build the program with -O0"),
        (["-O2"], {"event": "exit", "function": "main"},
         "metric 'm': optimised functions may leave by a jump to another; build the program with -O0"),
        (["-O2"], {"event": "loop", "function": "main"},
         "metric 'm': in optimised code no instruction stands for loop main alone; build the program with -O0"),
        (["-O2"], {"event": "write", "variable": "total"},
         "metric 'm': in optimised code no instruction stands for write total alone; build the program with -O0"),
        (["-O2"], {"event": "call", "callee": "malloc"},
         "metric 'm': 'malloc' is also called by code outside these sources; build the program with -O0"),
    ],
)  # fmt: skip
def test_refusals(source: Path, flags: list[str], spec: dict[str, object], message: str) -> None:
    found, _ = finder(source, flags, m=spec)
    with pytest.raises(ProbeError) as caught:
        found.probe_for("m")
    assert str(caught.value) == message.format(source=source)


def test_volatile_writes_are_exact_in_optimised_code(source: Path) -> None:
    found, program = finder(source, ["-O2"], m={"event": "write", "variable": "flag"})
    assert count(program, found.probe_for("m")) == 8


def test_calls_in_one_macro_and_in_a_header_are_told_apart(tmp_path: Path) -> None:
    source = tmp_path / "repeated.c"
    source.write_text(
        'int n;\nvoid f(void) { n++; }\n#define REPEAT(x) x x\n#include "part.h"\n'
        "int main(void) {\n  g();\n  REPEAT(f();\n  f();)\n  return 0;\n}\n"
    )
    (tmp_path / "part.h").write_text("static void g(void) { f(); }\n")
    found, program = finder(
        source, ["-O0"],
        all={"event": "call", "callee": "f"}, header={"event": "call", "callee": "f", "file": "part.h"},
    )  # fmt: skip
    assert count(program, found.probe_for("all")) == 5
    assert count(program, found.probe_for("header")) == 1


def test_lines_that_repeat_are_refused(tmp_path: Path) -> None:
    """Generated programs say ``#line`` more than once with the same number."""
    source = tmp_path / "generated.c"
    body = "\n#line 10\nvoid {}(void) {{ f(); }}"
    source.write_text("void f(void) {}" + body.format("a") + body.format("b") + "\nint main(void) { a(); b(); }\n")
    found, _ = finder(source, ["-O0"], f={"event": "call", "callee": "f", "function": "a"})
    with pytest.raises(ProbeError) as caught:
        found.probe_for("f")
    assert str(caught.value) == (
        f"{source}:10: metric 'f': debug information cannot tell several places of the program text apart here"
    )


def test_static_functions_and_variables_of_the_same_name(tmp_path: Path) -> None:
    sources = [tmp_path / "one.c", tmp_path / "two.c"]
    text = "static int n; static void same(void) {{ n += {}; }} void {}(void) {{ same(); {} }}"
    sources[0].write_text(text.format(1, "one", "n++;") + " void two(void); int main(void) { one(); two(); return 0; }")
    sources[1].write_text(text.format(2, "two", "same();"))
    plain = build_program(sources, ["-O0"])
    metrics = {
        "entry": MetricSpec(event="entry", function="same"),
        "one": MetricSpec(event="entry", function="same", file="one.c"),
        "write": MetricSpec(event="write", variable="n"),
    }
    found = ProbeFinder(plain.elf_path, preprocess_all(sources, ["-O0"], Toolchain()), ["-O0"], metrics)
    assert {name: count(plain.elf_path, found.probe_for(name)) for name in metrics} == {
        "entry": 3, "one": 1, "write": 4,
    }  # fmt: skip


def test_missed_events_are_refused(tmp_path: Path) -> None:
    source = tmp_path / "pointer.c"
    source.write_text("int n;\nint main(void) { int *p = &n; n = 1; *p = 2; return 0; }\n")
    found, _ = finder(source, ["-O0"], n={"event": "write", "variable": "n"})
    with pytest.raises(ProbeError) as caught:
        found.probe_for("n")
    assert str(caught.value) == (
        f"a probe would see what the counter misses: {source}:2: metric 'n': the address of 'n' is taken here; "
        "writes through it are not counted"
    )


def test_needs_debug_information_of_the_sources(source: Path, tmp_path: Path) -> None:
    preprocessed = preprocess_all([source], ["-O0"], Toolchain())
    program = tmp_path / "stripped"
    Toolchain().link([source], ["-O1", "-g0"], program)
    with pytest.raises(InstrumenterError) as caught:
        ProbeFinder(program, preprocessed, ["-O0"], {})
    assert str(caught.value) == f"{program}: no debug information on 0_small.c; compile it with -g"
    (tmp_path / "text").write_text("not a program")
    with pytest.raises(InstrumenterError, match="cannot be read as an ELF program"):
        ProbeFinder(tmp_path / "text", preprocessed, ["-O0"], {})


def test_allocated_bytes_equal_those_of_a_counting_header(tmp_path: Path) -> None:
    """No probe for bytes: the same requests, counted by macros in a header, on a program that sums them itself."""
    program = """\
#include <stdio.h>
#include <stdlib.h>
unsigned long asked;
#ifdef COUNTING
static void *counted(unsigned long n) { asked += n; return malloc(n); }
static void *counted2(unsigned long a, unsigned long b) { asked += a * b; return calloc(a, b); }
static void *counted3(void *p, unsigned long n) { asked += n; return realloc(p, n); }
#define malloc counted
#define calloc counted2
#define realloc counted3
#endif
int main(void)
{
    char *text = malloc(10);
    for (int i = 1; i < 20; i++) {
        text = realloc(text, (unsigned long)i * 7);
        free(calloc(i, 3));
    }
    free((malloc)(100));
    free(text);
#ifdef COUNTING
    printf("%lu", asked);
#endif
    return 0;
}
"""
    source = tmp_path / "heap.c"
    source.write_text(program.replace("(malloc)", "malloc"))
    counted = build_program([source], ["-O1", "-DCOUNTING"])
    with Machine(counted.elf_path) as machine:
        machine.run()
        expected = int(machine.files.output(1))
    assert expected == 10 + sum(7 * i + 3 * i for i in range(1, 20)) + 100
    source.write_text(program)
    build = build_program([source], ["-O1"], {"bytes": MetricSpec(event="alloc_bytes"), "n": MetricSpec(event="alloc")})
    with Machine(build.elf_path) as machine:
        assert machine.run().status == 0
        symbol = machine.image.find_symbol("__measure_counters")
        assert symbol is not None
        assert machine.memory.read_int(symbol.address, 8) == expected
        assert machine.memory.read_int(symbol.address + 8, 8) == 1 + 2 * 19 + 1


def test_a_call_in_the_argument_of_a_call_counts_too(tmp_path: Path) -> None:
    path = tmp_path / "nested.c"
    path.write_text(
        "static int half(int n) { return n / 2; }\n"
        "int main(void) {\n  int s = 0;\n  for (int i = 0; i < 7; i++) s += half(1 + half(half(i)));\n"
        "  return s < 0;\n}\n"
    )
    found, plain = finder(path, ["-O0"], calls={"event": "call", "callee": "half"})
    assert count(plain, found.probe_for("calls")) == 21
