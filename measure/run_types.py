"""The central types: the specification of a run, its trace, and the finished run."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

BASELINE = "baseline"  # in place of a variant: runs without software metrics
NULL_CONTROL = "null control"  # in place of a variant: runs with counters in code that never runs
PROBE, BEFORE = "probe:", "before:"  # columns of a probe's events in a record, and before it
PLACE_GAP = "second_run:place_gap_instructions"
"""Column of a trace with counts from a second run: instructions around the end of each record within which its place in
the second run is uncertain."""
SCHEMA_VERSION = 1
HOST = "host"  # target of runs on the processor that the command itself runs on
SWITCHES, MIGRATED, MULTIPLEXED = "host:context-switches", "host:migrated", "host:multiplexed"
FORKS, LEFT = "host:forks", "host:left-processes"
OTHER_THREADS, UNCOUNTED = "host:other-threads", "host:uncounted"
RECORD_FLAGS = (SWITCHES, MIGRATED, MULTIPLEXED, FORKS, OTHER_THREADS, UNCOUNTED, LEFT)
"""Columns of a host's trace that say what disturbed a record: how often the thread lost the processor, whether it came
to another one, the time for which events were not counted [ns], how many processes the program had started by the
record's end, whose events are in no record; processor time of threads other than the main one [ns], in which software
metrics count and hardware metrics do not; that of the main thread between the end of counting and of the record [ns];
and in all records how many processes still ran when the program had ended."""
IntervalUnit = Literal["cycles", "instructions", "nanoseconds"]
BOUNDARY_COLUMNS = ("begin_cycles", "end_cycles", "begin_instructions", "end_instructions")


def standard_error(period: int) -> float:
    """Standard error [events] of a record's count when N = ``period`` is added at every Nth event.

    A record begins and ends anywhere between two additions: two uniform errors of variance N^2 / 12.
    """
    return float(period / np.sqrt(6))


class CounterPlace(NamedTuple):
    """Where the counter of a software metric is in guest memory: ``offset_bytes`` after ``symbol``."""

    metric: str
    symbol: str
    offset_bytes: int


class AddressRange(NamedTuple):
    """Guest addresses from ``low`` to before ``high``."""

    low: int
    high: int


class ProbePlaces(NamedTuple):
    """What a probe counts: executions of ``instructions`` (addresses), and stores to ``stores``.

    ``uncounted_code``: code whose stores no probe of the run counts."""

    name: str
    instructions: tuple[int, ...]
    stores: tuple[AddressRange, ...]
    uncounted_code: tuple[AddressRange, ...] = ()


@dataclass(frozen=True)
class RunNoise:
    """Sources of variation between runs; by default there are none. See `measure.runs.campaign_model.Noise`.

    ``interrupts``: mean interval between interrupt bursts, in cycles, 0 for none; ``interrupt_lines``: cache lines that
    one burst brings in.
    """

    code_layouts: int | Literal["each run"] = 1
    stack_offset: bool = False
    heap_offset: bool = False
    environment_size: bool = False
    page_placement: bool = False
    cache_state: bool = False
    timer_phase: bool = False
    interrupts: int = 0
    interrupt_lines: int = 32


@dataclass(frozen=True)
class Intervention:
    """How a run differs from what a processor would do; see `emulator.counterfactual.core.CounterfactualSettings`.

    ``boundaries``: records end at so much progress of the program, in its own instructions or, with ``progress_at``, in
    executions of these; () for the spec's interval.
    """

    instructions: tuple[int, ...] = ()
    free: bool = False
    uncached: bool = False
    code_moves: tuple[tuple[int, int], ...] = ()
    data_moves: tuple[tuple[int, int], ...] = ()
    boundaries: tuple[int, ...] = ()
    progress_at: tuple[int, ...] = ()


class SharedCode(NamedTuple):
    """Instructions of a function that two programs execute equally often: ``offsets`` in the function of the first
    program, of ``size_bytes``, and ``second_offsets`` in that of the second one, of ``second_size_bytes``."""

    function: str
    size_bytes: int
    offsets: tuple[int, ...]
    second_size_bytes: int
    second_offsets: tuple[int, ...]


@dataclass(frozen=True)
class SecondRun:
    """A second run, of a program with counters, without a timing model; its counts get the records of the first run.

    ``binary``, ``build_key``: the program as it was built, which is run with its data where the first program has them
    in the spec's layout; ``metrics``: those of the spec's counters that it has; ``clock``: instructions whose
    executions are the progress by which its records are cut; ``instructions``: what a run of the first program, as it
    was built, executes without a timing model.
    """

    binary: str
    build_key: str
    metrics: tuple[str, ...]
    clock: tuple[SharedCode, ...]
    instructions: int


@dataclass(frozen=True, repr=False)
class RunSpec:
    """The complete specification of one run: two equal specs give the same trace, to the bit.

    ``variant``: the variant or `BASELINE`; ``binary`` and ``build_key``: the program as built for the variant;
    ``target``: the kind of machine; ``cycleclose``: settings of a cycle-close trace, for the target of that name;
    ``layout_seed``: order of functions and data in which ``binary`` is linked for this run; None: as it was built;
    ``redrawn``: "memory" (page frames, initial cache state) or "phase" (of the timer): drawn anew, while all other
    noise is that of the seed;
    ``unread``: counters that the machine reads, in place of a sampler in the guest; ``sampled``: counters that add N at
    every Nth event, with N; ``limit_seconds``: of a run on the host;
    ``probes``: events counted without touching the program, see `emulator.probes.EventCounter`; a probe leaves the
    other columns unchanged. ``extra_columns``: further columns that the target adds to the trace. ``intervention``:
    for a counterfactual run. ``second_run``: where some of ``counters`` are read, None for none. ``seldom``: only few
    runs have this program, so that code compiled for it hardly pays.
    ``exit_status``: of a program that has done its work, 128 + N where signal N ends it. ``program_name``: by which
    the program is started; None: "program".
    """

    variant: str
    replicate: int
    seed: int
    build_key: str
    binary: str
    arguments: tuple[str, ...]
    stdin: str | None
    files: tuple[tuple[str, str], ...]
    machine: str  # the machine description, as text
    machine_name: str
    hardware_metrics: tuple[str, ...]
    counters: tuple[CounterPlace, ...]
    sampling_mode: Literal["ideal", "signal"]
    interval: int
    interval_unit: IntervalUnit
    noise: RunNoise = RunNoise()
    limit_instructions: int = 10_000_000_000
    target: str = "emulated"
    cycleclose: tuple[tuple[str, Any], ...] = ()
    probes: tuple[ProbePlaces, ...] = ()
    extra_columns: tuple[str, ...] = ()
    layout_seed: int | None = None
    intervention: Intervention | None = None
    redrawn: str = ""
    unread: tuple[str, ...] = ()
    sampled: tuple[tuple[str, int], ...] = ()
    limit_seconds: float | None = None
    seldom: bool = False
    exit_status: int = 0
    second_run: SecondRun | None = None
    program_name: str | None = None

    def __repr__(self) -> str:
        return f"<RunSpec of run {self.replicate} of {self.variant!r}, seed {self.seed}>"

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> RunSpec:
        """The spec that `dataclasses.asdict` turned into plain JSON types. Raises `KeyError` and `TypeError` for other
        fields."""

        def frozen(value: Any) -> Any:
            return tuple(frozen(item) for item in value) if isinstance(value, list) else value

        fields = {name: frozen(value) for name, value in saved.items()}
        fields["noise"] = RunNoise(**fields["noise"])
        fields["counters"] = tuple(CounterPlace(*place) for place in fields["counters"])
        fields["probes"] = tuple(
            ProbePlaces(name, instructions, *(tuple(AddressRange(*ends) for ends in ranges) for ranges in places))
            for name, instructions, *places in fields["probes"]
        )
        if fields["intervention"] is not None:
            fields["intervention"] = Intervention(
                **{name: frozen(value) for name, value in fields["intervention"].items()}
            )
        if fields["second_run"] is not None:
            second = {name: frozen(value) for name, value in fields["second_run"].items()}
            second["clock"] = tuple(SharedCode(*code) for code in second["clock"])
            fields["second_run"] = SecondRun(**second)
        return cls(**fields)

    def identity(self) -> dict[str, Any]:
        """Everything that the trace depends on; paths and names without influence are left out."""
        fields = asdict(self) | {"schema": SCHEMA_VERSION}
        for key in ("binary", "variant", "machine_name", "seldom"):
            del fields[key]
        if self.second_run is not None:
            del fields["second_run"]["binary"]
        return fields

    @property
    def first_counters(self) -> tuple[CounterPlace, ...]:
        """The counters in the program of the run itself, without those of a second run."""
        if self.second_run is None:
            return self.counters
        return tuple(counter for counter in self.counters if counter.metric not in self.second_run.metrics)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The columns of the trace: hardware metrics, software metrics, extra columns, then two of each probe.

        `trace` puts them in this order; everything else asks for columns by name.
        """
        probed = (f"{prefix}{probe.name}" for probe in self.probes for prefix in (PROBE, BEFORE))
        counted = (counter.metric for counter in self.counters)
        return (*self.hardware_metrics, *counted, *self.extra_columns, *probed)

    def trace(
        self,
        boundaries_cycles: NDArray[np.int64],
        boundaries_instructions: NDArray[np.int64],
        *,
        hardware: NDArray[np.int64],
        software: NDArray[np.int64],
        extra: NDArray[np.int64] | None = None,
        probes: NDArray[np.int64] | None = None,
    ) -> Trace:
        """The trace of a run: `Trace` with the columns in the order of `metrics`.

        ``hardware``, ``software``, ``extra``, ``probes``: (n, k) events of each record, a column each hardware metric,
        counter, extra column, and two each probe (its events in a record, and before it); None for no columns. Raises
        `ValueError` for other numbers of columns.
        """
        n = len(hardware)
        none = np.zeros((n, 0), np.int64)
        parts = [hardware, software, none if extra is None else extra, none if probes is None else probes]
        expected = [len(self.hardware_metrics), len(self.counters), len(self.extra_columns), 2 * len(self.probes)]
        shapes = [part.shape for part in parts]
        if shapes != [(n, columns) for columns in expected]:
            raise ValueError(f"got columns of shapes {shapes}, expected {n} records of {expected} columns")
        return Trace(
            boundaries_cycles, boundaries_instructions, np.concatenate(parts, axis=1).astype(np.int64), self.metrics
        )


