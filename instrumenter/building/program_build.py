"""Builds an ELF program from sources and metrics; builds are kept on disk by content."""

from __future__ import annotations

import functools
import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from common import build_cache
from common.atomic_files import move_directory, workspace
from common.file_cache import cache_directory
from common.source_digest import source_digest
from instrumenter.building.code_size import code_size
from instrumenter.building.elf_symbols import starts_threads
from instrumenter.building.generated_sources import Generated, generate, preprocess_all, without_places
from instrumenter.building.relink import (
    PADDING,
    PADDING_SOURCE,
    can_relink,
    keep_link,
    link_shifted,
    wanted_symbols,
)
from instrumenter.compiler.toolchain import (
    GUEST_TARGET,
    SECTION_FLAGS,
    Toolchain,
    as_optimised_link,
    compiler_name_for,
    compiler_version,
    without_preprocessor_flags,
)
from instrumenter.errors import SpecError
from instrumenter.languages import flags_of_language, generated_ending
from instrumenter.spec.counter_layout import CounterLayout, CounterLocation, Placement
from instrumenter.spec.software_metrics import MetricSpec

PACKAGE = Path(__file__).parents[1]
RUNTIME = PACKAGE / "runtime"
RUNTIME_FLAGS = ("-O2", "-std=gnu11", "-g", "-w")
DEFAULT_FLAGS = ("-O2",)
MAX_HARDWARE_COUNTERS = 29
# Debug information is for probes and messages; warnings are off, since they belong to the program's own build.
BUILD_FLAGS = ("-g", "-w")
_NEVER_COUNTED = 64
NULL_CONTROL_SOURCE = (
    f"static volatile unsigned long counters[{_NEVER_COUNTED}];\n"
    "__attribute__((used, retain, noinline)) void __measure_null_control(void)\n{\n"
    + "".join(f"    counters[{n}]++;\n" for n in range(_NEVER_COUNTED))
    + "}\n"
)
"""Counters in a function that nothing calls: about a kilobyte of code and half of one of data."""
_OBJECTS_START_THREADS: dict[Path, bool] = {}
"""Of programs without metrics that this process compiled, by their place in the cache."""


@dataclass(frozen=True)
class SamplerConfig:
    """The in-guest sampler: processor time between signals, and the number of hpmcounter3.. that it reads."""

    interval_nanoseconds: int
    hardware_counters: int
    buffer_records: int = 64
    source: ClassVar[str] = "sampler.c"

    def __post_init__(self) -> None:
        if self.interval_nanoseconds < 1:
            raise SpecError(f"a sampling interval of {self.interval_nanoseconds} ns, expected at least 1")
        if not 0 <= self.hardware_counters <= MAX_HARDWARE_COUNTERS:
            raise SpecError(f"{self.hardware_counters} hardware counters, expected 0 to {MAX_HARDWARE_COUNTERS}")
        if self.buffer_records < 1:
            raise SpecError(f"a buffer of {self.buffer_records} records, expected at least 1")

    def defines(self, layout: CounterLayout) -> list[str]:
        """The sampler's configuration as compiler flags."""
        return [
            f"-DMEASURE_INTERVAL_NANOSECONDS={self.interval_nanoseconds}",
            f"-DMEASURE_HARDWARE_COUNTERS={self.hardware_counters}",
            f"-DMEASURE_SOFTWARE_COUNTERS={len(layout.metrics) - len(layout.unread)}",
            f"-DMEASURE_COUNTER_STRIDE={1 if layout.placement == 'packed' else 8}",
            f"-DMEASURE_BUFFER_RECORDS={self.buffer_records}",
        ]


@dataclass(frozen=True)
class HostSamplerConfig:
    """The sampler in a program for the host, which gets interval and events when it starts."""

    buffer_records: int = 64
    source: ClassVar[str] = "host_sampler.c"

    def defines(self, layout: CounterLayout) -> list[str]:
        """The sampler's configuration as compiler flags."""
        return [
            f"-DMEASURE_SOFTWARE_COUNTERS={len(layout.metrics)}",
            f"-DMEASURE_COUNTER_STRIDE={1 if layout.placement == 'packed' else 8}",
            f"-DMEASURE_BUFFER_RECORDS={self.buffer_records}",
        ]


