"""How far cycle-close traces of programs of many small loops are off, by how signatures are made.

    python -m experiments.cycle_close.loops

The programs are the same loops in other orders, so that only addresses differ: by a hash of these, some loops have the
same entry of a signature.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from emulator.timing.machine_file import load_machine
from instrumenter.building.program_build import build_program
from measure.cycle_close.command import Job, trace_job
from measure.cycle_close.rates import pointwise_deviation, whole_run_error
from measure.cycle_close.tracer import BY_DEFAULT, TracerSettings

MACHINE = Path("configs/machines/desktop.yaml")
PROGRAMS = {
    "20 of 8 loops": (20, 8, 8, 50_000, 6),
    "4 of 60 loops": (4, 60, 60, 30_000, 4),
    "1 of 200 loops": (1, 200, 200, 30_000, 4),
    "4 of 600 loops, 40 of them frequent later": (4, 600, 40, 30_000, 4),
}
"""By name: how many programs, the loops of each, and how many of them iterate how often in how many rounds."""
SIGNATURES = {
    "hashed, 32 entries": ("hashed", 32),
    "hashed, 1024 entries": ("hashed", 1024),
    "balanced, 32 entries": ("balanced", 32),
    "balanced, 128 entries": ("balanced", 128),
    "balanced, 256 entries": ("balanced", 256),
}
BODIES = (
    "x ^= x << 13; x ^= x >> 7; x ^= x << 17;",
    "x = x * 48271 % 2147483646UL;",
    "d += 1.0 / (2 * i + 1);",
    "d += __builtin_sqrt(1.0 + i);",
    "x = x * 3 + i;",
    "d = 3.9 * d * (1 - d);",
    "x += t[x >> 8 & 255]; t[i & 255] = x;",
    "x += (unsigned long)i * i % (n | 7);",
)
FAR_PERCENT = 3.0


def source_of(order: Sequence[int], frequent: int, iterations: int, rounds: int) -> str:
    """A program of ``len(order)`` loops, which lie in memory by ``order`` and run by their numbers: all of them three
    times, and then ``frequent`` of them, evenly spread, for ``rounds`` rounds of ``iterations``."""
    functions = [
        f"__attribute__((noinline)) long f{k}(long n) {{ unsigned long x = {k + 3}; double d = .3;\n"
        f"  for (long i = 0; i < n; i++) {{ {BODIES[k % len(BODIES)]} }} return x + (long)(d * 1e6); }}\n"
        for k in order
    ]
    first = " ".join(f"s += f{k}(3);" for k in sorted(order))
    calls = " ".join(f"s += f{k * len(order) // frequent}({iterations});" for k in range(frequent))
    return (
        f"#include <stdio.h>\nstatic unsigned long t[256];\n{''.join(functions)}"
        f"int main(void) {{ long s = 0;\n  {first}\n"
        f'  for (int r = 0; r < {rounds}; r++) {{ {calls} }}\n  printf("%ld\\n", s); return 0; }}\n'
    )


def measure(source: str, folder: Path) -> dict[str, tuple[float, float]]:
    """By kind of signature: the mean deviation of CPI, and that of the whole run [%]."""
    path = folder / "loops.c"
    path.write_text(source)
    elf, config = build_program([path], ["-O2"]).elf_path, load_machine(MACHINE)
    job = Job(elf, (), MACHINE, None, 1, 0)
    full = trace_job(job, elf, config, TracerSettings(20_000, everything=True), None).table
    found = {}
    for name, (kind, dimensions) in SIGNATURES.items():
        settings = replace(BY_DEFAULT, interval_instructions=20_000, signature=kind, dimensions=dimensions)  # type: ignore[arg-type]
        table = trace_job(job, elf, config, settings, None).table
        deviation = pointwise_deviation(full["cpi"].to_numpy(), table["cpi"].to_numpy())
        found[name] = deviation, whole_run_error(full, table, "cpi")
    return found


def main() -> None:
    print(
        f"| programs | signatures | more than {FAR_PERCENT:.0f}% off | mean deviation (largest) | whole run (largest) |"
    )
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for programs, (n, loops, *work) in PROGRAMS.items():
            orders = [np.random.default_rng(seed).permutation(loops).tolist() for seed in range(n)]
            rows = [measure(source_of(order, *work), Path(folder)) for order in orders]
            for name in SIGNATURES:
                off, whole = np.array([row[name] for row in rows]).T
                print(
                    f"| {programs} | {name} | {(off > FAR_PERCENT).sum()} | {off.mean():.1f}% ({off.max():.1f}%) | "
                    f"{whole.mean():.1f}% ({whole.max():.1f}%) |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
