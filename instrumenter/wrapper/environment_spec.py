"""The compiler wrapper's input from the environment, and the sites that it leaves in programs.

``INSTRUMENT_SPEC`` names a YAML file (`WrapperSpec`); without it programs are only compiled. Each instrumented object
file contains its sites, in a section that is never loaded. The linker keeps the section, so `read_sites` finds them in
the program even if the objects came from archives.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from common.yaml_document import YamlDocument
from instrumenter.building.program_build import MAX_HARDWARE_COUNTERS, AnySampler, HostSamplerConfig, SamplerConfig
from instrumenter.compiler.toolchain import GUEST_TARGET
from instrumenter.errors import SpecError
from instrumenter.find.sites import Meant
from instrumenter.spec.counter_layout import CounterLayout, Placement
from instrumenter.spec.software_metrics import MetricSpec, check_metric_names
from instrumenter.wrapper.plain_compile import SPEC_VARIABLE

SITES_SECTION = ".measure.sites"


class SamplerSpec(BaseModel):
    """The in-guest sampler that is linked into programs; see `SamplerConfig`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    interval_nanoseconds: int = Field(ge=1, description="Processor time between records, in ns")
    hardware_counters: int = Field(
        default=0, ge=0, le=MAX_HARDWARE_COUNTERS, description="How many of hpmcounter3.. it reads"
    )
    buffer_records: int = Field(default=64, ge=1, description="Records held in memory")


class HostSamplerSpec(BaseModel):
    """The sampler that is linked into programs for the host; see `HostSamplerConfig`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: Literal[True] = Field(description="Read the host's counters")


class WrapperSpec(BaseModel):
    """The metrics to count in every program that is built, and how."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    metrics: dict[str, MetricSpec] = Field(default_factory=dict, description="Metrics by name")
    placement: Placement = Field(default="packed", description="packed, or cache_line: a 64-byte line each")
    volatile: bool = Field(default=True, description="Count where the event is")
    atomic: bool = Field(default=False, description="Count by atomic additions, for programs that start threads")
    target: str = Field(default=GUEST_TARGET, description="What to compile for, as the compiler calls it")
    sampler: SamplerSpec | HostSamplerSpec | None = Field(default=None, description="Sampler to link into programs")
    code_offset_bytes: int = Field(default=0, ge=0, description="Unused code put before the program's")
    sections: bool = Field(default=False, description="Each function and variable in a section of its own")
    null_control: bool = Field(default=False, description="Link counters in code that never runs")
    root: str | None = Field(
        default=None, description="Directory whose name must not occur in programs: it becomes `.`"
    )

    _names = field_validator("metrics")(check_metric_names)

    @property
    def layout(self) -> CounterLayout:
        """The layout of the counters."""
        return CounterLayout.of(self.metrics, self.placement, self.volatile, self.atomic)

    @property
    def sampler_config(self) -> AnySampler | None:
        """The sampler in the form that the build needs."""
        if isinstance(self.sampler, HostSamplerSpec):
            return HostSamplerConfig()
        return SamplerConfig(**self.sampler.model_dump()) if self.sampler else None


def spec_from_environment() -> WrapperSpec | None:
    """The specification that ``INSTRUMENT_SPEC`` names, None without one. Raises `SpecError`."""
    name = os.environ.get(SPEC_VARIABLE)
    if not name:
        return None
    path = Path(name)
    if not path.is_absolute() and not path.exists():
        raise SpecError(
            f"{SPEC_VARIABLE}={name}: no such file in {Path.cwd()}; builds change directories: give the whole path"
        )
    return YamlDocument.read(path, SpecError).validate(WrapperSpec)


# --- the sites section of an object
def sites_note(source: str, sites: Mapping[str, int], places: Mapping[str, Mapping[str, int]], meant: Meant) -> str:
    """C text, without a line break, that puts a source's sites into the object's `SITES_SECTION`.

    ``meant``: of which those metrics are noted that have sites.
    """
    named = [[*where, sorted(names)] for where, names in meant.items() if where[0] in sites]
    note = {"source": source, "sites": dict(sites), "places": dict(places), "meant": named}
    text = json.dumps(note, sort_keys=True)
    quoted = _quote(f'.pushsection {SITES_SECTION},"",@progbits\n.asciz "{_quote(text)}"\n.popsection')
    return f'__asm__("{quoted}");'


def _quote(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def read_sites(elf_path: Path) -> list[dict[str, Any]]:
    """The sites in a program: ``source``, ``sites``, ``places`` and ``meant`` of each instrumented unit.

    ``sites``: metric to number; ``places``: metric to ``file:line`` to number; ``meant``: a `Meant`. Raises
    `SpecError` for a file that is no program.
    """
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        with elf_path.open("rb") as file:
            section = ELFFile(file).get_section_by_name(SITES_SECTION)
            data = section.data() if section is not None else b""
    except (OSError, ELFError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no ELF file"
        raise SpecError(f"{elf_path}: cannot be read: {reason}") from None
    notes = [json.loads(note) for note in data.split(b"\0") if note]
    return [{**note, "meant": {(metric, key): set(names) for metric, key, names in note["meant"]}} for note in notes]
