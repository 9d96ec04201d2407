"""What watching a program costs: analyzers over no analyzer, side by side in one run, and the bars for it.

    python -m experiments.benchmarks.tracing_speed [--size large] [--repeats 5] [--qemu-plugins DIR] [--out results.md]
    python -m experiments.benchmarks.tracing_speed --programs held-out

``--programs held-out``: the five programs that `process_speed` keeps aside, on which no engine was tuned, with its
inputs of 0.5 to 1.6 G instructions (``--size`` is not for them).

Each program's figures are kept as they are measured: the same call goes on where one was stopped, --anew begins again.

Every figure is of a process that finds the translations of earlier ones and has loaded all kernels. It runs the program
under all ways at once, 50 M instructions of each in turn, and compares each slice with the untraced one beside it: see
`side_by_side`. QEMU's plug-in runs alone; its best round counts.

``untraced``   no analyzer
``counting``   executions of instructions, by block: at most 1.05 times untraced
``bbv``        basic block vectors of intervals of 10 M instructions, to a file: at most 1.1 times
``caches``     L1I, L1D and L2 simulated, beside QEMU's plug-in that does the same: at least 100 M instructions/s
``sum``        pc and effective address of every instruction to a compiled function that adds them up, in the
               translations: at most 4 times
``columns``    the same, but in batches of columns to a compiled function
``functions``  compiled functions before and after every instruction, that count: at most 20 times
``rare``       a Python function before and after an event that happens about 2,000 times

``sum``, ``columns`` and ``functions`` check how many instructions they are given.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.atomic_files import write_text
from emulator.analyzers.analysis_session import HookContext, Session
from emulator.analyzers.analyzer import Analyzer
from emulator.analyzers.caches import CacheHierarchy
from emulator.analyzers.vectors import BlockVectors
from emulator.kernels.numba_jit import numba_kernel
from emulator.linux.vfs.files import VirtualFiles
from emulator.machine import Machine
from experiments.benchmarks import process_speed
from experiments.benchmarks.emulation_speed import PROGRAMS, ROOT, build, geometric_mean
from experiments.benchmarks.host import described, qemu
from experiments.benchmarks.journal import Journal
from experiments.shade.levels import Counting

WAYS = ("untraced", "counting", "bbv", "caches", "sum", "columns", "functions", "rare")
# Way: the most time over the untraced program's.
MOST = {"counting": 1.05, "bbv": 1.1, "sum": 4.0, "functions": 20.0}
LEAST_CACHE_SPEED = 100e6
RARE_EVENTS = 2000
INTERVAL = 10_000_000
# Held-out program: arguments for a short run.
HELD_OUT = {
    "lua": ["-", "1"], "sqlite": ["200"], "picosat": ["30", "9"], "zopfli": ["500"], "brotli": ["500", "10"],
}  # fmt: skip
SLICE = 50_000_000  # instructions
LEAVING_TRANSLATIONS = 3  # processes of each way, before the one that is timed
Results = dict[str, dict[str, float]]  # way: seconds, instructions and rare events of a run under it


@numba_kernel
def add_up(state: Any, pc: Any, address: Any) -> None:
    """Instructions, and sums of their pcs and of addresses."""
    state[0] += len(pc)
    for n in range(len(pc)):
        state[1] += pc[n]
        state[2] += address[n]


def _add(state: Any, pc: Any, address: Any) -> None:
    state[0] += 1
    state[1] += pc
    state[2] += address


class Sum(Analyzer):
    """Addresses to a compiled function in the translations."""

    inline, inline_before = "class=all fields=pc,address", staticmethod(_add)

    def __init__(self) -> None:
        self.state = np.zeros(3, np.uint64)


class Columns(Analyzer):
    """Addresses to a compiled function in batches."""

    selection, function = "class=all fields=pc,address", staticmethod(add_up)

    def __init__(self) -> None:
        self.state = np.zeros(3, np.uint64)


def _count_before(state: Any, pc: Any) -> None:
    state[0] += 1


def _count_after(state: Any, pc: Any) -> None:
    state[1] += 1


class Functions(Analyzer):
    """Compiled functions around each instruction."""

    inline = "class=all fields=pc"
    inline_before, inline_after = staticmethod(_count_before), staticmethod(_count_after)

    def __init__(self) -> None:
        self.state = np.zeros(2, np.uint64)


class Rare(Analyzer):
    """A Python function around the instruction at ``pc``."""

    def __init__(self, pc: int) -> None:
        self.calls = f"range={pc:#x}-{pc + 2:#x}"
        self.events = 0

    def before(self, context: HookContext) -> None:
        self.events += 1

    def after(self, context: HookContext) -> None:
        self.events += context.pc == 0


@dataclass(frozen=True)
class Guest:
    """A program with what it is measured with, and with shorter work that loads all kernels."""

    program: str
    arguments: list[str]
    short_arguments: list[str]
    stdin: str | None = None  # a file

    def machine(self, arguments: list[str]) -> Machine:
        stdin = Path(self.stdin).read_bytes() if self.stdin is not None else b""
        return Machine(self.program, arguments, files=VirtualFiles(stdin=stdin), keep_translations=True)


def guest_of(name: str, size: str, folder: Path) -> Guest:
    """The program ``name``, built in ``folder``."""
    if name in PROGRAMS:
        return Guest(str(build(name, folder)[1]), [size], ["tiny"])
    program, stdin = process_speed.build(name, folder)
    return Guest(
        str(program), process_speed.SETS["held out"][name], HELD_OUT[name], str(stdin) if stdin is not None else None
    )


def rare_place(guest: Guest) -> int:
    """The beginning of the block that is executed about as often as wanted."""
    with guest.machine(guest.arguments) as machine:
        session = Session(machine, [Counting()])
        session.run()
        counts = session.block_counts()
        session.finish()
        distance = np.abs(np.log(np.maximum(counts, 1) / RARE_EVENTS))
        return int(machine.facts.blocks["pc"][distance.argmin()])


def analyzers_of(way: str, rare_pc: int) -> list[Any]:
    """Fresh analyzers."""
    if way == "untraced":
        return []
    if way == "bbv":
        return [BlockVectors(INTERVAL, os.devnull)]
    if way == "caches":
        return [CacheHierarchy("16K:8:64", "16K:8:64", "2M:16:64")]  # as QEMU's plug-in has them
    if way == "rare":
        return [Rare(rare_pc)]
    return [{"counting": Counting, "sum": Sum, "columns": Columns, "functions": Functions}[way]()]


class WatchedRun:
    """A run of the guest under a way, which goes on piece by piece. ``seconds``: of running, up to now."""

    def __init__(self, way: str, guest: Guest, arguments: list[str], rare_pc: int) -> None:
        self._way, self._analyzers = way, analyzers_of(way, rare_pc)
        self._machine = guest.machine(arguments)
        self._session = Session(self._machine, self._analyzers)
        self.seconds = 0.0

    @property
    def ended(self) -> bool:
        return self._machine.ending is not None

    def advance(self, until_instructions: int) -> float:
        """Go on to the first block boundary at or after so many instructions in all, or to the end; the seconds."""
        start = time.perf_counter()
        if self._session.run(until_instructions) is not None:
            self._session.finish()
        seconds = time.perf_counter() - start
        self.seconds += seconds
        return seconds

    def close(self) -> dict[str, float]:
        """End it: ``seconds``, ``instructions``, and ``events`` of rare ones. SystemExit if an analyzer missed some."""
        machine = self._machine
        machine.save_translations()
        for analyzer in self._analyzers:
            seen = int(analyzer.state[0]) if isinstance(analyzer, Sum | Columns | Functions) else machine.instructions
            if seen != machine.instructions:
                raise SystemExit(f"{self._way}: {seen} events of {machine.instructions} instructions")
        events = sum(analyzer.events for analyzer in self._analyzers if isinstance(analyzer, Rare))
        machine.close()
        return {"seconds": self.seconds, "instructions": machine.instructions, "events": events}


def run(way: str, guest: Guest, arguments: list[str], rare_pc: int) -> dict[str, float]:
    """One run: ``seconds``, ``instructions``, and ``events`` of rare ones."""
    watched = WatchedRun(way, guest, arguments, rare_pc)
    watched.advance(1 << 62)
    return watched.close()


def side_by_side(ways: Sequence[str], guest: Guest, rare_pc: int, rounds: int) -> Results:
    """Run the guest under all ways at once, a slice of each in turn, ``rounds`` times; the figures of each way.

    ``seconds`` of the first way are the sums of its slices' medians over the rounds; of another way, those times its
    ratio (`ratio_of_slices`). A machine's speed changes by a factor of two for seconds on end when others use the
    other half of a core, which leaves the ratio of two slices of the same time alone.
    """
    seconds: dict[str, list[list[float]]] = {way: [] for way in ways}
    told: dict[str, dict[str, float]] = {}
    for round_ in range(rounds):
        runs = {way: WatchedRun(way, guest, guest.arguments, rare_pc) for way in ways}
        slices: dict[str, list[float]] = {way: [] for way in ways}
        for number in itertools.count(1):
            for way in ways if (round_ + number) % 2 else reversed(ways):
                slices[way].append(runs[way].advance(SLICE * number))
            if all(one.ended for one in runs.values()):
                break
        for way in ways:
            seconds[way].append(slices[way])
            told[way] = runs[way].close()
    n = min(len(one) for those in seconds.values() for one in those)  # a last block may end one slice later
    times = {way: np.array([[*one[: n - 1], sum(one[n - 1 :])] for one in those]) for way, those in seconds.items()}
    base = times[ways[0]]
    for way in ways:
        told[way]["seconds"] = float(np.median(base, axis=0).sum()) * ratio_of_slices(base, times[way])
    return told


def ratio_of_slices(base: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """How many times as long as ``base`` the ``other`` takes. Both: (rounds, slices) seconds; each slice was timed next
    to that of the other. The mean over slices, by their time, of the median over rounds of the ratio."""
    weights = np.median(base, axis=0)
    return float((np.median(other / base, axis=0) * weights).sum() / weights.sum())


def measure(name: str, size: str, repeats: int, ways: Sequence[str], plugins: Path | None, folder: Path) -> Any:
    """The figures of every way, by its name."""
    guest = guest_of(name, size, folder)
    rare_pc = rare_place(guest) if "rare" in ways else 0

    def told(ways: Sequence[str], rounds: int) -> Any:
        command = [sys.executable, "-m", "experiments.benchmarks.tracing_speed", "--run", json.dumps([*ways])]
        return json.loads(_output([*command, json.dumps(asdict(guest)), str(rare_pc), str(rounds)], folder / "cache"))

    for way in ways:  # each way alone: together they would share one processor for translating
        for _ in range(LEAVING_TRANSLATIONS):
            told([way], 1)
    found = told(ways, repeats)
    library = plugins / "libcache.so" if plugins is not None else None
    emulator = qemu()
    if library is not None and library.is_file() and emulator is not None:
        plugin = [emulator, "-plugin", f"{library},l2=on", "-d", "plugin", "-D", os.devnull]
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            _output([*plugin, guest.program, *guest.arguments], folder, guest.stdin)
            times.append(time.perf_counter() - start)
        found["QEMU's caches"] = {"seconds": min(times), "instructions": found["untraced"]["instructions"]}
    return found


def _output(command: list[str], cache: Path, stdin: str | None = None) -> bytes:
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "PYTHONPATH": str(ROOT)}
    with open(stdin or os.devnull, "rb") as given:
        return subprocess.run(command, env=environment, stdin=given, stdout=subprocess.PIPE, check=True).stdout


def table(results: dict[str, Results]) -> Iterator[str]:
    """The results as lines of Markdown, with the bars."""
    ways = list(dict.fromkeys(way for found in results.values() for way in found if way != "untraced"))
    yield f"| over untraced | {' | '.join(ways)} | caches, M instructions/s | QEMU's | rare events, us each |"
    yield "|---" * (len(ways) + 4) + "|"
    ratios: dict[str, list[float]] = {way: [] for way in ways}
    speeds: dict[str, list[float]] = {"caches": [], "QEMU's caches": []}
    for name, found in results.items():
        base = found["untraced"]["seconds"]
        for way in ways:
            ratios[way].append(found[way]["seconds"] / base)
        for way, those in speeds.items():
            if way in found:
                those.append(found[way]["instructions"] / found[way]["seconds"])
        cells = [f"{found[way]['seconds'] / base:.2f}" for way in ways]
        cells += [f"{those[-1] / 1e6:.0f}" if those else "-" for those in speeds.values()]
        rare = found.get("rare")
        cells.append(f"{1e6 * (rare['seconds'] - base) / max(1, rare['events']):.0f}" if rare else "-")
        yield f"| {name} | {' | '.join(cells)} |"
    means = [f"**{geometric_mean(ratios[way]):.2f}**" for way in ways]
    means += [f"**{geometric_mean(those) / 1e6:.0f}**" if those else "-" for those in speeds.values()]
    yield f"| **geometric mean** | {' | '.join(means)} | |"
    yield ""
    for way in ways:
        if way in MOST:
            mean = geometric_mean(ratios[way])
            yield f"- {way}: {mean:.2f}, at most {MOST[way]} wanted: {'met' if mean <= MOST[way] else 'NOT MET'}"
    if speeds["caches"]:
        mean = geometric_mean(speeds["caches"])
        verdict = "met" if mean >= LEAST_CACHE_SPEED else "NOT MET"
        yield f"- caches: {mean / 1e6:.0f} M instructions/s, at least {LEAST_CACHE_SPEED / 1e6:.0f} wanted: {verdict}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--size", default="large", help="size argument of the workloads (default: large)")
    parser.add_argument("--repeats", type=int, default=5, help="rounds; the median counts (default: 5)")
    parser.add_argument(
        "--programs", nargs="+", choices=(*PROGRAMS, *HELD_OUT, "held-out"), default=list(PROGRAMS), metavar="NAME",
        help=f"{', '.join(PROGRAMS)} (default), or {', '.join(HELD_OUT)} (held-out: all of these)",
    )  # fmt: skip
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--qemu-plugins", type=Path, metavar="DIR", help="where QEMU's libcache.so is")
    parser.add_argument("--out", type=Path, help="write the table as Markdown, too")
    parser.add_argument("--anew", action="store_true", help="measure again what an earlier call measured")
    parser.add_argument("--run", nargs=4, metavar=("WAYS", "GUEST", "PC", "ROUNDS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        ways, described_guest, pc, rounds = options.run
        guest = Guest(**json.loads(described_guest))
        for way in json.loads(ways):  # loads all kernels
            run(way, guest, guest.short_arguments, int(pc))
        print(json.dumps(side_by_side(json.loads(ways), guest, int(pc), int(rounds))))
        return
    ways = list(dict.fromkeys(("untraced", *options.ways)))
    chosen = [[*HELD_OUT] if name == "held-out" else [name] for name in options.programs]
    programs = list(dict.fromkeys(itertools.chain(*chosen)))
    results: dict[str, Results] = {}
    about = described()
    depends = {"size": options.size, "repeats": options.repeats, "ways": ways, "host": about,
               "plugins": options.qemu_plugins}  # fmt: skip
    journal = Journal("tracing-speed", depends, anew=options.anew)
    with tempfile.TemporaryDirectory(prefix="tracing-speed-") as folder:
        for name in programs:
            measuring = partial(measure, name, options.size, options.repeats, ways, options.qemu_plugins, Path(folder))
            results[name] = journal.measured((name,), measuring)
            print(name, {way: round(told["seconds"], 3) for way, told in results[name].items()}, flush=True)
    size = f"Size `{options.size}`, median" if any(name in PROGRAMS for name in programs) else "Median"
    lines = [f"{size} of {options.repeats} rounds. {about}.", "", *table(results)]
    print("\n" + "\n".join(lines))
    if options.out is not None:
        write_text(options.out, "# Speed of tracing\n\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
