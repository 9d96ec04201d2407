"""How far cycle-close traces are off of programs that are one loop over data that changes: sets, pages, and sizes.

    python -m experiments.cycle_close.walks

Each program is the same machine code, and goes from one of two walks to the other and back, at times that are drawn. A
walk reads bytes that lie a number of bytes apart, in a loop; after 16 times, with several columns, it moves on by a
cache line. Its code says nothing of how long it waits for memory.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from emulator.timing.machine_file import load_machine
from instrumenter.building.program_build import build_program
from measure.cycle_close.command import Job, trace_job
from measure.cycle_close.rates import pointwise_deviation, whole_run_error
from measure.cycle_close.tracer import BY_DEFAULT, TracerSettings

MACHINES = ("desktop", "strongarm")
WALKS = {
    "128 lines: spread, or in one set of the L1D": ((128, 1024 + 64, 1), (128, 16384, 1)),
    "100 lines read: spread, or in few sets, late": ((100, 1024 + 64, 1), (100, 4096, 1)),
    "36 rows, one column after the other: spread, or in one set each": ((36, 4096 + 192, 64), (36, 4096, 64)),
    "30 pages, or 180": ((30, 4096 + 64, 1), (180, 4096 + 64, 1)),
    "120 pages, or 140": ((120, 4096 + 64, 1), (140, 4096 + 64, 1)),
    "100 pages: spread, or in one set of a TLB": ((100, 4096 + 64, 1), (100, 32 * 4096 + 64, 1)),
    "504 lines, or 520": ((504, 64, 1), (520, 64, 1)),
    "1024 lines: spread, or in one set of the L2": ((1024, 4096 + 64, 1), (1024, 32768, 1)),
}
"""By name: the two walks, each a number of bytes read, how far they lie apart, and columns."""
CONFIGURATIONS = {
    "default": (BY_DEFAULT, 0),
    "roll back": (replace(BY_DEFAULT, roll_back=True), 0),
    "two runs": (BY_DEFAULT, 1),
}
SOURCE = """
#include <stdio.h>
#include <stdlib.h>
static volatile char data[64 << 20];
static unsigned long total;
__attribute__((noinline)) static void walk(long n, long apart, long columns, long reads)
{
  unsigned long sum = 0;
  for (long left = reads / n + 1; left > 0; left--)
    for (long k = 0; k < n; k++) sum += data[k * apart + left / 16 % columns * 64];
  total += sum;
}
int main(int argc, char **argv)
{
  long n[2] = {atol(argv[1]), atol(argv[4])}, apart[2] = {atol(argv[2]), atol(argv[5])};
  long columns[2] = {atol(argv[3]), atol(argv[6])};
  unsigned seed = 1;
  for (int turn = 0; turn < 24; turn++) {
    seed = seed * 1664525u + 1013904223u;
    int which = turn >= 18 || (turn > 3 && seed >> 28 < 6);
    walk(n[which], apart[which], columns[which], atol(argv[7]));
  }
  printf("%lu\\n", total);
  return 0;
}
"""
READS = 1_000_000
"""Of each turn: some 20 intervals of 200,000 instructions."""


def build(folder: Path) -> Path:
    """The program; its arguments: bytes, their distance and columns of both walks, and the reads of a turn."""
    path = folder / "walks.c"
    path.write_text(SOURCE)
    return build_program([path], ["-O2"]).elf_path


def measure(
    elf: Path, walks: tuple[tuple[int, int, int], ...], machine: Path, reads: int, interval: int
) -> dict[str, tuple]:
    """`deviations` of a program of two ``walks``."""
    arguments = (*(str(number) for walk in walks for number in walk), str(reads))
    return deviations(elf, arguments, machine, interval)


def deviations(
    elf: Path, arguments: tuple[str, ...], machine: Path, interval: int, changes: tuple[str, ...] = ()
) -> dict[str, tuple]:
    """By sampling configuration: mean deviation of CPI, that of the whole run, and the part simulated, in percent.
    ``changes``: of the machine, as by ``--set``."""
    config = load_machine(machine, changes)
    full = trace_job(Job(elf, arguments, machine), elf, config, TracerSettings(interval, everything=True), None).table
    found = {}
    for configuration, (settings, samples) in CONFIGURATIONS.items():
        job = Job(elf, arguments, machine, samples=samples)
        table = trace_job(job, elf, config, replace(settings, interval_instructions=interval), None).table
        deviation = pointwise_deviation(full["cpi"].to_numpy(), table["cpi"].to_numpy())
        simulated = 100 * float((table["category"] == "simulated").mean())
        found[configuration] = deviation, whole_run_error(full, table, "cpi"), simulated
    return found


def main() -> None:
    print("| the loop reads | machine | " + " | ".join(CONFIGURATIONS) + " |")
    print("|---|---|" + "---|" * len(CONFIGURATIONS))
    with tempfile.TemporaryDirectory() as folder:
        elf = build(Path(folder))
        for name, walks in WALKS.items():
            for machine in MACHINES:
                rows = measure(elf, walks, Path(f"configs/machines/{machine}.yaml"), READS, 200_000)
                cells = [f"{mean:.1f}%, {whole:.1f}% ({part:.1f}%)" for mean, whole, part in rows.values()]
                print(f"| {name} | {machine} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
