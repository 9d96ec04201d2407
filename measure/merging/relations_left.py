"""How much of a relation between two metrics is left when one of them is moved from another run's records.

The baseline and the run of a merge both have the hardware metrics, so the relations of these are known. Moved to the
baseline's records as a software metric is, a hardware metric shows what becomes of a relation on the way: where records
are cut at other places of the program than the baseline's, a count cannot be placed better than to the record that it
was counted in, and what changes from record to record is smoothed out, however good the alignment is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
FAINT = 0.05
"""Warn where known relations are off by this or more: a correlation of twice as much may be absent, or turned round."""
_STRONG = 0.3  # a known correlation from which on it can be seen how much of it is left
_MOST_ERROR = 0.2  # standard error of what is left, where records are independent of one another


@dataclass(frozen=True)
class RelationsLeft:
    """What is left of known relations of hardware metrics that are moved as a run's software metrics are.

    ``share``: 0 to 1, in the mean: the slope, through 0, of the relations shown on the known ones; ``error``: root mean
    square of how far they are off, as correlations; ``worst``: the two metrics whose relation is furthest off,
    ``known`` and ``shown`` so. nan and empty where no relation is known that is strong enough to tell.
    """

    share: float = float("nan")
    error: float = float("nan")
    worst: tuple[str, str] = ("", "")
    known: float = float("nan")
    shown: float = float("nan")

    @property
    def is_known(self) -> bool:
        """Whether some relation is strong enough to tell."""
        return not np.isnan(self.share)

    @property
    def worst_in_words(self) -> str:
        """The relation that is furthest off."""
        return f"{self.worst[0]} with {self.worst[1]}, {self.known:.2f} shown as {self.shown:.2f}"


NOTHING_KNOWN = RelationsLeft()


def relations_left(
    baseline: Trace, run: Trace, metrics: Sequence[str], spreads: Mapping[str, Spread]
) -> RelationsLeft:  # fmt: skip
    """What is left of known relations when one of both metrics is moved by its spread.

    ``metrics``: hardware metrics that both have; ``spreads``: of ``run`` over ``baseline``, by metric, for those that
    are moved. A relation is Spearman's rho of two metrics; its known value is the mean over the two traces, each by
    itself, so that what counters changed within the run is not taken for a fault of the alignment. It is shown between
    one metric as the baseline has it and another one moved there. Metrics that are tied in either trace are left out.
    """
    names = tuple(metric for metric in metrics if not (_tied(baseline, metric) or _tied(run, metric)))
    placed = tuple(metric for metric in names if metric in spreads)
    own = _ranks(baseline.counts(names))
    return _left(baseline, run, names, placed, own, _moved(run, placed, spreads))


def relations_left_of_two(
    first: Trace, first_spreads: Mapping[str, Spread], second: Trace, second_spreads: Mapping[str, Spread]
) -> RelationsLeft:  # fmt: skip
    """What is left of known relations when both metrics are moved, from two runs.

    As `relations_left`, of the metrics for which both runs have a spread.
    """
    placed = tuple(
        metric
        for metric in first_spreads
        if metric in second_spreads and not (_tied(first, metric) or _tied(second, metric))
    )
    return _left(first, second, placed, placed, _moved(first, placed, first_spreads),
                 _moved(second, placed, second_spreads))  # fmt: skip


def _left(
    first: Trace, second: Trace, names: tuple[str, ...], placed: tuple[str, ...], left: NDArray[np.float64],
    right: NDArray[np.float64],
) -> RelationsLeft:  # fmt: skip
    """Relations of ``names`` in the ranks ``left`` to ``placed`` in the ranks ``right``, against those in both runs."""
    n = min(first.n_records, second.n_records)
    if n < MIN_RECORDS or len(names) < 2 or not placed:
        return NOTHING_KNOWN
    of = [(a, b) for a in range(len(names)) for b in range(len(placed)) if names[a] != placed[b]]
    rows, columns = np.array(of).T
    own, other = (_ranks(trace.counts(names)) for trace in (first, second))
    known = ((own @ own.T + other @ other.T) / 2)[rows, [names.index(placed[b]) for b in columns]]
    shown = (left @ right.T)[rows, columns]
    strength = float((known**2).sum())
    if np.abs(known).max() < _STRONG or n * strength < 1 / _MOST_ERROR**2:
        return NOTHING_KNOWN
    off = shown - known
    worst = int(np.abs(off).argmax())
    return RelationsLeft(
        float(np.clip((shown * known).sum() / strength, 0.0, 1.0)),
        float(np.sqrt((off**2).mean())),
        (names[rows[worst]], placed[columns[worst]]),
        float(known[worst]),
        float(shown[worst]),
    )


def _moved(run: Trace, metrics: Sequence[str], spreads: Mapping[str, Spread]) -> NDArray[np.float64]:
    """Ranks of ``metrics`` of ``run``, each moved by its spread, as rows."""
    if not metrics:
        return np.empty((0, 0))
    return _ranks(np.column_stack([spreads[metric].counts(run.counts((metric,))) for metric in metrics]))


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
