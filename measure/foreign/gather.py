"""Turns files into comparable groups: patterns, common metrics, units, intervals with all metrics."""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from common.suggestions import nearest
from measure.foreign.copies import copies, same_columns
from measure.foreign.errors import TraceFileError
from measure.foreign.formats import read_trace
from measure.foreign.record_counts import record_counts, uneven_counts
from measure.foreign.run_arguments import name_and_pattern
from measure.foreign.running_totals import running_totals
from measure.foreign.trace import ForeignTrace, names_of_files
from measure.perturbation.analysis_types import FEWEST_RECORDS
from measure.perturbation.wording import counted, unlike_records
from measure.run_types import BASELINE

DEFAULT_VARIANT = "instrumented"
_ALIKE = 1.25
"""Intervals whose usual lengths differ by more than this factor are not of one length."""

_SUSPECT_VALUES: tuple[tuple[Callable[[NDArray[np.float64]], NDArray[np.bool_]], str, str], ...] = (
    (
        lambda column: column < 0,
        "negative values",
        "right for a gauge, such as a temperature. A count of events is negative only where it is damaged, or "
        "extrapolated by multiplexing: record it again, with fewer events at once.",
    ),
    (
        lambda column: np.abs(column) >= 2**53,
        "values of 2^53 or more",
        "doubles round them, so that small differences between records are lost. If it is a running total, give the "
        "events of each interval, or subtract the first value from all.",
    ),
)
"""What is suspect in the values of a column, in words, and what to do about it."""


@dataclass(frozen=True)
class Gathered:
    """Traces that can be compared.

    ``metrics``: those of every trace, in the first baseline's order; ``baselines``: (n_i, m) each; ``variants``:
    name to its runs; ``baseline_traces``, ``variant_traces``: the same as read, with all metrics; ``warnings``:
    sentences; ``invalidating``: those on what verdicts do not say or get wrong: metrics that every baseline has, and
    some run has not, and traces with the same numbers in all or in some metrics.
    """

    metrics: tuple[str, ...]
    baselines: tuple[NDArray[np.float64], ...]
    variants: dict[str, tuple[NDArray[np.float64], ...]]
    baseline_traces: tuple[ForeignTrace, ...]
    variant_traces: dict[str, tuple[ForeignTrace, ...]]
    warnings: tuple[str, ...]
    invalidating: tuple[str, ...] = ()

    @property
    def traces(self) -> tuple[ForeignTrace, ...]:
        return (*self.baseline_traces, *(trace for runs in self.variant_traces.values() for trace in runs))


def matching(pattern: str) -> list[Path]:
    """The files that ``pattern`` names, with numbers in their order. Raises `TraceFileError` without a match."""
    if Path(pattern).exists():
        return [Path(pattern)]
    found = sorted(glob.glob(pattern, recursive=True), key=_natural)
    if not found:
        raise TraceFileError(f"{pattern}: no such file, and no file matches it as a pattern")
    return [Path(name) for name in found]


def _natural(text: str) -> list[tuple[int, int | str]]:
    """Sort key with run2 before run10."""
    return [(0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"(\d+)", text)]


def grouped(runs: Sequence[str]) -> dict[str, list[Path]]:
    """Variant to its files, from arguments ``NAME=PATTERN`` or ``PATTERN``. Raises `TraceFileError`."""
    groups: dict[str, list[Path]] = {}
    for text in runs:
        name, pattern = name_and_pattern(text)
        if not pattern:
            raise TraceFileError(f"--run {text}: got a name without a file, expected NAME=FILE or NAME=PATTERN")
        if name == BASELINE:
            raise TraceFileError(
                f"--run {text}: the name '{BASELINE}' is taken by the runs of --baseline: choose another"
            )
        groups.setdefault(name or DEFAULT_VARIANT, []).extend(matching(pattern))
    return groups


