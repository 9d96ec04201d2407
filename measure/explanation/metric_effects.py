"""Which software metric changes the relations: Shapley values, and some metrics left out and alone.

The Shapley value of a metric is its mean effect over all orders in which the metrics can be added (Shapley, "A value
for n-person games", 1953). The values add up to the whole change. Of up to three metrics every set is measured. Of
more, one order and its reverse come first; their mean is the Shapley value where no more than two metrics interact. If
each metric adds the same to every relation in both, no further one is needed; else every set of four metrics is
measured, and orders of more are sampled, each with its reverse (Castro, Gomez and Tejada, "Polynomial calculation of
the Shapley value based on sampling", 2009).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from instrumenter.spec.software_metrics import MetricSpec
from measure.explanation.explanation_types import (
    LEVEL,
    Change,
    MetricEffect,
    Part,
    SiteEffect,
    direction,
    estimate,
    ordered,
    told_share,
)
from measure.explanation.lattice import shapley_values, subsets
from measure.explanation.orders import ALWAYS_EXACT, INTERACTION, MOST_EXACT, Steps, agree, is_shown, sets_of, steps_of
from measure.explanation.paired_runs import PLAIN, PairedRuns, ProgramChoice
from measure.explanation.relations import Relations, relation_text

MOST_SITES = 6


class MetricEffects:
    """Effects of the metrics of ``choice`` on ``relations``."""

    def __init__(self, paired: PairedRuns, choice: ProgramChoice, relations: Relations) -> None:
        self._paired, self._choice, self._relations = paired, choice, relations
        self._z: dict[frozenset[str], NDArray[np.float64]] = {}

    def values(self, sets: Sequence[frozenset[str]]) -> list[NDArray[np.float64]]:
        """z of the relations when each of ``sets`` is collected, (n_pairs, n_relations)."""
        missing = [one for one in dict.fromkeys(sets) if one not in self._z]
        choices = {one: self.choice_of(one) for one in missing}
        if choices:
            made = self._paired.runs([*choices.values(), PLAIN])
        for one, choice in choices.items():
            self._z[one] = self._relations.values(made[choice], made[PLAIN])
        return [self._z[one] for one in sets]

    def choice_of(self, metrics: frozenset[str]) -> ProgramChoice:
        """The program that collects ``metrics``, in the variant's order."""
        return self._choice.only(metrics)

    def left_out_and_alone(self) -> tuple[MetricEffect, ...]:
        """Those metrics, in the variant's order, that were both left out of the variant and collected alone."""
        metrics = self._choice.metrics
        everything, nothing = frozenset(metrics), frozenset[str]()
        return tuple(
            MetricEffect(
                metric, self._z[everything] - self._z[everything - {metric}],
                self._z[frozenset({metric})] - self._z[nothing],
            )
            for metric in metrics
            if {everything, nothing, everything - {metric}, frozenset({metric})} <= self._z.keys()
        )  # fmt: skip

    def shapley(self, deadline: float, seed: int) -> Change:
        """The change and the part of each metric. With more than `MOST_EXACT` metrics orders are sampled until
        ``deadline`` (of `time.monotonic`), at least one and its reverse, or until all sets of metrics have been run.
        The metric with the largest share is also collected alone, and left out."""
        metrics = self._choice.metrics
        everything, nothing = frozenset(metrics), frozenset[str]()
        first = self._by_events()
        orders = list(dict.fromkeys([first, first[::-1]]))
        whole, none = self.values([everything, nothing])
        if len(metrics) <= ALWAYS_EXACT:
            self.values(list(subsets(metrics)))
        elif not agree(self._steps(orders), whole - none):
            if len(metrics) <= MOST_EXACT:
                self.values(list(subsets(metrics)))
            else:
                orders = self._sampled(deadline, seed)
        if self._knows_all_sets:
            sets = list(subsets(metrics))
            found = shapley_values(dict(zip(sets, self.values(sets), strict=True)), metrics)
            about = "mean over all orders"
        else:
            found = {metric: np.mean(values, axis=0) for metric, values in self._steps(orders).items()}
            about = f"mean over {len(orders)} orders"
        change = ordered(whole - none, [Part(metric, about, value) for metric, value in found.items()])
        largest = change.parts[0].name
        self.values([everything - {largest}, frozenset({largest})])
        together = self._together(whole - none) if len(metrics) > 2 else []
        return replace(change, interactions=(*together, *self._interactions(whole - none)))

    def _by_events(self) -> tuple[str, ...]:
        """The metrics, the one with most events first, which probably changes most: then its sets are those that say
        most, itself alone and all others."""
        made = self._paired.runs([self._choice, PLAIN])[self._choice]
        events = {m: sum(int(run.trace.columns((m,)).sum()) for run in made) for m in self._choice.metrics}
        return tuple(sorted(self._choice.metrics, key=lambda metric: -events[metric]))

    def _steps(self, orders: Sequence[tuple[str, ...]]) -> Steps:
        """By metric, the change of z when it is added in each of ``orders``."""
        self.values(sets_of(orders))
        return steps_of(self._z, orders)

    @property
    def _knows_all_sets(self) -> bool:
        """Whether further orders would need no further runs."""
        return len(self._z) == 2 ** len(self._choice.metrics)

    def _sampled(self, deadline: float, seed: int) -> list[tuple[str, ...]]:
        """Random orders, each with its reverse, until ``deadline`` or until all sets are known; at least one."""
        metrics = self._choice.metrics
        rng = np.random.default_rng([seed, len(metrics)])
        found: list[tuple[str, ...]] = []
        while not found or (time.monotonic() < deadline and not self._knows_all_sets):
            order = tuple(metrics[n] for n in rng.permutation(len(metrics)))
            self._steps([order, order[::-1]])
            found += [order, order[::-1]]
        return found

    def _together(self, whole: NDArray[np.float64]) -> list[str]:
        """A sentence where what the metrics change alone adds up to another change than ``whole``, that of all; empty
        where they were not all collected alone."""
        metrics, (nothing,) = self._choice.metrics, self.values([frozenset()])
        if not all(frozenset({metric}) in self._z for metric in metrics):
            return []
        alone = [self._z[frozenset({metric})] - nothing for metric in metrics]
        gap = whole - np.sum(alone, axis=0)
        if not is_shown(gap, whole):
            return []
        n = int(np.nanargmax(np.abs(np.where(np.isfinite(gap), gap, 0).mean(axis=0))))
        each = ", ".join(f"{m} {np.nanmean(one[:, n]):+.2f}" for m, one in zip(metrics, alone, strict=True))
        return [
            f"the metrics interact: what they change alone does not add up to what they change together, most in "
            f"{relation_text(self._relations.chosen[n])}: {each}, together {np.nanmean(whole[:, n]):+.2f}"
        ]

    def _interactions(self, whole: NDArray[np.float64]) -> list[str]:
        """Sentences on metrics whose effect depends on which others are there; these share the error (Bonferroni)."""
        weights, effects = direction(whole), self.left_out_and_alone()
        found = []
        for effect in effects:
            last, alone = (np.nansum(v * weights, axis=1) for v in (effect.left_out, effect.alone))
            difference = estimate(last - alone, 1 - (1 - LEVEL) / len(effects))
            if difference.excludes_zero and abs(difference.mean) > INTERACTION:
                found.append(
                    f"{effect.metric} interacts with the others: of the change it makes {told_share(estimate(alone))} "
                    f"alone and {told_share(estimate(last))} when it is added last"
                )
        return found

    def sites(self, metric: str) -> tuple[SiteEffect, ...]:
        """What counting ``metric`` at each of its places alone does; none when it has only one place.

        Of more than `MOST_SITES` places the first are taken.
        """
        full = self._paired.build(self._choice)
        places = list(full.places.get(metric, {}))[:MOST_SITES]
        spec = dict(self._choice.specs).get(metric) or self._paired.campaign.software_metrics[metric]
        if len(places) < 2 or spec.line is not None or spec.event == "exit":  # all exits belong to one line
            return tuple(SiteEffect(metric, place, self._alone(metric)) for place in places[:1])
        choices = {place: self._at(metric, spec, place) for place in places}
        made = self._paired.runs([*choices.values(), PLAIN])
        (none,) = self.values([frozenset()])
        found = [
            SiteEffect(metric, place, self._relations.values(made[choice], made[PLAIN]) - none)
            for place, choice in choices.items()
        ]
        weights = direction(self._alone(metric))
        return tuple(sorted(found, key=lambda one: -float(np.nansum(one.values * weights, axis=1).mean())))

    def _alone(self, metric: str) -> NDArray[np.float64]:
        alone, none = self.values([frozenset({metric}), frozenset()])
        return alone - none

    def _at(self, metric: str, spec: MetricSpec, place: str) -> ProgramChoice:
        """The program that counts ``metric`` at one place only."""
        file, _, line = place.rpartition(":")
        narrowed = spec.model_copy(update={"file": Path(file).name, "line": int(line)})
        others = tuple(item for item in self._choice.specs if item[0] != metric)
        return replace(self._choice.only((metric,)), specs=(*others, (metric, narrowed)))
