"""Merge runs into one trace with every metric, on the time base of one baseline.

    merged = merge_runs(baseline, runs)
    merged.table().plot("begin_cycles", ["nodes", "PAPI_L1_DCM"])

Each run is aligned to the baseline, and the metrics that the baseline lacks are moved onto its records; the sum of
each metric is conserved. `measure.merging.command` reads result directories, `measure.merging.export` writes files.
"""

from __future__ import annotations

import filecmp
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from common.listed_names import listed
from measure.alignment.dtw import normalised_channels
from measure.alignment.setting import DEFAULT_ALIGNMENT, AlignmentSetting
from measure.arguments import check_word
from measure.errors import MeasureError
from measure.merging.aligned_run import AlignBy, AlignedRun
from measure.merging.relations_left import (
    NOTHING_KNOWN,
    held_out_spreads,
    relations_left,
    relations_left_of_two,
)
from measure.merging.spread import Spread, even_spread_of_path, spread_of_progress
from measure.merging.variant_verdict import NOT_COMPARED, VariantVerdict
from measure.perturbation.wording import unlike_records, unlike_sampling
from measure.run_types import Run
from measure.runs.program_progress import EventCurve, has_reference_events, progress_boundaries
from measure.stats.correlation import average_ranks

if TYPE_CHECKING:
    import pandas as pd

Scale = Literal["zscore", "rank"]

STRETCHED = 3.0
"""Warn of a baseline record that is made of this many or more of a run's records, or of the inverse or fewer."""
JUMP = 1.5
"""Warn of one that is made of so many times the records that its neighbours are made of, or of the inverse or fewer."""
_NEIGHBOURS = 5  # records before and after
_MOST_NAMES = 3
_INSTRUCTIONS = "PAPI_TOT_INS"


class MergeError(MeasureError):
    """Runs cannot be merged."""


@dataclass(frozen=True)
class Source:
    """Where a metric of the merged trace is from. ``run``: index into `Merged.runs`, None for the baseline; ``total``:
    the sum over the run's own trace, which the merged trace conserves."""

    metric: str
    run: int | None
    total: int