def gather(
    baseline: Sequence[Path],
    runs: dict[str, list[Path]],
    *,
    metrics: Sequence[str] = (),
    format: str | None = None,
) -> Gathered:
    """Read all files and make them comparable: common metrics, whole intervals.

    ``metrics``: compare only these. Raises `TraceFileError` for an unreadable file, a file named twice, fewer than two
    baselines, fewer than two common metrics, different units, or too few intervals left.
    """
    seen: set[Path] = set()
    for path in (*baseline, *(path for paths in runs.values() for path in paths)):
        if path.resolve() in seen:
            raise TraceFileError(f"{path} is given twice: expected each run's trace once, as baseline or as run")
        seen.add(path.resolve())
    if len(baseline) < 2:
        raise TraceFileError(
            f"{counted(len(baseline), 'baseline trace')}, expected at least 2 (20 are better): give more "
            "after --baseline"
        )
    if not runs:
        raise TraceFileError("no traces of instrumented runs: give some after --run")
    before, after = in_run_order(baseline), {name: in_run_order(paths) for name, paths in runs.items()}
    gathered = gather_traces(
        [read_trace(path, format) for path in before],
        {name: [read_trace(path, format) for path in paths] for name, paths in after.items()},
        metrics=metrics,
    )
    groups = ((before, list(baseline)), *((after[name], runs[name]) for name in runs))
    sorted_anew = [paths for paths, given in groups if paths != given]
    if not sorted_anew:
        return gathered
    sentence = (
        f"Files are in the order of their numbers ({sorted_anew[0][0].name}, {sorted_anew[0][1].name}, ...), not in "
        "the alphabetical one in which they were given: it is taken for the order of the runs."
    )
    return replace(gathered, warnings=(*gathered.warnings, sentence))


def in_run_order(paths: Sequence[Path]) -> list[Path]:
    """``paths``, of one group, but those that a shell has sorted (run1, run10, run2) in the order of their numbers.

    Names that differ in more than numbers, such as hashes, tell no order.
    """
    names = [str(path) for path in paths]
    are_numbered = len({re.sub(r"\d+", "", name) for name in names}) == 1
    return [Path(name) for name in (sorted(names, key=_natural) if are_numbered and names == sorted(names) else names)]


def gather_traces(
    baseline: Sequence[ForeignTrace],
    runs: Mapping[str, Sequence[ForeignTrace]],
    *,
    metrics: Sequence[str] = (),
) -> Gathered:
    """Make traces comparable: common metrics, whole intervals.

    ``metrics``: compare these only. Raises `TraceFileError`: fewer than two baselines, no runs, fewer than two common
    metrics, units that differ, or too few intervals left.
    """
    if len(baseline) < 2:
        raise TraceFileError(f"{counted(len(baseline), 'baseline trace')}, expected at least 2 (20 are better)")
    if not runs or not all(runs.values()):
        raise TraceFileError("no traces of instrumented runs, expected at least one of each variant")
    if BASELINE in runs:
        raise TraceFileError(f"a variant has the name '{BASELINE}', which the baselines have: choose another")
    before = tuple(baseline)
    after = {name: tuple(traces) for name, traces in runs.items()}
    groups = {BASELINE: before, **after}
    everything = tuple(trace for traces in groups.values() for trace in traces)
    warnings: dict[str, None] = {}
    lacking: list[str] = []
    common = _common(before, after, metrics, warnings, lacking)
    _check_units(everything, common)
    _warn_of_multiplexing(everything, common, warnings)
    _warn_of_interval_lengths(everything, warnings)
    _add_file_warnings(everything, warnings)
    whole = {id(trace): _whole_intervals(trace, common) for trace in everything}
    _warn_of_dropped_intervals(everything, common, warnings)
    _warn_of_values(everything, common, warnings)
    warnings |= dict.fromkeys(
        running_totals(common, [[whole[id(trace)] for trace in traces] for traces in groups.values()])
    )
    warnings |= dict.fromkeys(uneven_counts({name: record_counts(traces) for name, traces in groups.items()}))
    return Gathered(
        common,
        tuple(whole[id(trace)] for trace in before),
        {name: tuple(whole[id(trace)] for trace in traces) for name, traces in after.items()},
        before,
        after,
        tuple(warnings),
        (*copies(groups, whole), *same_columns(groups, whole, common), *lacking),
    )


