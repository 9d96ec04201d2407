"""Where a program's time goes: instructions of each function and line, from one run without a timing model.

The line table says which source line an instruction belongs to, so that functions that the compiler inlined are
counted as themselves. A line belongs to the function whose declaration is the last before it in the same file.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from emulator.analyzers.analyzer import Analyzer
from emulator.analyzers.instruction_counts import Executions
from emulator.events import TraceSelection
from measure.errors import RunError

if TYPE_CHECKING:
    from emulator.linux.loader.elf import ElfImage
    from measure.campaign.campaign_model import Campaign

_LOOP = re.compile(r"\b(?:for|while|do)\b")
_NO_CODE = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)


@dataclass(frozen=True)
class HotFunction:
    """A function, and what it executes without the functions that it calls.

    ``share``: its fraction of the program's instructions; ``hottest``: the line with the most of them;
    ``loops``: whether its text has a loop.
    """

    name: str
    file: str
    line: int
    share: float
    hottest: int
    loops: bool

    @property
    def place(self) -> str:
        """``file:line`` of its declaration, without directories."""
        return f"{Path(self.file).name}:{self.line}"


@dataclass(frozen=True)
class Profile:
    """``functions``: of the program's own sources, those with most instructions first; ``instructions``: of the whole
    run; ``reads_stdin``: whether the program read its standard input."""

    functions: tuple[HotFunction, ...]
    instructions: int
    reads_stdin: bool


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
    from emulator.linux.vfs.open_files import Stream
    from emulator.machine import Machine
    from measure.campaign.plan import program_input
    from measure.targets.emulated import check_ending

    stdin, arguments, mapped = program_input(campaign.program)
    reads: list[int] = []
    host = os.open(stdin or os.devnull, os.O_RDONLY)
    try:
        files = VirtualFiles(mapped=mapped, stdin=host, seed=campaign.seed)
        stream = files.descriptors.file(0)
        assert isinstance(stream, Stream)
        stream.before_reading = reads.append
        with Machine(
            program, arguments, files=files, seed=campaign.seed, keep_translations=True,
            limit_instructions=campaign.limits.instructions,
        ) as machine:  # fmt: skip
            counts = _Counts()
            session = Session(machine, [counts])
            session.run()
            session.finish()
            if not (reads and stdin is None):  # without its input, it may fail for that reason
                check_ending(machine, files, campaign.program.exit_status)
            executed = dict(zip(counts.pcs.tolist(), counts.counts.tolist(), strict=True))
            functions = _functions(machine.image, program, executed, campaign.program.directory)
            return Profile(functions, machine.instructions, bool(reads))
    except EmulatorError as error:
        raise RunError(str(error)) from error
    finally:
        os.close(host)


def _functions(
    image: ElfImage, program: Path, executed: Mapping[int, int], directory: Path | None
) -> tuple[HotFunction, ...]:
    """The functions that executed something. ``directory``: of a project, which was built elsewhere."""
    declared = _declared(program)
    pcs = np.array(sorted(executed), np.int64)
    before = np.concatenate([[0], np.cumsum([executed[pc] for pc in pcs.tolist()])])
    spent: dict[tuple[str, int, str], Counter[int]] = {}
    for row in image.line_rows():
        places = declared.get(row.file)
        low, high = np.searchsorted(pcs, (row.address, row.end))
        number = int(before[high] - before[low])
        at = bisect_left(places, (row.line + 1, "")) - 1 if places and row.line else -1
        if places and at >= 0 and number:
            spent.setdefault((row.file, *places[at]), Counter())[row.line] += number
    total = max(1, int(before[-1]))
    found = []
    for (file, line, name), lines in spent.items():
        following = next((other for other, _ in declared[file] if other > line), None)
        source = _source(file, directory)
        share = sum(lines.values()) / total
        hottest = lines.most_common(1)[0][0]
        found.append(HotFunction(name, Path(file).name, line, share, hottest, _has_loop(source, line, following)))
    return tuple(sorted(found, key=lambda one: (-one.share, one.name)))


def _declared(program: Path) -> dict[str, list[tuple[int, str]]]:
    """Line and name of each function with a body, by file and in the order of lines; the C library left out."""
    from elftools.elf.elffile import ELFFile

    from emulator.linux.loader.debug_lines import unit_files

    found: dict[str, set[tuple[int, str]]] = {}
    with program.open("rb") as file:
        dwarf = ELFFile(file).get_dwarf_info()
        for unit in dwarf.iter_CUs():
            table = dwarf.line_program_for_CU(unit)
            files = unit_files(table, unit) if table is not None else {}
            for die in unit.iter_DIEs():
                about = die.attributes
                named = die.tag == "DW_TAG_subprogram" and {"DW_AT_name", "DW_AT_decl_line"} <= about.keys()
                if named and "DW_AT_declaration" not in about and "DW_AT_decl_file" in about:
                    text = about["DW_AT_name"].value.decode("utf-8", "surrogateescape")
                    name = files.get(about["DW_AT_decl_file"].value, "")
                    found.setdefault(name, set()).add((about["DW_AT_decl_line"].value, text))
    return {name: sorted(places) for name, places in found.items() if name and "/ziglang/" not in name}


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
