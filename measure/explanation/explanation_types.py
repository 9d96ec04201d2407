"""Types of an explanation: parts of a change that add up, compiler decisions, remedies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from measure.perturbation.analysis_types import Perturbation, Verdict
from measure.stats.intervals import t_quantile

LEAST_SHARE = 0.5
"""Of the campaign's change, over all relations together. Broken relations are those that changed most, by chance as
well, so that other runs show somewhat less."""
_SAME_POINTS, _SAME_PART = 1.0, 0.1
"""Overheads in instructions that differ by no more than so many percentage points, and this part of the campaign's,
count as the same: it depends a little on the code layout, and on times in programs that read them."""
LEVEL = 0.95
CAUSE = 0.1
"""Share of the change from which a mechanism is called a cause."""


@dataclass(frozen=True)
class Estimate:
    """A mean over pairs of runs and its 95% interval; nan bounds with fewer than two pairs."""

    mean: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        """Whether the whole interval lies on one side of 0."""
        return self.low > 0 or self.high < 0

    @property
    def includes_zero(self) -> bool:
        """Whether 0 is in the interval; not without one."""
        return self.low <= 0 <= self.high


def share_text(estimate: Estimate) -> str:
    """A share with its interval: ``86% (80 to 92)``."""
    if not math.isfinite(estimate.mean):
        return "unknown"
    if not math.isfinite(estimate.low):
        return f"{100 * estimate.mean:z.0f}%"
    return f"{100 * estimate.mean:z.0f}% ({100 * estimate.low:z.0f} to {100 * estimate.high:z.0f})"


def told_share(estimate: Estimate) -> str:
    """`share_text`, for a sentence that names a cause: what cannot be told from 0 is said to be so."""
    text = share_text(estimate)
    return f"a share that cannot be told from 0, {text}," if estimate.includes_zero else text


def estimate(values: NDArray[np.float64], level: float = LEVEL) -> Estimate:
    """The mean of ``values``, (n_pairs,), with Student's interval of ``level``; nan values are left out."""
    defined = values[np.isfinite(values)]
    if not len(defined):
        return Estimate(float("nan"), float("nan"), float("nan"))
    mean = float(defined.mean())
    if len(defined) < 2:
        return Estimate(mean, float("nan"), float("nan"))
    half = float(t_quantile(len(defined) - 1, 0.5 + level / 2) * defined.std(ddof=1) / np.sqrt(len(defined)))
    return Estimate(mean, mean - half, mean + half)


@dataclass(frozen=True)
class Part:
    """A part of a change. ``values``: (n_pairs, n_relations), the change of z that it makes in each pair of runs."""

    name: str
    about: str
    values: NDArray[np.float64]

    def of(self, relation: int) -> Estimate:
        """What it changes one relation by."""
        return estimate(self.values[:, relation])


@dataclass(frozen=True)
class Change:
    """A change of several relations and its parts, which add up to it in every pair of runs.

    ``whole``: (n_pairs, n_relations), change of z; ``parts``: largest share first; ``interactions``: parts whose size
    depends on what else is there, with how much.
    """

    whole: NDArray[np.float64]
    parts: tuple[Part, ...]
    interactions: tuple[str, ...] = ()

    def share(self, part: Part) -> Estimate:
        """The part's share of the whole change over all relations together, as a fraction; signed: a part that works
        against the change has a negative share."""
        return self.share_of(part.values)

    def share_of(self, values: NDArray[np.float64]) -> Estimate:
        """`share` for changes of z that are no part, (n_pairs, n_relations)."""
        return estimate(np.nansum(values * direction(self.whole), axis=1))

    @property
    def causes(self) -> tuple[Part, ...]:
        """The parts that are shown to make a share of at least `CAUSE`, largest share first."""
        shares = [(part, self.share(part)) for part in self.parts]
        return tuple(part for part, share in shares if share.mean >= CAUSE and not share.low <= 0)

    def first_is_clear(self, level: float) -> bool:
        """Whether the first part's share is larger than the second's, by the interval of ``level`` of their difference
        in the same pairs of runs."""
        if len(self.parts) < 2:
            return True
        difference = self.parts[0].values - self.parts[1].values
        return estimate(np.nansum(difference * direction(self.whole), axis=1), level).low > 0


