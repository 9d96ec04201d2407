"""`measure init`: builds a program, tries it out, and writes a campaign for it."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.markup import escape

from common.listed_names import listed
from common.yaml_document import YamlDocument
from instrumenter.building.program_build import Build
from instrumenter.compiler.processor_options import explain_other_processor
from instrumenter.errors import CompileFailure, InstrumenterError, MissingProgram
from instrumenter.projects.build_advice import folder_with
from instrumenter.projects.undeclared_names import undeclared_names
from measure.built_in.machine import NAME, built_in_machine
from measure.console.progress import Status
from measure.errors import CampaignError, RunError
from measure.first_campaign.campaign_text import campaign_text, draft_text, percent
from measure.first_campaign.profile import profile
from measure.first_campaign.program_keys import (
    build_commands,
    check_exists,
    condition_of_main,
    flag_keys,
    input_keys,
    program_keys,
    relative,
    sources_keys,
    sources_that_define,
)
from measure.first_campaign.software_choice import Choice, choose_counters
from measure.first_campaign.trial_run import Trial, trial_run
from measure.result_files import check_file_place, write_text_atomically
from measure.run_types import BASELINE
from measure.runs.builds import Builds
from measure.runs.campaign_file import campaign_of
from measure.runs.campaign_model import Campaign

Result = TypeVar("Result")
_FLAGS = "-O2"  # of a campaign without flags
_MOST_PARENTS = 3  # directories above a source that may have the project's build
_HEAVY_PERCENT = 5.0  # added instructions of a counter
_MOST_FILES_TOLD = 6  # in a message
_CLOCK_HZ = 1_000_000_000  # any value: the program does not sample itself


@dataclass(frozen=True)
class Request:
    """The options of the command; None: not given."""

    program: Path
    arguments: tuple[str, ...] = ()
    machine: Path | None = None
    out: Path | None = None
    stdin: Path | None = None
    files: tuple[str, ...] = ()
    flags: str | None = None
    build: str | None = None
    binary: str | None = None
    exit_status: int = 0
    limit_instructions: int | None = None
    force: bool = False


def write_first_campaign(request: Request, console: Console) -> Path:
    """Write the campaign file, and the machine's description beside it if none was given; returns the file's path.

    Raises `CampaignError` for a program that does not build, fails, reads an input that was not given or runs too
    short, and when the file exists already; nothing is written then.
    """
    name = _name_of(request)
    place = request.out or Path(f"{name}.yaml")
    check_exists(request.program)
    check_file_place(place)
    if place.exists() and not request.force:
        raise CampaignError(f"{place} exists already: choose another place with --out, or overwrite it with --force")
    machine = request.machine or built_in_machine()
    _check_machine(machine)
    copy_to = _place_of_copy(place, machine) if request.machine is None else None
    beside = place.parent
    told: list[str] = []
    with Status(console, "building the program") as status:

        def note(text: str) -> None:
            told.append(text)
            status.note(text)

        flags = flag_keys(request.flags, request.program, request.build)
        keys = program_keys(request.program, request.build, request.binary, beside, note) | flags
        given = input_keys(request.arguments, request.stdin, request.files, beside)
        if request.exit_status:
            given["exit_status"] = request.exit_status
        draft = _Draft(name, {**keys, **given}, relative(machine, beside), place, request)
        build = draft.build(note)
        status.update("running the program")
        try:
            found = profile(draft.campaign, build.elf_path)
            if found.reads_stdin and request.stdin is None:
                raise CampaignError(
                    f"{request.program}: the program reads its standard input, and none was given: "
                    "say what it reads with --stdin FILE"
                )
            status.update("running the program on the timing model")
            trial = trial_run(draft.campaign, build.elf_path, build.key, found.instructions, found.explanation)
        except RunError as error:
            raise CampaignError(f"{request.program}: {error}{_advice_on_run(error, given)}") from None
        status.update("building the program with all counters, and counting events")
        choice = draft.attempt(
            lambda: choose_counters(
                draft.campaign,
                draft.document,
                found.functions,
                trial.every,
                trial.unit,
                note,
                found.instructions,
            )
        )
    final_machine = relative(copy_to, beside) if copy_to is not None else draft.machine
    text = campaign_text(
        name, draft.program, final_machine, trial, choice, str(place), request.limit_instructions
    )  # fmt: skip
    if copy_to is not None and not copy_to.exists():
        write_text_atomically(copy_to, machine.read_text("utf-8"))
    write_text_atomically(place, text)
    untold = tuple(notice for notice in choice.notices if notice not in told)
    tell_written(console, place, trial, replace(choice, notices=untold), found.last_words)
    return place


class _Draft:
    """The least campaign of the program, never written; ``program``: its key of that name."""

    def __init__(self, name: str, program: dict[str, Any], machine: str, place: Path, request: Request) -> None:
        self._name, self.machine, self._place, self._source = name, machine, place, request.program
        self._arguments, self._flags = request.arguments, request.flags or _FLAGS
        self._limit_instructions = request.limit_instructions
        self.program = program
        self._read()

    def _read(self) -> None:
        text = draft_text(self._name, self.program, self.machine, self._limit_instructions)
        self.document = YamlDocument(text, self._place, CampaignError)
        self.campaign: Campaign = campaign_of(self.document, Campaign)

    def build(self, notify: Callable[[str], None]) -> Build:
        """Build the plain program; source files beside it that define what it misses become its sources, too."""
        while True:
            try:
                return self.attempt(lambda: Builds(self.campaign, self.document, _CLOCK_HZ, notify)[BASELINE, 0])
            except CampaignError as error:
                failure = error.__cause__
                if not isinstance(failure, CompileFailure):
                    raise
                missing, program = failure.undefined, self.campaign.program
                sources = [program.source] if program.source else list(program.sources)
                more = sources_that_define(missing, sources) if "main" not in missing else []
                if not more:
                    raise CampaignError(_compile_advice(str(error), failure, sources, self._flags)) from None
                for argument in self._arguments:
                    if Path(argument).resolve() in more:
                        raise CampaignError(
                            f"{argument}: a source of the program, given as an argument that it runs with: leave it "
                            f"out, since sources beside {self._source} that it needs are found"
                        ) from None
                notify(f"{', '.join(missing)}: defined in {', '.join(path.name for path in more)}, taken, too")
                own = {key: value for key, value in self.program.items() if key not in ("source", "sources")}
                self.program = {**sources_keys([*sources, *more], self._place.parent), **own}
                self._read()

    def attempt(self, work: Callable[[], Result]) -> Result:
        """The result of ``work``; raises its `CampaignError` in the program's terms, as there is no file yet."""
        try:
            return work()
        except CampaignError as error:
            cause = error.__cause__
            if isinstance(cause, InstrumenterError):
                told = str(cause)
                if isinstance(cause, MissingProgram):
                    told = f"{cause.finding}. Say with --binary what it makes"
                raise CampaignError(f"{self._source}: {told}") from cause
            raise