@dataclass(frozen=True)
class Merged:
    """One trace with every metric on the baseline's records: ``values`` ``(n, m)`` int64, one column per source.

    ``verdicts``: by variant, whether collecting its metrics changes the program, as far as known; ``notes``: sentences
    on what may make the whole trace wrong, which its warnings begin with.
    """

    baseline: Run
    runs: tuple[AlignedRun, ...]
    sources: tuple[Source, ...]
    values: NDArray[np.int64]
    verdicts: Mapping[str, VariantVerdict] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def metrics(self) -> tuple[str, ...]:
        """The columns: the baseline's metrics, then those of the runs."""
        return tuple(source.metric for source in self.sources)

    @property
    def warnings(self) -> tuple[str, ...]:
        """The notes, records that are cut otherwise than the baseline's, metrics that counted nothing, alignments by
        estimated progress, metrics from a run whose variant is not equivalent, or is so with a caveat, relations that
        alignments weaken, and alignments that stretched, so that counts are placed only roughly."""
        doubtful = [
            f"{self._metrics_of(n)} from {aligned.name}: {doubt}"
            for n, aligned in enumerate(self.runs)
            for doubt in self._doubts(aligned)
        ]
        stretched = [self._warning(n, aligned) for n, aligned in enumerate(self.runs) if len(aligned.stretched)]
        silent = [source.metric for source in self.sources if not source.total]
        nothing = [f"{', '.join(silent)} counted no event: nothing can be said about it"] if silent else []
        estimated = [aligned.name for aligned in self.runs if aligned.estimated_progress]
        by_estimate = [
            f"progress is estimated for {listed(estimated, _MOST_NAMES)}, as if all events of counters took the same "
            "instructions: their reference events were not counted. Aligning by dtw needs none; a campaign with "
            "`ground_truth: true` counts them"
        ] if estimated else []  # fmt: skip
        return (*self.notes, *self._unlike_records(), *nothing, *by_estimate, *doubtful, *stretched)

    def _unlike_records(self) -> list[str]:
        """That runs have records of another length than the baseline, or taken in another way: one sentence of each.

        Their counts are placed as well as others, but were summed over other stretches of the program.
        """
        own, others = self.baseline.spec, [one.run.spec for one in self.runs]
        found = []
        lengths = {(spec.interval, spec.interval_unit): n for n, spec in reversed([*enumerate(others)])}
        lengths.pop((own.interval, own.interval_unit), None)
        if lengths:
            told = [f"{own.interval:,} {own.interval_unit} in {_name(self.baseline)}"]
            told += [f"{length:,} {unit} in {self.runs[n].name}" for (length, unit), n in sorted(lengths.items())]
            found.append(unlike_records(told))
        modes = [aligned.name for aligned in self.runs if aligned.run.spec.sampling_mode != own.sampling_mode]
        if modes:
            other = "ideal" if own.sampling_mode == "signal" else "signal"
            found.append(
                unlike_sampling(
                    f"{own.sampling_mode} in {_name(self.baseline)} and {other} in {listed(modes, _MOST_NAMES)}"
                )
            )
        return found

    def verdict_of(self, aligned: AlignedRun) -> VariantVerdict:
        """The verdict on the run's variant, `NOT_COMPARED` without one."""
        return self.verdicts.get(aligned.run.spec.variant, NOT_COMPARED)

    def _doubts(self, aligned: AlignedRun) -> list[str]:
        """What speaks against relating the run's metrics to those of other runs."""
        found = self.verdict_of(aligned).reservations
        if aligned.weakens:
            found.append(
                f"the merge weakens relations to metrics of other runs: {aligned.left_in_words}. Read no absence of a "
                "relation off this trace. What helps: metrics that are collected in one run, counts from a second run "
                "(`method: second_run`), which are in the records of the plain one, or longer records and `--align "
                "progress`"
            )
        if aligned.faint_in_words:
            found.append(aligned.faint_in_words)
        return found

    def _metrics_of(self, number: int) -> str:
        return ", ".join(source.metric for source in self.sources if source.run == number)

    def _warning(self, number: int, aligned: AlignedRun) -> str:
        flagged = np.concatenate([np.arange(*bounds) for bounds in aligned.stretched])
        with np.errstate(divide="ignore"):  # a baseline record made of no record is the worst
            worst = int(flagged[np.argmax(np.abs(np.log(aligned.records[flagged])))])
        cycles = self.baseline.trace.boundaries_cycles
        made_of = f"{aligned.records[worst]:.2g}" if aligned.records[worst] else "none"
        return (
            f"{self._metrics_of(number)} from {aligned.name}: the alignment stretches "
            f"{100 * aligned.stretched_fraction:.2g}% of the baseline's records, "
            f"worst at record {worst} (cycles {cycles[worst]:,} to {cycles[worst + 1]:,}), made of "
            f"{made_of} of the run's records; counts there are placed only roughly"
        )

    def table(self) -> pd.DataFrame:
        """A row per record: its bounds, the metrics, and ``records:RUN``, the number of that run's records in it.

        ``attrs``: the content of `metadata`.
        """
        import pandas as pd

        columns: dict[str, Any] = self.baseline.trace.boundary_columns()
        columns |= {metric: self.values[:, n] for n, metric in enumerate(self.metrics)}
        columns |= {f"records:{aligned.name}": aligned.records for aligned in self.runs}
        table = pd.DataFrame(columns)
        about: Any = self.metadata()
        table.attrs = about
        return table

    def metadata(self) -> dict[str, Any]:
        """Each metric's run, total and quality of alignment, and the warnings; plain JSON types."""
        return {
            "baseline": _name(self.baseline),
            "metrics": {source.metric: self._about(source) for source in self.sources},
            "warnings": list(self.warnings),
        }

    def _about(self, source: Source) -> dict[str, Any]:
        if source.run is None:
            return {"run": _name(self.baseline), "total": source.total}
        aligned = self.runs[source.run]
        return {
            "run": aligned.name, "verdict": self.verdict_of(aligned).verdict,
            "caveat": self.verdict_of(aligned).caveat or None, "total": source.total,
            "relations_left": _known(aligned.left.share), "relations_left_of_two": _known(aligned.left_of_two.share),
            "relations_off": _known(aligned.worse.error),
            "worst_relation": aligned.worse.worst_in_words if aligned.worse.is_known else None,
            "align": aligned.align, "channels": list(aligned.channels),
            "cost": None if np.isnan(aligned.cost) else aligned.cost, "distance": aligned.distance,
            "stretched_fraction": aligned.stretched_fraction,
            "stretched_records": [list(bounds) for bounds in aligned.stretched],
        }  # fmt: skip