@dataclass(frozen=True, repr=False)
class Trace:
    """Events per interval. ``boundaries_cycles``, ``boundaries_instructions``: (n+1,) int64; ``values``:
    (n, m) int64; ``metrics``: (m,) names, hardware first.

    On the host, whose clock is taken as one of 1 GHz, cycles are nanoseconds of processor time; instructions are 0
    where the processor does not count them."""

    boundaries_cycles: NDArray[np.int64]
    boundaries_instructions: NDArray[np.int64]
    values: NDArray[np.int64]
    metrics: tuple[str, ...]

    def __repr__(self) -> str:
        return f"<Trace of {self.n_records:,} records, {len(self.metrics)} metrics>"

    @property
    def n_records(self) -> int:
        return len(self.values)

    def boundary_columns(self) -> dict[str, NDArray[np.int64]]:
        """Where each record begins and ends, by the names of `BOUNDARY_COLUMNS` and in their order; (n,) each."""
        cycles, instructions = self.boundaries_cycles, self.boundaries_instructions
        bounds = (cycles[:-1], cycles[1:], instructions[:-1], instructions[1:])
        return dict(zip(BOUNDARY_COLUMNS, bounds, strict=True))

    def columns(self, metrics: tuple[str, ...]) -> NDArray[np.float64]:
        """The columns of ``metrics``, (n, k) float64."""
        return self.values[:, [self.metrics.index(metric) for metric in metrics]].astype(np.float64)

    def counts(self, metrics: tuple[str, ...]) -> NDArray[np.int64]:
        """The columns of ``metrics``, (n, k), exact beyond 2^53, where float64 makes neighbouring counts equal."""
        return self.values[:, [self.metrics.index(metric) for metric in metrics]]

    def without_probes(self) -> Trace:
        """The trace with hardware metrics and counters only, without what probes counted and `PLACE_GAP`."""
        kept = [n for n, name in enumerate(self.metrics) if not name.startswith((PROBE, BEFORE)) and name != PLACE_GAP]
        return replace(self, values=self.values[:, kept], metrics=tuple(self.metrics[n] for n in kept))


@dataclass(frozen=True, repr=False)
class Run:
    """A finished run: its spec, its trace, and totals over the whole program (not only whole intervals).

    ``starts_tasks``: whether the program started threads or processes, as far as its target knows;
    ``other_programs``: the guest's paths of other programs that it executed, which have no counters.
    """

    spec: RunSpec
    trace: Trace
    total_instructions: int
    total_cycles: int
    seconds: float
    stdout_tail: str
    starts_tasks: bool = False
    other_programs: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Run {self.spec.replicate} of {self.spec.variant!r}: {self.trace!r}>"
