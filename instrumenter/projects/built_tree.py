"""A built copy of a project: made, looked at, and linked from again. `instrumenter.projects.project` says when."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from common import build_cache, shared_folders
from common.atomic_files import write_text
from common.listed_names import listed
from instrumenter.building.elf_symbols import read_symbols
from instrumenter.building.generated_sources import add_places, check_one_meaning, explain_no_events
from instrumenter.compiler.left_out_flags import notices_about_build
from instrumenter.compiler.toolchain import GUEST_TARGET, Toolchain
from instrumenter.errors import InstrumenterError, MissingProgram, SourceError, SpecError
from instrumenter.find.find import find_source_events
from instrumenter.find.sites import FoundSites
from instrumenter.large_stack import on_large_stack
from instrumenter.projects import made_programs
from instrumenter.projects.build_advice import with_make_clean
from instrumenter.projects.made_files import no_program
from instrumenter.projects.old_objects import (
    OldInputs,
    compiled_files,
    explain_old_inputs,
    notices_about_old_inputs,
    old_inputs,
    unchanged,
)
from instrumenter.projects.program_notices import optimisation_notices
from instrumenter.projects.project_copy import copy_tree
from instrumenter.projects.project_tree import build_environment, run_command, write_compilers
from instrumenter.spec.counter_layout import SYMBOL
from instrumenter.spec.software_metrics import MetricSpec
from instrumenter.wrapper.arguments import read_command_line
from instrumenter.wrapper.compile_call import Wrapper
from instrumenter.wrapper.environment_spec import WrapperSpec, read_sites
from instrumenter.wrapper.linked_program import other_machine
from instrumenter.wrapper.listing import LOG_VARIABLE, OUTSIDE_VARIABLE, read_listing
from instrumenter.wrapper.outside_files import outside_digest, read_outside_files
from instrumenter.wrapper.plain_compile import SPEC_VARIABLE, is_cplusplus_source

_CMAKE_OWN = "CMakeFiles"  # a directory of cmake's own beside what is built


@dataclass(frozen=True)
class Project:
    """A directory, the shell command that builds it, and the resulting program (relative to the directory)."""

    directory: Path
    command: str
    binary: str


class BuiltTree:
    """A built copy of a project in ``folder``: ``tree``, ``bin``, the wrapper's listing, and a marker of success.

    A command that fails leaves its output beside it, in a file with the ending ``.log``.
    """

    def __init__(self, folder: Path, project: Project) -> None:
        self.folder, self.project = folder, project
        self.log = folder.with_suffix(".log")
        self._tree, self._listing = folder / "tree", folder / "listing.jsonl"
        self._binary = self._tree / project.binary
        self._marker, self._before = folder / build_cache.PROJECT_MARKER, folder / "before.json"

    @contextlib.contextmanager
    def locked(self, shared: bool = False) -> Iterator[None]:
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with shared_folders.locked(self.folder.with_suffix(".lock"), shared=shared):
            yield

    def mark_used(self) -> None:
        self._marker.touch()

    def is_whole(self) -> bool:
        """Whether the build ended well, nothing of it is missing, and the files outside of the project that it took are
        as they were."""
        try:
            facts = self._facts
            made, is_same = facts["programs"], outside_digest(facts["outside"]) == facts["outside_digest"]
        except (OSError, ValueError, KeyError):
            return False
        return is_same and all((self._tree / name).is_file() for name in [*made, self.project.binary] if name)

    @property
    def _facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads(self._marker.read_bytes())
        return facts

    @property
    def seconds(self) -> float:
        """How long the command took, without the time for libraries that it was the first to need."""
        return float(self._facts["seconds"])

    @property
    def outside(self) -> list[str]:
        """The files outside of the project that its build took, as `instrumenter.wrapper.outside_files` has them."""
        return list(self._facts["outside"])

    @property
    def link(self) -> dict[str, Any] | None:
        """The listing's entry of the command that linked the program; None if the program was changed afterwards."""
        content = hashlib.sha256(self._binary.read_bytes()).hexdigest()
        links = [each for each in read_listing(self._listing) if each["kind"] == "link"]
        return next((each for each in reversed(links) if each["sha256"] == content), None)

    def make(self, spec: WrapperSpec, notify: Callable[[str], None], outside: list[str] | None) -> None:
        """Copy and build. ``outside``: files outside of the project that the build takes, None to find that out. Raises
        `SourceError`, and then leaves only the command's output."""
        started = time.perf_counter()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        try:
            copy_tree(self.project.directory, self._tree)
            self._before.write_text(json.dumps(compiled_files(self._tree)), "utf-8")
            write_compilers(self.folder / "bin", spec.target)
            own = self._write_spec(spec, "spec.json")
            if outside is None:
                own[OUTSIDE_VARIABLE] = str(self.folder / "outside")
            with self._running_programs(spec, own) as environment:
                run_command(self.project.command, self._tree, environment, self.log, self.linked, self._old)
            seconds = time.perf_counter() - started - self._library_seconds()
            if outside is None:
                outside = read_outside_files(self.folder / "outside")
            facts = {
                "programs": self.linked(), "seconds": round(max(0.0, seconds), 3),
                "outside": outside, "outside_digest": outside_digest(outside),
            }  # fmt: skip
            write_text(self._marker, json.dumps(facts) + "\n", durable=False)
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        self.log.unlink(missing_ok=True)
        if not spec.metrics:  # once for a campaign, not for each set of counters
            for notice in notices_about_build(read_listing(self._listing), spec.target):
                notify(notice)

    def _old(self) -> list[str]:
        return unchanged(self._tree, json.loads(self._before.read_bytes()))

    def _old_inputs(self, link: Mapping[str, Any] | None, target: str) -> OldInputs:
        """What the program of a listing's entry is linked from and an earlier build has left."""
        before = json.loads(self._before.read_bytes())
        return old_inputs(self._tree, before, link, target) if before and link else OldInputs([], [])

    def check_inputs(self, target: str) -> None:
        """Raise `SourceError` if the program, or each that is linked where the project names none, is linked from
        objects that an earlier build has left in the project's directory."""
        links = {each["output"]: each for each in read_listing(self._listing) if each["kind"] == "link"}
        wanted = [self.project.binary] if self.project.binary else self.linked()
        for name in wanted:
            link = self.link if self.project.binary else links.get(str(self._tree / name))
            old = self._old_inputs(link, target).with_sources
            if old:
                raise SourceError(explain_old_inputs(name, old, self.project.command))

    def _library_seconds(self) -> float:
        """How long links waited for the compiler's libraries, as that of C++; those at the same time wait together."""
        entries = read_listing(self._listing)
        return max((each.get("library_seconds", 0.0) for each in entries), default=0.0)

    def linked(self) -> list[str]:
        """The programs that the build linked with the wrapper and left in the tree, relative to it, without those with
        which cmake tried the compiler."""
        links = [each for each in read_listing(self._listing) if each["kind"] == "link"]
        made = {Path(os.path.normpath(each["output"])) for each in links}
        inside = [path.relative_to(self._tree) for path in made if path.is_relative_to(self._tree) and path.is_file()]
        return sorted(str(path) for path in inside if _CMAKE_OWN not in path.parts)

    def _write_spec(self, spec: WrapperSpec, name: str) -> dict[str, str]:
        """Write ``spec`` to a file, and return the environment in which the wrapper uses it."""
        path = self.folder / name
        path.write_text(spec.model_copy(update={"root": str(self._tree)}).model_dump_json(), "utf-8")
        own = {SPEC_VARIABLE: str(path), LOG_VARIABLE: str(self._listing)}
        return build_environment(self.folder / "bin", own, spec.target)

    @contextlib.contextmanager
    def _running_programs(self, spec: WrapperSpec, environment: Mapping[str, str]) -> Iterator[dict[str, str]]:
        """A context in which a build command can run the programs that it makes, with its environment."""
        if spec.target != GUEST_TARGET:
            yield dict(environment)
            return
        with made_programs.serving(self.folder / "bin", self._tree) as command:
            yield {**environment, **made_programs.variables(command)}

    def check_binary(self, target: str) -> None:
        """Raise `SourceError` unless the build made a linked program for ``target`` at the expected path, if the
        project has one."""
        name = self.project.binary
        if not name:
            return
        try:
            self._check_program(name, target)
        except SourceError:
            # The next attempt shall build it again, unless it is for another program that was linked.
            if self._binary.is_file() or not self.linked():
                shutil.rmtree(self.folder, ignore_errors=True)
            raise

    def _check_program(self, name: str, target: str) -> None:
        from elftools.common.exceptions import ELFError
        from elftools.elf.elffile import ELFFile

        if not self._binary.is_file():
            inside = self.linked()
            linked = f"; it linked {', '.join(inside)}" if inside else "; it linked nothing with $CC"
            finding = f"the build command ended well but left no file '{name}'{linked}"
            raise MissingProgram(f"{finding}. Say in `binary:` what it makes", finding)
        try:
            with self._binary.open("rb") as file:
                elf = ELFFile(file)
                problem, kind = other_machine(elf, target), elf["e_type"]
        except ELFError:
            raise no_program(self._tree, name) from None
        if not problem and target != GUEST_TARGET and not self.linked():
            problem = "linked by another compiler"  # of this machine, so it is for the right processor
        if problem:
            raise SourceError(
                f"'{name}' is {problem}: the build did not use $CC (instrument-cc), or the directory has files of an "
                "earlier build. Try `make clean && make CC=$CC ...`"
            )
        if kind not in ("ET_EXEC", "ET_DYN"):
            raise SourceError(f"'{name}' is an object file, expected a linked program")

    def write_program(self, to: Path, spec: WrapperSpec) -> None:
        """Write the program of ``spec`` to ``to``: as built, or linked again with its code offset or null control."""
        link = self.link
        built = WrapperSpec.model_validate_json((self.folder / "spec.json").read_text("utf-8"))
        self.mark_used()
        same = (built.code_offset_bytes, built.null_control) == (spec.code_offset_bytes, spec.null_control)
        if link is None or (same and not spec.sections):
            shutil.copy2(self._binary, to)
            return
        spec = spec.model_copy(update={"root": str(self._tree)})
        line = read_command_line([*link["words"], "-o", str(to)], Path(link["directory"]), target=spec.target)
        wrapper = Wrapper(line, Path(link["directory"]), spec, Toolchain(spec.target), link["driver"])
        wrapper.listed = False
        wrapper.keep_link_in = to.parent if spec.sections and not spec.code_offset_bytes else None
        if wrapper.run():
            raise SourceError(
                f"'{self.project.binary}' cannot be linked again: its build removes what it was linked from"
            )

    # --- sites
    def check_counts(
        self, spec: WrapperSpec, program: Path
    ) -> tuple[dict[str, int], dict[str, dict[str, int]], list[str], list[str]]:
        """``sites``, ``places``, ``warnings`` and ``notices`` of the program as `Build` has them. Raises `SourceError`
        and `SpecError`."""
        entries = read_listing(self._listing)
        notices = notices_about_build(entries, spec.target)
        if not spec.metrics:
            return {}, {}, [], notices
        if self.link is None and self.project.binary in self._old():
            raise SourceError(
                f"'{self.project.binary}' was not made by this build: it lies in the directory, "
                f"{with_make_clean(self.project.command, 1)}"
            )
        units = [each for each in entries if each["kind"] == "unit"]
        # Programs with which a configure script tried the compiler do not exist any more.
        units = [each for each in units if _file_of(each).is_file()]
        for each in units:
            name = os.path.relpath(_file_of(each), self._tree)
            each["name"] = name if each["source"] != "-" else f"standard input of the compiler for {name}"
        units.sort(key=lambda each: str(each["name"]))  # the order of make -j is random
        wrong = next((each for each in units if each.get("wrong_spec")), None)
        if wrong is not None:
            raise SpecError(wrong["reason"], wrong.get("metric"))
        notes = read_sites(program)
        check_one_meaning((note["source"], note["meant"]) for note in notes)
        sites = {name: sum(note["sites"].get(name, 0) for note in notes) for name in spec.metrics}
        places: dict[str, dict[str, int]] = {name: {} for name in spec.metrics}
        for name, note in product(spec.metrics, notes):
            add_places(places[name], note["places"].get(name, {}))
        left_out = _left_out(units)
        without_site = [metric for metric, number in sites.items() if not number]
        for metric in without_site[:1]:
            why = self._explain(metric, spec.metrics[metric], units, left_out, spec.target)
            raise SpecError(why, metric, tuple(without_site[1:]))
        if not any(symbol.name == SYMBOL for symbol in read_symbols(program)):
            raise SourceError(
                f"'{self.project.binary}' has no symbol {SYMBOL}: the build strips it; leave out strip and `install -s`"
            )
        warnings = [warning for each in units if each["instrumented"] for warning in each["warnings"]]
        notices += notices_about_old_inputs(self._old_inputs(self.link, spec.target))
        notices += optimisation_notices(units, self.project.command)
        return sites, places, list(dict.fromkeys([*warnings, *left_out])), notices

    def _explain(
        self, metric: str, spec: MetricSpec, units: list[dict[str, Any]], left_out: list[str], target: str
    ) -> str:
        """Why a metric has no site in the program."""
        elsewhere = [each["name"] for each in units if each["instrumented"] and metric in each["sites"]]
        if elsewhere:
            return (
                f"metric '{metric}' counts in {', '.join(dict.fromkeys(elsewhere))}, but '{self.project.binary}' is "
                "linked without it: is it another program's?"
            )
        found: dict[str, FoundSites] = {}
        for each in units:
            if each["instrumented"]:
                with contextlib.suppress(InstrumenterError):
                    found[each["name"]] = _events(each, metric, spec, target)
        message = explain_no_events(metric, spec, found)
        return "\n".join([message, *(["Not instrumented:", *left_out] if left_out else [])])