def merge_runs(
    baseline: Run,
    runs: Sequence[Run],
    *,
    align: AlignBy = "dtw",
    channels: Sequence[str] | None = None,
    scale: Scale = "zscore",
    alignment: AlignmentSetting = DEFAULT_ALIGNMENT,
    curve: EventCurve | None = None,
    verdicts: Mapping[str, VariantVerdict] | None = None,
    notes: Sequence[str] = (),
) -> Merged:
    """One trace with the metrics of ``baseline`` and those that only ``runs`` have.

    A metric that several runs have is taken from a run whose variant is equivalent, if there is one, without a caveat,
    if there is one, and among those from the run that aligns best. ``verdicts``: by variant; ``notes``: see `Merged`.
    ``align``: by dynamic time warping on ``channels`` (default: the hardware metrics that both have) as ``alignment``
    says, or by progress: instructions of the program itself. Raises `MergeError` for runs that do not belong together,
    and `ArgumentError` for another ``align`` or ``scale``.
    """
    check_word("align_by", align, get_args(AlignBy))
    check_word("scale", scale, get_args(Scale))
    baseline_metrics = set(_metrics(baseline))
    candidates = [run for run in runs if set(_metrics(run)) - baseline_metrics]
    if not candidates:
        raise MergeError(f"none of the {len(runs)} runs has a metric that {_name(baseline)} lacks: nothing to merge")
    aligned = [
        align_run(
            baseline,
            run,
            align=align,
            channels=channels,
            scale=scale,
            alignment=alignment,
            curve=curve,
        )
        for run in candidates
    ]
    verdicts = dict(verdicts or {})
    # The sort is stable: of equal runs the first given is taken.
    aligned.sort(key=lambda one: (verdicts.get(one.run.spec.variant, NOT_COMPARED).rank, one.distance))
    chosen: dict[str, AlignedRun] = {}
    for metric in dict.fromkeys(metric for run in candidates for metric in _metrics(run)):
        if metric not in baseline_metrics:
            chosen[metric] = next(one for one in aligned if metric in one.run.trace.metrics)
    used = [one for one in aligned if any(one is other for other in chosen.values())]
    plain = baseline.trace.without_probes()
    totals = plain.values.sum(axis=0)
    sources = [Source(metric, None, int(total)) for metric, total in zip(plain.metrics, totals, strict=True)]
    columns = [plain.values]
    for metric, one in chosen.items():
        own = one.run.trace.values[:, [one.run.trace.metrics.index(metric)]]
        number = next(n for n, other in enumerate(used) if other is one)
        sources.append(Source(metric, number, int(own.sum())))
        columns.append(one.spread.counts(own))
    used = _with_relations_left(baseline, used, scale, alignment)
    return Merged(baseline, tuple(used), tuple(sources), np.concatenate(columns, axis=1), verdicts, tuple(notes))


def align_run(
    baseline: Run,
    run: Run,
    *,
    align: AlignBy = "dtw",
    channels: Sequence[str] | None = None,
    scale: Scale = "zscore",
    alignment: AlignmentSetting = DEFAULT_ALIGNMENT,
    curve: EventCurve | None = None,
) -> AlignedRun:
    """``run`` on the time base of ``baseline``.

    ``scale``: channels as they are, or their ranks, which single spikes do not dominate; both are brought to
    mean 0 and standard deviation 1. ``alignment``: that of the verdicts across runs, by default.
    ``curve``: of the program; gives exact progress where reference events were counted in both runs, else progress is
    estimated. Raises `MergeError`.
    """
    _check_belong_together(baseline, run)
    names = _channels(baseline, run, channels)
    first, second = (normalised_channels(_scaled(one, names, scale), _name(one)) for one in (baseline, run))
    cost, estimated = float("nan"), False
    ran, baseline_ran = (np.diff(one.trace.boundaries_instructions) > 0 for one in (run, baseline))
    if align == "dtw":
        found = alignment.align(first, second)
        spread, cost = even_spread_of_path(found.path, _idle(run)), found.cost
    else:
        counted = _counted_progress(run, baseline, curve)
        spread = spread_of_progress(*(_progress(one, baseline, counted) for one in (baseline, run)))
        estimated = counted is None
    gap = first[:, spread.rows] - second[:, spread.columns]
    distance = float(np.sqrt(np.average((gap**2).mean(axis=0), weights=spread.shares())))
    records = spread.records(ran.astype(np.float64))
    far = baseline_ran & is_stretched(records)
    # A baseline record that begins or ends outside the run is cut short, not stretched.
    if align == "progress":
        far[: spread.rows[0] + 1] = far[spread.rows[-1] :] = False
    return AlignedRun(
        run,
        spread,
        align,
        names,
        cost,
        distance,
        records,
        _ranges(far),
        float(far.mean()),
        estimated,
    )


