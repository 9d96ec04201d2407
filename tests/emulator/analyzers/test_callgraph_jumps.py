"""Call graphs of programs that leave functions by longjmp: what runs afterwards is not theirs."""

from __future__ import annotations

from pathlib import Path

from emulator.analyzers.analysis_session import Session
from emulator.analyzers.callgraph import CallGraph
from emulator.machine import Machine
from instrumenter.building.program_build import build_program

SOURCE = """
#include <setjmp.h>
#define APART __attribute__((noinline))
static jmp_buf back;
static volatile long seen;
APART void leaves(long n) { seen += n; longjmp(back, 1); }
APART void deep(long n) { seen += n; if (n > 0) deep(n - 1); else leaves(n); seen--; }
APART void after(void) { for (long i = 0; i < 20000; i++) seen += i; }
APART void inside(void) { if (!setjmp(back)) deep(7); after(); }
int main(void) { for (int i = 0; i < 3; i++) inside(); after(); return 0; }
"""


def test_functions_that_were_jumped_out_of_get_nothing_more(tmp_path: Path) -> None:
    source = tmp_path / "jumps.c"
    source.write_text(SOURCE)
    graph = CallGraph()
    with Machine(build_program([source], ["-O1", "-g"]).elf_path) as machine:
        Session(machine, [graph]).run()
    functions = graph.functions
    assert functions["deep"][0] == 24
    assert functions["after"][0] == 4
    assert functions["deep"][1] < 2000  # 60,000 and more of `after` stood here
    assert functions["leaves"][1] < 1000
    for name in ("inside", "main"):
        calls = sum(spent for (caller, _), (_, spent) in graph.edges.items() if caller == name)
        assert functions[name][1] == functions[name][2] + calls
