"""Exits are counted when a function is left, and deep recursion by tail calls needs no stack for that."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.linux.vfs.files import VirtualFiles
from emulator.machine import Machine
from emulator.probes import EventCounter
from instrumenter.building.generated_sources import preprocess_all
from instrumenter.building.program_build import build_program
from instrumenter.compiler.toolchain import Toolchain
from instrumenter.find.probes import ProbeFinder
from instrumenter.spec.software_metrics import MetricSpec
from tests.instrumenter.test_counter_forms import counts_of

ORDER = """
extern volatile unsigned long long __measure_counters[1] __attribute__((weak));
static unsigned long long seen;
__attribute__((noinline)) static int look(int n)
{
    if (__measure_counters) seen += __measure_counters[0];
    return n;
}
static int leaving(int n) { return look(n) + look(n + 1); }
int main(void) { for (int i = 0; i < 3; i++) leaving(i); return seen != 0 + 0 + 1 + 1 + 2 + 2; }
"""
TURNS = """
static int odd(unsigned n);
static int down(unsigned n, int all);
__attribute__((noinline)) static int even(unsigned n) { if (!n) return 1; return odd(n - 1); }
__attribute__((noinline)) static int odd(unsigned n) { if (!n) return 0; return even(n - 1); }
__attribute__((noinline)) static int down(unsigned n, int all) { return n > 1 ? down(n - 1, all + 1) : odd(all); }
int main(int count, char **) { return even(500000) + down(500000, count) - count; }
"""


@pytest.mark.parametrize("name", ["demo.c", "demo.cpp"])
def test_the_value_of_a_return_comes_before_the_exit(name: str, tmp_path: Path) -> None:
    """In C all exits counted before the calls in the value: in the record in which the function was entered."""
    source = tmp_path / name
    source.write_text(ORDER if name.endswith(".c") else ORDER.replace("extern volatile", 'extern "C" volatile'))
    build = build_program([source], ["-O2"], {"exits": MetricSpec(event="exit", function="leaving")})
    assert counts_of(build) == {"exits": 3}


@pytest.mark.parametrize("name", ["demo.c", "demo.cpp"])
def test_deep_recursion_by_tail_calls_needs_no_stack(name: str, tmp_path: Path) -> None:
    source = tmp_path / name
    source.write_text(TURNS)
    specs = {one: MetricSpec(event="exit", function=one) for one in ("even", "odd", "down")}
    # down(500000, 1) ends in odd(500000).
    assert counts_of(build_program([source], ["-O2"], specs)) == {
        "even": 250_001 + 250_000, "odd": 250_000 + 250_001, "down": 500_000,
    }  # fmt: skip


def test_probes_see_the_exits_that_counters_count(tmp_path: Path) -> None:
    source = tmp_path / "jumps.c"
    source.write_text(
        "#include <setjmp.h>\nstatic jmp_buf start;\n"
        "static int parse(int n) { if (n % 7 == 0) longjmp(start, 1); return n; }\n"
        "static int value(int n) { return parse(n); }\n"
        "static int nested(int n) { return ({ if (n > 5) return n; n + 1; }); }\n"
        "static int fold(int n, int all) { return n ? fold(n - 1, all + n) : value(all + 2); }\n"
        "int main(void)\n{\n    volatile int sum = 0;\n    for (volatile int i = 0; i < 99; i++)\n"
        "        if (!setjmp(start)) sum += value(i) + nested(i);\n"
        "    return fold(10, 0) + sum == 1;\n}\n"
    )
    specs = {name: MetricSpec(event="exit", function=name) for name in ("parse", "value", "nested", "fold", "main")}
    counted = counts_of(build_program([source], ["-O0"], specs))
    plain = build_program([source], ["-O0"])
    finder = ProbeFinder(plain.elf_path, preprocess_all([source], ["-O0"], Toolchain()), ["-O0"], specs)
    counter = EventCounter([(finder.probe_for(metric).pcs, ()) for metric in specs])
    with Machine(plain.elf_path, files=VirtualFiles(), consumers=[counter], background=False) as machine:
        assert machine.run().status == 0
    assert dict(zip(specs, counter.totals().tolist(), strict=True)) == counted
    assert counted == {"parse": 85, "value": 85, "nested": 84, "fold": 11, "main": 1}
