"""A program that forks, and executes another program with the same code at the same addresses, and itself."""

from __future__ import annotations

from pathlib import Path

from emulator.linux.vfs.files import VirtualFiles
from instrumenter.building.program_build import Build, build_program
from instrumenter.spec.software_metrics import MetricSpec

# Rounds of `work`: 100 here, 20 in a fork, 5 in the program executed again; 3000 in the other program, if it runs.
SOURCE = """
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static volatile long sum;
static volatile int table[64];
__attribute__((noinline)) void step(long n) { table[n & 63]++; sum += n; }
__attribute__((noinline)) void work(long rounds) { for (long n = 0; n < rounds; n++) step(n); }
static void finish(void) { int status; if (wait(&status) < 0 || status) exit(1); }
int main(int count, char **values) {
    if (values[0][0] == 'a') { work(5); return 0; }
    if (values[0][0] == 'o') { work(3000); return 0; }
    work(100);
    if (!fork()) { work(20); _exit(0); }
    finish();
    if (!vfork()) { execl("/program", "again", (char *)0); _exit(1); }
    finish();
    if (count > 1) {
        if (!fork()) { execl("/other", "other", (char *)0); _exit(1); }
        finish();
    }
    return 0;
}
"""
OWN_ROUNDS, OTHER_ROUNDS = 100 + 20 + 5, 3000


def build(folder: Path, **metrics: MetricSpec) -> Build:
    """The program in ``folder``, with counters of ``metrics``."""
    source = folder / "program.c"
    source.write_text(SOURCE)
    return build_program([source], ["-O1", "-g"], metrics=metrics)


def files_of(program: Path, other: Path | None = None) -> VirtualFiles:
    """The files of a guest that begins with ``program``. The program that it executes has the code of ``other``, by
    default the same, and is another file."""
    copy = (other or program).read_bytes() + b"another file"
    return VirtualFiles(mapped={"/program": program, "/other": copy})
