"""A program that a command runs on the emulator, as the command's options name it. Imports the emulator lazily."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from common.quantities import SHORTEST_TRACED_INTERVAL
from emulator.guest_options import Guest, about_hidden_files, own_guest_path
from measure.arguments import check_number
from measure.errors import CampaignError, MeasureError, RunError, wanted_status

if TYPE_CHECKING:
    from rich.console import Console

    from emulator.machine import Machine

_BUILD = (
    "`make CC=instrument-cc CXX=instrument-c++` in a copy of its directory, or `instrument-cc -O2 -g -o PROGRAM "
    "*.c -lm`; then give the executable"
)
_BUILD_WITH_HEADERS = "`instrument-cc -O2 -g -I DIRECTORY -o PROGRAM *.c -lm`; then give the executable"
_LAST_BYTES = 400  # of a failed program's words on standard error


@dataclass(frozen=True)
class Job:
    """A program to trace; ``stdin``: host file; ``guest``: what it sees of the host. ``samples``: 0 to sample as phases
    are predicted, while the program runs; otherwise the program is run twice and each phase simulated so many times.
    ``settings``: changes of the machine's description; ``exit_status``: with which the program ends when all is well,
    128 + N where signal N ends it.
    """

    program: Path
    arguments: tuple[str, ...]
    machine: Path
    stdin: Path | None = None
    seed: int = 1
    samples: int = 0
    guest: Guest = field(default_factory=Guest)
    settings: tuple[str, ...] = ()
    exit_status: int = 0
    # What ``stdin`` holds, once it is read; the same list in copies of the job. The program runs several times, and a
    # pipe can be read once.
    _input: list[bytes] = field(default_factory=list, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_number("exit_status", self.exit_status, least=0, most=255, whole=True)

    @property
    def options(self) -> list[str]:
        """The options of a command line that show the program of the host what it sees here, and say how it ends."""
        guest = self.guest
        words = [] if self.stdin is None else ["--stdin", str(self.stdin)]
        words += [] if guest.root is None else ["--root", str(guest.root)]
        for path, host in guest.mapped.items():
            words += ["--map", f"{path}={host}"]
        for path in guest.writable:
            words += ["--writable", path]
        for name, value in guest.environment.items():
            words += ["--env", f"{name}={value}"]
        words += ["--exit-status", str(self.exit_status)] if self.exit_status else []
        return words

    def input(self) -> bytes:
        """What the program reads as its standard input, each time that it runs."""
        if not self._input:
            self._input.append(b"" if self.stdin is None else self.stdin.read_bytes())
        return self._input[0]

    def check_input(self) -> None:
        """Raises `CampaignError` if ``stdin`` cannot be read; a device such as /dev/null can."""
        if self.stdin is not None:
            try:
                self.stdin.open("rb").close()
            except OSError as error:
                raise CampaignError(f"--stdin {self.stdin}: {error.strerror}; expected a file") from None


def program_file(program: Path, console: Console) -> Path:
    """The executable itself, or the one that a C source compiles to. Raises `CampaignError`."""
    from instrumenter.languages import is_cplusplus

    is_text = is_cplusplus(program) or program.suffix in (".yaml", ".yml")
    if program.is_dir() or (is_text and program.exists()):
        raise CampaignError(
            f"{program}: expected a riscv64 Linux executable or one C file; a program with a build, of several files "
            f"or in C++ is compiled first: {_BUILD}"
        )
    if program.suffix != ".c":
        return program
    if not program.exists():
        raise CampaignError(f"no such file: {program}")
    from instrumenter.building.program_build import build_program
    from instrumenter.errors import CompileFailure, InstrumenterError

    try:
        return build_program(
            [program], ["-O2", "-g"], libraries=["-lm"], notify=lambda text: console.print(text, style="dim")
        ).elf_path
    except InstrumenterError as error:
        hint = ""
        if isinstance(error, CompileFailure) and error.undefined:
            hint = f"\nIf other files have them, compile the program first: {_BUILD}"
        elif isinstance(error, CompileFailure) and error.missing_header:
            hint = f"\nA program that needs directories of headers is compiled first: {_BUILD_WITH_HEADERS}"
        raise CampaignError(f"{program}: {error}{hint}") from None


def machine_for(job: Job, elf: Path, clock_hz: int | None = None) -> Machine:
    """A fresh machine that runs the program of ``job``. Its clock does not see what is simulated: an instruction takes
    a cycle of ``clock_hz``, default: of a processor of 1 GHz."""
    from emulator.linux.vfs.files import VirtualFiles
    from emulator.machine import DEFAULT_CLOCK_HZ, Machine

    guest = job.guest
    files = VirtualFiles(
        root=guest.root, mapped=guest.mapped, writable=guest.writable, stdin=job.input(), seed=job.seed
    )
    # The name of a compiled C program, which lies on the guest's stack, would contain the cache directory's path.
    program = elf.read_bytes() if job.program.suffix == ".c" else elf
    return Machine(
        program, job.arguments, environment=guest.environment, files=files, clock_hz=clock_hz or DEFAULT_CLOCK_HZ,
        seed=job.seed, keep_translations=True,
    )  # fmt: skip


def bad_ending(machine: Machine, job: Job) -> str | None:
    """Why the guest failed, with its last words, and what it would have had with other options: files of this machine,
    standard input; None if it succeeded or is still running."""
    ending = machine.ending
    if ending is None or ending.status == job.exit_status:
        return None
    words = machine.files.output(2)[-_LAST_BYTES:].decode("utf-8", "replace").strip()
    if ending.message is not None:
        signal, newline, where = ending.message.partition("\n")
        reason = f"{signal}{wanted_status(job.exit_status)}{newline}{where}"
    else:
        reason = f"exit status {ending.status}{wanted_status(job.exit_status)}" + (f": {words}" if words else "")
    missed = about_hidden_files(machine.files.not_found(), job.arguments)
    if not missed and job.stdin is None and machine.files.stdin_was_read:
        missed = "the program read its standard input, which is empty without `--stdin FILE`"
    if not missed and ending.message is None and not job.exit_status:
        missed = f"if it ends so when all is well, give --exit-status {ending.status}"
    what, newline, where = reason.partition("\n")
    return f"{what.rstrip('.')}; {missed}, before PROGRAM{newline}{where}" if missed else reason


def failed_after(executed: int) -> str:
    """A sentence before the results of a program that ended with another status than the expected one."""
    return f"The program ended badly after {executed:,} instructions; what follows is of the time before."


def check_length(job: Job, interval_instructions: int, executed: int, problem: str | None = None) -> None:
    """Raises an error when not one interval fits into the ``executed`` instructions of the whole program: `RunError`
    where ``problem`` says why the guest failed, else `CampaignError`."""
    if executed < interval_instructions:
        if problem is not None:
            raise RunError(
                f"{job.program}: {problem}\nIt ended before one interval of {interval_instructions:,} instructions was "
                f"over, after {executed:,}: there is nothing to show"
            )
        looked_for = [] if job.guest.root else [own_guest_path(word) for word in job.arguments]
        hidden = about_hidden_files([path for path in looked_for if path not in job.guest.mapped], job.arguments)
        more = "" if job.stdin is not None else " by its arguments, or by input with --stdin FILE, before PROGRAM"
        raise CampaignError(
            f"--interval: got intervals of {interval_instructions:,} instructions, but {job.program} executes "
            f"{executed:,} in all: {_shorter_interval(executed)} more work for the program"
            f"{f'; {hidden}, before PROGRAM' if hidden else more}"
        )


def check_same_again(job: Job, first: NDArray[np.int64], again: NDArray[np.int64]) -> None:
    """Raises `MeasureError` where two runs of the program had intervals with other ends, given in instructions."""
    if not np.array_equal(first, again):
        common = min(len(first), len(again))
        differ = np.flatnonzero(first[:common] != again[:common])
        place = int(differ[0]) if len(differ) else common
        ends = [
            f"ends after {one[place]:,} instructions" if place < len(one) else "is missing" for one in (first, again)
        ]
        raise MeasureError(
            f"{job.program}: the program did not do the same again: interval {place} {ends[0]} in the first run and "
            f"{ends[1]} in the second, so intervals cannot be compared. Expected a program that does the same whenever "
            "it runs with the same input: files that it writes with --writable, and reads again, differ"
        )


def _shorter_interval(executed: int) -> str:
    """What is expected of intervals for a program of ``executed`` instructions, before "more work": a length of which
    there are about a hundred, if an interval may be as short as the program."""
    least = SHORTEST_TRACED_INTERVAL
    if executed < least:
        return f"an interval has {least:,} at least, so expected"
    length = max(least, executed // 100)
    return f"expected a shorter interval, {length:,} for about {executed // length:,} of them, or"