AnySampler = SamplerConfig | HostSamplerConfig


@dataclass(frozen=True)
class Build:
    """A built program.

    ``counters``: location of each metric's counter; ``sites``: number of its sites in the source; ``places``: by
    metric, ``file:line`` to the number of its sites there;
    ``text_bytes``, ``static_instructions``: see `code_size`; the C library is included;
    ``warnings``: events that the counters may miss; ``notices``: sentences on how the program was compiled;
    ``relinkable``: `instrumenter.building.relink.relinked` can link it in other orders;
    ``starts_threads``: it refers to a function that does, so that counters in it have to be atomic;
    ``seconds``: time that it took to build, without that of the compiler's libraries, nan if unknown.
    """

    elf_path: Path
    key: str
    counters: dict[str, CounterLocation]
    sites: dict[str, int]
    text_bytes: int
    static_instructions: int
    warnings: tuple[str, ...] = ()
    places: dict[str, dict[str, int]] = field(default_factory=dict)
    relinkable: bool = False
    seconds: float = field(default=math.nan, compare=False)
    notices: tuple[str, ...] = ()
    starts_threads: bool = False


@dataclass(frozen=True)
class Recipe:
    """A program without its metrics: made once, built with many sets of metrics.

    ``preprocessed``: each source and its text after the preprocessor; ``relinkable``: compile each function and
    variable into its own section, and keep the objects, so that runs can link it in orders of their own;
    ``null_control``: add counters in code that never runs. ``atomic``: count by atomic additions; None: where the
    program starts threads, of which the program without metrics tells.
    """

    preprocessed: dict[Path, str]
    flags: tuple[str, ...] = DEFAULT_FLAGS
    libraries: tuple[str, ...] = ()
    sampler: AnySampler | None = None
    placement: Placement = "packed"
    volatile: bool = True
    target: str | None = GUEST_TARGET
    relinkable: bool = False
    null_control: bool = False
    atomic: bool | None = None

    def find(self, metrics: Mapping[str, MetricSpec], code_offset_bytes: int = 0) -> Build | None:
        """The program from the cache, or None if it was not built yet."""
        if metrics and self.atomic is None:
            plain = self._plain.find({})
            return plain and replace(self, atomic=plain.starts_threads).find(metrics, code_offset_bytes)
        build = load_build(self._cache_path(metrics, code_offset_bytes), self._layout(metrics))
        # The compiler's own libraries are in its cache, which may have been emptied.
        return None if build is None or (self.relinkable and not build.relinkable) else build

    def build(
        self,
        metrics: Mapping[str, MetricSpec],
        code_offset_bytes: int = 0,
        notify: Callable[[str], None] | None = None,
    ) -> Build:
        """Instrument, compile and link; see `build_program`."""
        if metrics and self.atomic is None:
            return self._decided(notify).build(metrics, code_offset_bytes, notify)
        build = self.find(metrics, code_offset_bytes)
        if build is None and self.relinkable and code_offset_bytes:
            unshifted = self.build(metrics, 0, notify)
            if unshifted.relinkable:
                place, layout = self._cache_path(metrics, code_offset_bytes), self._layout(metrics)
                _shift_into(place, unshifted, code_offset_bytes, layout, Toolchain(self.target, notify))
                build = load_build(place, layout)
        if build is None:
            with self.compiled(metrics, code_offset_bytes, notify) as compiled:
                build = compiled.link()
        return build

    @contextmanager
    def compiled(
        self,
        metrics: Mapping[str, MetricSpec],
        code_offset_bytes: int = 0,
        notify: Callable[[str], None] | None = None,
    ) -> Iterator[CompiledProgram]:
        """The program before its link, which needs the C library; whether it was built before does not matter.

        Its files are there until the context ends. Raises as `build_program`.
        """
        recipe = self._decided(notify) if metrics and self.atomic is None else self
        generated = generate(
            self.preprocessed, self.flags, metrics,
            placement=self.placement, volatile=self.volatile, atomic=bool(recipe.atomic), target=self.target,
        )  # fmt: skip
        files = dict(generated.files)
        if code_offset_bytes:
            files = {"layout.c": padding_source(code_offset_bytes), **files}
        if self.null_control:
            files["null_control.c"] = NULL_CONTROL_SOURCE
        place = recipe._cache_path(metrics, code_offset_bytes)
        place.parent.mkdir(parents=True, exist_ok=True)
        with workspace(place.parent) as folder:
            yield _compile_in(folder, place, replace(generated, files=files), recipe, Toolchain(self.target, notify))

    @property
    def lacks_library(self) -> bool:
        """Whether the C library must be made before the program is linked; that of C++ is not asked for."""
        return compiler_name_for(self.preprocessed) == "cc" and Toolchain(self.target).lacks_c_library

    @property
    def program_digest(self) -> str:
        """Hash of what the program is without its metrics: sources, flags, libraries and compiler, in any folder."""
        identity = {
            "sources": [[generated_ending(source), without_places(text)] for source, text in self.preprocessed.items()],
            "flags": [flag for flag in self.flags if "/" not in flag], "libraries": list(self.libraries),
            "target": self.target, "compiler": compiler_version(),
        }  # fmt: skip
        return _hash(identity)

    def with_null_control(self) -> Recipe:
        """The same program with counters in code that never runs."""
        return replace(self, null_control=True)

    @property
    def _plain(self) -> Recipe:
        return replace(self, placement="packed", volatile=True, null_control=False, atomic=False)

    def _decided(self, notify: Callable[[str], None] | None) -> Recipe:
        """The recipe that knows whether its counters are atomic: the program without metrics is built for that, or
        compiled only, where its link has to wait for the C library."""
        plain = self._plain
        built = plain.find({})
        if built is not None or not self.lacks_library:
            return replace(self, atomic=(built or plain.build({}, 0, notify)).starts_threads)
        place = plain._cache_path({}, 0)
        if place not in _OBJECTS_START_THREADS:
            with plain.compiled({}, 0, notify):
                pass
        return replace(self, atomic=_OBJECTS_START_THREADS[place])

    def _layout(self, metrics: Mapping[str, MetricSpec]) -> CounterLayout:
        return CounterLayout.of(metrics, self.placement, self.volatile, bool(self.atomic))

    def _cache_path(self, metrics: Mapping[str, MetricSpec], code_offset_bytes: int) -> Path:
        """Path of the program in the cache, a hash of everything that the build depends on."""
        identity = {
            "generator": generator_digest(),
            "sources": [[source.stem + generated_ending(source), text] for source, text in self.preprocessed.items()],
            "metrics": [[name, spec.model_dump()] for name, spec in metrics.items()],
            "placement": self.placement, "volatile": self.volatile, "flags": list(self.flags),
            "libraries": list(self.libraries), "code_offset_bytes": code_offset_bytes, "target": self.target,
            "compiler": compiler_version(),
            "sampler": self.sampler.defines(self._layout(metrics)) if self.sampler else None,
            "relinkable": self.relinkable, "null_control": self.null_control, "atomic": bool(self.atomic),
        }  # fmt: skip
        return cache_directory() / build_cache.BUILDS / _hash(identity)


