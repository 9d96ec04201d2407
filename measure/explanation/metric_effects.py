"""Which software metric changes the relations: each left out, each alone, and Shapley values.

The Shapley value of a metric is its mean effect over all orders in which the metrics can be added (Shapley, "A value
for n-person games", 1953). The values add up to the whole change. With many metrics, orders are sampled, each with
its reverse (Castro, Gomez and Tejada, "Polynomial calculation of the Shapley value based on sampling", 2009).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from instrumenter.spec.software_metrics import MetricSpec
from measure.explanation.explanation_types import Change, MetricEffect, Part, SiteEffect, direction, ordered
from measure.explanation.lattice import shapley_values, subsets
from measure.explanation.paired_runs import PLAIN, PairedRuns, ProgramChoice
from measure.explanation.relations import Relations

MOST_EXACT_METRICS = 4  # 16 sets
MOST_SITES = 6
_INTERACTION = 0.1  # of the whole change, from which an interaction is said


class MetricEffects:
    """Effects of the metrics of ``choice`` on ``relations``."""

    def __init__(self, paired: PairedRuns, choice: ProgramChoice, relations: Relations) -> None:
        self._paired, self._choice, self._relations = paired, choice, relations
        self._z: dict[frozenset[str], NDArray[np.float64]] = {}

    def values(self, sets: Sequence[frozenset[str]]) -> list[NDArray[np.float64]]:
        """z of the relations when each of ``sets`` is collected, (n_pairs, n_relations)."""
        missing = [one for one in dict.fromkeys(sets) if one not in self._z]
        choices = {one: self.choice_of(one) for one in missing}
        made = self._paired.runs([*choices.values(), PLAIN])
        for one, choice in choices.items():
            self._z[one] = self._relations.values(made[choice], made[PLAIN])
        return [self._z[one] for one in sets]

    def choice_of(self, metrics: frozenset[str]) -> ProgramChoice:
        """The program that collects ``metrics``, in the variant's order."""
        return replace(self._choice, metrics=tuple(m for m in self._choice.metrics if m in metrics))

    def one_by_one(self) -> tuple[MetricEffect, ...]:
        """Each metric left out of the variant, and alone."""
        metrics = self._choice.metrics
        everything, nothing = frozenset(metrics), frozenset[str]()
        sets = [everything, nothing]
        sets += [everything - {m} for m in metrics] + [frozenset({m}) for m in metrics]
        whole, none, *others = self.values(sets)
        without, alone = others[: len(metrics)], others[len(metrics) :]
        return tuple(
            MetricEffect(metric, whole - left, one - none)
            for metric, left, one in zip(metrics, without, alone, strict=True)
        )

    def shapley(self, deadline: float, seed: int) -> Change:
        """The change and the part of each metric. With more than `MOST_EXACT_METRICS` metrics orders are sampled until
        ``deadline`` (of `time.monotonic`), at least one and its reverse, or until all sets of metrics have been run."""
        metrics = self._choice.metrics
        exact = len(metrics) <= MOST_EXACT_METRICS
        if not exact:
            found, count = self._mean_effects(deadline, seed)
            exact = self._knows_all_sets
            about = f"mean over {count} orders"
        if exact:
            sets = list(subsets(metrics))
            found = shapley_values(dict(zip(sets, self.values(sets), strict=True)), metrics)
            about = "mean over all orders"
        whole, none = self.values([frozenset(metrics), frozenset()])
        parts = [Part(metric, about, value) for metric, value in found.items()]
        return ordered(whole - none, parts, self._interactions(whole - none))

    def _mean_effects(self, deadline: float, seed: int) -> tuple[dict[str, NDArray[np.float64]], int]:
        """The mean effect of each metric where it is added, over sampled orders, and the number of these."""
        effects: dict[str, list[NDArray[np.float64]]] = {metric: [] for metric in self._choice.metrics}
        count = 0
        for order in self._sampled(deadline, seed):
            z = self.values([frozenset(order[:n]) for n in range(len(order) + 1)])
            for n, metric in enumerate(order):
                effects[metric].append(z[n + 1] - z[n])
            count += 1
        return {metric: np.mean(steps, axis=0) for metric, steps in effects.items()}, count

    @property
    def _knows_all_sets(self) -> bool:
        """Whether further orders would need no further runs."""
        return len(self._z) == 2 ** len(self._choice.metrics)

    def _sampled(self, deadline: float, seed: int) -> Iterator[tuple[str, ...]]:
        metrics = self._choice.metrics
        rng = np.random.default_rng([seed, len(metrics)])
        first = True
        while first or (time.monotonic() < deadline and not self._knows_all_sets):
            order = tuple(metrics[n] for n in rng.permutation(len(metrics)))
            yield order
            yield order[::-1]
            first = False

    def _interactions(self, whole: NDArray[np.float64]) -> list[str]:
        """Sentences on metrics whose effect depends on which others are there."""
        weights = direction(whole)
        found = []
        for effect in self.one_by_one():
            last, alone = (float(np.nansum(v * weights, axis=1).mean()) for v in (effect.left_out, effect.alone))
            if len(self._choice.metrics) > 1 and abs(last - alone) > _INTERACTION:
                found.append(
                    f"{effect.metric} interacts with the others: it makes {alone:.0%} of the change alone and "
                    f"{last:.0%} when it is added last"
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
        return replace(self._choice, metrics=(metric,), specs=(*others, (metric, narrowed)))