def _check_machine(path: Path) -> None:
    """Raise `CampaignError` for a machine description that cannot be read or is not valid."""
    from emulator.errors import EmulatorError
    from emulator.timing.machine_file import load_machine

    try:
        load_machine(path)
    except EmulatorError as error:
        raise CampaignError(str(error)) from None


def _compile_advice(message: str, failure: CompileFailure, sources: Sequence[Path], flags: str) -> str:
    """``message`` on the ``failure`` of a build of ``sources``, with what to do about its ``flags`` or the names that
    the linker missed."""
    missing = failure.undefined
    if not missing:
        told = "\n".join(failure.errors)
        other_processor = explain_other_processor(told)
        if other_processor:
            return f"{message}\n{other_processor}"
        undeclared = undeclared_names(told)
        if undeclared:
            return f"{message}\n{undeclared.explanation('Include')}: --flags '{flags} {undeclared.flags}'"
        if failure.missing_header:
            return f"{message}\n{_header_advice(failure.missing_header, sources, flags)}{_project_of(sources)}"
        return (
            f"{message}\nFlags of the compiler, such as -std=c++20 or -I with a directory, are given with --flags"
            f"{_project_of(sources)}"
        )
    if "main" in missing:
        for source in sources:
            found = condition_of_main(source)
            if found:
                return (
                    f"{message}\n{source}:{found[0]}: the function main is there only where {found[1]} is defined: "
                    f"give --flags '-O2 -D{found[1]}', or the whole directory"
                )
        return f"{message}\nThe program has no function main: give the file that has it, or the whole directory"
    return (
        f"{message}\nNo other source file beside it seems to define {', '.join(missing)}. The C library has the "
        "mathematical and the thread functions; other libraries must be part of the program: give a directory with "
        f"their sources{_project_of(sources)}\nWhere the sources lie in several directories, give the one above "
        "them and how it is built: measure init DIRECTORY --build '$CC -O2 -I INCLUDE "
        f"{sources[0].name} OTHER.c -lm -o NAME' --binary NAME"
    )


def _header_advice(header: str, sources: Sequence[Path], flags: str) -> str:
    """What to do about a header that was not found: where it is near ``sources``, or that its library is not there."""
    folder = folder_with(sources[0].resolve().parent, header)
    if folder is not None:
        near = os.path.relpath(sources[0].resolve().parent / folder)
        return f"{header} is in the folder {near}, where the compiler does not look for it: --flags '{flags} -I {near}'"
    return (
        f"{header} is not there: only the C and C++ libraries and the program's own sources are. Leave out the library "
        "that it belongs to, if the program has a macro for that (--flags), or give a directory with its sources, too: "
        "measure init DIRECTORY --build COMMAND"
    )


