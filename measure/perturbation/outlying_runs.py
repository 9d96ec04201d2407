"""Finds runs that stand out from the other runs of their variant: one run in many may change a mean by itself.

A branch that shares an entry of a predictor in one code layout, say, multiplies the mispredictions of one run of ten.
Means of changes are then told as if all runs had them, and a test of spread hardly sees one run of ten. So a run whose
total of some metric is far from those of the others is a finding, and nothing is left out for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from measure.perturbation.wording import counted, listed_names
from measure.stats.correlation import fisher_z

FEWEST_RUNS = 5
"""Of fewer runs the median and its deviation tell nothing about one of them."""
LEAST_RATIO = 1.1
"""A total within this factor of the median never stands out, however closely the other runs agree."""
_SCALE_OF_MAD = 1.4826
"""Of normal noise, the standard deviation in median absolute deviations."""


@dataclass(frozen=True)
class RunGroup:
    """The runs of one variant, or the baselines.

    ``numbers``: (r,) what identifies each run, in pairs the same as of its baseline; ``labels``: (r,) each run in
    words; ``totals``: (r, m) events of each metric in all records; ``rho``: (r, m, m) correlations of the metrics;
    ``paired``: whether run and baseline of a number share their noise.
    """

    numbers: Sequence[int]
    labels: Sequence[str]
    totals: NDArray[np.float64]
    rho: NDArray[np.float64]
    paired: bool = False


@dataclass(frozen=True)
class OutlyingRuns:
    """Runs of ``variant`` (or the baselines) that stand out by the same metric.

    ``runs``: in words, ``totals``: their events of ``metric``; ``low``, ``high``: least and most of the other runs,
    of which there are ``others``; ``ratio``: the total that is furthest off over the median of all runs; ``further``:
    other metrics by which they stand out. ``relation``: the pair of metrics whose ``change`` of z, in the mean over
    runs of ``changed``, is most another one without these runs, ``change_without``; empty where none is defined.
    """

    variant: str
    metric: str
    runs: tuple[str, ...]
    totals: tuple[float, ...]
    low: float
    high: float
    others: int
    ratio: float
    further: tuple[str, ...] = ()
    relation: str = ""
    changed: str = ""
    change: float = math.nan
    change_without: float = math.nan
    numbers: tuple[int, ...] = field(default=())

    @property
    def brief(self) -> str:
        """Which runs stand out by what, as a clause."""
        also = f", and in {listed_names(self.further)}" if self.further else ""
        return (
            f"{listed_names(self.runs)} of {self.variant} stand{'s' if len(self.runs) == 1 else ''} out: {self.metric} "
            f"{listed_names([_number(total) for total in self.totals])} where the other {counted(self.others, 'run')} "
            f"have {_number(self.low)} to {_number(self.high)} ({self.ratio:.3g} times the median){also}"
        )

    @property
    def text(self) -> str:
        """The finding in sentences."""
        them = "it" if len(self.runs) == 1 else "them"
        sentences = [f"{self.brief[:1].upper()}{self.brief[1:]}."]
        if self.relation:
            of = f" in {self.changed}" if self.changed != self.variant else ""
            sentences.append(
                f"Without {them} the change of z of {self.relation}{of} is {self.change_without:+.3f} (with {them} "
                f"{self.change:+.3f})."
            )
        sentences.append(
            f"Nothing is left out for this: {len(self.runs)} of {len(self.runs) + self.others} runs did so, and "
            "further ones may, too; a mean over all describes neither these nor the others."
        )
        return " ".join(sentences)


def outlying_runs(groups: Mapping[str, RunGroup], baseline: str, metrics: Sequence[str]) -> tuple[OutlyingRuns, ...]:
    """The runs that stand out, those of the baselines first.

    ``groups``: the baselines, by the name ``baseline``, and the variants. A run stands out when the total of a metric
    is far from the median of its group (`standing_out`) and, in pairs, so is its ratio to that of its own baseline:
    what both runs of a pair have is told of the baseline.
    """
    found: list[OutlyingRuns] = []
    for name, group in groups.items():
        far = standing_out(group.totals)
        partners = _partners(group, groups[baseline]) if name != baseline and group.paired else None
        if partners is not None:
            rows, their_rows = partners
            with np.errstate(divide="ignore", invalid="ignore"):
                ratios = group.totals[rows] / groups[baseline].totals[their_rows]
            noise = 1 / np.maximum(1, groups[baseline].totals[their_rows])
            far[rows] &= standing_out(ratios, noise)
        for metric, chosen in _by_main_metric(group.totals, far).items():
            found.append(_finding(name, groups, baseline, metrics, metric, chosen, far))
    return tuple(found)


def standing_out(totals: NDArray[np.float64], count_noise: NDArray[np.float64] | None = None) -> NDArray[np.bool_]:
    """Which ``totals``, (r, m) of r runs, are far from the median of their column; none of fewer than `FEWEST_RUNS`.

    Far is by more than a factor of `LEAST_RATIO`, and, in logarithms, by more than `limit` times the spread: the
    median absolute deviation, as a standard deviation, and at least that of counts of independent events.
    ``count_noise``: variance of the logarithms by this counting, (r, m), where ``totals`` are no counts themselves.
    """
    runs = len(totals)
    if runs < FEWEST_RUNS:
        return np.zeros(totals.shape, bool)
    usable = (totals >= 0).all(axis=0) & np.isfinite(totals).all(axis=0)
    if count_noise is None:
        logs = np.log(np.maximum(np.where(usable, totals, 1), 0.5))
        least = np.sqrt(1 / np.maximum(1, np.median(totals, axis=0)))
    else:
        usable &= (totals > 0).all(axis=0)
        logs = np.log(np.where(usable, totals, 1))
        least = np.sqrt(2 * np.median(count_noise, axis=0))
    off = np.abs(logs - np.median(logs, axis=0))
    spread = np.maximum(_SCALE_OF_MAD * np.median(off, axis=0), least)
    return usable & (off > math.log(LEAST_RATIO)) & (off > limit(runs) * spread)


def limit(runs: int) -> float:
    """From how many standard deviations on a total stands out from those of ``runs`` runs.

    So high that in at most one of twenty campaigns without such runs there is one, with normal and mildly skewed noise
    (`tests/measure/perturbation/test_outlying_runs.py`); few runs hardly tell their spread.
    """
    return 9 + 90 / (runs - 4) ** 1.5


def _partners(group: RunGroup, baselines: RunGroup) -> tuple[list[int], list[int]]:
    """Rows of the runs of ``group`` whose baseline is there, and the rows of these."""
    there = {number: row for row, number in enumerate(baselines.numbers)}
    pairs = [(row, there[number]) for row, number in enumerate(group.numbers) if number in there]
    return [row for row, _ in pairs], [row for _, row in pairs]


def _by_main_metric(totals: NDArray[np.float64], far: NDArray[np.bool_]) -> dict[int, list[int]]:
    """Rows of the runs that stand out, by a column in which they are far from the median.

    Runs that are far in the same column are told together: by the column in which most of them are, and of several the
    one in which they are furthest.
    """
    logs = np.log(np.maximum(totals, 0.5))
    off = np.where(far, np.abs(logs - np.median(logs, axis=0)), 0.0)
    left = far.copy()
    found: dict[int, list[int]] = {}
    while left.any():
        metric = max(
            range(far.shape[1]), key=lambda n: (int(left[:, n].sum()), float(off[left[:, n], n].max(initial=0)))
        )
        found[metric] = np.flatnonzero(left[:, metric]).tolist()
        left[found[metric]] = False
    return found


def _finding(
    name: str, groups: Mapping[str, RunGroup], baseline: str, metrics: Sequence[str], metric: int, rows: list[int],
    far: NDArray[np.bool_],
) -> OutlyingRuns:  # fmt: skip
    group = groups[name]
    totals = group.totals[:, metric]
    rest = np.delete(totals, rows)
    mine = totals[rows]
    middle = max(0.5, float(np.median(totals)))
    furthest = mine[np.abs(np.log(np.maximum(mine, 0.5) / middle)).argmax()]
    further = tuple(m for n, m in enumerate(metrics) if n != metric and far[rows, n].any())
    variants = [one for one in groups if one != baseline] if name == baseline else [name]
    dropped = {group.numbers[row] for row in rows}
    relations = [_most_moved(one, name, groups, baseline, metrics, dropped) for one in variants]
    relation, changed, change, without = max(
        (one for one in relations if one is not None), key=lambda one: abs(one[2] - one[3]),
        default=("", "", math.nan, math.nan),
    )  # fmt: skip
    return OutlyingRuns(
        name if name != baseline else "the baselines", metrics[metric], tuple(group.labels[row] for row in rows),
        tuple(float(one) for one in mine), float(rest.min()), float(rest.max()), len(rest), float(furthest / middle),
        further, relation, changed, change, without, tuple(group.numbers[row] for row in rows),
    )  # fmt: skip


def _most_moved(
    variant: str, name: str, groups: Mapping[str, RunGroup], baseline: str, metrics: Sequence[str], dropped: set[int]
) -> tuple[str, str, float, float] | None:
    """The pair whose mean change in ``variant`` differs most without the ``dropped`` runs of the group ``name``: its
    metrics, the variant, the change with and without them; None where no pair is defined both times."""
    whole = _changes(groups[variant], groups[baseline], set(), set())
    of_baselines = dropped if name == baseline else set()
    rest = _changes(groups[variant], groups[baseline], dropped - of_baselines, of_baselines)
    if whole is None or rest is None or not np.isfinite(whole - rest).any():
        return None
    couples = list(combinations(metrics, 2))
    pair = int(np.nanargmax(np.abs(whole - rest)))
    return " - ".join(couples[pair]), variant, float(whole[pair]), float(rest[pair])


def _changes(
    group: RunGroup, baselines: RunGroup, without: set[int], without_baselines: set[int]
) -> NDArray[np.float64] | None:
    """The mean change of z of each pair of metrics, (n_pairs,), without the runs of these numbers: of the differences
    of pairs, or between means; None where no run is left."""
    rows = [n for n, number in enumerate(group.numbers) if number not in without]
    their_rows = [n for n, number in enumerate(baselines.numbers) if number not in without_baselines]
    if group.paired:
        mine, theirs = _partners(group, baselines)
        kept = [(a, b) for a, b in zip(mine, theirs, strict=True) if a in rows and b in their_rows]
        rows, their_rows = [a for a, _ in kept], [b for _, b in kept]
    if not rows or not their_rows:
        return None
    first, second = np.triu_indices(group.rho.shape[1], 1)
    after, before = (fisher_z(one.rho[:, first, second]) for one in (group, baselines))
    return np.asarray(after[rows].mean(axis=0) - before[their_rows].mean(axis=0))


def _number(total: float) -> str:
    return f"{total:,.0f}" if abs(total) >= 100 or float(total).is_integer() else f"{total:.3g}"
