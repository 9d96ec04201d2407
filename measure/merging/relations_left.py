"""How much of a relation between two metrics is left when one of them is moved from another run's records.

The baseline and the run of a merge both have the hardware metrics, so the relations of these are known. Moved to the
baseline's records as a software metric is, a hardware metric shows what becomes of a relation on the way: where records
are cut at other places of the program than the baseline's, a count cannot be placed better than to the record that it
was counted in, and what changes from record to record is smoothed out, however good the alignment is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from measure.alignment.setting import AlignmentSetting
from measure.merging.spread import Spread, even_spread_of_path
from measure.perturbation.similarity import alignment_paths, near_duplicates, prepare
from measure.perturbation.uninformative_metrics import TIED
from measure.run_types import Trace
from measure.stats.correlation import MIN_RECORDS, standard_ranks

WEAKENED = 0.7
"""Warn where less than this is left of known relations: a correlation of 0.50 is then below 0.35, 0.18 less in z."""
_STRONG = 0.3  # a known correlation from which on it can be seen how much of it is left
_MOST_ERROR = 0.2  # standard error of what is left, where records are independent of one another


def relations_left(baseline: Trace, run: Trace, metrics: Sequence[str], spreads: Mapping[str, Spread]) -> float:
    """The share of known relations that is left when one of both metrics is moved by its spread, 0 to 1.

    ``metrics``: hardware metrics that both have; ``spreads``: of ``run`` over ``baseline``, by metric, for those that
    are moved. A relation is Spearman's rho of two metrics; its known value is the mean over the two traces, each by
    itself, so that what counters changed within the run is not taken for a fault of the alignment. The share is the
    slope, through 0, of rho between one metric as the baseline has it and another one moved there, on the known one.
    Metrics that are tied in either trace are left out. nan where no relation is known that is strong enough to tell.
    """
    n = baseline.n_records
    if min(n, run.n_records) < MIN_RECORDS:
        return float("nan")
    names = tuple(metric for metric in metrics if not (_tied(baseline, metric) or _tied(run, metric)))
    placed = [number for number, metric in enumerate(names) if metric in spreads]
    if len(names) < 2 or not placed:
        return float("nan")
    own, other = (_ranks(trace.counts(names)) for trace in (baseline, run))
    moved = _ranks(np.column_stack([spreads[names[n]].counts(run.counts((names[n],))) for n in placed]))
    pairs = ~np.eye(len(names), dtype=np.bool_)[:, placed]
    known = ((own @ own.T + other @ other.T) / 2)[:, placed][pairs]
    strength = float((known**2).sum())
    if np.abs(known).max() < _STRONG or n * strength < 1 / _MOST_ERROR**2:
        return float("nan")
    return float(np.clip(((own @ moved.T)[pairs] * known).sum() / strength, 0.0, 1.0))


def held_out_spreads(
    baseline: NDArray[np.float64],
    run: NDArray[np.float64],
    channels: Sequence[str],
    alignment: AlignmentSetting,
    idle: NDArray[np.bool_],
) -> dict[str, Spread]:
    """For each of the ``channels`` the spread of ``run`` by an alignment on the others.

    An alignment makes its own channels alike, which says nothing of a metric that is none; near-duplicates of a channel
    are left out with it. ``baseline`` ``(n, c)``, ``run`` ``(m, c)``: the values to align on; ``idle``: ``(m,)``, see
    `even_spread_of_path`. A channel that leaves none to align on is missing.
    """
    if len(channels) < 2 or min(len(baseline), len(run)) < MIN_RECORDS:
        return {}
    duplicates = near_duplicates([prepare(baseline, channels, "baseline")])
    paths = alignment_paths(baseline, run, channels, held_out=True, duplicates=duplicates, alignment=alignment)
    return {channels[number]: even_spread_of_path(path, idle) for number, path in paths.items()}


def _ranks(values: NDArray[np.int64]) -> NDArray[np.float64]:
    """Standard ranks of the columns, as rows."""
    return np.array([standard_ranks(column)[0] for column in values.T])


def _tied(trace: Trace, metric: str) -> bool:
    return standard_ranks(trace.counts((metric,))[:, 0])[1] > TIED * trace.n_records
