"""What a campaign's YAML file may say: its keys, their types and defaults."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from common.quantities import NUMBER, parse_count
from common.suggestions import nearest
from common.yaml_document import problem_among, problem_at
from instrumenter.spec.software_metrics import MetricSpec
from measure.alignment.setting import DEFAULT_ALIGNMENT, AlignmentSetting
from measure.perturbation.analysis_types import DEFAULT_DELTA
from measure.run_types import BASELINE, BOUNDARY_COLUMNS, NULL_CONTROL, IntervalUnit


def _count(value: Any) -> Any:
    return parse_count(value) if isinstance(value, str) else value


Count = Annotated[
    int,
    BeforeValidator(_count),
    WithJsonSchema({"anyOf": [{"type": "integer"}, {"type": "string", "pattern": rf"^\s*{NUMBER}\s*[kMGT]?\s*$"}]}),
]
SHORTEST_INTERVAL = 100
SHORTEST_TIME_NS = 50_000  # of an interval on the host
_NANOSECONDS = {"us": 1e3, "ms": 1e6, "s": 1e9}
DEFAULT_RUNS = 10  # chosen by experiments/campaign_design
FEWEST_PAIRS = 6  # of five pairs, no order of signs has a p below 2 / 2^5
EACH_RUN: Literal["each run"] = "each run"
"""Value of `Noise.code_layouts`."""


class StrictModel(BaseModel):
    """A model of YAML data that refuses unknown keys and cannot be changed."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Program(StrictModel):
    """The program to compile and run: C or C++ files, a directory with a build command, or an entry of a catalogue."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                {"required": ["source"]}, {"required": ["sources"]}, {"required": ["build", "directory", "binary"]},
                {"required": ["catalogue"]},
            ]
        }
    )  # fmt: skip

    source: Path | None = Field(None, description="One C or C++ file, relative to the campaign file")
    sources: tuple[Path, ...] = Field((), description="Several C and C++ files, relative to the campaign file")
    catalogue: str | None = Field(None, description="Name of a program in the catalogue (configs/programs.yaml)")
    catalogue_file: Path | None = Field(
        None, description="The catalogue, relative to the campaign file; default: ../programs.yaml"
    )
    build: str | None = Field(
        None,
        min_length=1,
        description="Shell command that builds the program in a copy of `directory`, with instrument-cc for $CC and "
        "instrument-c++ for $CXX: `make CC=$CC`; in the directory $COMPILERS they are gcc, cc, g++ and the like: "
        "`PATH=$COMPILERS:$PATH make`",
    )
    directory: Path | None = Field(None, description="Directory that `build` builds, relative to the campaign file")
    binary: str | None = Field(
        None, description="The program that `build` makes, relative to `directory`; it is started by its name"
    )
    flags: tuple[str, ...] = Field(
        ("-O2",),
        description="Compiler flags; relative paths in them, as in -I, are looked for beside the source, then beside "
        "the campaign file. Default: -O2",
    )
    libraries: tuple[str, ...] = Field((), description="Libraries to link, without -l")
    args: tuple[str | int | float, ...] = Field((), description="Arguments of the program")
    size: str | None = Field(None, description="Named size of a catalogue program, instead of args")
    stdin: Path | None = Field(None, description="File that the program reads as standard input")
    exit_status: int = Field(
        0,
        ge=0,
        le=255,
        description="Exit status with which the program ends when all is well, 128 + N where signal N ends it (with "
        "sampling mode ideal); any other fails. Default: 0",
    )
    files: dict[str, Path] = Field(
        default_factory=dict,
        description="Files that the program may read: guest path to host path; a directory stands for all files below "
        "it. It may write files of its own anywhere else: they stay in memory, and are gone when it ends",
    )

    @model_validator(mode="before")
    @classmethod
    def _no_text(cls, value: Any) -> Any:
        if isinstance(value, str):
            what = (
                f"write `program: {{source: {value}}}`"
                if PurePosixPath(value).suffix in (".c", ".cc", ".cpp", ".cxx")
                else f"write `program: {{source: FILE.c}}`, or `program: {{catalogue: {value}}}` for a program of the "
                "catalogue"
            )
            raise ValueError(f"got the text '{value}', expected keys that say what it is: {what}")
        return value

    @model_validator(mode="after")
    def _one_origin(self) -> Program:
        given = [n for n in ("source", "sources", "catalogue", "build") if getattr(self, n)]
        if len(given) != 1:
            raise problem_among(
                f"expected exactly one of source, sources, catalogue and build, got {' and '.join(given) or 'none'}",
                *given,
            )
        companions = [n for n in ("directory", "binary") if getattr(self, n) is not None]
        if self.build is None and companions:
            raise ValueError(f"`{companions[0]}` means nothing without `build`")
        if self.build is not None:
            self._check_build(companions)
        return self

    def _check_build(self, companions: list[str]) -> None:
        if len(companions) != 2 or self.binary is None:
            missing = "directory" if self.directory is None else "binary"
            raise ValueError(f"`build` needs `{missing}`: {type(self).model_fields[missing].description}")
        path = PurePosixPath(self.binary)
        if path.is_absolute() or ".." in path.parts or not path.name:
            raise problem_at(f"got '{self.binary}', expected a path inside `directory`", "binary")

    @property
    def started_as(self) -> str | None:
        """The name by which it is started: that of ``binary``, as some programs are many and tell by their name which
        is wanted; None for one of sources."""
        return PurePosixPath(self.binary).name if self.binary is not None else None


class Sampling(StrictModel):
    """When records are taken, and whether by the machine or by the program itself."""

    mode: Literal["ideal", "signal"] = Field(
        "ideal",
        description="ideal: the machine reads the counters unnoticed; signal: a handler in the program does; "
        "delivery of its signal is in the trace, its reading is not (45 to 70 cycles a record were measured), for the "
        "counters stand still meanwhile. In a program with threads the one that runs handles it, and a record is of "
        "all. Default: ideal",
    )
    every: str = Field(
        "100000 cycles",
        description="Length of an interval: N cycles or N instructions; on the host N ms or N us of processor time. "
        "Default: 100000 cycles",
    )

    @field_validator("every", mode="before")
    @classmethod
    def _check_every(cls, value: Any) -> str:
        _split_interval(str(value))
        return str(value)

    @property
    def interval(self) -> tuple[int, IntervalUnit]:
        """Length and unit."""
        return _split_interval(self.every)

    @property
    def described(self) -> str:
        """The interval for a reader."""
        length, unit = self.interval
        return self.every.strip() if unit == "nanoseconds" else f"{length:,} {unit}"

    @model_validator(mode="after")
    def _signal_in_cycles(self) -> Sampling:
        if self.mode == "signal" and self.interval[1] == "instructions":
            raise problem_among("mode signal samples by a timer: expected an interval in cycles", "every", "mode")
        return self


def _split_interval(text: str) -> tuple[int, IntervalUnit]:
    time = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(us|ms|s)", text.strip())
    if time is not None:
        nanoseconds = round(float(time[1]) * _NANOSECONDS[time[2]])
        if nanoseconds < SHORTEST_TIME_NS:
            raise ValueError(f"got '{text}', expected at least {SHORTEST_TIME_NS // 1000} us: a record takes some us")
        return nanoseconds, "nanoseconds"
    match = re.fullmatch(rf"({NUMBER}\s*[kMG]?)\s*(cycles|instructions)", text.strip())
    if match is None:
        raise ValueError(
            f"got '{text}', expected a length and a unit, such as '40000 cycles' or '100k instructions', or '1 ms' on "
            "the host"
        )
    length = parse_count(match[1])
    if length < SHORTEST_INTERVAL:
        raise ValueError(f"got '{text}', expected at least {SHORTEST_INTERVAL}: a record itself takes that long")
    return length, match[2]  # type: ignore[return-value]


class Noise(StrictModel):
    """Sources of variation between runs, drawn from the run's seed. Without noise there are no p-values."""

    code_layouts: Annotated[int, Field(ge=1, le=64)] | Literal["each run"] = Field(
        EACH_RUN,
        description="`each run`: functions and data of every run in a random order, linked just before it; a number: "
        "so many builds with their code at different addresses, one drawn for each run, for comparison with earlier "
        "campaigns (runs that share a layout are alike, and more often seem perturbed). Default: each run",
    )
    stack_offset: bool = Field(True, description="Start of the stack, up to 4 KiB lower. Default: true")
    heap_offset: bool = Field(True, description="Start of the heap, up to 64 pages higher. Default: true")
    environment_size: bool = Field(True, description="Size of the environment, up to 4 KiB larger. Default: true")
    page_placement: bool = Field(True, description="Physical frames of the pages. Default: true")
    cache_state: bool = Field(True, description="What caches, TLBs and predictors hold at the start. Default: true")
    timer_phase: bool = Field(True, description="When the first record is taken, within one interval. Default: true")
    interrupts: Count = Field(
        0,
        ge=0,
        description="Mean interval between interrupt bursts that evict lines, in cycles; 0: none. Default: 0",
    )
    interrupt_lines: int = Field(32, ge=1, description="Lines that one burst brings into each cache. Default: 32")