def _project_of(sources: Sequence[Path]) -> str:
    """The command for the project of which ``sources`` are a part, in a sentence; empty if there is no such build."""
    for directory in list(sources[0].resolve().parents)[:_MOST_PARENTS]:
        if build_commands(directory):
            near = os.path.relpath(directory)
            return f"\nIts project has a build of its own, which knows what it needs: measure init {shlex.quote(near)}"
    return ""


def _advice_on_run(error: RunError, given: Mapping[str, Any]) -> str:
    """What to do about a run that failed, in lines to add to the message. ``given``: the program's input, as
    `input_keys` has it."""
    if error.at_limit:
        return (
            "\nGive the program less work, which also makes the campaign's runs shorter; if it has to run so long, "
            "give more than it executes, such as --limit 50G"
        )
    if error.program_status is None:
        return ""
    return (
        "\nGive arguments after --, input with --stdin FILE, and files that it reads with --file FILE, or "
        "with --file /NAME=FILE where it opens the relative path NAME, as it runs in /; if it ends so when all is "
        f"well, --exit-status {error.program_status}. The files that it saw: {_seen(given)}"
    )


def _seen(given: Mapping[str, Any]) -> str:
    """The files that the program saw, by the names that it has for them."""
    files = list(given.get("files", {}))
    return listed(files, _MOST_FILES_TOLD) or "none"


def _name_of(request: Request) -> str:
    """A campaign's name, which its directory of results has, too: that of the campaign file if it was given, so that
    several campaigns of one program keep their results apart; else that of the program's file or directory."""
    path = request.program
    if request.out is not None:
        own = request.out.stem
    else:
        own = path.resolve().name if path.is_dir() else path.stem
    return re.sub(r"[^A-Za-z0-9._-]+", "-", own).strip("-._") or "campaign"


def _place_of_copy(place: Path, machine: Path) -> Path:
    """Where the machine's description goes. Raises `CampaignError` if another file of that name is there."""
    copy = place.parent / NAME
    if copy.exists() and (not copy.is_file() or copy.read_bytes() != machine.read_bytes()):
        raise CampaignError(
            f"{copy} exists already and is another machine: take it with --machine {copy}, or choose another place "
            "with --out"
        )
    return copy


def tell_written(console: Console, place: Path, trial: Trial, choice: Choice, last_words: str) -> None:
    """Print what was written, and the next steps. ``last_words``: of the program, on standard error."""
    metrics = ", ".join(one.name for one in choice.counters)
    counted = (
        f"software metrics {metrics}"
        if metrics
        else "no software metrics. Name some under `software_metrics:` in the file, which has an example; without one "
        f"there is nothing to compare. Then `measure run --counts {place}` says how often each fires"
    )
    console.print(escape(f"{place}: records: about {trial.records:,} in a run; {counted}."))
    added = {one.name: choice.added_percent(one, trial.instructions) for one in choice.counters}
    heavy = [f"{name} about {percent(value)}" for name, value in added.items() if value >= _HEAVY_PERCENT]
    if heavy:
        text = f"Counters that add many instructions, and so are likely to perturb: {', '.join(heavy)}."
        if not choice.starts_tasks:
            text += " The file says how a second run counts without them."
        console.print(escape(text))
    for warning in _warnings(place, trial, choice, last_words):
        console.print(escape(f"! {warning}"), style="yellow")
    steps = (
        ("--counts ", "how often each software metric fires"),
        ("--dry-run ", "what the campaign costs, and what it can find"),
        ("", "run it"),
    )
    for options, about in steps if choice.counters else ():
        console.print(escape(f"  measure run {options}{place}".ljust(44) + f"  # {about}"), soft_wrap=True)


def _warnings(place: Path, trial: Trial, choice: Choice, last_words: str) -> list[str]:
    """What may make the campaign say little or another thing than is wanted; arguments as for `tell_written`."""
    found = [f"{notice}." for notice in choice.notices]
    if last_words:
        found.append(
            f"The program succeeded, and wrote to standard error: {last_words}\nIf that is an error, the campaign "
            "measures the error: give the arguments, input or files that it needs, and --force to write the file anew."
        )
    if trial.steady:
        found.append(
            f"{', '.join(one.brief for one in trial.steady)}: too few metrics vary from record to record in this "
            "program, so verdicts will say little. Give it input that makes it do different things, or take records of "
            "another length."
        )
    if choice.steady:
        found.append(
            f"{', '.join(one.brief for one in choice.steady)}: no counter of the program's functions varies more from "
            "record to record. Give it input that makes it do different things, or name other events to count."
        )
    elif len(choice.counters) == 1 and choice.left_out:
        n = len(choice.left_out)
        others = "1 other counter hardly varies" if n == 1 else f"{n} other counters hardly vary"
        found.append(
            f"{others} from record to record: left out (named in {place}). With one software metric there is nothing "
            "to divide over runs: give the program input that makes it do different things, or name events to count."
        )
    return found