def _events(unit: Mapping[str, Any], metric: str, spec: MetricSpec, target: str) -> FoundSites:
    """The events of a unit, for an explanation."""
    directory = Path(unit["directory"])
    line = read_command_line(unit["words"], directory, unit["driver"] == "c++", target)
    wrapper = Wrapper(line, directory, WrapperSpec(), Toolchain(target), unit["driver"])
    source = next(token for token in line.sources if token.words[0] == unit["source"])
    text = wrapper.preprocessed(source).encode("utf-8", "surrogateescape")
    words, cplusplus = line.compile_words(), is_cplusplus_source(source)
    return on_large_stack(
        lambda: find_source_events(text, unit["source"], {metric: spec}, target, words, cplusplus=cplusplus)
    )


def _file_of(unit: Mapping[str, Any]) -> Path:
    """The unit's source; what was made of it where that came from the compiler's standard input."""
    return Path(unit["directory"], unit["output"] if unit["source"] == "-" else unit["source"])


def _left_out(units: list[dict[str, Any]]) -> list[str]:
    """A sentence for each reason why units are not instrumented, with their names."""
    by_reason: dict[str, list[str]] = {}
    for each in units:
        if not each["instrumented"]:
            by_reason.setdefault(each["reason"], []).append(each["name"])
    found = []
    for reason, sources in by_reason.items():
        names = list(dict.fromkeys(sources))
        found.append(f"{listed(names, 5)}: not instrumented: {reason}")
    return found
