"""Says which programs of a campaign are being built, how long that has taken, and the last line of a build's output.

All of it is one line from time to time: no other module tells of a build that takes long.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from common.listed_names import listed
from instrumenter.errors import InstrumenterError
from measure.console.time_left import clock_text
from measure.run_types import BASELINE

LINE_SECONDS = 20.0
"""Until the first message while programs are built; the pauses grow with the time that building takes."""
_MOST_PAUSE_SECONDS = 120.0
_MOST_NAMES, _MOST_NAME_CHARACTERS = 4, 120  # of programs that are named; names of sets of metrics may be long
_MINUTES_FROM = 90.0  # seconds, from which on a time is told in minutes, too
_FILE_CLOCK_SECONDS = 0.1  # by which the time of a change of a file may be too early
_LAST_BYTES = 4096  # of a build's output that are looked at for its last line
_MOST_CHARACTERS = 120  # of that line


def no_outputs() -> tuple[Path, ...]:
    """Of a program that no command of a project builds."""
    return ()


@dataclass(frozen=True)
class PendingBuild:
    """A program to build. ``name``: in messages; ``outputs``: gives the files into which its build's commands write
    what they print, whether or not they exist; ``ended``: whether it is built."""

    name: str
    outputs: Callable[[], Sequence[Path]] = no_outputs
    ended: Callable[[], bool] = bool


@dataclass(frozen=True)
class SecondRunOf:
    """In place of a variant: the program that counts in its second run."""

    variant: str

    def __str__(self) -> str:
        return f"{self.variant}, second run"


def program_name(program: str | SecondRunOf, layout: int) -> str:
    """The name of a program in messages; ``program``: a variant or its second run; ``layout``: number of its code
    layout."""
    name = "the plain program" if program == BASELINE else str(program)
    return f"{name}, code layout {layout + 1}" if layout else name


def numbered(names: Sequence[str], number: int) -> str:
    """``heavy (2 of 5)``: the name of that number, from 0; without numbers if there is only one."""
    return f"{names[number]} ({number + 1} of {len(names)})" if len(names) > 1 else names[number]


def unfinished(builds: Sequence[PendingBuild], built: int = 0) -> str:
    """The programs of ``builds`` that have not ended, and how many have, with ``built`` others before them."""
    left = [build.name for build in builds if not build.ended()]
    total = len(builds) + built
    if total == 1:
        return builds[0].name
    done = f"({total - len(left)} of {total} are built)"
    if len(left) > 1 and sum(map(len, left[:_MOST_NAMES])) > _MOST_NAME_CHARACTERS:
        return f"{len(left)} programs {done}"
    return f"{listed(left, _MOST_NAMES)} {done}"


@contextmanager
def waiting(notify: Callable[[str], None], builds: Sequence[PendingBuild], built: int = 0) -> Iterator[None]:
    """Within it, say from time to time which of ``builds`` are left, the time so far, and what a build printed last.

    ``built``: number of programs of the same work that were built before.
    """
    over, begun, begun_at = threading.Event(), time.monotonic(), time.time()

    def tell() -> None:
        pause = LINE_SECONDS
        while not over.wait(pause) and not all(build.ended() for build in builds):
            seconds = time.monotonic() - begun
            took = f"{seconds:.0f} s" if seconds < _MINUTES_FROM else f"{clock_text(seconds)} min"
            printed = _printed_last(builds, begun_at)
            notify(f"Still building {unfinished(builds, built)}, {took}{printed}")
            pause = min(max(LINE_SECONDS, seconds), _MOST_PAUSE_SECONDS)

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _printed_last(builds: Sequence[PendingBuild], since: float) -> str:
    """The last line of the output that a build not yet ended has written to last, with the build's name where there
    are several; nothing without such output after ``since``, seconds of the epoch: older output is of an earlier build.
    """
    written: list[tuple[float, str, str]] = []
    for build in builds:
        if build.ended():
            continue
        try:
            outputs = build.outputs()
        except InstrumenterError:  # the build itself tells of it
            continue
        for output in outputs:
            try:
                changed, line = output.stat().st_mtime, last_line(output)
            except OSError:  # not begun, or over and removed
                continue
            if changed >= since - _FILE_CLOCK_SECONDS and line:
                written.append((changed, build.name, line))
    if not written:
        return ""
    _, name, line = max(written)
    return f"; {name} printed last: {line}" if len(builds) > 1 else f"; it printed last: {line}"


def last_line(output: Path) -> str:
    """The end of the file's last line that is not empty, without control characters. Raises `OSError`."""
    with output.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _LAST_BYTES))
        lines = file.read().decode("utf-8", "replace").replace("\r", "\n").split("\n")
    line = next((line for line in reversed(lines) if line.strip()), "")
    printable = "".join(character for character in line.strip() if character.isprintable())
    return printable if len(printable) <= _MOST_CHARACTERS else f"...{printable[-_MOST_CHARACTERS:]}"