def _hash(identity: Mapping[str, Any]) -> str:
    text = json.dumps(identity, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def build_program(
    sources: Sequence[Path],
    flags: Sequence[str] = DEFAULT_FLAGS,
    metrics: Mapping[str, MetricSpec] | None = None,
    *,
    sampler: SamplerConfig | None = None,
    libraries: Sequence[str] = (),
    placement: Placement = "packed",
    volatile: bool = True,
    atomic: bool | None = None,
    target: str | None = GUEST_TARGET,
    code_offset_bytes: int = 0,
    notify: Callable[[str], None] | None = None,
) -> Build:
    """Instrument, compile and link; a build of the same content is taken from the cache.

    Without metrics and sampler it is the program as its own build would make it. ``atomic``: see `Recipe`.
    ``code_offset_bytes`` puts this much unused code before it, which moves all code to other addresses. Raises
    `SourceError` (the source does not compile or cannot be instrumented), `SpecError` (a metric without events) and
    `ToolchainError`.
    """
    recipe = Recipe(
        preprocess_all(sources, flags, Toolchain(target, notify)),
        tuple(flags), tuple(libraries), sampler, placement, volatile, target, atomic=atomic,
    )  # fmt: skip
    return recipe.build(metrics or {}, code_offset_bytes, notify)


def padding_source(code_offset_bytes: int) -> str:
    """The C source of the function that moves all other code by ``code_offset_bytes``."""
    return (
        f"__attribute__((used, retain, noinline)) void {PADDING}(void)\n"
        f'{{\n    __asm__ volatile(".skip {code_offset_bytes}");\n}}\n'
    )


@functools.cache
def generator_digest() -> str:
    """Hash of this package's sources, so that no build is reused that older code made.

    All of them, those that only give advice or help, too: a list of those that decide what is built gets holes.
    """
    return source_digest([PACKAGE])


def load_build(place: Path, layout: CounterLayout) -> Build | None:
    """The build in the cache, or None if it is missing or damaged. Counts as a use of the build."""
    program = place / "program"
    build_cache.use_builds()
    build_cache.mark_used(program)  # before the program is looked at: see `build_cache._move_unused`
    try:
        facts: dict[str, Any] = json.loads((place / build_cache.FACTS_NAME).read_text("utf-8"))
        if program.stat().st_size != facts["program_bytes"]:
            return None
        return Build(
            program, place.name, layout.locations(), facts["sites"],
            facts["text_bytes"], facts["static_instructions"], tuple(facts["warnings"]), facts["places"],
            can_relink(program), facts.get("seconds", math.nan), tuple(facts["notices"]), facts["starts_threads"],
        )  # fmt: skip
    except (OSError, ValueError, KeyError):
        return None


@dataclass(frozen=True)
class CompiledProgram:
    """A program before its link: ``inputs`` are its objects.

    ``folder``: of the files; ``place``: of the program in the cache; ``flags``: of the link; ``seconds``: that it took.
    """

    folder: Path
    place: Path
    generated: Generated
    inputs: list[Path]
    flags: list[str]
    driver: str
    toolchain: Toolchain
    relinkable: bool
    seconds: float

    def link(self) -> Build:
        """Link the program and put it into the cache. Raises as `build_program`.

        The time of the build is without that for a library which is made first: the next program has it.
        """
        started, library_seconds = time.perf_counter(), self.toolchain.library_seconds
        program = self.folder / "program"
        if self.relinkable:
            flags = [*self.flags, *wanted_symbols(self.inputs)]
            keep_link(self.folder, self.toolchain.traced_link(self.inputs, flags, program, self.driver))
        else:
            self.toolchain.link(self.inputs, self.flags, program, self.driver)
        library_seconds = self.toolchain.library_seconds - library_seconds
        seconds = self.seconds + time.perf_counter() - started - library_seconds
        generated = self.generated
        write_facts(
            self.folder, generated.sites, generated.places, generated.warnings, generated.notices, seconds
        )  # fmt: skip
        keep_build(self.folder, self.place, generated.layout)
        build = load_build(self.place, generated.layout)
        assert build is not None
        return build


def _compile_in(
    folder: Path, place: Path, generated: Generated, recipe: Recipe, toolchain: Toolchain
) -> CompiledProgram:  # fmt: skip
    """Compile the sources of ``generated`` in ``folder``, as ``recipe`` says, for the program at ``place``."""
    started = time.perf_counter()
    flags = [*without_preprocessor_flags(recipe.flags), *BUILD_FLAGS]
    sections = SECTION_FLAGS if recipe.relinkable else ()
    for name, text in generated.files.items():
        (folder / name).write_text(text, "utf-8", "surrogateescape")
    inputs = [folder / name for name in generated.files]
    driver = compiler_name_for(inputs)
    if recipe.relinkable:
        inputs = _objects(inputs, [*flags, *sections], toolchain)
    else:
        inputs = _compiled(inputs, flags, toolchain)
    if not generated.layout.metrics:
        _OBJECTS_START_THREADS[place] = any(map(starts_threads, inputs))
    if recipe.sampler:
        # Compiled separately, so that its cost does not depend on the program's flags.
        inputs.append(folder / "sampler.o")
        machine = [flag for flag in flags if flag.startswith("-m")]
        toolchain.compile(
            RUNTIME / recipe.sampler.source,
            [*RUNTIME_FLAGS, *machine, *sections, *recipe.sampler.defines(generated.layout)],
            inputs[-1],
        )
    return CompiledProgram(
        folder, place, generated, inputs, [*as_optimised_link(flags), *recipe.libraries], driver, toolchain,
        recipe.relinkable, time.perf_counter() - started,
    )  # fmt: skip


def _shift_into(
    place: Path, unshifted: Build, code_offset_bytes: int, layout: CounterLayout, toolchain: Toolchain
) -> None:  # fmt: skip
    """Link the objects of a program with unused code before them: the compiler makes the same of the same sources."""
    started = time.perf_counter()
    with workspace(place.parent) as temporary:
        source = temporary / "layout.c"
        source.write_text(padding_source(code_offset_bytes), "utf-8")
        toolchain.compile(source, [*BUILD_FLAGS, *SECTION_FLAGS], source.with_suffix(".o"))
        link_shifted(unshifted.elf_path, source.with_suffix(".o"), temporary)
        seconds = time.perf_counter() - started
        write_facts(
            temporary, unshifted.sites, unshifted.places, unshifted.warnings, unshifted.notices, seconds
        )  # fmt: skip
        keep_build(temporary, place, layout)


def _objects(sources: Sequence[Path], flags: Sequence[str], toolchain: Toolchain) -> list[Path]:
    """Compile each source, and the gaps of `PADDING_SOURCE`, into an object beside it."""
    padding = sources[0].parent / "padding.s"
    padding.write_text(PADDING_SOURCE, "utf-8")
    machine = [flag for flag in flags if flag.startswith("-m")]
    toolchain.compile(padding, machine, padding.with_suffix(".o"))
    return [padding.with_suffix(".o"), *_compiled(sources, flags, toolchain)]


def _compiled(sources: Sequence[Path], flags: Sequence[str], toolchain: Toolchain) -> list[Path]:
    """Compile each source into an object beside it."""
    for source in sources:
        toolchain.compile(source, flags_of_language(source, flags), source.with_suffix(".o"))
    return [source.with_suffix(".o") for source in sources]


def write_facts(
    folder: Path, sites: Mapping[str, int], places: Mapping[str, Mapping[str, int]], warnings: Sequence[str],
    notices: Sequence[str], seconds: float,
) -> None:  # fmt: skip
    """Write the facts that `load_build` reads beside ``folder``/program, which took ``seconds`` to build."""
    program = folder / "program"
    text_bytes, instructions = code_size(program)
    facts = {
        "sites": sites, "places": places, "warnings": warnings, "notices": notices,
        "text_bytes": text_bytes, "static_instructions": instructions, "program_bytes": program.stat().st_size,
        "seconds": round(seconds, 3), "starts_threads": starts_threads(program),
    }  # fmt: skip
    (folder / build_cache.FACTS_NAME).write_text(json.dumps(facts, indent=1), "utf-8")


def keep_build(temporary: Path, place: Path, layout: CounterLayout) -> None:
    """Move a complete build to its place in the cache; a damaged one there is replaced."""
    relinkable = can_relink(temporary / "program")

    def is_as_good(there: Path) -> bool:
        build = load_build(there, layout)
        return build is not None and build.relinkable >= relinkable

    move_directory(temporary, place, is_as_good)
    build_cache.note_build(place)
