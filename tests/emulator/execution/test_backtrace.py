"""Who called the function where a guest is: against the calls that it made, and in messages about its end."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from emulator.events import OpClass
from emulator.execution.backtrace import Places
from emulator.isa.decode import Instruction
from emulator.linux.loader.elf import load_image
from emulator.machine import Machine
from instrumenter.building.program_build import build_program
from instrumenter.compiler.toolchain import Toolchain

GUEST = Path(__file__).parents[1] / "guest"
CHAIN = r"""
#include <stdlib.h>
#include <string.h>
#define KEPT __attribute__((noinline))
static volatile int kept;
static KEPT int fails(const char *how, int n) {
    if (n) { kept += fails(how, n - 1); return kept; }
    if (!strcmp(how, "abort")) abort();
    if (!strcmp(how, "call")) ((void (*)(void))0x1234560)();
    if (!strcmp(how, "library")) kept = (int)strlen((char *)16);
    kept = *(volatile int *)8;
    return kept;
}
static KEPT int warms_up(int n) { int sum = 0; for (int i = 0; i < n; i++) sum += kept ^ i; return sum; }
int main(int n, char **a) {
    kept = warms_up(3000);
    kept += fails(a[1], atoi(a[2]));
    return kept;
}
"""


@pytest.mark.parametrize("flags", [["-O1"], ["-O2", "-fomit-frame-pointer"]], ids=" ".join)
def test_callers_are_those_that_called(flags: list[str]) -> None:
    """At any instruction, also in the prologue and the epilogue of a function."""
    program = build_program([GUEST / "mixture.c"], flags, libraries=["-lm"]).elf_path
    image = load_image(program)
    main = image.find_symbol("main")
    assert main is not None
    called: list[int] = []
    lengths: list[int] = []
    executed = 0
    with Machine(program, ["1", "100"], engine="oracle") as machine:
        hart, execute = machine.hart, machine._run_loop._oracle.oracle.execute
        places = Places(machine.kernel)

        def note(instruction: Instruction) -> None:
            nonlocal executed
            executed += 1
            if executed % 61 == 0 and image.function_at(hart.pc) is not None:
                found = list(places.return_addresses(hart))
                assert found == called[::-1][: len(found)], f"{executed} {places.text(hart.pc)}"
                lengths.append(len(found) - len(called))
            kind, returns_to = instruction.op_class, hart.pc + instruction.length_bytes
            execute(instruction)
            if kind in (OpClass.CALL, OpClass.INDIRECT_CALL):
                called.append(returns_to)
            elif kind == OpClass.RETURN and called and hart.pc == called[-1]:
                called.pop()

        machine._run_loop._oracle.oracle.execute = note  # type: ignore[method-assign]
        machine.run()
    assert len(lengths) > 1000
    assert sum(length >= -1 for length in lengths) > 0.9 * len(lengths)  # up to the first function of the C library


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("chain") / "chain.c"
    source.write_text(CHAIN)
    program = source.with_suffix("")
    Toolchain().link([source], ["-O1", "-fno-optimize-sibling-calls"], program)
    return program


@pytest.mark.parametrize("options", [
    {"engine": "oracle"}, {"templates": False}, {"background": False, "optimise_executions": 4}, {},
], ids=["oracle", "interpreter", "optimised", "as ever"])  # fmt: skip
@pytest.mark.parametrize(("how", "place"), [
    ("abort", r"ended by signal 6 \(SIGABRT\)\n  at 0x\w+ .*\n(  called from 0x\w+ (raise|abort) .*\n)+"),
    ("call", r"SIGSEGV: jump to 0x1234560: nothing is mapped there\n  at 0x1234560: \(no code there\)\n"),
    ("library", r"SIGSEGV: load from 0x10: nothing is mapped there\n  at 0x\w+ .*strlen.*\n"),
    ("null", r"SIGSEGV: load from 0x8: nothing is mapped there\n  at 0x\w+ fails\+.*chain\.c:11\): lw .*\n"),
], ids=["abort", "call", "library", "null"])  # fmt: skip
def test_a_guest_that_ends_badly_says_who_called(chain: Path, how: str, place: str, options: dict[str, Any]) -> None:
    with Machine(chain, [how, "3"], **options) as machine:
        told = machine.run().message
    assert told is not None
    line = {"abort": 8, "call": 9, "library": 10}.get(how)
    own = rf"  called from 0x\w+ fails \(.*chain\.c:{line}\)\n" if line else ""
    again = r"  called from 0x\w+ fails \(.*chain\.c:7\), 3 times\n"
    rest = r"  called from 0x\w+ main \(.*chain\.c:17\)(\n|$)"
    assert re.match(place + own + again + rest, told), told


@pytest.mark.parametrize("options", [
    {"templates": False, "optimise_executions": 1 << 40}, {"background": False, "optimise_executions": 4}, {},
], ids=["registers known", "registers not known", "as ever"])  # fmt: skip
def test_endless_recursion_is_told_in_few_lines(chain: Path, options: dict[str, Any]) -> None:
    with Machine(chain, ["null", "100000000"], **options) as machine:
        told = machine.run().message
    assert told is not None
    assert "the stack of 8 MiB has overflowed" in told
    assert re.search(r"called from 0x\w+ fails \(.*chain\.c:7\), 6\d times$", told), told


def test_nothing_is_said_of_callers_where_registers_are_not_known() -> None:
    """A translation of a hot path keeps them in those of the host."""
    program = build_program([GUEST / "faults.c"], ["-O1"]).elf_path
    with Machine(program, ["hot"], background=False, optimise_executions=10) as machine:
        told = machine.run().message
    assert told is not None
    assert "hot_loop+" in told
    assert "called from" not in told
    with Machine(program, ["hot"], templates=False, background=False, optimise_executions=1 << 30) as machine:
        told = machine.run().message
    assert told is not None
    assert re.search(r"called from 0x\w+ main \(", told)