def is_stretched(records: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Flags ``(n,)``: which records are made of too many or too few of a run's ``records``, see `AlignedRun`."""
    padded = np.pad(records, _NEIGHBOURS, mode="edge")
    around = np.median(np.lib.stride_tricks.sliding_window_view(padded, 2 * _NEIGHBOURS + 1), axis=1)
    by_neighbours = records / np.where(around > 0, around, 1.0)
    flags = (records >= STRETCHED) | (records <= 1 / STRETCHED)
    return np.asarray(flags | (by_neighbours >= JUMP) | (by_neighbours <= 1 / JUMP))


def _with_relations_left(
    baseline: Run, runs: Sequence[AlignedRun], scale: Scale, alignment: AlignmentSetting
) -> list[AlignedRun]:
    """``runs`` with what is left of relations of hardware metrics that are moved from them."""
    spreads = [_hardware_spreads(baseline, one, scale, alignment) for one in runs]
    found = []
    for n, one in enumerate(runs):
        others = [
            relations_left_of_two(one.run.trace, spreads[n], other.run.trace, spreads[k])
            for k, other in enumerate(runs)
            if k != n
        ]
        of_two = min((left for left in others if left.is_known), key=lambda left: left.share, default=NOTHING_KNOWN)
        left = relations_left(baseline.trace, one.run.trace, _channels(baseline, one.run, None), spreads[n])
        found.append(replace(one, left=left, left_of_two=of_two))
    return found


def _hardware_spreads(
    baseline: Run, aligned: AlignedRun, scale: Scale, alignment: AlignmentSetting
) -> dict[str, Spread]:  # fmt: skip
    """By hardware metric the spread of the run over the baseline, each aligned on others than itself.

    By progress, that is all but the instructions, which are what progress is taken from.
    """
    run = aligned.run
    spreads = dict.fromkeys(_channels(baseline, run, None), aligned.spread)
    if aligned.align == "progress":
        spreads.pop(_INSTRUCTIONS, None)
        return spreads
    tables = [_scaled(one, aligned.channels, scale) for one in (baseline, run)]
    for channel in aligned.channels:
        del spreads[channel]
    return spreads | held_out_spreads(tables[0], tables[1], aligned.channels, alignment, _idle(run))


def _known(value: float) -> float | None:
    return None if np.isnan(value) else value


def _idle(run: Run) -> NDArray[np.bool_]:
    """The run's records in which nothing ran, ``(m,)``; none where no instructions are known, as on some hosts.

    A wait longer than an interval leaves such records: nothing in them can be misplaced.
    """
    ran = np.diff(run.trace.boundaries_instructions) > 0
    return np.asarray(~ran & ran.any())


def _metrics(run: Run) -> tuple[str, ...]:
    return run.trace.without_probes().metrics


def _counted_progress(run: Run, baseline: Run, curve: EventCurve | None) -> EventCurve | None:
    """``curve``, if reference events were counted in both runs."""
    return curve if has_reference_events(run, baseline) else None


def _progress(run: Run, baseline: Run, counted: EventCurve | None) -> NDArray[np.float64]:
    return counted.boundaries(run) if counted is not None else progress_boundaries(run, baseline)


def _check_belong_together(baseline: Run, run: Run) -> None:
    own, other = baseline.spec, run.spec
    same = {
        "machine": own.machine == other.machine,
        "arguments": own.arguments == other.arguments,
        "stdin": _alike(own.stdin, other.stdin),
        "files": [guest for guest, _ in own.files] == [guest for guest, _ in other.files]
        and all(_alike(one, two) for (_, one), (_, two) in zip(own.files, other.files, strict=True)),
    }
    for name, is_same in same.items():
        if not is_same:
            raise MergeError(
                f"{_name(run)} and {_name(baseline)} differ in their {name}: they are not of one campaign; expected "
                "the same program on the same input and machine"
            )
    for one in (baseline, run):
        if not one.trace.n_records:
            raise MergeError(f"{_name(one)} has no records: make the run again")


def _alike(one: str | None, other: str | None) -> bool:
    """Whether two input files are one, or are both there with the same content."""
    if one is None or other is None or one == other:
        return one == other
    try:
        return filecmp.cmp(one, other, shallow=False)
    except OSError:
        return False


def _channels(baseline: Run, run: Run, channels: Sequence[str] | None) -> tuple[str, ...]:
    """The channels to align on: the given ones, by default all shared hardware metrics. Raises `MergeError`."""
    shared = tuple(
        metric
        for metric in baseline.spec.hardware_metrics
        if metric in baseline.trace.metrics and metric in run.trace.metrics
    )
    if not shared:
        raise MergeError(f"{_name(run)} and {_name(baseline)} have no hardware metric in common: nothing to align on")
    if channels is None:
        return shared
    unknown = [channel for channel in channels if channel not in shared]
    if unknown or not channels:
        got = ", ".join(unknown) or "no channel"
        raise MergeError(f"got {got} to align {_name(run)} on, expected some of {', '.join(shared)}")
    return tuple(channels)


def _scaled(run: Run, channels: tuple[str, ...], scale: Scale) -> NDArray[np.float64]:
    values = run.trace.columns(channels)
    if scale == "zscore":
        return values
    return np.stack([average_ranks(column)[0] for column in values.T], axis=1)


def _ranges(flags: NDArray[np.bool_]) -> tuple[tuple[int, int], ...]:
    edges = np.flatnonzero(np.diff(flags.astype(np.int8), prepend=0, append=0))
    return tuple((int(begin), int(end)) for begin, end in edges.reshape(-1, 2))


def _name(run: Run) -> str:
    return f"{run.spec.variant}/{run.spec.replicate}"