def direction(whole: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights of relations, (n_relations,), that project a change on the mean direction of ``whole``: the projection of
    the mean of ``whole`` is 1. Zeros when nothing changes."""
    defined = np.isfinite(whole)
    mean = np.where(defined, whole, 0).sum(axis=0) / np.maximum(defined.sum(axis=0), 1)
    total = np.abs(mean).sum()
    return np.asarray(np.sign(mean) / total if total > 0 else np.zeros_like(mean))


def ordered(whole: NDArray[np.float64], parts: Sequence[Part], interactions: Sequence[str] = ()) -> Change:
    """The change with its parts, largest share first."""
    change = Change(whole, tuple(parts), tuple(interactions))
    shares = {part.name: change.share(part).mean for part in parts}
    return Change(whole, tuple(sorted(parts, key=lambda part: -abs(shares[part.name]))), tuple(interactions))


@dataclass(frozen=True)
class Reproduction:
    """What the explanation's runs show of the campaign's change.

    ``share``: their change over the campaign's, as a fraction, projected as `Change.share`; ``instructions_percent``:
    overhead in instructions of their instrumented program; ``judged_instructions_percent``: that of the campaign's,
    nan if it is not known.
    """

    share: Estimate
    instructions_percent: Estimate
    judged_instructions_percent: float

    @property
    def lacks_change(self) -> bool:
        """Whether the change is shown to be less than `LEAST_SHARE` of the campaign's, or is less and not told from
        0."""
        share = self.share
        return share.mean < LEAST_SHARE and not (share.low > 0 and share.high >= LEAST_SHARE)

    @property
    def differs_in_instructions(self) -> bool:
        """Whether another program was measured, by the instructions that it executes."""
        found, judged = self.instructions_percent, self.judged_instructions_percent
        low, high = (found.low, found.high) if math.isfinite(found.low) else (found.mean, found.mean)
        return max(low - judged, judged - high) > _SAME_POINTS + _SAME_PART * abs(judged)

    @property
    def failed(self) -> bool:
        """Whether what the campaign judged is not what was explained."""
        return self.lacks_change or self.differs_in_instructions


@dataclass(frozen=True)
class MetricEffect:
    """What one software metric does. ``left_out``, ``alone``: the change of z that it makes as the last one added and
    as the only one, (n_pairs, n_relations)."""

    metric: str
    left_out: NDArray[np.float64]
    alone: NDArray[np.float64]


@dataclass(frozen=True)
class SiteEffect:
    """What counting at one place alone does. ``place``: ``file:line``; ``values``: as in `Part`."""

    metric: str
    place: str
    values: NDArray[np.float64]


@dataclass(frozen=True)
class Decision:
    """Something that the compiler made otherwise in the instrumented program. ``kind``: inlining, library
    calls, size, spills or loops; ``place``: ``file:line`` of the function, "" if unknown; ``is_idle``: whether it is
    about a call that the run never makes."""

    kind: str
    function: str
    place: str
    text: str
    is_idle: bool = False


BEST_FIRST: tuple[Verdict, ...] = ("equivalent", "not assessable", "inconclusive", "changed", "perturbed")
"""Verdicts in the order in which remedies are preferred."""


_UNEXPLAINED = {
    "inconclusive": "so no change is shown that could be explained; the report says how many more runs would settle it",
    "not assessable": "nothing to explain: what can be assessed is not perturbed, and the report names what cannot",
}


def unexplained(verdict: str) -> str:
    """Why a variant with this verdict is not explained."""
    return _UNEXPLAINED.get(verdict, "nothing to explain")


@dataclass(frozen=True)
class Remedy:
    """A remedy that was tried.

    ``name``, ``about``: what was tried; ``verdict``: the worst over the runs that it takes; ``perturbation``: that
    verdict's, in pairs with the plain program's runs; ``left``: largest change of z over all
    relations; ``cycles_percent``: overhead over the plain program, of the costliest one of the programs
    that it runs, the mean over pairs of runs; ``gives_up``: what it costs beside
    time, in words that can follow "it gives up"; ``campaign``: changes of the campaign file, by key, empty where no
    software metric is left to collect; ``confirming_pairs``:
    further pairs of runs that the verdict rests on, 0 if it rests on those by which remedies were ranked;
    ``by_construction``: what the machine counts is, in every pair, what it counts in the plain run, to the event;
    ``on_any_machine``: every metric has a counter that a real machine can run, too.
    """

    name: str
    about: str
    verdict: Verdict
    perturbation: Perturbation
    left: float
    cycles_percent: float
    gives_up: str
    campaign: Mapping[str, object] = field(default_factory=dict)
    confirming_pairs: int = 0
    by_construction: bool = False
    on_any_machine: bool = True

    @property
    def helps(self) -> bool:
        """Whether the relations are equivalent with it by construction, or further runs confirm that they are."""
        return self.verdict == "equivalent" and (self.confirming_pairs > 0 or self.by_construction)

    @property
    def rank(self) -> tuple[bool, int, float, float]:
        """Order of remedies: those that help first; by verdict, then by what is left, then by cost."""
        return not self.helps, BEST_FIRST.index(self.verdict), self.left, self.cycles_percent


@dataclass(frozen=True)
class Explanation:
    """Why the relations of one variant are perturbed, and what helps.

    ``campaign``, ``variant``, ``verdict``: what is explained, and its verdict; ``where``: relations are broken within a
    run, across runs, or both; ``relations``: pairs of metrics, a metric twice for a relation across runs;
    ``baseline_z``, ``run_z``: (n_pairs, n_relations), of the paired runs;
    ``metrics``: parts by software metric; ``effects``: of each metric left out and alone; ``sites``: of the first
    metric; ``mechanisms``: parts by mechanism; ``cuts``: see `measure.explanation.mechanisms.Mechanisms`;
    ``added_counts``: see `measure.explanation.added_counts`, None where no decisions of the compiler are a cause;
    ``decisions``: of the compiler; ``remedies``: the best first;
    ``refused``: remedies that could not be tried, and why; ``counter_lines``: lines with counters' instructions, with
    the executions of these in a run; ``own_instructions_percent``: instructions of the instrumented program without its
    counters', over those of the plain one; ``reproduction``: what these runs show of the change that the campaign
    judged; ``probes``: software metrics whose counters the machine does not see; ``runs``, ``seconds``: made for the
    explanation.
    """

    campaign: str
    variant: str
    relations: tuple[tuple[str, str], ...]
    verdict: str
    where: str
    baseline_z: NDArray[np.float64]
    run_z: NDArray[np.float64]
    metrics: Change
    effects: tuple[MetricEffect, ...]
    sites: tuple[SiteEffect, ...]
    mechanisms: Change
    cuts: NDArray[np.float64] | None
    added_counts: NDArray[np.float64] | None
    decisions: tuple[Decision, ...]
    remedies: tuple[Remedy, ...]
    refused: tuple[str, ...]
    counter_lines: tuple[tuple[str, int], ...]
    own_instructions_percent: float
    reproduction: Reproduction
    probes: tuple[str, ...]
    runs: int
    seconds: float

    @property
    def n_pairs(self) -> int:
        """Pairs of runs."""
        return len(self.run_z)

    @property
    def written(self) -> Remedy | None:
        """The remedy whose campaign file is written: the best one, or where that leaves no software metric to collect,
        the next one that helps. None where something else than the campaign's change was explained."""
        if self.reproduction.failed:
            return None
        if not self.remedies or self.remedies[0].campaign:
            return next(iter(self.remedies), None)
        return next((one for one in self.remedies if one.helps and one.campaign), None)