def measured(trace: ForeignTrace) -> list[str]:
    """The metrics that were measured at all."""
    return [m for n, m in enumerate(trace.metrics) if not np.isnan(trace.values[:, n]).all()]


def _common(
    before: Sequence[ForeignTrace],
    after: dict[str, tuple[ForeignTrace, ...]],
    asked: Sequence[str],
    warnings: dict[str, None],
    dropped: list[str],
) -> tuple[str, ...]:
    """The metrics measured in every trace; adds a sentence for each metric that is left out: to ``dropped`` if every
    baseline has it, as a column that has another name in the runs, else to ``warnings``."""
    everything = (*before, *(trace for traces in after.values() for trace in traces))
    have = {id(trace): set(measured(trace)) for trace in everything}
    every = set.intersection(*have.values())
    for metric in asked:
        lacking = next((trace for trace in everything if metric not in have[id(trace)]), None)
        if lacking is not None:
            names = ", ".join(measured(lacking)) or "none"
            raise TraceFileError(
                f"{lacking.path}: no metric {metric!r} was measured (got {names}): expected it in every trace"
                + nearest(metric, have[id(lacking)])
            )
    union = dict.fromkeys(metric for trace in everything for metric in measured(trace))
    if not asked:
        for metric in union:
            if metric in every:
                continue
            count = sum(metric in have[id(trace)] for trace in everything)
            left_out = f"{metric} was measured in {count} of {len(everything)} traces only"
            if all(metric in have[id(trace)] for trace in before):
                dropped.append(
                    f"{left_out}, in all baselines, but not in all runs: no verdict says anything about it. Has the "
                    "column another name there?"
                )
            else:
                warnings[f"{left_out}: it is not compared."] = None
    chosen = tuple(asked) if asked else tuple(m for m in before[0].metrics if m in every)
    chosen = tuple(dict.fromkeys(chosen))
    if len(chosen) < 2:
        if asked:
            raise TraceFileError(
                f"{counted(len(chosen), 'metric')} chosen ({', '.join(chosen)}), expected at least 2, since a "
                f"correlation is of two: choose more of {', '.join(m for m in before[0].metrics if m in every)}"
            )
        odd = min(everything, key=lambda trace: len(have[id(trace)] & have[id(before[0])]))
        shown = {trace.path: ", ".join(measured(trace)) or "none" for trace in (before[0], odd)}
        raise TraceFileError(
            f"{counted(len(chosen), 'metric')} common to all traces ({', '.join(chosen) or 'none'}), expected at least "
            f"2, since a correlation is of two; {', '.join(f'{path} has {names}' for path, names in shown.items())}"
        )
    return chosen


def _check_units(everything: Sequence[ForeignTrace], metrics: Sequence[str]) -> None:
    for metric in metrics:
        first = everything[0].units.get(metric, "")
        for trace in everything[1:]:
            unit = trace.units.get(metric, "")
            if unit and first and unit != first:
                raise TraceFileError(
                    f"{trace.path}: {metric} has unit {unit!r}, expected {first!r} as in {everything[0].path}"
                )
            first = first or unit


def _warn_of_multiplexing(
    everything: Sequence[ForeignTrace], metrics: Sequence[str], warnings: dict[str, None]
) -> None:
    for metric in metrics:
        shares = [trace.multiplexed[metric] for trace in everything if metric in trace.multiplexed]
        if shares:
            warnings[
                f"{metric} was multiplexed in {len(shares)} of {len(everything)} traces: counted for only "
                f"{min(shares):.0f}% of an interval at worst and extrapolated, which by itself loosens correlations; "
                "count fewer events at once."
            ] = None