class Alignment(StrictModel):
    """How runs are aligned, for verdicts across runs, `measure merge` and the ground truth alike."""

    step_penalty: float = Field(
        DEFAULT_ALIGNMENT.step_penalty,
        ge=0,
        allow_inf_nan=False,
        description="Cost, in variances of each metric, of a step that advances one trace only. "
        f"Default: {DEFAULT_ALIGNMENT.step_penalty:g}",
    )
    band: float = Field(
        DEFAULT_ALIGNMENT.band,
        gt=0,
        le=1,
        description="Half-width of the band within which alignments start, as a fraction of the longer trace; it "
        f"widens where an alignment touches its edge. Default: {DEFAULT_ALIGNMENT.band:g}",
    )


class Limits(StrictModel):
    """When to give up a run."""

    instructions: Count = Field(10_000_000_000, ge=1, description="Instructions that a run may execute. Default: 10G")
    seconds: float = Field(
        600, gt=0, allow_inf_nan=False, description="On the host: time that a run may take. Default: 600"
    )


class Cumulative(StrictModel):
    """Software metrics added one at a time, in random orders (Mytkowicz et al., section 3.4)."""

    orders: int = Field(3, ge=1, le=99, description="Orders, drawn from `seed`. Default: 3")
    step: int = Field(1, ge=1, description="Metrics added from one set to the next. Default: 1")

    def variants(self, metrics: Sequence[str], seed: int) -> dict[str, tuple[str, ...]]:
        """The sets ``order1-1``, or ``order1-01`` of ten or more, and so on: each adds ``step`` metrics to the one
        before; the last has all.

        The sets name their metrics in the order of ``metrics``, so that equal sets are one program.
        """
        found = {}
        for order in range(self.orders):
            drawn = np.random.default_rng([seed, 3, order]).permutation(len(metrics))
            counts = [*range(self.step, len(metrics), self.step), len(metrics)]
            for number, count in enumerate(counts, start=1):
                found[f"order{order + 1}-{number:0{len(str(len(counts)))}d}"] = tuple(
                    metrics[index] for index in sorted(drawn[:count])
                )
        return found


