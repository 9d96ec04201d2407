"""One call of the compiler wrapper: compiles like the compiler, and adds the spec's counters.

Each source is preprocessed and rewritten (`instrumenter.rewrite.rewriter`), and compiled so if it has sites. A source
without sites, or one in which nothing can be counted, is compiled unchanged, which gives the compiler's own diagnostics
and exit status. Objects only refer to the counters; links add an object that defines them, the sampler, and the code
that moves all other code. Outputs are moved to their places when they are complete.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from common import compiler_cache
from common.atomic_files import is_replaced, move_file, workspace
from common.elf_files import ARCHIVE_MAGIC, ELF_MAGIC
from common.file_cache import cache_directory
from instrumenter.building.code_size import has_code
from instrumenter.building.elf_symbols import starts_threads
from instrumenter.building.generated_sources import add_places
from instrumenter.building.program_build import (
    NULL_CONTROL_SOURCE,
    RUNTIME,
    RUNTIME_FLAGS,
    generator_digest,
    padding_source,
)
from instrumenter.building.relink import PADDING_SOURCE, keep_link, wanted_symbols
from instrumenter.compiler.left_out_flags import notices_about_flags
from instrumenter.compiler.spliced_lines import with_spliced_lines
from instrumenter.compiler.toolchain import (
    ALWAYS,
    GUEST_TARGET,
    SECTION_FLAGS,
    Toolchain,
    as_optimised_link,
    compiler_version,
    linker_arguments,
    without_preprocessor_flags,
)
from instrumenter.errors import SourceError, SpecError
from instrumenter.rewrite.rewriter import rewrite
from instrumenter.wrapper.arguments import CommandLine, Kind, Token
from instrumenter.wrapper.environment_spec import WrapperSpec, sites_note
from instrumenter.wrapper.listing import LOG_VARIABLE, write_entry
from instrumenter.wrapper.plain_compile import (
    SPEC_VARIABLE,
    input_words,
    is_cplusplus_source,
    preprocessor_words,
    root_flags,
)
from instrumenter.wrapper.shared_libraries import begin_of, embedding_object, find_library, members_in

_LINKED = re.compile(r"\.(o|obj|a|lib|so|so\.[\d.]+)$")
"""Names that zig takes for objects, archives and shared libraries."""
_ENDINGS = {"compile": ".o", "assembly": ".s", "check": ".o"}


class Wrapper:
    """Executes one command line in ``directory``; ``driver``: ``cc`` or ``c++``."""

    def __init__(
        self, line: CommandLine, directory: Path, spec: WrapperSpec, toolchain: Toolchain, driver: str = "cc"
    ) -> None:
        self.line, self.directory, self.spec, self.toolchain, self.driver = (
            line, directory, spec, toolchain, driver,
        )  # fmt: skip
        self._output = directory / (line.output or "a.out")
        self.listed = True  # whether to write entries to the listing
        self.keep_link_in: Path | None = None  # the folder of the linked program, to keep the linker's command there
        self._sections = SECTION_FLAGS if spec.sections else ()
        self._prefix_map = root_flags(spec.root)

    def run(self) -> int:
        """Execute it; returns the exit status. Raises `ToolchainError` when the compiler cannot be started."""
        if self.line.stage == "link":
            return self._link()
        sources = self.line.sources
        if self.line.output is not None and len(sources) > 1:
            sys.stderr.write(
                f"instrument-cc: error: -o {self.line.output} is one file, but {len(sources)} are compiled\n"
            )
            return 1
        for source in sources:
            status = self._compile_to_place(source)
            if status:
                return status
        return 0

    def _call(self, arguments: Sequence[str], names: Mapping[Path, str]) -> int:
        """Run the compiler and pass its output on; ``names``: the user's names of temporary files."""
        stdin = "-" in names.values()
        return self._pass_on(self.toolchain.run(arguments, self.directory, self.driver, reads_input=stdin), names)

    @staticmethod
    def _pass_on(result: tuple[int, bytes, bytes], names: Mapping[Path, str]) -> int:
        """Pass on what the compiler wrote; returns its exit status. ``names``: as for `_call`."""
        status, out, err = result
        for path, name in names.items():
            err = err.replace(os.fsencode(path), os.fsencode(name))
        for stream, output in ((sys.stdout, out), (sys.stderr, err)):
            stream.buffer.write(output)
            stream.flush()
        return status

    # --- compiling
    def _compile_to_place(self, source: Token) -> int:
        """Compile one source to the output of the command line."""
        stage, stem = self.line.stage, Path(source.words[0]).stem
        name = self.line.output or ("-" if stage == "check" else f"{stem}{_ENDINGS[stage]}")
        place = self._output = self.directory / name
        elsewhere = name == "-" or stage == "check" or not is_replaced(place)
        folder = None if elsewhere else place.parent
        with contextlib.ExitStack() as stack:
            try:
                temporary = stack.enter_context(workspace(folder, ".instrument-"))
            except OSError as error:
                sys.stderr.write(f"instrument-cc: error: cannot write to {place.parent}: {error.strerror}\n")
                return 1
            made = temporary / f"{stem}{_ENDINGS[stage]}"
            if elsewhere:
                place = self.directory / made.name
            counted = not elsewhere and bool(self.spec.metrics)
            status = self._compile(source, made, str(place), name, counted=counted)
            if status == 0 and not elsewhere:
                move_file(made, place)
            elif status == 0 and name == "-" and stage == "assembly":
                sys.stdout.buffer.write(made.read_bytes())
            return status

    def _compile(self, source: Token, made: Path, place: str, target: str, *, counted: bool) -> int:
        """Compile one source into ``made``, with counters if ``counted``.

        ``place``, ``target``: for the dependency file, the final path of the result and its name.
        """
        stage = "-S" if made.suffix == ".s" else "-c"
        words = [*ALWAYS, *self._prefix_map, *self._sections, *self.line.compile_words()]
        dependencies = self.line.dependency_words(place, target)
        inputs = [*self.line.header_words(source), *input_words(self.line, source)]
        # For -S, zig gives its compiler a -c that this does not use, and with -MD and the like it makes nothing.
        others = dependencies if stage == "-c" else ["-Wno-unused-command-line-argument"]
        arguments = [*words, stage, *others, "-o", str(made), *inputs]
        entry, is_made = (
            self._compile_with_counters(source, made, stage, words, dependencies) if counted else (None, False)
        )
        status = 0 if is_made else self._call(arguments, {made: source.words[0]})
        if status == 0 and not is_made and stage == "-S" and dependencies:
            self.preprocessed(source, dependencies)
        is_assembled = source.kind is Kind.OTHER_SOURCE and not is_cplusplus_source(source) and stage == "-c"
        if status == 0 and entry is not None and (not is_assembled or has_code(made)):
            self._write_entry(entry)
        return status

    def _write_entry(self, entry: Mapping[str, Any]) -> None:
        if self.listed:
            write_entry(self._output, entry)

    def _compile_with_counters(
        self, source: Token, made: Path, stage: str, words: list[str], dependencies: list[str]
    ) -> tuple[dict[str, Any], bool]:
        """Compile a source with its counters into ``made``. Returns an entry for the listing, which says the reason
        where that is impossible, and whether it was done: it is not where nothing is counted."""
        name = source.words[0]
        entry = {"kind": "unit", "source": name, "directory": str(self.directory), "driver": self.driver}
        cplusplus = is_cplusplus_source(source)
        if name == "-":
            reason = "only sources in files are instrumented"
            return {**entry, "instrumented": False, "reason": reason, "output": str(self._output)}, False
        if source.kind is Kind.OTHER_SOURCE and not cplusplus:
            reason = f"{source.language}: only C and C++ are instrumented"
            return {**entry, "instrumented": False, "reason": reason}, False
        try:
            text = self.preprocessed(source, dependencies)
            rewritten = rewrite(
                text, name, self.spec.metrics, self.spec.layout, self.toolchain.target, words, cplusplus=cplusplus
            )
        except (SourceError, SpecError) as error:
            wrong: dict[str, Any] = {"reason": str(error), "wrong_spec": isinstance(error, SpecError)}
            if isinstance(error, SpecError) and error.metric is not None:
                wrong["metric"] = error.metric
            return {**entry, "instrumented": False, **wrong}, False
        sites = {metric: rewritten.count_sites(metric) for metric in self.spec.metrics}
        sites = {metric: number for metric, number in sites.items() if number}
        unit = {"sites": sites, "warnings": rewritten.events.warnings, "words": self.line.all_words()}
        if sites:
            places = {metric: self._relative_to_root(rewritten.places(metric)) for metric in sites}
            note = sites_note(name, sites, places, rewritten.events.meant)
            problem = self._compile_counted(f"{note} {rewritten.text}", name, made, stage, cplusplus)
            if problem is not None:
                reason = f"with its counts it does not compile: {problem}"
                return {**entry, "instrumented": False, "reason": reason}, False
        return {**entry, "instrumented": True, **unit}, bool(sites)

    def preprocessed(self, source: Token, dependencies: Sequence[str] = ()) -> str:
        """The source after the preprocessor, which also follows the options ``dependencies``. Raises `SourceError`."""
        if source.kind is Kind.PREPROCESSED:
            path = self.directory / source.words[0]
            return path.read_bytes().decode("utf-8", "surrogateescape")
        arguments = [*preprocessor_words(self.line, source), *self._prefix_map, *dependencies]
        status, out, err = self.toolchain.run(arguments, self.directory, self.driver)
        if status:
            lines = err.decode("utf-8", "replace").strip().splitlines()
            raise SourceError(f"{source.words[0]} cannot be preprocessed: {lines[0] if lines else status}")
        return with_spliced_lines(out.decode("utf-8", "surrogateescape"), self.directory)

    def _relative_to_root(self, places: Mapping[str, int]) -> dict[str, int]:
        """The places relative to the project's root, if there is one, instead of where the compiler runs, and
        without ``//`` and ``/./``."""
        relative: dict[str, int] = {}
        for place, number in places.items():
            name = os.path.normpath(place)
            if self.spec.root:
                whole = os.path.join(self.directory, name)
                inside = [os.path.relpath(whole, root) for root in (self.spec.root, os.path.realpath(self.spec.root))]
                name = next((each for each in inside if not each.startswith("..")), name)
            add_places(relative, {name: number})
        return relative

    def _compile_counted(self, text: str, name: str, made: Path, stage: str, cplusplus: bool) -> str | None:
        """Compile the rewritten text over ``made``; returns the compiler's first error, or None."""
        folder = made.parent / f"counted-{made.stem}"
        folder.mkdir()
        file, result = folder / f"{Path(name).stem}.{'cpp' if cplusplus else 'c'}", folder / made.name
        file.write_text(text, "utf-8", "surrogateescape")
        flags = without_preprocessor_flags(self.line.words(Kind.OTHER))
        same = [*self._prefix_map, f"-ffile-prefix-map={folder}=."]
        arguments = [*ALWAYS, *same, *self._sections, *flags, "-w", stage, "-o", str(result), str(file)]
        status, _, err = self.toolchain.run(arguments, self.directory, self.driver)
        if status:
            errors = [line for line in err.decode("utf-8", "replace").splitlines() if "error:" in line]
            return errors[0] if errors else f"exit status {status}"
        move_file(result, made)
        return None

    # --- linking
    def _link(self) -> int:
        """Compile the sources of a link command, and link; returns the exit status."""
        name = self.line.output or "a.out"
        place = self.directory / name
        with contextlib.ExitStack() as stack:
            try:
                folder = place.parent if is_replaced(place) else None
                temporary = stack.enter_context(workspace(folder, ".instrument-"))
            except OSError as error:
                sys.stderr.write(f"instrument-cc: error: cannot write to {place.parent}: {error.strerror}\n")
                return 1
            inputs: list[str] = []
            names: dict[Path, str] = {}
            single = len(self.line.sources) == 1
            for number, token in enumerate(self.line.tokens):
                if token.kind in (Kind.C, Kind.PREPROCESSED, Kind.OTHER_SOURCE):
                    source = Path(token.words[0])
                    folder = temporary / str(number)
                    folder.mkdir()
                    made = folder / f"{source.stem}.o"
                    target = name if single else f"{name}-{source.stem}"
                    status = self._compile(
                        token, made, str(place.parent / target), f"{source.stem}.o",
                        counted=bool(self.spec.metrics),
                    )  # fmt: skip
                    if status:
                        return status
                    inputs.append(str(made))
                    names[made] = token.words[0]
                elif token.kind in (Kind.FILE, Kind.LINKER, Kind.OTHER):
                    found = (
                        token.words[0] if token.kind is Kind.FILE else find_library(self.line, token, self.directory)
                    )
                    named = self._renamed(found, temporary / str(number)) if found else None
                    if found and named is not None:
                        inputs.append(str(named))
                        names[named] = found
                    else:
                        inputs += [found] if found else token.words
            return self._link_inputs(inputs, temporary, place, names)

    def _renamed(self, name: str, folder: Path) -> Path | None:
        """An input in the new ``folder``, with the ending by which zig takes it for what it is; None if that is not
        needed. An object or archive of another name, which zig refuses, gcc gives to the linker. In place of a shared
        library of the project it is its archive."""
        known = _LINKED.search(name)
        content = None
        if known and known[1].startswith("so"):
            content = members_in(self.directory / name)
        begin = b"" if known else begin_of(self.directory / name)
        ending = ".o" if begin[:4] == ELF_MAGIC else ".a" if content is not None or begin == ARCHIVE_MAGIC else ""
        if not ending:
            return None
        folder.mkdir()
        named = folder / (Path(name).name + ending)
        if content is None:
            named.symlink_to(self.directory.absolute() / name)
        else:
            named.write_bytes(content)
        return named

    def _link_inputs(self, inputs: list[str], temporary: Path, place: Path, names: Mapping[Path, str]) -> int:
        """Link ``inputs`` with the runtime objects, and list the program; returns the exit status."""
        made = temporary / "program"
        static = [] if self.line.shared or self.line.relocatable else ["-static"]
        first, last = ([], []) if self.line.relocatable else self._runtime()
        inputs = as_optimised_link(inputs)
        if self.listed and not os.environ.get(LOG_VARIABLE):
            # For a whole build, which has a listing, it is told once, at the end.
            left_out = [*(["-fopenmp"] if self.line.without_openmp else []), *self.line.processor_options]
            for notice in notices_about_flags(left_out, self.toolchain.target):
                self.toolchain.notify(notice)
        is_kept = is_replaced(place)
        if self.keep_link_in is not None and is_kept:
            return self._link_and_keep([*first, *inputs, *last, *static], place)
        if self.line.shared and is_kept:
            last = [*last, str(embedding_object(inputs, temporary, self.directory, self.toolchain))]
        arguments = [*ALWAYS, *first, *inputs, *last, *static, "-o", str(made)]
        status = self._pass_on(self.toolchain.run_link(arguments, self.directory, self.driver), names)
        if status:
            return status
        if self.line.shared:
            move_file(made, place)
            return 0
        digest = hashlib.sha256(made.read_bytes()).hexdigest()
        move_file(made, place)
        if self.listed and self.spec.metrics and not self.spec.atomic:
            self._warn_of_threads(place)
        if static and is_kept:
            kinds = [kind for kind in Kind if kind not in (Kind.OUTPUT, Kind.LEFT_OUT)]
            words = self.line.words(*kinds)
            entry = {"kind": "link", "output": str(place), "directory": str(self.directory)}
            made_library = {"library_seconds": round(self.toolchain.library_seconds, 3)}
            self._write_entry({**entry, "driver": self.driver, "words": words, "sha256": digest, **made_library})
        return 0

    def _warn_of_threads(self, program: Path) -> None:
        """Say that counters lose events if the program starts threads."""
        if starts_threads(program):
            self.toolchain.notify(
                f"{program.name} starts threads, and its counters are not atomic: threads take back what others "
                f"counted meanwhile; write `atomic: true` into the file of {SPEC_VARIABLE}, and compile everything anew"
            )

    def _link_and_keep(self, inputs: list[str], place: Path) -> int:
        """Link into ``place``, and keep the linker's command beside it for links in other orders."""
        assert self.keep_link_in is not None
        compiler_cache.use_libraries(self.toolchain.cache)
        padding = self._runtime_object("padding", PADDING_SOURCE, [], ".s")
        objects = [self.directory / name for name in inputs if name.endswith(".o")]
        wanted = wanted_symbols([path for path in objects if path.is_file()])
        arguments = [*ALWAYS, str(padding), *inputs, *wanted, "--verbose", "-o", str(place)]
        status, _, err = self.toolchain.run_link(arguments, self.directory, self.driver)
        if status == 0:
            keep_link(self.keep_link_in, linker_arguments(err), self.directory)
        return status

    def _runtime(self) -> tuple[list[str], list[str]]:
        """Objects to link before and after the program's own; they are kept in the cache by content."""
        layout, sampler, offset = self.spec.layout, self.spec.sampler_config, self.spec.code_offset_bytes
        position = [word for word in self.line.words(Kind.OTHER) if word.startswith("-m")]
        if self.line.shared:
            position.append("-fPIC")
        texts = {}
        if offset:
            texts["layout"] = (padding_source(offset), ["-O2", *position])
        if layout.metrics:
            texts["counters"] = (layout.definition(), ["-O2", *position])
        if sampler and not self.line.shared:
            flags = [*RUNTIME_FLAGS, *position, *self._sections, *sampler.defines(layout), f"-I{RUNTIME}"]
            texts["sampler"] = ((RUNTIME / sampler.source).read_text("utf-8"), flags)
        if self.spec.null_control and not self.line.shared:
            texts["null_control"] = (NULL_CONTROL_SOURCE, ["-O2", *position])
        made = {part: str(self._runtime_object(part, *text)) for part, text in texts.items()}
        return [made[n] for n in ("layout",) if n in made], [
            made[n] for n in ("counters", "sampler", "null_control") if n in made
        ]

    def _runtime_object(self, part: str, text: str, flags: list[str], suffix: str = ".c") -> Path:
        identity = json.dumps([part, text, flags, self.toolchain.target, compiler_version(), generator_digest()])
        place = cache_directory() / "runtime" / f"{hashlib.sha256(identity.encode()).hexdigest()}.o"
        if not place.is_file():
            place.parent.mkdir(parents=True, exist_ok=True)
            with workspace(place.parent) as folder:
                source = folder / f"{part}{suffix}"
                source.write_text(text)
                self.toolchain.compile(source, flags, source.with_suffix(".o"))
                move_file(source.with_suffix(".o"), place)
        return place


def toolchain_of(spec: WrapperSpec | None) -> Toolchain:
    """The compiler for what ``spec`` names, by default the emulated machine; its messages go to standard error."""
    return Toolchain(spec.target if spec else GUEST_TARGET, _print_message)


def _print_message(message: str) -> None:
    sys.stderr.write(f"instrument-cc: {message}\n")