def _warn_of_interval_lengths(everything: Sequence[ForeignTrace], warnings: dict[str, None]) -> None:
    """Warn of records of different lengths: they correlate differently, whatever the program does."""
    timed: dict[str, list[ForeignTrace]] = {}
    for trace in everything:
        if trace.interval_length > 0:
            timed.setdefault(trace.interval_unit, []).append(trace)
    others = {trace.interval: trace for trace in everything if not trace.interval_length > 0}
    odd: tuple[ForeignTrace, ...] = ()
    for traces in timed.values():  # lengths in different units cannot be compared
        shortest, longest = (choose(traces, key=lambda trace: trace.interval_length) for choose in (min, max))
        if longest.interval_length > _ALIKE * shortest.interval_length:
            odd = (*odd, shortest, longest)
    if len(others) > 1:
        odd = (*odd, *others.values())
    if odd:
        names = names_of_files(everything)
        warnings[unlike_records([f"{trace.interval} in {names[trace.path]}" for trace in odd])] = None


def _add_file_warnings(everything: Sequence[ForeignTrace], warnings: dict[str, None]) -> None:
    """Add the warnings of the files; equal ones of several files only once."""
    by_text: dict[str, list[ForeignTrace]] = {}
    for trace in everything:
        for text in trace.warnings:
            by_text.setdefault(text, []).append(trace)
    names = names_of_files(everything)
    for text, traces in by_text.items():
        more = f" and {len(traces) - 1} more" if len(traces) > 1 else ""
        warnings[f"{names[traces[0].path]}{more}: {text}"] = None


def _whole_intervals(trace: ForeignTrace, metrics: Sequence[str]) -> NDArray[np.float64]:
    """The intervals in which all ``metrics`` were measured."""
    values = trace.columns(metrics)
    missing = np.isnan(values)
    whole = values[~missing.any(axis=1)]
    if len(whole) < FEWEST_RECORDS:
        worst = metrics[int(missing.sum(axis=0).argmax())]
        raise TraceFileError(
            f"{trace.path}: {len(whole)} of {len(values)} intervals have every metric, expected at least "
            f"{FEWEST_RECORDS}"
            + (
                f"; {worst} is missing most often: name the others with --metrics"
                if missing.any() and len(values) >= FEWEST_RECORDS
                else ": sample at a shorter interval or give the program more work"
            )
        )
    return whole


def _warn_of_dropped_intervals(
    everything: Sequence[ForeignTrace], metrics: Sequence[str], warnings: dict[str, None]
) -> None:
    missing = [np.isnan(trace.columns(metrics)) for trace in everything]
    dropped = [int(table.any(axis=1).sum()) for table in missing]
    if not any(dropped):
        return
    most = max(range(len(everything)), key=lambda n: dropped[n])
    metric = metrics[int(np.sum([table.sum(axis=0) for table in missing], axis=0).argmax())]
    warnings[
        f"Intervals are left out in which something was not counted, most often {metric}: {sum(dropped)} in all, in "
        f"{sum(map(bool, dropped))} of {len(everything)} traces, at most {dropped[most]} of {len(missing[most])} in "
        f"{names_of_files(everything)[everything[most].path]}."
    ] = None


def _warn_of_values(everything: Sequence[ForeignTrace], metrics: Sequence[str], warnings: dict[str, None]) -> None:
    """Warn of values that a count cannot have, or that doubles have rounded.

    Tables and PAPI do not say which columns are counts. The readers of perf and LIKWID refuse negative counts.
    """
    names = names_of_files(everything)
    for metric in metrics:
        for is_suspect, what, advice in _SUSPECT_VALUES:
            columns = [(trace, trace.columns([metric])[:, 0]) for trace in everything]
            concerned = [(trace, column, is_suspect(column)) for trace, column in columns if is_suspect(column).any()]
            if concerned:
                trace, column, suspect = concerned[0]
                record = int(suspect.argmax())
                warnings[
                    f"{metric} has {what} in {len(concerned)} of {len(everything)} traces, such as "
                    f"{column[record]:g} in record {record + 1} of {names[trace.path]}: {advice}"
                ] = None
