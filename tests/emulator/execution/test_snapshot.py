"""Going back: the guest does the same again, to the bit, from whatever it had in memory, files and kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from emulator.errors import EmulatorError
from emulator.events import FULL_RECORD, BlockFacts, TraceSelection
from emulator.linux.vfs.files import VirtualFiles
from emulator.machine import Machine
from instrumenter.building.program_build import build_program

SOURCE = r"""
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/time.h>
static volatile int ticks;
static void tick(int n) { ticks++; }
int main(int argc, char **argv) {
  signal(SIGVTALRM, tick);
  struct itimerval every = {{0, 50}, {0, 50}};
  setitimer(ITIMER_VIRTUAL, &every, 0);
  int rounds = argc > 1 ? atoi(argv[1]) : 60;
  FILE *f = fopen("/input", "r");
  char *kept = 0;
  unsigned long h = 5381;
  for (int round = 0; round < rounds; round++) {
    size_t size = 4096 * (1 + round % 7);
    char *p = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(p, round, size);
    unsigned long r;
    getrandom(&r, sizeof r, 0);
    int c = fgetc(f);
    for (int i = 0; i < 2000; i++) h = h * 33 + (unsigned char)p[(h >> 3) % size] + (r >> (i & 31)) + c;
    if (round % 5 == 0) { free(kept); kept = malloc(10000 + 100 * round); memset(kept, round, 10000); }
    if (round % 3 == 0) munmap(p, size); else mprotect(p, size, PROT_READ);
    if (round % 10 == 0) printf("%d %lx %d\n", round, h, kept[9999]);
    fflush(stdout);
  }
  printf("%lx %d\n", h, ticks);
  return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("snapshot")
    (folder / "p.c").write_text(SOURCE)
    return build_program([folder / "p.c"], ["-O2"]).elf_path


@pytest.fixture
def given(tmp_path: Path) -> Path:
    path = tmp_path / "input"
    path.write_bytes(bytes(range(65, 126)))
    return path


class Digest:
    """A consumer that hashes the record."""

    selection = FULL_RECORD

    def __init__(self) -> None:
        self.value = 0

    def consume(self, facts: BlockFacts, stream: Any) -> None:
        self.value = hash((self.value, stream.tobytes()))


def rest(machine: Machine) -> tuple[Any, ...]:
    """Runs to the end: all that it does from here."""
    digest = Digest()
    machine.observe(TraceSelection(), [digest])
    ending = machine.run()
    return ending, machine.instructions, bytes(machine.files.output(1)), digest.value


OPTIMISED: dict[str, Any] = {"background": False, "optimise_executions": 8}
INTERPRETED: dict[str, Any] = {"background": False, "templates": False, "optimise_executions": 1 << 30}


@pytest.mark.parametrize(
    ("options", "rounds", "at"),
    [
        *((options, 60, at) for options in (OPTIMISED, INTERPRETED) for at in (5_000, 180_000, 400_000)),
        pytest.param({"engine": "oracle"}, 8, 120_000, marks=pytest.mark.slow),
    ],
)
def test_the_guest_does_the_same_again(
    program: Path, given: Path, options: dict[str, Any], rounds: int, at: int
) -> None:  # fmt: skip
    files = VirtualFiles(mapped={"/input": given}, seed=3)
    with Machine(program, [str(rounds)], files=files, **options) as machine:
        machine.advance_to_instructions(at)
        saved = machine.snapshot()
        first = rest(machine)
        assert first[0].status == 0
        for _ in range(2):
            machine.restore(saved)
            assert machine.instructions == saved.instructions
            assert rest(machine) == first


def test_counts_go_back_too(program: Path, given: Path) -> None:
    with Machine(program, files=VirtualFiles(mapped={"/input": given}), background=False) as machine:
        machine.observe(TraceSelection(counts=True))
        machine.run_intervals(50_000, 3)
        saved = machine.snapshot()

        def following() -> list[Any]:
            machine.count_from_here()
            ran = machine.run_intervals(50_000, 4)
            return [part.tolist() for part in (ran.ends, ran.blocks, ran.executions)]

        first = following()
        machine.restore(saved)
        assert following() == first


def test_a_guest_on_the_hosts_files_cannot_go_back(program: Path, tmp_path: Path, given: Path) -> None:
    with Machine(program, files=VirtualFiles(root=tmp_path)) as machine:
        machine.advance_to_instructions(60_000)
        with pytest.raises(EmulatorError, match="cannot go back"):
            machine.snapshot()
