"""One call of the compiler wrapper: compile as the compiler would, and count where the spec says.

Each source is first compiled as it is: that gives the compiler's own diagnostics, exit status and dependency file,
and the object to fall back on. If it has sites, it is then preprocessed, rewritten (`instrumenter.rewrite`) and
compiled again, and that object takes its place. Objects only refer to the counters; they are defined in what is
added at links, with the sampler and the code that moves all other code. Outputs are moved to their places whole.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from instrumenter.build import RUNTIME, RUNTIME_FLAGS, add_places, digest_of, padding_source
from instrumenter.errors import SourceError, SpecError
from instrumenter.rewrite import rewrite
from instrumenter.toolchain import (
    ALWAYS,
    GUEST_TARGET,
    Toolchain,
    cache_directory,
    compiler_version,
    without_preprocessor_flags,
)
from instrumenter.wrapper_arguments import CommandLine, Kind, Token
from instrumenter.wrapper_spec import WrapperSpec, sites_note, write_entry

_ENDINGS = {"compile": ".o", "assembly": ".s", "check": ".o"}


class Wrapper:
    """Carries out one command line in ``directory``; ``driver``: ``cc`` or ``c++``."""

    def __init__(
        self, line: CommandLine, directory: Path, spec: WrapperSpec, toolchain: Toolchain, driver: str = "cc"
    ) -> None:
        self.line, self.directory, self.spec, self.toolchain, self.driver = (
            line, directory, spec, toolchain, driver,
        )  # fmt: skip
        self._place = directory / (line.output or "a.out")
        self.listed = True  # whether what is done goes to the listing
        self._same = [f"-ffile-prefix-map={spec.root}=."] if spec.root else []

    def run(self) -> int:
        """The exit status. Raises `ToolchainError` when the compiler cannot be started."""
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
        """Run the compiler and hand on what it says; ``names``: those that users know temporary files by."""
        stdin = "-" in names.values()
        status, out, err = self.toolchain.run(arguments, self.directory, self.driver, reads_input=stdin)
        for path, name in names.items():
            err = err.replace(os.fsencode(path), os.fsencode(name))
        for stream, said in ((sys.stdout, out), (sys.stderr, err)):
            stream.buffer.write(said)
            stream.flush()
        return status

    # --- compiling
    def _compile_to_place(self, source: Token) -> int:
        """Compile one source to where the command line says."""
        stage, stem = self.line.stage, Path(source.words[0]).stem
        name = self.line.output or ("-" if stage == "check" else f"{stem}{_ENDINGS[stage]}")
        place = self._place = self.directory / name
        elsewhere = name == "-" or stage == "check" or (place.exists() and not place.is_file())
        folder = None if elsewhere else place.parent
        try:
            temporary = Path(tempfile.mkdtemp(prefix=".instrument-", dir=folder))
        except OSError as error:
            sys.stderr.write(f"instrument-cc: error: cannot write to {place.parent}: {error.strerror}\n")
            return 1
        try:
            made = temporary / f"{stem}{_ENDINGS[stage]}"
            if elsewhere:
                place = self.directory / made.name
            counted = not elsewhere and bool(self.spec.metrics)
            status = self._compile(source, made, str(place), name, counted=counted)
            if status == 0 and not elsewhere:
                os.replace(made, place)
            elif status == 0 and name == "-" and stage == "assembly":
                sys.stdout.buffer.write(made.read_bytes())
            return status
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def _compile(self, source: Token, made: Path, place: str, target: str, *, counted: bool) -> int:
        """Compile one source into ``made``, with its counts if ``counted``.

        ``place``, ``target``: for the dependency file, where the result will be and what it is called.
        """
        stage = "-S" if made.suffix == ".s" else "-c"
        words = [*ALWAYS, *self._same, *self.line.compile_words()]
        dependencies = self.line.dependency_words(place, target)
        arguments = [*words, stage, *dependencies, "-o", str(made), *self._input(source)]
        status = self._call(arguments, {made: source.words[0]})
        if status == 0 and counted:
            self._count(source, made, stage, words)
        return status

    def _list(self, entry: Mapping[str, Any]) -> None:
        if self.listed:
            write_entry(self._place, entry)

    def _input(self, source: Token) -> list[str]:
        name = source.words[0]
        if any(token.kind is Kind.LANGUAGE for token in self.line.tokens):
            given = [t for t in self.line.tokens[: self.line.tokens.index(source)] if t.kind is Kind.LANGUAGE]
            if given:
                return [*given[-1].words, name]
        return [name]

    def _count(self, source: Token, made: Path, stage: str, words: list[str]) -> None:
        """Put the counts of a source that compiles into ``made``, or list why that is not possible."""
        name = source.words[0]
        entry = {"kind": "unit", "source": name, "directory": str(self.directory), "driver": self.driver}
        if source.kind is Kind.OTHER_SOURCE:
            reason = f"{source.language}: only C is instrumented"
            self._list({**entry, "instrumented": False, "reason": reason})
            return
        try:
            text = self.preprocessed(source)
            rewritten = rewrite(text, name, self.spec.metrics, self.spec.layout, self.toolchain.target, words)
        except (SourceError, SpecError) as error:
            wrong = {"reason": str(error), "wrong_spec": isinstance(error, SpecError)}
            self._list({**entry, "instrumented": False, **wrong})
            return
        sites = {metric: rewritten.count_sites(metric) for metric in self.spec.metrics}
        sites = {metric: number for metric, number in sites.items() if number}
        found = {"sites": sites, "warnings": rewritten.events.warnings, "words": self.line.all_words()}
        if sites:
            note = sites_note(name, sites, {metric: self._near(rewritten.places(metric)) for metric in sites})
            said = self._compile_counted(f"{note} {rewritten.text}", name, made, stage)
            if said is not None:
                reason = f"with its counts it does not compile: {said}"
                self._list({**entry, "instrumented": False, "reason": reason})
                return
        self._list({**entry, "instrumented": True, **found})

    def preprocessed(self, source: Token) -> str:
        """The source after the preprocessor. Raises `SourceError`."""
        if source.kind is Kind.PREPROCESSED:
            path = self.directory / source.words[0]
            return path.read_bytes().decode("utf-8", "surrogateescape")
        words = self.line.words(Kind.PREPROCESSOR, Kind.OTHER)
        words = [
            word for word in words if word not in ("-C", "-CC", "-P", "-H") and not word.startswith("-d")
        ]
        arguments = ["-E", *ALWAYS, *self._same, *words, *self._input(source)]
        status, out, err = self.toolchain.run(arguments, self.directory, self.driver)
        if status:
            said = err.decode("utf-8", "replace").strip().splitlines()
            raise SourceError(f"{source.words[0]} cannot be preprocessed: {said[0] if said else status}")
        return out.decode("utf-8", "surrogateescape")

    def _near(self, places: Mapping[str, int]) -> dict[str, int]:
        """The places as seen from the project's root, where there is one: not of the copy that is built."""
        root = f"{self.spec.root}/" if self.spec.root else ""
        near: dict[str, int] = {}
        add_places(near, {place.removeprefix(root).removeprefix("./"): n for place, n in places.items()})
        return near

    def _compile_counted(self, text: str, name: str, made: Path, stage: str) -> str | None:
        """Compile the rewritten text over ``made``; what the compiler said if it does not like it."""
        folder = made.parent / f"counted-{made.stem}"
        folder.mkdir()
        file, result = folder / f"{Path(name).stem}.c", folder / made.name
        file.write_text(text, "utf-8", "surrogateescape")
        flags = without_preprocessor_flags(self.line.words(Kind.OTHER))
        same = [*self._same, f"-ffile-prefix-map={folder}=."]
        arguments = [*ALWAYS, *same, *flags, "-w", stage, "-o", str(result), str(file)]
        status, _, err = self.toolchain.run(arguments, self.directory, self.driver)
        if status:
            errors = [line for line in err.decode("utf-8", "replace").splitlines() if "error:" in line]
            return errors[0] if errors else f"exit status {status}"
        os.replace(result, made)
        return None

    # --- linking
    def _link(self) -> int:
        name = self.line.output or "a.out"
        place = self.directory / name
        try:
            temporary = Path(tempfile.mkdtemp(prefix=".instrument-", dir=place.parent))
        except OSError as error:
            sys.stderr.write(f"instrument-cc: error: cannot write to {place.parent}: {error.strerror}\n")
            return 1
        try:
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
                    inputs += token.words
            return self._link_inputs(inputs, temporary, place, names)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def _link_inputs(self, inputs: list[str], temporary: Path, place: Path, names: Mapping[Path, str]) -> int:
        made = temporary / "program"
        static = [] if self.line.shared or self.line.relocatable else ["-static"]
        first, last = ([], []) if self.line.relocatable else self._runtime()
        if not any(word.startswith("-O") for word in self.line.words(Kind.OTHER)):
            # Of an unoptimised link zig takes that its own run-time library should be unoptimised, too, and all of
            # it be linked. Build systems say -O when they compile.
            inputs = [*inputs, "-O2"]
        self.toolchain.prepare()
        status = self._call([*ALWAYS, *first, *inputs, *last, *static, "-o", str(made)], names)
        if status:
            return status
        digest = hashlib.sha256(made.read_bytes()).hexdigest()
        os.replace(made, place)
        if static:
            kinds = [kind for kind in Kind if kind not in (Kind.OUTPUT, Kind.LEFT_OUT)]
            words = self.line.words(*kinds)
            entry = {"kind": "link", "output": str(place), "directory": str(self.directory)}
            self._list({**entry, "driver": self.driver, "words": words, "sha256": digest})
        return 0

    def _runtime(self) -> tuple[list[str], list[str]]:
        """Objects to link before and after the program's own; kept in the cache by content."""
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
            flags = [*RUNTIME_FLAGS, *position, *sampler.defines(layout), f"-I{RUNTIME}"]
            texts["sampler"] = ((RUNTIME / "sampler.c").read_text("utf-8"), flags)
        made = {part: str(self._runtime_object(part, *text)) for part, text in texts.items()}
        return [made[n] for n in ("layout",) if n in made], [
            made[n] for n in ("counters", "sampler") if n in made
        ]

    def _runtime_object(self, part: str, text: str, flags: list[str]) -> Path:
        identity = json.dumps([part, text, flags, compiler_version(), digest_of(RUNTIME.glob("*.[ch]"))])
        place = cache_directory() / "runtime" / f"{hashlib.sha256(identity.encode()).hexdigest()}.o"
        if not place.is_file():
            place.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=place.parent) as folder:
                source = Path(folder) / f"{part}.c"
                source.write_text(text)
                self.toolchain.compile(source, flags, source.with_suffix(".o"))
                os.replace(source.with_suffix(".o"), place)
        return place


def guest_toolchain() -> Toolchain:
    """The compiler for the emulated machine; what it has to say goes to standard error."""
    return Toolchain(GUEST_TARGET, _say)


def _say(message: str) -> None:
    sys.stderr.write(f"instrument-cc: {message}\n")
