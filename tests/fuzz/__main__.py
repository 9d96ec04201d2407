"""``python -m tests.fuzz --minutes N``: look for programs that an engine executes wrongly, and guests that do harm.

Each batch runs in a process of its own, so that a crash of the emulator is a finding like any other, with the seeds
that led to it. A program that goes wrong is made as small as can be and kept as a case for the tests to run. Where
qemu-riscv64 or unicorn is installed, programs run there as well.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.fuzz.engines import ENGINES, differences, keep, listing, minimise
from tests.fuzz.hostile import check_calls, damaged_elf, run
from tests.fuzz.memory_operations import check_memory
from tests.fuzz.mixtures import compressed_program, float_program
from tests.fuzz.programs import random_program
from tests.fuzz.sequences import check_sequence

BATCH = {
    "engines": 40,
    "float": 200,
    "compressed": 200,
    "elf": 300,
    "calls": 100,
    "sequences": 60,
    "memory": 20,
}
UNTRACED = ("interpreter", "templates", "optimised")
PROGRAMS = {"engines": random_program, "float": float_program, "compressed": compressed_program}
BATCH_SECONDS = 600
MOST_BYTES = 4 << 30  # of host memory in one batch
FOUND = 3  # exit status of a batch that has found something


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long (default: 1)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="the first seed (default: the time)")
    parser.add_argument(
        "--only",
        choices=sorted(BATCH),
        help="one kind: programs on engines (any, floating-point, compressed), ELF files,"
        " system calls (any, or in sequences that make sense), operations on memory",
    )
    parser.add_argument(
        "--batch", type=int, help="run so many in this process, and end (what --minutes does over and over)"
    )
    options = parser.parse_args()
    kinds = [options.only] if options.only else list(BATCH)
    if options.batch is not None:
        return FOUND if sum(batch(kind, options.seed, options.batch) for kind in kinds) else 0
    return watch(kinds, options.seed, 60 * options.minutes)


def watch(kinds: list[str], seed: int, seconds: float) -> int:
    """Batches until the time is over; 1 when one of them has found something."""
    end, found, count = time.monotonic() + seconds, 0, dict.fromkeys(kinds, 0)
    while time.monotonic() < end and kinds:
        for kind in kinds:
            command = [
                sys.executable,
                "-m",
                "tests.fuzz",
                "--only",
                kind,
                "--seed",
                str(seed),
                "--batch",
                str(BATCH[kind]),
            ]
            try:
                status = subprocess.run(command, timeout=BATCH_SECONDS, check=False).returncode
            except subprocess.TimeoutExpired:
                status, said = 1, f"took more than {BATCH_SECONDS} s"
            else:
                said = f"ended with status {status}: the emulator has crashed"
            if status not in (0, FOUND):
                print(f"{kind}: the batch of seeds {seed} to {seed + BATCH[kind] - 1} {said}", flush=True)
            found += status != 0
            count[kind] += BATCH[kind]
            if time.monotonic() >= end:
                break
        seed += max(BATCH.values())
    print(", ".join(f"{kind}: {n}" for kind, n in count.items()) + f"; {found} batches found something")
    return 1 if found else 0


def batch(kind: str, seed: int, count: int) -> int:
    """How many of the seeds from ``seed`` on found something."""
    checks = {
        "elf": check_elf,
        "calls": check_calls_of,
        "sequences": check_sequence_of,
        "memory": check_memory,
    }
    check = checks.get(kind)
    if check is None:
        check = partial(check_program, kind)
    found = 0
    for number in range(seed, seed + count):
        wrong = guarded(check, number)
        if wrong:
            print(f"{kind}, seed {number}:", *wrong, sep="\n  ", flush=True)
            found += 1
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    if most > MOST_BYTES:
        print(f"{kind}: seeds {seed} to {seed + count - 1} took {most >> 20} MiB of host memory", flush=True)
        found += 1
    return found


def guarded(check: Callable[[int], list[str]], seed: int) -> list[str]:
    """What ``check`` finds; an exception that nobody meant is a finding."""
    try:
        return check(seed)
    except Exception:
        return traceback.format_exc(limit=-5).splitlines()


def check_program(kind: str, seed: int) -> list[str]:
    program = PROGRAMS[kind](seed)
    # Other implementations are quick; to translate for six engines takes a hundred times as long.
    engines = tuple(ENGINES) if kind == "engines" else UNTRACED if seed % 4 == 0 else UNTRACED[:1]
    wrong = differences(program, engines)
    if not wrong:
        return []
    smallest = minimise(program, lambda one: bool(differences(one, engines)))
    why = differences(smallest, engines)
    return [*why, f"kept as {keep(smallest, why)}", *listing(smallest).splitlines()]


def check_elf(seed: int) -> list[str]:
    run(damaged_elf(seed))
    return []


def check_calls_of(seed: int) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        return check_calls(seed, Path(folder) / "guest")


def check_sequence_of(seed: int) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        return check_sequence(seed, Path(folder))


if __name__ == "__main__":
    raise SystemExit(main())
