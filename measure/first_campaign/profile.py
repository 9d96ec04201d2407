"""Where a program's time goes: instructions of each function and line, from one run without a timing model.

Functions that the compiler inlined are counted as themselves; the C and C++ libraries' inline functions as what calls
them (`measure.first_campaign.own_functions`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from emulator.analyzers.analyzer import Analyzer
from emulator.analyzers.instruction_counts import Executions
from emulator.events import TraceSelection
from measure.first_campaign.own_functions import Definition, own_functions

if TYPE_CHECKING:
    from measure.runs.campaign_model import Campaign

_MOST_LETTERS = 160
# A `do` ends with its `while`; one that never repeats is no loop.
_LOOP = re.compile(r"\b(?:for\b|while\b(?!\s*\(\s*(?:\(void\)\s*0\s*,\s*)?(?:0|false)\s*\)))")
_NO_CODE = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)


@dataclass(frozen=True)
class HotFunction:
    """A function, and what it executes without the functions of the program that it calls.

    ``name``: qualified, as a metric's `function:` takes it, all instances of a template together; ``overload``: the
    same with its parameters' types, None if it is the only one of its name in its file or they are not known;
    ``namesake``: whether another file has a function of this name; ``share``: its fraction of the program's
    instructions; ``file``: without directories, but after as many as tell it from those of namesakes; ``hottest``: the
    line of ``file`` with the most of them, 0 if that is in another file, or not known; ``loops``: whether its text has
    a loop.
    """

    name: str
    overload: str | None
    namesake: bool
    file: str
    line: int
    share: float
    hottest: int
    loops: bool

    @property
    def place(self) -> str:
        """``file:line`` of its declaration."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Profile:
    """``functions``: of the program's own sources, those with most instructions first; ``instructions``: of the whole
    run; ``reads_stdin``: whether the program read its standard input; ``last_words``: the last line that it wrote to
    standard error, "" for none; ``explanation``: what it said and which files it did not find, for an error."""

    functions: tuple[HotFunction, ...]
    instructions: int
    reads_stdin: bool
    last_words: str
    explanation: str = ""


class _Counts(Analyzer):
    """Counts how often each instruction is executed."""

    trace = TraceSelection(counts=True)

    def begin(self) -> None:
        self._executions = Executions(self.session)

    def end(self) -> None:
        self.pcs, self.counts = self._executions.by_pc()


def profile(campaign: Campaign, program: Path) -> Profile:
    """Run ``program``, the campaign's program without counters. Raises `RunError` when it fails."""
    from emulator.analyzers.analysis_session import Session
    from emulator.errors import EmulatorError
    from emulator.linux.vfs.files import VirtualFiles
    from emulator.machine import Machine
    from measure.runs.plan import program_input
    from measure.targets.emulated import check_ending, explanation, run_error

    stdin, arguments, mapped = program_input(campaign.program)
    files = VirtualFiles(mapped=mapped, stdin=Path(stdin).read_bytes() if stdin else b"", seed=campaign.seed)
    try:
        with Machine(
            program.read_bytes(), arguments, name=campaign.program.started_as, files=files, seed=campaign.seed,
            keep_translations=True, limit_instructions=campaign.limits.instructions,
        ) as machine:  # fmt: skip
            counts = _Counts()
            session = Session(machine, [counts])
            session.run()
            session.finish()
            if not (files.stdin_was_read and stdin is None):  # without its input, it may fail for that reason
                check_ending(machine, files, campaign.program.exit_status)
            executed = dict(zip(counts.pcs.tolist(), counts.counts.tolist(), strict=True))
            functions = _functions(program, executed, campaign.program.directory)
            return Profile(
                functions, machine.instructions, files.stdin_was_read, _last_line(files.output(2)), explanation(files)
            )
    except EmulatorError as error:
        raise run_error(error) from error


def _last_line(output: bytes) -> str:
    """The last line with text, without control characters and cut to a length for the terminal."""
    lines = [line for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
    text = "".join(letter for letter in lines[-1] if letter.isprintable()).strip() if lines else ""
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}..."


def _functions(program: Path, executed: Mapping[int, int], directory: Path | None) -> tuple[HotFunction, ...]:
    """The functions that executed something. ``directory``: of a project, which was built elsewhere."""
    pcs = np.array(sorted(executed), np.int64)
    counts = np.array([executed[pc] for pc in pcs.tolist()], np.int64)
    own = own_functions(program, pcs)
    total = max(1, int(counts.sum()))
    by_name = Counter(one.parts for one in own.definitions)
    by_file = Counter((one.parts, one.file) for one in own.definitions)
    found = []
    spent = np.bincount(own.owner + 1, counts, len(own.definitions) + 1)[1:]
    for index, (one, types) in enumerate(own.definitions.items()):
        number = int(spent[index])
        if not number:
            continue
        mine = own.owner == index
        per_line = np.bincount(own.line[mine], counts[mine])
        hottest = int(per_line.argmax())
        in_file = by_file[one.parts, one.file]
        overload = f"{one.name}({', '.join(types)})" if in_file > 1 and types is not None else None
        namesake = by_name[one.parts] > in_file
        loops = _has_loop(_source(one.file, directory), one.line, _line_after(one, own.definitions))
        file = _told_apart(one.file, {other.file for other in own.definitions if other.parts == one.parts})
        found.append(HotFunction(one.name, overload, namesake, file, one.line, number / total, hottest, loops))
    return tuple(sorted(found, key=lambda one: (-one.share, one.name, one.line)))


def _told_apart(file: str, files: Iterable[str]) -> str:
    """The name of ``file`` after as many of its directories as tell it from the others among ``files``."""
    parts = Path(file).parts
    others = [Path(other).parts for other in files if other != file]
    alike = (n for n in range(1, len(parts)) if any(other[-n:] == parts[-n:] for other in others))
    return str(Path(*parts[-1 - max(alike, default=0) :]))


def _line_after(one: Definition, others: Iterable[Definition]) -> int | None:
    """The line of the next function in the same file that is not inside of this one; None for the last."""
    n = len(one.parts)
    after = (
        other.line
        for other in others
        if other.file == one.file and other.line > one.line and other.parts[:n] != one.parts
    )
    return min(after, default=None)


def _source(name: str, directory: Path | None) -> Path | None:
    """The file that debug information names; below ``directory`` for a project, which is built in a copy."""
    if directory is None:
        return Path(name)
    parts = Path(name).parts
    places = (directory.joinpath(*parts[n:]) for n in range(1 if name.startswith("/") else 0, len(parts)))
    return next((place for place in places if place.is_file()), None)


def _has_loop(source: Path | None, first: int, following: int | None) -> bool:
    """Whether the text from line ``first`` to before ``following`` has a loop; False if it cannot be read."""
    try:
        lines = source.read_text("utf-8", "replace").splitlines() if source is not None else []
    except OSError:
        return False
    text = "\n".join(lines[first - 1 : following - 1 if following else None])
    return bool(_LOOP.search(_NO_CODE.sub(" ", text)))
