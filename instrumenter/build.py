"""From sources and metrics to an ELF program, kept on disk by content."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from instrumenter.counters import CounterLayout, CounterLocation, Placement
from instrumenter.errors import SourceError, SpecError, nearest
from instrumenter.rewrite import Rewritten, rewrite
from instrumenter.spec import MetricSpec
from instrumenter.toolchain import GUEST_TARGET, Toolchain, cache_directory, compiler_version

_SCHEMA = 1
_RUNTIME = Path(__file__).parent / "runtime"
DEFAULT_FLAGS = ("-O2",)
MAX_HARDWARE_COUNTERS = 29


@dataclass(frozen=True)
class SamplerConfig:
    """The in-guest sampler: processor time between signals, and how many of hpmcounter3.. it reads."""

    interval_nanoseconds: int
    hardware_counters: int
    buffer_records: int = 64

    def __post_init__(self) -> None:
        if self.interval_nanoseconds < 1:
            raise SpecError(f"a sampling interval of {self.interval_nanoseconds} ns, expected at least 1")
        if not 0 <= self.hardware_counters <= MAX_HARDWARE_COUNTERS:
            raise SpecError(
                f"{self.hardware_counters} hardware counters, expected 0 to {MAX_HARDWARE_COUNTERS}"
            )


@dataclass(frozen=True)
class Generated:
    """The C that a build compiles: file name to text, and what was found on the way."""

    files: dict[str, str]
    layout: CounterLayout
    sites: dict[str, int]


@dataclass(frozen=True)
class Build:
    """A built program. ``counters``: where each metric's value is; ``text_bytes``: size of its code."""

    elf_path: Path
    key: str
    counters: dict[str, CounterLocation]
    sites: dict[str, int]
    text_bytes: int
    static_instructions: int
    warnings: tuple[str, ...] = ()


def generate(
    sources: Sequence[Path],
    flags: Sequence[str],
    metrics: Mapping[str, MetricSpec],
    *,
    placement: Placement = "packed",
    volatile: bool = True,
    toolchain: Toolchain,
) -> Generated:
    """The instrumented sources as text; writes nothing. Raises `SourceError` and `SpecError`."""
    layout = CounterLayout(tuple(metrics), placement, volatile)
    files: dict[str, str] = {}
    results: list[Rewritten] = []
    for number, source in enumerate(sources):
        text = toolchain.preprocess(Path(source), flags)
        result = rewrite(text, str(source), metrics, layout, toolchain.target)
        results.append(result)
        files[f"{number}_{Path(source).stem}.c"] = result.text
    sites = {metric: sum(result.sites[metric] for result in results) for metric in metrics}
    for metric, spec in metrics.items():
        if not sites[metric]:
            raise SpecError(_explain_nothing(metric, spec, results, sources))
    if metrics:
        files["measure_counters.c"] = layout.definition()
    return Generated(files, layout, sites)


def _explain_nothing(
    metric: str, spec: MetricSpec, results: Sequence[Rewritten], sources: Sequence[Path]
) -> str:
    """Why a metric found no event: a name that does not exist, with the nearest, or an event that does not happen."""
    where = ", ".join(str(source) for source in sources)
    known = {
        "function": set().union(*(r.functions for r in results)),
        "callee": set().union(*(r.callees for r in results)),
        "variable": set().union(*(r.variables for r in results)),
        "field": set().union(*(r.fields for r in results)),
    }
    for key, names in known.items():
        value = getattr(spec, key)
        if value is not None and value.rpartition(".")[2] not in names:
            return f"metric '{metric}': no {key} '{value}' in {where}{nearest(value, names)}"
    return f"metric '{metric}': its event ({spec.describe()}) never happens in {where}; nothing to count"


