"""Counters of a guest that starts processes: what all of them counted, at every time."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from emulator.linux.vfs.files import VirtualFiles
from emulator.machine import Machine
from emulator.pmu import Pmu
from emulator.sampling import sample_ideal
from emulator.timing.inorder import InOrderCore
from emulator.timing.machine_file import load_machine
from instrumenter.building.program_build import build_program

ROOT = Path(__file__).parents[3]
PROGRAM = """\
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
volatile long counted;
static void work(long rounds) { while (rounds--) counted++; }
int main(int argc, char **argv) {
    work(1000);
    if (argc == 2) return 0;                      /* executed again: 1000 */
    for (int child = 0; child < 3; child++)
        if (fork() == 0) {
            work(20000 * (child + 1));
            if (child == 2 && fork() == 0) { work(500); _exit(0); }
            if (child == 2) wait(0);
            if (child == 1) execl(argv[0], argv[0], "again", (char *)0);
            _exit(0);
        }
    work(40000);                                  /* beside the children, which the timer interleaves */
    while (wait(0) > 0);
    return 0;
}
"""
ALL = 1000 + 20_000 * (1 + 2 + 3) + 500 + 1000 + 40_000


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("processes")
    (folder / "p.c").write_text(PROGRAM)
    return Path(shutil.copy(build_program([folder / "p.c"], ["-O1"]).elf_path, folder / "p"))


def address_of(machine: Machine) -> int:
    symbol = machine.image.find_symbol("counted")
    assert symbol is not None
    return symbol.address


@pytest.mark.parametrize("engine", ["translated", "oracle"])
def test_totals_are_those_of_all_processes(program: Path, engine: str) -> None:
    with Machine(program, engine=engine) as machine:
        totals = machine.counter_totals([address_of(machine)])
        before = 0
        while machine.ending is None:
            machine.advance(20_000)
            (now,) = totals.read()
            assert now >= before
            before = now
        assert machine.ending.status == 0
        assert totals.read() == [ALL]


def test_another_program_has_no_part_in_them(tmp_path: Path, program: Path) -> None:
    (tmp_path / "starter.c").write_text(
        "#include <unistd.h>\nvolatile long counted;\n"
        'int main(void) { counted = 7; execl("/p", "/p", "again", (char *)0); return 1; }\n'
    )
    starter = build_program([tmp_path / "starter.c"], ["-O1"]).elf_path
    with Machine(starter, files=VirtualFiles(mapped={"/p": program})) as machine:
        totals = machine.counter_totals([address_of(machine)])
        assert machine.run().status == 0
        assert totals.read() == [7]


def test_samples_of_a_program_that_forks_are_never_negative(program: Path) -> None:
    core = InOrderCore(load_machine(ROOT / "configs/machines/strongarm.yaml"), seed=1)
    pmu = Pmu(core, ["PAPI_TOT_INS"])
    with Machine(program, core=core, counters=pmu) as machine:
        samples = sample_ideal(machine, pmu, 5_000, "cycles", {"counted": address_of(machine)})
    assert (samples.software >= 0).all()
    assert samples.software.max() < 5_000
    assert np.isclose(samples.software.sum(), ALL, rtol=0.02)
