"""The campaign files that reproduce a paper's figures and tables, one file each: what is run, on what, how.

`load_reproduction` reads one, `tasks_of` says which runs several of them need together. Running and keeping them is
left to `experiments.results`, the command line to `experiments.runner`, and what is shown to each figure's script.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from common.suggestions import nearest
from common.yaml_document import YamlDocument, problem_at
from measure.cycle_close.tracer import TracerSettings
from measure.errors import CampaignError
from measure.programs.catalogue import load_catalogue

Kind = Literal["full", "trace", "vectors", "online"]
_SAMPLES = "samples"
_SWEPT = ("interval_instructions", "threshold", "everything")


class PhaseSearch(BaseModel):
    """How SimPoint looks for phases; the defaults are those of the phases paper (its steps 2 to 5)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dimensions: int = Field(default=15, ge=1, description="Of the projection.")
    max_k: int = Field(default=10, ge=1, description="M, the most phases.")
    seeds: int = Field(default=5, ge=1, description="Starts of k-means for each k.")
    score_share: float = Field(default=0.8, ge=0, le=1, description="X, the share of the best score that is enough.")


class Reproduction(BaseModel):
    """One figure or table: which programs, which runs of them, and what is swept. Paths are absolute once read."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    shows: str = Field(description="What the figure shows; its title.")
    runs: tuple[Kind, ...] = Field(
        min_length=1,
        description="full: everything simulated in detail; trace: cycle-close; vectors: of basic blocks; "
        "online: phases by signatures, nothing simulated.",
    )
    programs: dict[str, str] = Field(min_length=1, description="Name in the catalogue: name of the size to run.")
    catalogue: Path = Field(Path("../../configs/programs.yaml"), description="Relative to this file.")
    machine: Path = Field(description="Machine file, relative to this file.")
    interval_instructions: tuple[int, ...] = Field(min_length=1, description="Lengths of intervals.")
    thresholds: tuple[float, ...] = Field((0.25,), min_length=1, description="Of signatures' distance.")
    configurations: dict[str, dict[str, str | int | float | bool]] = Field(
        {"paper": {}},
        min_length=1,
        description="Sampling configurations: name: settings that differ from the paper's; 'samples' runs twice.",
    )
    phases: PhaseSearch = PhaseSearch()
    skip_instructions: int = Field(0, ge=0, description="Skipped where a figure skips the start.")
    shown_intervals: int | None = Field(None, ge=1, description="Where a figure shows a part of a trace.")

    @field_validator("interval_instructions")
    @classmethod
    def _long_enough(cls, lengths: tuple[int, ...]) -> tuple[int, ...]:
        if min(lengths) < 1000 or len(set(lengths)) < len(lengths):
            raise ValueError(f"got {list(lengths)}, expected different lengths of at least 1000 instructions")
        return lengths

    @model_validator(mode="after")
    def _check_configurations(self) -> Reproduction:
        for name, configuration in self.configurations.items():
            known = [field.name for field in fields(TracerSettings) if field.name not in _SWEPT]
            for key, value in configuration.items():
                if key == _SAMPLES:
                    if not isinstance(value, int) or value < 1:
                        raise problem_at(
                            f"got {value!r}, expected the samples of a phase, 1 or more", "configurations", name, key
                        )
                elif key not in known:
                    raise problem_at(
                        f"unknown setting '{key}'{nearest(key, known)}; expected {_SAMPLES} or one of: "
                        f"{', '.join(known)}",
                        "configurations", name, key,
                    )  # fmt: skip
            try:
                self.settings(name, self.interval_instructions[0], self.thresholds[0])
            except ValidationError as error:
                first = error.errors()[0]
                key = str(first["loc"][-1])
                raise problem_at(f"got {first['input']!r}: {first['msg']}", "configurations", name, key) from None
        return self

    def settings(self, configuration: str, interval_instructions: int, threshold: float) -> TracerSettings:
        """Settings of a sampling configuration."""
        given = {key: value for key, value in self.configurations[configuration].items() if key != _SAMPLES}
        swept: dict[str, Any] = {"interval_instructions": interval_instructions, "threshold": threshold}
        return TypeAdapter(TracerSettings).validate_python({**given, **swept})

    def samples(self, configuration: str) -> int:
        """Samples a phase of a configuration that runs the program twice; 0 for one that samples as it goes."""
        return int(self.configurations[configuration].get(_SAMPLES, 0))


@dataclass(frozen=True)
class Task:
    """One run of one program. ``lengths``: one, except that a full simulation serves several at once;
    ``settings``, ``samples``: of traces and online phases."""

    kind: Kind
    program: str
    size: str
    catalogue: Path
    machine: Path
    lengths: tuple[int, ...]
    settings: TracerSettings | None = None
    samples: int = 0

    @property
    def name(self) -> str:
        """For people: what is being run."""
        lengths = ", ".join(short_count(length) for length in self.lengths)
        share = f", {100 * self.settings.threshold:g}%" if self.settings is not None else ""
        return f"{self.program} {self.kind} ({lengths}{share})"

    def identity(self, length: int) -> dict[str, Any]:
        """What distinguishes the result of one length from other results in the same place."""
        about: dict[str, Any] = {"kind": self.kind, "program": self.program, "size": self.size}
        about |= {"machine": self.machine.stem if self.kind in ("full", "trace") else "", "length": length}
        if self.settings is not None:
            about |= {"settings": asdict(self.settings), "samples": self.samples}
        return about


def load_reproduction(path: Path, size: str | None = None) -> Reproduction:
    """Read a campaign file; ``size`` replaces that of every program. Raises `CampaignError`, with file and line."""
    document = YamlDocument.read(path, CampaignError)
    read = document.validate(Reproduction, {})
    changes: dict[str, Any] = {}
    for key in ("catalogue", "machine"):
        changes[key] = (path.resolve().parent / getattr(read, key)).resolve()
        if not changes[key].is_file():
            raise CampaignError(f"{document.where(key)}: no such file: {getattr(read, key)} ({changes[key]})")
    known = load_catalogue(changes["catalogue"])
    changes["programs"] = {name: size or given for name, given in read.programs.items()}
    for name, wanted in changes["programs"].items():
        where = document.where("programs", name)
        if name not in known:
            raise CampaignError(f"{where}: no program '{name}' in the catalogue{nearest(name, known)}")
        if wanted not in known[name].arguments:
            sizes = ", ".join(known[name].arguments)
            raise CampaignError(f"{where}: {name} has no size '{wanted}', expected one of: {sizes}")
    return read.model_copy(update=changes)


def tasks_of(campaigns: Sequence[Reproduction]) -> list[Task]:
    """The runs that ``campaigns`` need, each once, by program; what is simulated in full comes first."""
    sampled: dict[Task, None] = {}
    whole: dict[Task, set[int]] = {}
    for campaign in campaigns:
        for program, size in campaign.programs.items():
            if "full" in campaign.runs:
                task = Task("full", program, size, campaign.catalogue, campaign.machine, ())
                whole.setdefault(task, set()).update(campaign.interval_instructions)
            sampled.update(dict.fromkeys(_sampled(campaign, program, size)))
    full = [replace(task, lengths=tuple(sorted(lengths))) for task, lengths in whole.items()]
    order = list(dict.fromkeys((task.program, task.size) for task in [*full, *sampled]))
    return sorted([*full, *sampled], key=lambda task: order.index((task.program, task.size)))


def _sampled(campaign: Reproduction, program: str, size: str) -> Iterator[Task]:
    for length in campaign.interval_instructions:
        bare = Task("vectors", program, size, campaign.catalogue, campaign.machine, (length,))
        if "vectors" in campaign.runs:
            yield bare
        for configuration in campaign.configurations:
            for threshold in campaign.thresholds:
                settings = campaign.settings(configuration, length, threshold)
                if "online" in campaign.runs:
                    yield replace(bare, kind="online", settings=settings)
                if "trace" in campaign.runs:
                    yield replace(bare, kind="trace", settings=settings, samples=campaign.samples(configuration))


def short_count(count: float) -> str:
    """``200k``, ``10M``."""
    return f"{count / 1e6:g}M" if count >= 1e6 else f"{count / 1e3:g}k"
