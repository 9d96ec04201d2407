"""How alike two runs are, metric by metric, when they are aligned: Fisher's z of each metric with itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from measure.alignment.dtw import mean_over_runs, normalised_channels
from measure.alignment.setting import DEFAULT_ALIGNMENT, AlignmentSetting
from measure.stats.correlation import MIN_RECORDS, finite_table, fisher_z, standard_ranks

NEAR_DUPLICATE = 0.9
"""Metrics whose mean correlation within the baselines is beyond this are near-duplicates of one another.

An alignment on a near-duplicate of the metric that is left out is an alignment on the metric itself: unrelated runs,
which have a similarity of 0 otherwise, get 0.47 beside a duplicate of rho 0.95, and 0.41 beside one of rho 0.9.
"""

_FEWEST_CELLS = 30_000  # of a band: half a millisecond of eight alignments


@dataclass(frozen=True)
class PreparedRun:
    """One trace: values, normalised channels and standard ranks, ``(m, n)``; constant, and the fraction of records with
    the most frequent value, ``(m,)``."""

    values: NDArray[np.float64]
    channels: NDArray[np.float64]
    ranks: NDArray[np.float64]
    constant: NDArray[np.bool_]
    tie_fraction: NDArray[np.float64]
    digest: bytes


@dataclass(frozen=True)
class SimilarityRule:
    """How runs are compared.

    ``held_out``: each metric is aligned on the others, else on all. ``alignment``: None: records correspond as they
    are. ``duplicates``: for each metric its near-duplicates, left out with it.
    """

    held_out: bool
    alignment: AlignmentSetting | None
    duplicates: tuple[tuple[int, ...], ...]

    @property
    def key(self) -> str:
        """Text that is the same for comparisons with the same result."""
        return f"{self.held_out} {self.alignment} {self.duplicates if self.held_out else ''}"


def outer_z(
    reference: ArrayLike,
    other: ArrayLike,
    metrics: Sequence[str],
    *,
    held_out: bool,
    alignment: AlignmentSetting = DEFAULT_ALIGNMENT,
) -> NDArray[np.float64]:
    """Fisher's z ``(m,)`` of each metric of ``reference`` ``(n, m)`` with itself in ``other`` ``(k, m)``,
    aligned.

    The mean of warping one onto the other and back, the same in whichever order the two are given; nan for a metric
    that is constant in either. Near-duplicates take part in alignments. Arguments and errors as in
    `measure.perturbation.outer.outer_perturbation`.
    """
    check_held_out(metrics, held_out)
    first, second = prepare(reference, metrics, "reference"), prepare(other, metrics, "other trace")
    return similarity(first, second, SimilarityRule(held_out, alignment, ((),) * len(metrics)))


def check_held_out(metrics: Sequence[str], held_out: bool) -> None:
    """Raise ValueError for a single metric that is to be aligned on the others."""
    if held_out and len(metrics) < 2:
        raise ValueError("aligning on the other metrics needs at least two metrics, got one; use held_out=False")


def prepare(values: ArrayLike, metrics: Sequence[str], name: str) -> PreparedRun:
    """A trace ``(n, m)``, ready to be compared. Raises ValueError, with its ``name``, for one that cannot be."""
    try:
        table = finite_table(values, metrics)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    if len(table) < MIN_RECORDS:
        raise ValueError(f"{name} has {len(table)} records: expected at least {MIN_RECORDS} to align and correlate")
    ranked = [standard_ranks(column) for column in table.T]
    ranks, tie_fraction = np.array([one for one, _ in ranked]), np.array([most for _, most in ranked]) / len(table)
    # Warping averages records: integers beyond 2^53 keep their differences when the least is taken away first.
    table = table - table.min(axis=0) if np.issubdtype(table.dtype, np.integer) else table
    table = table.astype(np.float64)
    columns = np.ascontiguousarray(table.T)
    digest = blake2b(columns.tobytes() + str(columns.shape).encode(), digest_size=16).digest()
    constant = np.asarray(~ranks.any(axis=1))
    return PreparedRun(columns, normalised_channels(table), ranks, constant, tie_fraction, digest)


def backwards(run: PreparedRun) -> PreparedRun:
    """``run`` in reverse: every record is misplaced, and each metric varies as smoothly as before."""
    values, channels, ranks = (
        np.ascontiguousarray(table[:, ::-1]) for table in (run.values, run.channels, run.ranks)
    )  # fmt: skip
    return replace(run, values=values, channels=channels, ranks=ranks, digest=run.digest + b"backwards")


def near_duplicates(runs: Sequence[PreparedRun]) -> tuple[tuple[int, ...], ...]:
    """For each metric the others whose mean correlation with it within ``runs`` is beyond `NEAR_DUPLICATE`."""
    mean = np.mean([run.ranks @ run.ranks.T for run in runs], axis=0)
    close = (np.abs(mean) > NEAR_DUPLICATE) & ~np.eye(len(mean), dtype=np.bool_)
    return tuple(tuple(np.flatnonzero(row).tolist()) for row in close)


def similarity(
    first: PreparedRun, second: PreparedRun, how: SimilarityRule, *, widen: bool = True
) -> NDArray[np.float64]:
    """Outer z of each metric ``(m,)`` between two runs, symmetric in them; nan for metrics that are constant in either,
    or that have no channel to be aligned on. ``widen``: alignments may leave their band."""
    if second.digest < first.digest:  # ties between paths are resolved by the order of the two traces
        first, second = second, first
    result = np.full(len(first.values), np.nan)
    defined = np.flatnonzero(~(first.constant | second.constant))
    if how.alignment is None:
        result[defined] = fisher_z((first.ranks[defined] * second.ranks[defined]).sum(axis=1))
        return result
    paths = _paths(first, second, how, how.alignment, widen)
    for metric in defined.tolist():
        if metric not in paths:
            continue
        rows, columns = paths[metric].T
        onto_first = mean_over_runs(rows, second.values[metric][columns])
        onto_second = mean_over_runs(columns, first.values[metric][rows])
        rho = [
            first.ranks[metric] @ standard_ranks(onto_first)[0],
            second.ranks[metric] @ standard_ranks(onto_second)[0],
        ]
        result[metric] = fisher_z(rho).mean()
    return result


class Aligner(Protocol):
    """Computes the `similarity` of each pair of runs, in the order of ``pairs``.

    ``done`` is called with the number of further pairs that are done.
    """

    def __call__(
        self, pairs: Sequence[tuple[PreparedRun, PreparedRun]], how: SimilarityRule, done: Callable[[int], None]
    ) -> list[NDArray[np.float64]]: ...


def align_in_threads(
    pairs: Sequence[tuple[PreparedRun, PreparedRun]], how: SimilarityRule, done: Callable[[int], None]
) -> list[NDArray[np.float64]]:
    """The `Aligner` of this process: the alignment kernels run without the interpreter lock, in threads where they take
    longer than handing a pair to a thread and waiting for the lock."""
    found = []
    if not pairs or _cells(*pairs[0], how) < _FEWEST_CELLS:
        for first, second in pairs:
            found.append(similarity(first, second, how))
            done(1)
        return found
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for z in pool.map(lambda pair: similarity(pair[0], pair[1], how), pairs):
            found.append(z)
            done(1)
    return found


def _cells(first: PreparedRun, second: PreparedRun, how: SimilarityRule) -> float:
    """Cells of the band in which two runs are aligned at first."""
    if how.alignment is None:
        return 0
    longest = max(first.values.shape[1], second.values.shape[1])
    return longest * (1 + 2 * how.alignment.band * longest)


def alignment_paths(
    reference: ArrayLike, other: ArrayLike, metrics: Sequence[str], *, held_out: bool,
    duplicates: tuple[tuple[int, ...], ...], alignment: AlignmentSetting = DEFAULT_ALIGNMENT,
) -> dict[int, NDArray[np.int64]]:  # fmt: skip
    """The alignment ``(k, 2)``, records of ``reference`` and of ``other``, by which each metric is compared.

    By index of the metric; one that cannot be aligned is missing. ``duplicates``: as of `SimilarityRule`. Raises
    ValueError for tables that cannot be aligned.
    """
    check_held_out(metrics, held_out)
    first, second = prepare(reference, metrics, "reference"), prepare(other, metrics, "other trace")
    how = SimilarityRule(held_out, alignment, duplicates)
    if second.digest < first.digest:
        return {metric: path[:, ::-1] for metric, path in _paths(second, first, how, alignment, True).items()}
    return _paths(first, second, how, alignment, True)


def _paths(
    first: PreparedRun, second: PreparedRun, how: SimilarityRule, alignment: AlignmentSetting, widen: bool
) -> dict[int, NDArray[np.int64]]:
    """The alignment for each metric that can be aligned."""
    n_metrics = len(first.values)
    if not how.held_out:
        joint = alignment.align(first.channels, second.channels).path
        return dict.fromkeys(range(n_metrics), joint)
    single = [metric for metric in range(n_metrics) if not how.duplicates[metric]]
    found = {}
    if single:
        paths = alignment.held_out(first.channels, second.channels, single, widen=widen)
        found = dict(zip(single, paths, strict=True))
    by_kept: dict[tuple[int, ...], NDArray[np.int64]] = {}  # metrics that are alike leave one another out
    for metric in range(n_metrics):
        left_out = how.duplicates[metric]
        kept = tuple(other for other in range(n_metrics) if other != metric and other not in left_out)
        if left_out and kept:
            if kept not in by_kept:
                channels = [np.ascontiguousarray(run.channels[list(kept)]) for run in (first, second)]
                by_kept[kept] = alignment.align(channels[0], channels[1], widen=widen).path
            found[metric] = by_kept[kept]
    return found
