"""The few central types: what is to be run, and what came of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

BASELINE = "baseline"  # the group of runs without software metrics
PROBE, BEFORE = "probe:", "before:"  # columns of a probe's events in a record, and before it
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class RunSpec:
    """One run, completely: two equal specs give the same trace, to the bit.

    ``group``: `BASELINE` or the variant; ``binary`` and ``build_key``: the program as built for the group;
    ``counters``: software metric to (symbol, offset in bytes) of its counter; ``target``: where it runs;
    ``probes``: what is counted without touching the program, as (name, addresses of instructions, half-open
    address ranges of stores), see `emulator.probes.EventCounter`. A probe leaves the other columns as they are.
    """

    group: str
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
    counters: tuple[tuple[str, str, int], ...]
    sampling_mode: Literal["ideal", "signal"]
    interval: int
    interval_unit: Literal["cycles", "instructions"]
    noise: dict[str, Any] = field(default_factory=dict)
    limit_instructions: int = 10_000_000_000
    target: str = "emulated"
    cycleclose: tuple[
        tuple[str, Any], ...
    ] = ()  # settings of a cycle-close trace, for the target of that name
    probes: tuple[tuple[str, tuple[int, ...], tuple[tuple[int, int], ...]], ...] = ()

    def identity(self) -> dict[str, Any]:
        """What the trace depends on; paths and names that it does not depend on are left out."""
        known = asdict(self) | {"schema": SCHEMA_VERSION}
        for key in ("binary", "group", "machine_name"):
            del known[key]
        if not self.probes:
            del known["probes"]  # runs without are the runs that they were before there were probes
        return known

    @property
    def metrics(self) -> tuple[str, ...]:
        """The columns of the trace: hardware metrics, software metrics, then two of each probe."""
        probed = (f"{prefix}{name}" for name, _, _ in self.probes for prefix in (PROBE, BEFORE))
        return (*self.hardware_metrics, *(name for name, _, _ in self.counters), *probed)


@dataclass(frozen=True)
class Trace:
    """Events per interval. ``boundaries_cycles``, ``boundaries_instructions``: (n+1,) int64; ``values``:
    (n, m) int64; ``metrics``: (m,) names, hardware first."""

    boundaries_cycles: NDArray[np.int64]
    boundaries_instructions: NDArray[np.int64]
    values: NDArray[np.int64]
    metrics: tuple[str, ...]

    @property
    def n_records(self) -> int:
        return len(self.values)

    def columns(self, metrics: tuple[str, ...]) -> NDArray[np.float64]:
        """The columns of ``metrics``, (n, k) float64."""
        return self.values[:, [self.metrics.index(metric) for metric in metrics]].astype(np.float64)

    def without_probes(self) -> Trace:
        """The trace as the program itself would have it: hardware metrics and counters only."""
        kept = [n for n, metric in enumerate(self.metrics) if not metric.startswith((PROBE, BEFORE))]
        return replace(self, values=self.values[:, kept], metrics=tuple(self.metrics[n] for n in kept))


@dataclass(frozen=True)
class Run:
    """A finished run: its spec, its trace, and totals over the whole program (not only whole intervals)."""

    spec: RunSpec
    trace: Trace
    total_instructions: int
    total_cycles: int
    seconds: float
    stdout_tail: str