def build_program(
    sources: Sequence[Path],
    flags: Sequence[str] = DEFAULT_FLAGS,
    metrics: Mapping[str, MetricSpec] | None = None,
    *,
    sampler: SamplerConfig | None = None,
    libraries: Sequence[str] = (),
    placement: Placement = "packed",
    volatile: bool = True,
    target: str | None = GUEST_TARGET,
    notify: Callable[[str], None] | None = None,
) -> Build:
    """Instrument, compile and link; a build of the same content is taken from the cache.

    Raises `SourceError` (does not compile, cannot be instrumented), `SpecError` (a metric without events) and
    `ToolchainError`.
    """
    if not sources:
        raise SourceError("no source files given, expected at least one")
    toolchain = Toolchain(target, notify)
    generated = generate(
        sources, flags, metrics or {}, placement=placement, volatile=volatile, toolchain=toolchain
    )
    defines = _sampler_defines(sampler, generated.layout) if sampler else []
    runtime = {name: (_RUNTIME / name).read_text() for name in ("sampler.c", "sampler.h")} if sampler else {}
    identity = {
        "schema": _SCHEMA, "files": generated.files, "flags": list(flags), "libraries": list(libraries),
        "sampler": defines, "runtime": runtime, "target": target, "compiler": compiler_version(),
    }  # fmt: skip
    key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode("utf-8", "surrogateescape")).hexdigest()
    place = cache_directory() / "builds" / key
    if not (place / "program").is_file():
        place.parent.mkdir(parents=True, exist_ok=True)
        _build_into(place, generated, runtime, [*defines, *flags], libraries, toolchain)
    text_bytes, instructions = code_size(place / "program")
    return Build(
        place / "program", key, generated.layout.locations(), generated.sites, text_bytes, instructions
    )


def _sampler_defines(sampler: SamplerConfig, layout: CounterLayout) -> list[str]:
    return [
        f"-DMEASURE_INTERVAL_NANOSECONDS={sampler.interval_nanoseconds}",
        f"-DMEASURE_HARDWARE_COUNTERS={sampler.hardware_counters}",
        f"-DMEASURE_SOFTWARE_COUNTERS={len(layout.metrics)}",
        f"-DMEASURE_COUNTER_STRIDE={1 if layout.placement == 'packed' else 8}",
        f"-DMEASURE_BUFFER_RECORDS={sampler.buffer_records}",
    ]


def _build_into(
    place: Path,
    generated: Generated,
    runtime: Mapping[str, str],
    flags: Sequence[str],
    libraries: Sequence[str],
    toolchain: Toolchain,
) -> None:
    """Build in a directory beside ``place`` and move it there whole."""
    temporary = Path(tempfile.mkdtemp(dir=place.parent, prefix="building-"))
    try:
        for name, text in {**generated.files, **runtime}.items():
            (temporary / name).write_text(text, "utf-8", "surrogateescape")
        sources = [temporary / name for name in [*generated.files, *(n for n in runtime if n.endswith(".c"))]]
        # The preprocessor has run: what it was told may not be said twice.
        toolchain.link(sources, [*flags, "-g", "-w", *libraries], temporary / "program")
        (temporary / "build.json").write_text(
            json.dumps({"sites": generated.sites, "layout": asdict(generated.layout)}, indent=1)
        )
        try:
            os.rename(temporary, place)
        except OSError:
            if not (place / "program").is_file():  # another process was faster is fine; anything else is not
                shutil.rmtree(place, ignore_errors=True)
                os.rename(temporary, place)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def code_size(elf_path: Path) -> tuple[int, int]:
    """Bytes of code of a program, and how many RISC-V instructions they are."""
    from elftools.elf.elffile import ELFFile

    with elf_path.open("rb") as file:
        elf = ELFFile(file)
        section = elf.get_section_by_name(".text")
        code = section.data() if section is not None else b""
        if elf["e_machine"] != "EM_RISCV":
            return len(code), 0
    count = position = 0
    while position < len(code):
        position += 4 if code[position] & 3 == 3 else 2
        count += 1
    return len(code), count
