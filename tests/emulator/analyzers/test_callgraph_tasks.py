"""Call graphs of programs with threads, processes and signal handlers: each has its own calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.analyzers.analysis_session import Session
from emulator.analyzers.callgraph import CallGraph
from emulator.machine import Machine
from instrumenter.building.program_build import build_program

SOURCE = """
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#define APART __attribute__((noinline))
static volatile long seen, handled;
APART void leaf(long n) { for (long i = 0; i < n; i++) seen += i; }
APART void other(long n) { for (int k = 0; k < 10; k++) leaf(n / 10); seen++; }
APART void mine(long n) { for (int k = 0; k < 10; k++) leaf(n / 10); seen++; }
static void *run(void *n) { other((long)n); return 0; }
void handler(int number) { handled++; }
int main(int count, char **values) {
    if (values[1][0] == 't') {
        pthread_t thread;
        pthread_create(&thread, 0, run, (void *)800000L);
        mine(400000);
        pthread_join(thread, 0);
    }
    if (values[1][0] == 'f') {
        pid_t child = fork();
        if (!child) { other(800000); _exit(0); }
        mine(400000);
        waitpid(child, 0, 0);
    }
    if (values[1][0] == 's') {
        signal(SIGVTALRM, handler);
        struct itimerval each = {{0, 20}, {0, 20}}, never = {{0, 0}, {0, 0}};
        setitimer(ITIMER_VIRTUAL, &each, 0);
        mine(400000);
        setitimer(ITIMER_VIRTUAL, &never, 0);
    }
    return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("tasks") / "tasks.c"
    source.write_text(SOURCE)
    return build_program([source], ["-O1", "-g"]).elf_path


def graph_of(program: Path, kind: str) -> CallGraph:
    graph = CallGraph()
    with Machine(program, [kind]) as machine:
        Session(machine, [graph]).run()
    return graph


@pytest.mark.parametrize("kind", ["t", "f"])
def test_what_other_tasks_do_is_not_a_function_s_own(program: Path, kind: str) -> None:
    """`other` had 5% of its instructions, and `pthread_join` most of all."""
    graph = graph_of(program, kind)
    functions = graph.functions
    each = functions["leaf"][2] / 1_200_000
    assert functions["other"][1] == pytest.approx(800_000 * each, rel=0.001)
    assert functions["mine"][1] == pytest.approx(400_000 * each, rel=0.001)
    assert functions["leaf"][1] == pytest.approx(functions["leaf"][2], abs=1000)
    waiting = max(spent for name, (_, spent, _) in functions.items() if "join" in name or "wait" in name)
    assert waiting < 2000
    assert functions["main"][1] == pytest.approx((400_000 if kind == "t" else 1_200_000) * each, rel=0.01)


def test_a_signal_handler_is_called_by_what_it_interrupts_and_has_its_own_instructions_only(program: Path) -> None:
    """Each handler had what its caller did afterwards: 19 million instructions, of 1000."""
    graph = graph_of(program, "s")
    calls, inclusive, own = graph.functions["handler"]
    assert calls > 50
    assert inclusive == own < 20 * calls
    assert graph.functions["mine"][1] > 400_000 * 3
    assert {caller for caller, callee in graph.edges if callee == "handler"} <= {"leaf", "mine"}
    assert graph.functions["leaf"][0] == 10