class HostMachine(StrictModel):
    """The processor that the command itself runs on, in place of an emulated machine."""

    host: Literal["perf"] = Field(description="`perf`: counters are read through Linux's perf_event_open")
    cpu: int | None = Field(
        None, ge=0, description="Number of the processor that programs run on. Default: the last one that may be used"
    )


def _kind_of_machine(value: Any) -> str:
    return "host" if isinstance(value, dict | HostMachine) else "file"


class SharedKeys(StrictModel):
    """What a campaign and a check of sampling have in common: a program on a machine, and runs that are compared."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        description="Name of the campaign and of its directory of results",
    )
    program: Program
    machine: Annotated[
        Annotated[Path, Tag("file")] | Annotated[HostMachine, Tag("host")], Discriminator(_kind_of_machine)
    ] = Field(
        description="Machine description, relative to the campaign file; or `{host: perf}` for the processor that the "
        "command runs on"
    )
    sampling: Sampling = Field(default_factory=lambda: Sampling(mode="ideal", every="100000 cycles"))
    hardware_metrics: tuple[str, ...] = Field(
        min_length=2, description="PAPI presets whose relations are watched: `measure metrics` lists them"
    )
    baselines: int = Field(
        DEFAULT_RUNS,
        ge=2,
        le=1000,
        description=f"Runs without software metrics; unpaired, 19 or more for verdicts. Default: {DEFAULT_RUNS}",
    )
    replicates: int = Field(DEFAULT_RUNS, ge=1, le=1000, description=f"Runs of each variant. Default: {DEFAULT_RUNS}")
    seed: int = Field(1, ge=0, description="Everything random comes from it. Default: 1")
    noise: Noise = Field(default_factory=lambda: Noise.model_validate({}))
    limits: Limits = Field(default_factory=lambda: Limits.model_validate({}))
    delta: float = Field(
        DEFAULT_DELTA,
        gt=0,
        description=f"Change of z = atanh(rho) that still counts as none. Default: {DEFAULT_DELTA}",
    )
    alpha: float = Field(0.05, gt=0, lt=0.5, description="Chance of any false alarm in the campaign. Default: 0.05")

    @field_validator("hardware_metrics", mode="before")
    @classmethod
    def _pairs(cls, value: Any) -> Any:
        if isinstance(value, list | tuple) and len(value) < 2:
            got = f"only {value[0]}" if value else "none"
            raise ValueError(
                f"got {got}, expected at least two metrics: a campaign watches how metrics relate to one another, "
                "pair by pair; add another, `measure metrics` with the machine's file lists them"
            )
        return value

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        for index, metric in enumerate(self.hardware_metrics):
            if metric in self.hardware_metrics[:index]:
                raise problem_at(f"{metric} is given twice", "hardware_metrics", index)
        return self

    @property
    def host(self) -> HostMachine | None:
        """The host as the machine; None for an emulated one."""
        return self.machine if isinstance(self.machine, HostMachine) else None

    @property
    def machine_file(self) -> Path:
        """The description of the emulated machine. Raises ValueError where the machine is the host."""
        if isinstance(self.machine, HostMachine):
            raise ValueError("the machine is the host, which has no description")
        return self.machine

    @property
    def machine_name(self) -> str:
        """The machine for a reader: its file, or `host`."""
        return "host" if isinstance(self.machine, HostMachine) else str(self.machine)


class Campaign(SharedKeys):
    """Baselines and instrumented runs of one program on one machine."""

    software_metrics: dict[str, MetricSpec] = Field(
        default_factory=dict, description="Software metrics by name: what the instrumentation counts"
    )
    variants: dict[str, tuple[str, ...]] = Field(
        default_factory=dict,
        description="Sets of software metrics collected together in a run; default: one set, `all`",
    )
    cumulative: Cumulative | None = Field(
        None,
        description="Further sets: the software metrics added one at a time, `order1-1` and so on (`order1-01` "
        "of ten or more). Default: none",
    )
    placement: Literal["packed", "cache_line"] = Field(
        "packed", description="Counters side by side, or one a cache line. Default: packed"
    )
    volatile: bool = Field(
        True,
        description="Keep increments where their events happen; without it, -O2 moves them out of loops, unless the "
        "program starts threads, where they are atomic either way. Default: true",
    )
    paired: bool = Field(
        True,
        description="Baseline i and run i of each variant share their noise, and the differences are tested. Needs at "
        f"least {FEWEST_PAIRS} baselines and replicates; with fewer, or false, runs are independent. Default: true",
    )
    controls: bool = Field(
        True,
        description="Also run a null control (as many runs as a variant has, with counters in code that never runs), "
        "which must be neither perturbed nor changed, and a positive control (a known change added to its traces), "
        "which must be found. Default: true",
    )
    variance_runs: int = Field(
        0,
        ge=0,
        le=100,
        description="Further baselines for each of three sources of noise (code layout; page frames and initial cache "
        "state; timer phase), with only that source drawn anew, to tell which spreads z most. Default: 0",
    )
    looks: int = Field(
        1,
        ge=1,
        le=20,
        description="Planned looks at the results: the campaign may be extended by more baselines and replicates so "
        "often, less one, and each look is judged at alpha / looks. Default: 1",
    )
    alignment: Alignment = Field(default_factory=lambda: Alignment.model_validate({}))
    explain: bool = Field(
        False,
        description="After the verdicts, say why perturbed and changed variants are so and try remedies, as `measure "
        "explain` does; the report then says what to do. Makes more runs. Default: false",
    )
    outer: bool = Field(True, description="Also align runs with baselines and compare across them. Default: true")
    ground_truth: bool = Field(
        False,
        description="Also measure what no real machine can: the sampler's perturbation, pairs with software metrics, "
        "and how far alignments are off. Makes more runs. Default: false",
    )

    @model_validator(mode="after")
    def _names(self) -> Campaign:
        """Check the names of software metrics and variants, and that none is given twice."""
        for metric in self.software_metrics:
            where = ("software_metrics", metric)
            if not re.fullmatch(r"[A-Za-z_][\w.-]*", metric) or metric in BOUNDARY_COLUMNS:
                raise problem_at(
                    f"got the name '{metric}', expected letters, digits, '_', '.' and '-', and none of "
                    f"{', '.join(BOUNDARY_COLUMNS)}",
                    *where,
                )
            if metric in self.hardware_metrics:
                raise problem_at(f"'{metric}' is the name of a hardware metric: choose another", *where)
        for variant, metrics in self.variants.items():
            self._check_variant(variant, metrics)
        return self

    def _check_variant(self, variant: str, metrics: tuple[str, ...]) -> None:
        """Raise the problem of a variant's name or metrics, if there is one."""
        if variant in (BASELINE, NULL_CONTROL):
            what = "runs without software metrics" if variant == BASELINE else "runs of the null control"
            raise problem_at(f"this name is taken by the {what}: choose another", "variants", variant)
        if not metrics:
            raise problem_at("collects nothing: name at least one software metric", "variants", variant)
        if self.cumulative and re.fullmatch(r"order\d+-\d+", variant):
            raise problem_at("this name is taken by `cumulative`: choose another", "variants", variant)
        for index, metric in enumerate(metrics):
            where = ("variants", variant, index)
            if metric not in self.software_metrics:
                hint = nearest(metric, self.software_metrics)
                raise problem_at(f"no software metric '{metric}'{hint}", *where)
            if metric in metrics[:index]:
                raise problem_at(f"'{metric}' is given twice", *where)

    def in_second_run(self, metrics: Sequence[str]) -> tuple[str, ...]:
        """Those of ``metrics`` that a second run counts."""
        return tuple(metric for metric in metrics if self.software_metrics[metric].method == "second_run")

    @property
    def pairs(self) -> int:
        """Number of pairs of a baseline and a run of each variant that share their noise; 0: runs are independent."""
        count = min(self.baselines, self.replicates)
        return count if self.paired and count >= FEWEST_PAIRS else 0

    @property
    def alpha_of_a_look(self) -> float:
        """Level of the tests of one look."""
        return self.alpha / self.looks

    @property
    def alignment_setting(self) -> AlignmentSetting:
        """How runs are aligned."""
        return AlignmentSetting(self.alignment.step_penalty, self.alignment.band)

    @property
    def has_controls(self) -> bool:
        """Whether there is a null control; without variants there is nothing to control."""
        return self.controls and bool(self.variant_sets())

    def variant_sets(self) -> dict[str, tuple[str, ...]]:
        """The variants, given and cumulative; without any, one variant with all software metrics."""
        if self.cumulative and self.software_metrics:
            return self.variants | self.cumulative.variants(tuple(self.software_metrics), self.seed)
        if self.variants:
            return dict(self.variants)
        return {"all": tuple(self.software_metrics)} if self.software_metrics else {}
