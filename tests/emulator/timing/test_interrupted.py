"""Signals and switches of threads have no part in the outcome of the branch before them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emulator.analyzers.analysis_session import Session
from emulator.analyzers.analyzer import Analyzer
from emulator.counterfactual.core import CounterfactualCore, CounterfactualSettings
from emulator.machine import Machine
from emulator.timing.inorder import InOrderCore
from emulator.timing.machine_events import Event
from emulator.timing.machine_file import load_machine
from instrumenter.building.program_build import build_program

MACHINES = Path(__file__).parents[3] / "configs" / "machines"
SOURCE = """
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
static volatile long handled;
void handler(int number) { handled++; }
void count(long n) { __asm__ volatile("1: addi %0, %0, -1\\n bnez %0, 1b" : "+r"(n)); }
static void *run(void *n) { count((long)n); return 0; }
int main(int number, char **values) {
    if (values[1][0] == 's') {
        struct itimerval each = {{0, 10}, {0, 10}};
        signal(SIGVTALRM, handler);
        setitimer(ITIMER_VIRTUAL, &each, 0);
    }
    pthread_t thread;
    if (values[1][0] == 't') pthread_create(&thread, 0, run, (void *)5000000L);
    count(values[1][0] == 't' ? 5000000 : 500000);
    return 0;
}
"""


class Taken(Analyzer):
    """Counts the branches that are taken, by what they do themselves."""

    inline = "class=branch fields=taken"

    def begin(self) -> None:
        self.state = np.zeros(2, np.uint64)

    @staticmethod
    def inline_after(state: Any, taken: Any) -> None:
        state[taken] += 1


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("interrupted") / "loops.c"
    source.write_text(SOURCE)
    return build_program([source], ["-O1"]).elf_path


@pytest.mark.parametrize("machine_name", ["strongarm", "desktop"])
@pytest.mark.parametrize("kind", ["signals", "threads"])
@pytest.mark.parametrize("is_edited", [False, True])
def test_branches_go_where_they_go(program: Path, machine_name: str, kind: str, is_edited: bool) -> None:
    config = load_machine(MACHINES / f"{machine_name}.yaml")
    counts = {}
    for how in ("none", kind):
        core = InOrderCore(config, seed=1)
        seen = CounterfactualCore(core, CounterfactualSettings()) if is_edited else core
        taken = Taken()
        with Machine(program, [how], core=seen, clock_hz=config.clock_hz) as machine:
            Session(machine, [taken]).run()
        assert int(taken.state[1]) == core.counters[Event.BRANCHES_TAKEN]
        counts[how] = core.counters.copy()
    assert counts[kind][Event.BRANCHES_MISPREDICTED] - counts["none"][Event.BRANCHES_MISPREDICTED] < 30
