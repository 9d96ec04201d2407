"""The relations that an explanation is about, and their values in runs.

A relation within a run is the correlation of two metrics. One across runs is how like the other plain runs' a metric
is when runs are aligned, as `measure.perturbation.outer` compares them. Both are Fisher's z, so that their changes can
be added and compared.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from measure.alignment.setting import AlignmentSetting
from measure.explanation.explanation_types import Reproduction, direction, estimate
from measure.perturbation.analysis_types import BROKEN, Perturbation
from measure.perturbation.similarity import PreparedRun, SimilarityRule, near_duplicates, prepare, similarity
from measure.run_types import Run
from measure.stats.correlation import fisher_z, spearman

Relation = tuple[str, str]
"""Two metrics of a run; twice the same metric for a relation across runs."""


def relation_text(relation: Relation) -> str:
    """The relation, for people."""
    a, b = relation
    return f"{a} across runs" if a == b else f"{a} - {b}"


def broken_relations(*perturbations: Perturbation | None) -> list[Relation]:
    """Relations of which a change is shown, worst first in each comparison."""
    found = [
        (pair.a, pair.b)
        for one in perturbations if one is not None
        for pair in one.pairs if pair.verdict in BROKEN
    ]  # fmt: skip
    return list(dict.fromkeys(found))


def judged_changes(relations: Sequence[Relation], *perturbations: Perturbation | None) -> NDArray[np.float64]:
    """The change of z of each of ``relations``, (n_relations,), that the runs of ``perturbations`` show; nan if none
    has it."""
    changes = {(pair.a, pair.b): pair.delta_z for one in perturbations if one is not None for pair in one.pairs}
    return np.array([changes.get(relation, np.nan) for relation in relations])


def reproduction(
    whole: NDArray[np.float64], judged: NDArray[np.float64], runs: Sequence[Run], plain: Sequence[Run],
    judged_instructions_percent: float,
) -> Reproduction:  # fmt: skip
    """Compare a change of z, ``whole``, (n_pairs, n_relations), of ``runs`` from the ``plain`` ones of the same pairs,
    with the mean change that the campaign ``judged``, (n_relations,)."""
    more = [100 * (run.total_instructions / base.total_instructions - 1) for run, base in zip(runs, plain, strict=True)]
    share = estimate(np.nansum(whole * direction(judged[None]), axis=1))
    return Reproduction(share, estimate(np.array(more)), judged_instructions_percent)


class Relations:
    """Relations of some hardware metrics.

    ``chosen``: the relations; ``hardware``: all metrics that runs are aligned on, each on the others, as verdicts are;
    ``alignment``: how.
    """

    def __init__(self, chosen: Sequence[Relation], hardware: tuple[str, ...], alignment: AlignmentSetting) -> None:
        self.chosen, self._hardware, self._alignment = tuple(chosen), hardware, alignment
        self._within = [n for n, (a, b) in enumerate(self.chosen) if a != b]
        self._across = [n for n, (a, b) in enumerate(self.chosen) if a == b]
        self._memo: dict[tuple[str, bytes, bytes], NDArray[np.float64]] = {}

    def values(self, runs: Sequence[Run], plain: Sequence[Run]) -> NDArray[np.float64]:
        """z of each relation in each run, (n_runs, n_relations). ``plain``: the plain program's runs, of which run i
        shares the noise of ``runs[i]``, which is compared with the others across runs."""
        found = np.full((len(runs), len(self.chosen)), np.nan)
        if self._within:
            first, second = ([self._hardware.index(self.chosen[n][k]) for n in self._within] for k in (0, 1))
            for n, run in enumerate(runs):
                rho = spearman(run.trace.counts(self._hardware), self._hardware).rho
                found[n, self._within] = fisher_z(rho[first, second])
        if self._across:
            metrics = [self._hardware.index(self.chosen[n][0]) for n in self._across]
            found[:, self._across] = self._likeness(runs, plain)[:, metrics]
        return found

    def _likeness(self, runs: Sequence[Run], plain: Sequence[Run]) -> NDArray[np.float64]:
        """Mean outer z of each run with the plain runs of other pairs, (n_runs, n_metrics)."""
        made, references = ([self._prepared(run) for run in side] for side in (runs, plain))
        how = SimilarityRule(True, self._alignment, near_duplicates(references))
        found = []
        for n, one in enumerate(made):
            others = [self._similarity(one, other, how) for k, other in enumerate(references) if k != n]
            found.append(np.mean(others, axis=0) if others else np.full(len(self._hardware), np.nan))
        return np.array(found)

    def _prepared(self, run: Run) -> PreparedRun:
        return prepare(run.trace.counts(self._hardware), self._hardware, run.spec.variant)

    def _similarity(self, one: PreparedRun, other: PreparedRun, how: SimilarityRule) -> NDArray[np.float64]:
        first, second = sorted((one, other), key=lambda run: run.digest)
        key = how.key, first.digest, second.digest
        if key not in self._memo:
            self._memo[key] = similarity(first, second, how)
        return self._memo[key]
