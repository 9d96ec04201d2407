"""Run it all and write the tables: `python -m experiments.shade.run [--qemu-plugins DIR]`.

Each round runs everything once, one after the other, so that a busy moment of the host meets them all. Runs are kept
as they end, in `results/shade/runs.csv` of the current directory and a file each in `results/shade/profiles`; `--keep`
goes on from there. To try it out: `--programs bwtzip --size tiny --rounds 1`.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from common.atomic_files import write_text
from emulator.errors import EmulatorError
from experiments.benchmarks.emulation_speed import FLAGS, WORKLOADS, build, forget_programs
from experiments.shade.campaign import Campaign, load_campaign
from experiments.shade.others import TOOLS, Place
from experiments.shade.tables import write_tables
from measure.errors import MeasureError

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
COLUMNS = ("program", "way", "size", "round", "seconds", "inside_seconds", "instructions")
NATIVE, COLD = "native", "cold"


@dataclass(frozen=True)
class Run:
    """One run that is to be timed; ``way``: native, cold (level 0, nothing kept), level-N or a tool."""

    program: str
    way: str
    size: str
    round: int

    @property
    def key(self) -> tuple[str, ...]:
        return self.program, self.way, self.size, str(self.round)


class Bench:
    """Programs and caches in a folder of their own. ``warm`` keeps translations; ``empty`` only compiled kernels."""

    def __init__(self, folder: Path, plugins: Path | None) -> None:
        self._folder, self._plugins = folder, plugins
        self._warm, self._empty = folder / "warm", folder / "empty"
        self._report = folder / "report.json"
        self._places: dict[str, Place] = {}
        self._output: dict[tuple[str, str], bytes] = {}  # by program and size: what every run has to write

    def place(self, program: str) -> Place:
        """Where the program is, compiled when it is first asked for."""
        if program not in self._places:
            native, guest = build(program, self._folder)
            plain = self._folder / f"{program}.plain"
            compiler = [sys.executable, "-m", "ziglang", "cc", *FLAGS, "-mcpu=x86_64"]
            subprocess.run([*compiler, str(WORKLOADS / f"{program}.c"), "-lm", "-o", str(plain)], check=True)
            self._places[program] = Place(native, plain, guest, self._plugins)
        return self._places[program]

    def command(self, run: Run) -> list[str] | None:
        """How a run is called; None when its tool is not there."""
        place = self.place(run.program)
        if run.way == NATIVE:
            return [str(place.native)]
        if run.way in TOOLS:
            return TOOLS[run.way].command(place)
        level = 0 if run.way == COLD else int(run.way.removeprefix("level-"))
        return self._ours(level, place)

    def _ours(self, level: int, place: Place, *options: str) -> list[str]:
        arguments = [str(level), str(self._report), *options, str(place.guest)]
        return [sys.executable, "-m", "experiments.shade.one_run", *arguments]

    def time(self, run: Run) -> tuple[float, dict[str, float]]:
        """Wall-clock seconds of the whole process, and what one of ours tells. Raises `MeasureError`."""
        command = self.command(run)
        assert command is not None
        if run.way == COLD:
            self.forget()
        start = time.perf_counter()
        output = self._call([*command, run.size], self._empty if run.way == COLD else self._warm)
        seconds = time.perf_counter() - start
        if output != self._output.setdefault((run.program, run.size), output):
            raise MeasureError(f"{' '.join(command)} {run.size}: another output than that of the first run")
        ours = run.way == COLD or run.way.startswith("level-")
        return seconds, json.loads(self._report.read_text()) if ours else {}

    def profile(self, program: str, level: int, size: str) -> dict[str, object]:
        """What a run tells of its translations, none of which are there before. Raises `MeasureError`."""
        self.forget()
        self._call([*self._ours(level, self.place(program), "--profile"), size], self._empty)
        told: dict[str, object] = json.loads(self._report.read_text())
        return told

    def prepare(self, program: str, levels: Sequence[int], size: str) -> None:
        """Compile kernels, and translate what is timed warm. Raises `MeasureError`."""
        for level in levels:
            command = self._ours(level, self.place(program))
            self._call([*command, "tiny"], self._empty)
            self._call([*command, size], self._warm)

    def forget(self) -> None:
        """Remove what is kept of programs where nothing is to be found when a run begins; what the emulator compiles of
        itself, once after its installation, stays."""
        forget_programs(self._empty)

    def _call(self, command: list[str], cache: Path) -> bytes:
        environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, env=environment, capture_output=True, cwd=ROOT)
        if done.returncode:
            words = done.stderr.decode(errors="replace").strip().splitlines()
            raise MeasureError(f"{' '.join(command)}: exit status {done.returncode}: {words[-1] if words else ''}")
        return done.stdout


def runs_of(campaign: Campaign) -> Iterator[Run]:
    """Everything to be timed, round after round."""
    for number in range(campaign.rounds):
        for program in campaign.programs:
            for way in (NATIVE, COLD, *(f"level-{level}" for level in campaign.levels), *campaign.others):
                is_slow = way in TOOLS and TOOLS[way].is_slow
                yield Run(program, way, campaign.slow_size if is_slow else campaign.size, number)
        # What is slow is compared by the instruction, so these have to be known for its size, too.
        for program in campaign.programs if number == 0 and campaign.slow_size != campaign.size else ():
            yield Run(program, "level-0", campaign.slow_size, number)


def perform(campaign: Campaign, bench: Bench, results: Path, keep: bool) -> None:
    """Run what is missing. Raises `MeasureError`."""
    profiles, table = results / "profiles", results / "runs.csv"
    profiles.mkdir(parents=True, exist_ok=True)
    if not keep:
        table.unlink(missing_ok=True)
        for path in profiles.glob("*.json"):
            path.unlink()
    done = set()
    if table.is_file():
        with table.open(newline="") as file:
            done = {tuple(row[name] for name in COLUMNS[:4]) for row in csv.DictReader(file)}
    else:
        write_text(table, ",".join(COLUMNS) + "\n")
    missing = [run for run in runs_of(campaign) if run.key not in done and bench.command(run) is not None]
    for program in campaign.programs:
        paths = {level: profiles / f"{program}-{level}.json" for level in campaign.levels}
        wanted = [level for level, path in paths.items() if not path.is_file()]
        if wanted or any(run.program == program for run in missing):
            _say(f"{program}: preparing")
            bench.prepare(program, campaign.levels, campaign.size)
        for level in wanted:
            _say(f"{program}: level {level}, profile")
            write_text(paths[level], json.dumps(bench.profile(program, level, campaign.size)))
    for run in missing:
        seconds, told = bench.time(run)
        _say(f"{run.program} {run.way} ({run.size}): {seconds:.2f} s")
        with table.open("a", newline="") as file:
            row = (*run.key, f"{seconds:.6f}", told.get("seconds", ""), told.get("instructions", ""))
            csv.writer(file).writerow(row)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m experiments.shade.run", description=__doc__.splitlines()[0])
    parser.add_argument("--qemu-plugins", type=Path, metavar="DIR", help="where libNAME.so of QEMU's plug-ins are")
    parser.add_argument("--programs", nargs="+", metavar="NAME", help="only these; tables then go to the results")
    parser.add_argument("--size", help="run all at this size; tables then go to the results")
    parser.add_argument("--rounds", type=int, metavar="N")
    parser.add_argument("--levels", type=int, nargs="+", metavar="N")
    parser.add_argument("--keep", action="store_true", help="keep the runs that there are, whatever made them")
    parser.add_argument("--tables", action="store_true", help="run nothing, write the tables from the results")
    parser.add_argument("--results", type=Path, default=Path("results/shade"))
    options = parser.parse_args(arguments)
    try:
        campaign = load_campaign(FOLDER / "shade.yaml")
        changes = {name: getattr(options, name) for name in ("programs", "size", "rounds", "levels")}
        given = {name: value for name, value in changes.items() if value is not None}
        if options.size:
            given["slow_size"] = options.size
        campaign = Campaign.model_validate({**campaign.model_dump(), **given})
        if not options.tables:
            with tempfile.TemporaryDirectory(prefix="shade-") as folder:
                bench = Bench(Path(folder), options.qemu_plugins)
                perform(campaign, bench, options.results, options.keep)
        write_tables(campaign, options.results, options.results if given else FOLDER)
    except (MeasureError, EmulatorError, ValueError) as error:
        _say(str(error))
        return getattr(error, "exit_status", 1)
    except KeyboardInterrupt:
        _say("Interrupted: finished runs are kept; --keep goes on from there.")
        return 130
    return 0


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
