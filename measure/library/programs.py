"""Phases and cycle-close traces of a program, and the partition of a campaign's metrics, as library calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from measure.arguments import check_flag, check_number, list_of, path_of
from measure.errors import ArgumentError, CampaignError, MeasureError
from measure.library.guests import guest_of
from measure.library.progress import console_for

if TYPE_CHECKING:
    import pandas as pd
    from distributed import Client

    from measure.partitioning.result import PartitionResult


_WAIT_STEP = 0.2  # of `measure phases --machine`


@dataclass(frozen=True)
class PhaseResult:
    """The phases of a program.

    ``labels``: (n,) phase of each interval; ``k``: number of phases; ``scores``: by k, how well it fits;
    ``points``: the simulation points, with columns ``phase``, ``interval`` (from 0) and ``weight`` (share of the
    program's instructions); ``instructions``: (n,) length of each interval; ``ending``: why the program ended badly,
    None for success.

    With a machine, else None: ``table``: one row an interval, as trace.parquet has it, all simulated in detail;
    ``estimates``: ``value`` and ``error_percent`` of each ``method`` and ``metric``, full simulation first;
    ``homogeneity``: mean and spread of each metric in the program and in each phase; ``warning``: why the points do not
    represent the program, empty where nothing speaks against them.

    ```python
    import measure

    found = measure.phases("mine.c", interval_instructions=20_000)
    found.points.sort_values("weight").tail(1)       # the interval that stands for most of the program
    ```
    """

    labels: NDArray[np.int32] = field(repr=False)
    k: int
    scores: dict[int, float] = field(repr=False)
    points: pd.DataFrame = field(repr=False)
    instructions: NDArray[np.int64] = field(repr=False)
    ending: str | None = None
    table: pd.DataFrame | None = field(default=None, repr=False)
    estimates: pd.DataFrame | None = field(default=None, repr=False)
    homogeneity: pd.DataFrame | None = field(default=None, repr=False)
    warning: str | None = field(default=None, repr=False)

    def _repr_html_(self) -> str:
        return f"<p>{self.k} phases in {len(self.labels):,} intervals</p>{self.points.to_html(index=False)}"


@dataclass(frozen=True)
class CycleCloseTrace:
    """A cycle-close trace of a program.

    ``table``: one row an interval, as trace.parquet has it: ``begin_instructions``, ``end_instructions``, ``phase``,
    ``category`` (simulated, matched, unsampled), ``cpi``, hit rates, energy, and estimated events; with ``validate``
    the same rates and cycles of the full simulation, too, as ``actual_cpi`` and so on. ``phases``: number of phases;
    ``seconds``: time that tracing took; ``ending``: why the program ended badly, None for success.
    ``sampled_again``: ``(k,)`` intervals that were simulated although there was an estimate: by how much of their CPI
    it was off, in percent. ``findings``: sentences on how far estimates can be trusted, as the command says them, the
    metric and event that are furthest off first.

    With ``validate``, else None: ``deviation``: how far the trace is off by metric, in percent; ``events``: of each
    event its number in the ``full`` simulation, the ``estimated`` one and by how much that is off (``off_percent``),
    the one furthest off first; ``full_seconds``: time that the full simulation took.

    ```python
    import measure

    trace = measure.cycleclose(
        "mine.c", machine="configs/machines/strongarm.yaml", interval_instructions=10_000, validate=True
    )
    trace.table["category"].value_counts()           # how many intervals were simulated
    trace.table.plot("begin_instructions", ["cpi", "actual_cpi"])
    print(trace.findings, trace.events)
    ```
    """

    table: pd.DataFrame = field(repr=False)
    phases: int
    seconds: float
    ending: str | None
    deviation: pd.DataFrame | None = field(repr=False)
    sampled_again: NDArray[np.float64] = field(repr=False)
    findings: tuple[str, ...] = field(repr=False)
    events: pd.DataFrame | None = field(default=None, repr=False)
    full_seconds: float | None = field(default=None, repr=False)

    def _repr_html_(self) -> str:
        shares = self.table["category"].value_counts(normalize=True)
        text = ", ".join(f"{100 * share:.1f}% {name}" for name, share in shares.items())
        findings = "".join(f"<li>{escape(sentence)}</li>" for sentence in self.findings)
        deviation = self.deviation.to_html(index=False) if self.deviation is not None else ""
        return f"<p>{len(self.table):,} intervals, {self.phases} phases: {text}</p><ul>{findings}</ul>{deviation}"


def phases(
    program: Path | str,
    arguments: Sequence[str] = (),
    *,
    machine: Path | str | None = None,
    interval_instructions: int | None = None,
    max_k: int = 30,
    k: int | None = None,
    seed: int | None = None,
    simpoint32: bool = False,
    stdin: Path | str | None = None,
    files: Mapping[str, Path | str] | None = None,
    root: Path | str | None = None,
    writable: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    settings: Sequence[str] = (),
    exit_status: int = 0,
    progress: bool | None = None,
    **options: Any,
) -> PhaseResult:
    """Find the phases of a program, or of a file of basic block vectors, and its simulation points.

    ``program``: a riscv64 Linux executable, a C file, or a ``.bb`` file of SimPoint, Valgrind, QEMU or gem5;
    ``arguments``: of the program; ``machine``: a machine description on which everything is simulated, too, and the
    points are compared with that; ``interval_instructions``: length of an interval, 10,000,000 by default; ``max_k``:
    the most phases; ``k``: this many phases instead of a search; ``seed``: of the clustering and the machine, fixed by
    default; ``simpoint32``: by the rules of SimPoint 3.2; ``stdin``: file that the program reads as standard input;
    ``files``: files and directories that it sees, by the guest path; ``root``: directory that it sees as /;
    ``writable``: guest paths of mapped directories below which it may write; ``environment``: its variables;
    ``settings``: changes of the machine's description, each as of `--set`, such as ``"l1d.size_bytes=65536"``;
    ``exit_status``: with which it ends when all is well, 128 + N where signal N ends it; ``progress``: show it, by
    default in a terminal or notebook only; ``options``: fields of `measure.program_phases.command.Options`, by default
    those of the command, but fractions where it has percent: ``threshold=0.9``, ``coverage=0.95``, ``wait_step=0.2``,
    ``search="bisect"``. A file of vectors has intervals already, and takes no argument about running a program.

    Writes nothing. Raises `CampaignError` for an argument that is not allowed, and `MeasureError` for a program that
    cannot be run or a file that cannot be read; where the program ends badly after an interval or more,
    `PhaseResult.ending` says why.

    ```python
    import measure

    found = measure.phases("mine.c", interval_instructions=20_000, max_k=5)
    print(found.k, found.points)

    judged = measure.phases(
        "mine.c", machine="configs/machines/strongarm.yaml", interval_instructions=20_000, files={"/data": "configs"}
    )
    print(judged.estimates, judged.warning)
    ```
    """
    import pandas as pd

    from emulator.errors import EmulatorError
    from measure.cycle_close.job import Job
    from measure.program_phases.command import Options, is_vectors_file, judged_points, phases_of, profiled
    from measure.program_phases.command import refuse_for_vectors as refuse
    from measure.program_phases.points import simulation_points

    check_flag("simpoint32", simpoint32)
    path, machine_file = path_of("program", program), _path("machine", machine)
    _check_needs_machine(machine_file, settings=settings, **options)
    if machine_file is not None and k is None and not simpoint32:
        options = {"wait_step": _WAIT_STEP} | options
    length = Options.interval_instructions if interval_instructions is None else interval_instructions
    try:
        chosen = Options(length, max_k=max_k, k=k, seed=seed, compat=simpoint32, picture=False, **options)
    except TypeError as error:
        raise CampaignError(f"{error}: expected fields of {Options.__module__}.Options") from None
    job = Job(
        path, _words(arguments), machine_file or Path(), _path("stdin", stdin), 1 if seed is None else seed,
        guest=guest_of(root, files, writable, environment), settings=_changes(settings), exit_status=exit_status,
    )  # fmt: skip
    if is_vectors_file(path):
        refuse(
            path, interval_instructions=interval_instructions, machine=machine, files=files, root=root,
            writable=writable, environment=environment,
        )  # fmt: skip
    console = console_for(progress)
    try:
        made = profiled(job, machine_file, chosen, console)
    except EmulatorError as error:
        raise CampaignError(str(error)) from None
    found = phases_of(made.vectors, chosen, made.waits)
    points = simulation_points(found, chosen.coverage)
    table = pd.DataFrame({"phase": points.phases, "interval": points.intervals, "weight": points.weights})
    result = PhaseResult(found.labels, found.k, found.scores, table, made.vectors.instructions, made.ending)
    if made.table is None or machine_file is None:
        return result
    estimated, uniform, judged = judged_points(job, machine_file, chosen, made.table, found, points, console)
    rows = [
        {"method": method, "metric": metric, **figures}
        for method, metrics in estimated.items()
        for metric, figures in metrics.items()
    ]
    return replace(
        result, table=made.table.assign(phase=found.labels), estimates=pd.DataFrame(rows), homogeneity=uniform,
        warning=judged.warning if judged is not None else "",
    )  # fmt: skip


def _check_needs_machine(machine: Path | None, **arguments: Any) -> None:
    """Raise `ArgumentError` for those ``arguments`` that say nothing without a machine."""
    for name in ("settings", "wait_step", "warm_up_instructions"):
        if machine is None and arguments.get(name):
            raise ArgumentError(f"{name}: got {arguments[name]!r}, expected a machine with it: it is about the machine")


def cycleclose(
    program: Path | str,
    arguments: Sequence[str] = (),
    *,
    machine: Path | str | None = None,
    interval_instructions: int = 200_000,
    stdin: Path | str | None = None,
    files: Mapping[str, Path | str] | None = None,
    root: Path | str | None = None,
    writable: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    settings: Sequence[str] = (),
    exit_status: int = 0,
    seed: int = 1,
    samples_per_phase: int = 0,
    validate: bool = False,
    **options: Any,
) -> CycleCloseTrace:
    """Trace a program cycle-close: CPI, energy and hit rates of every interval, most of them estimated.

    ``program``: a riscv64 Linux executable or a C file; ``arguments``: of the program; ``machine``: a machine
    description, by default that of the desktop.yaml that `measure init` writes; ``interval_instructions``: length of an
    interval; ``stdin``: file that the program reads as standard input; ``files``: files and directories that it sees,
    by the guest path; ``root``: directory that it sees as /; ``writable``: guest paths of mapped directories below
    which it may write; ``environment``: its variables; ``settings``: changes of the machine's description, each as of
    `--set`, such as ``"l1d.size_bytes=65536"``; ``exit_status``: with which it ends when all is well, 128 + N where
    signal N ends it; ``seed``: of the machine's random choices; ``samples_per_phase``: more than 0 runs the program
    twice, phases first; ``validate``: simulate everything, too, and tell the deviation and the actual rates;
    ``options``: fields of `measure.cycle_close.tracer.TracerSettings`, by default those of the command, but fractions
    where it has percent: ``threshold=0.25``, ``wait_step=0.2``.

    Writes nothing. Raises `CampaignError` for bad input, and `MeasureError` where nothing was executed or the program
    failed before one interval was over; where it failed later, `CycleCloseTrace.ending` says why.

    ```python
    import measure

    trace = measure.cycleclose(
        "mine.c", machine="configs/machines/strongarm.yaml", interval_instructions=10_000, validate=True,
        files={"/machines": "configs/machines"}, environment={"LANG": "C"}, settings=["memory.latency_cycles=50"],
    )
    print(trace.deviation, trace.findings)
    ```
    """
    import pandas as pd

    from emulator.errors import EmulatorError
    from emulator.timing.machine_file import load_machine
    from measure.built_in.machine import built_in_machine
    from measure.cycle_close.command import told_of, trace_job, validation_of
    from measure.cycle_close.far_off import about_worst
    from measure.cycle_close.job import Job, check_length, check_same_again, program_file
    from measure.cycle_close.rates import deviations
    from measure.cycle_close.results import with_actual
    from measure.cycle_close.tracer import BY_DEFAULT, TracerSettings

    try:
        chosen = replace(BY_DEFAULT, interval_instructions=interval_instructions, **options)
    except TypeError as error:
        raise CampaignError(f"{error}: expected fields of {TracerSettings.__module__}.TracerSettings") from None
    check_number("samples_per_phase", samples_per_phase, least=0, whole=True, what="samples")
    check_flag("validate", validate)
    machine_file = _path("machine", machine) or built_in_machine()
    job = Job(
        path_of("program", program), _words(arguments), machine_file, _path("stdin", stdin), seed, samples_per_phase,
        guest_of(root, files, writable, environment), _changes(settings), exit_status,
    )  # fmt: skip
    try:
        config = load_machine(job.machine, job.settings)
        elf = program_file(job.program, console_for(False))
        job.check_input()
        traced = trace_job(job, elf, config, chosen, None)
        if traced.interrupted:
            raise KeyboardInterrupt
        check_length(job, interval_instructions, traced.instructions, traced.ending)
        full = None
        if validate:
            full = trace_job(replace(job, samples=0), elf, config, replace(chosen, everything=True), None)
            check_same_again(job, *(one.columns["end_instructions"] for one in (traced, full)))
    except EmulatorError as error:
        raise CampaignError(str(error)) from None
    findings = tuple(sentence for sentence, _ in told_of(traced, chosen, samples_per_phase, full is not None))
    again = 100 * np.array(traced.sampled_again)
    found = CycleCloseTrace(traced.table, traced.phases, traced.seconds, traced.ending, None, again, findings)
    if full is None:
        return found
    deviation = deviations(full.table, traced.table)
    validation = validation_of(traced, full, deviation)
    rows = [{"event": name, **figures} for name, figures in validation["events"].items()]
    return replace(
        found, table=pd.DataFrame(with_actual(traced.columns, full.columns)),
        deviation=deviation, events=pd.DataFrame(rows), full_seconds=full.seconds,
        findings=tuple(filter(None, (about_worst(validation), *findings))),
    )  # fmt: skip


def partition(
    campaign: Path | str,
    *,
    minutes: float | None = None,
    out: Path | str | None = None,
    workers: int | None = None,
    client: Client | str | None = None,
    progress: bool | None = None,
    **options: Any,
) -> PartitionResult:
    """Search the fewest runs that collect all software metrics of a campaign without perturbing one another.

    ``campaign``: the YAML file; ``minutes``: limit for everything, validation included; ``out``: directory of the
    results, results/NAME-partition by default; ``workers``: runs at once, one a processor by default; ``client``: a
    Dask client or the address of a scheduler, to make the runs there; ``progress``: show it, by
    default in a terminal or notebook only; ``options``: further fields of
    `measure.partitioning.command.Request`, such as ``resume=False`` or ``counters=4``.

    Writes what `measure partition` writes. `PartitionResult.groups` has each group with its status,
    `PartitionResult.names` the metrics of a group. Raises `CampaignError` for what is wrong with the file or an
    argument, and `MeasureError` where the time limit ended the search before any group was measured: it says how many
    minutes that takes. An interruption (Ctrl-C) ends the search as the time limit does, with the best so far.

    ```python
    import measure

    found = measure.partition("configs/campaigns/quickstart.yaml", minutes=10)
    for group in found.groups:
        print(group.name, found.names(group.group), group.status)
    ```
    """
    from measure.partitioning.command import Request, search_partition

    try:
        request = Request(
            path_of("campaign", campaign), _path("out", out), minutes, workers=workers, scheduler=client, **options
        )
    except TypeError as error:
        raise CampaignError(f"{error}: expected fields of {Request.__module__}.Request") from None
    outcome = search_partition(request, console_for(progress)).outcome
    if outcome.shortfall:
        raise MeasureError(outcome.shortfall)
    return outcome


def _path(name: str, given: Path | str | None) -> Path | None:
    return None if given is None else path_of(name, given)


def _words(arguments: Sequence[str]) -> tuple[str, ...]:
    """The arguments of a program, of which numbers and paths may be some."""
    return tuple(map(str, list_of("arguments", arguments, "arguments", object)))


def _changes(settings: Sequence[str]) -> tuple[str, ...]:
    """Changes of a machine's description."""
    return list_of("settings", settings, "changes KEY=VALUE")
