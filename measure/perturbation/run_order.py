"""Whether runs were made in an order that lets drift of the machine pass for instrumentation.

Tests exchange runs as if each could have been made at any moment. If all baselines were made before all instrumented
runs and the machine drifts (temperature, memory that fragments, a file that grows), the two groups differ without any
instrumentation. Drift shows in the order of runs of one group: runs that follow one another are alike.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from measure.perturbation.analysis_types import BROKEN, VERDICTS, Pair, Perturbation, Verdict
from measure.perturbation.finding import Finding
from measure.perturbation.verdict import overall_verdict
from measure.perturbation.wording import listed_names, p_text
from measure.stats.correlation import Correlations, fisher_z
from measure.stats.permutation import NO_VARIATION, max_t

Order = Literal["unknown", "interleaved", "blocks"]
"""How the runs of baselines and variants followed one another: not told, alternating, or one group after the other."""

Couple = tuple[str, str]
"""Two metrics, in the order of the traces' columns."""

FEWEST_RUNS = 6
"""Runs of a group without which drift is not looked for: fewer have too few orders."""

N_ORDERS = 999


@dataclass(frozen=True)
class Drift:
    """Test for drift over the runs of a group, in their order.

    ``correlations``: of each pair's z from one run to the next; ``p_values``: of these, familywise over the pairs and
    ``together``; ``together``: the same two numbers for the mean of z over pairs. Without enough runs there is no pair.
    """

    correlations: Mapping[Couple, float]
    p_values: Mapping[Couple, float]
    together: tuple[float, float]

    @property
    def p_value(self) -> float:
        """The smallest, nan if there are too few runs."""
        return min((*self.p_values.values(), self.together[1]))

    @property
    def pair(self) -> Couple | None:
        """The pair that drifts most; None where the mean over pairs does, or without enough runs."""
        if not self.p_values:
            return None
        best = min(self.p_values, key=lambda pair: (self.p_values[pair], -self.correlations[pair]))
        return best if self.p_values[best] <= self.together[1] else None


def drift_of(runs: Sequence[Correlations], seed: int, pairs: Collection[Couple] | None = None) -> Drift:
    """Whether runs that follow one another are more alike than others, in any of ``pairs`` or in all of them together.

    The statistic is the lag-one autocorrelation of z (von Neumann 1941), and that of its mean over pairs, each brought
    to deviation 1; their largest is judged by permuting the order of runs. ``pairs``: default all; pairs whose z does
    not vary, or is undefined in a run, are left out.
    """
    metrics = runs[0].metrics
    first, second = np.triu_indices(len(metrics), 1)
    names = [(metrics[i], metrics[j]) for i, j in zip(first, second, strict=True)]
    z = fisher_z(np.array([one.rho[first, second] for one in runs]))
    usable = np.isfinite(z).all(axis=0) & (np.nan_to_num(z).std(axis=0) > NO_VARIATION)
    usable &= [pairs is None or name in pairs for name in names]
    if len(runs) < FEWEST_RUNS or not usable.any():
        return Drift({}, {}, (float("nan"), float("nan")))
    names = [name for name, kept in zip(names, usable, strict=True) if kept]
    z = z[:, usable]
    z = (z - z.mean(axis=0)) / z.std(axis=0)
    signs = np.sign(z.T @ z[:, 0])  # pairs that move against each other would cancel
    together = (z * np.where(signs == 0, 1.0, signs)).mean(axis=1, keepdims=True)
    series = np.hstack([z, together])
    rng = np.random.default_rng(seed)
    orders = np.vstack([np.arange(len(z)), *(rng.permutation(len(z)) for _ in range(N_ORDERS))])
    found = np.array([_from_run_to_run(series[order]) for order in orders])
    # A fall is alternation, not drift: only a positive correlation counts.
    test = max_t(-found, losses_only=np.ones(found.shape[1], np.bool_))
    correlations, p_values = found[0].tolist(), test.p_adjusted.tolist()
    return Drift(
        dict(zip(names, correlations[:-1], strict=True)),
        dict(zip(names, p_values[:-1], strict=True)),
        (correlations[-1], p_values[-1]),
    )


def _from_run_to_run(series: NDArray[np.float64]) -> NDArray[np.float64]:
    """Lag-one autocorrelation of each column of ``series`` ``(n, c)`` of mean 0."""
    square = (series**2).sum(axis=0)
    return np.asarray((series[1:] * series[:-1]).sum(axis=0) / np.where(square > 0, square, 1.0))


def weighed(
    result: Perturbation, order: Order, groups: Sequence[tuple[str, Sequence[Correlations]]], seed: int
) -> Perturbation:
    """``result`` with the verdict that the order of runs allows, and a finding that says why.

    Interleaved runs share any drift, so nothing changes. Else a significant change may be drift, if its own pair drifts
    (across runs: a pair of its metric), or the mean over the pairs that changed: then *perturbed* and *changed* become
    *inconclusive*. A drift of other pairs does not explain it. Where all baselines are known to come first, a drift too
    slow to be found cannot be excluded, and *perturbed* becomes *changed*. ``groups``: names and runs in their order,
    which share alpha.
    """
    if order == "interleaved":
        return result
    changed = [pair for pair in result.pairs if pair.verdict in BROKEN]
    level = result.alpha / len(groups)
    found = [(group, drift_of(runs, seed, _explaining(changed, runs[0].metrics))) for group, runs in groups]
    found = [(group, one) for group, one in found if one.p_value <= level]
    doubtful = [pair for pair in changed if any(_explains(one, pair, level) for _, one in found)]
    weakened: dict[Verdict, Verdict] = {"perturbed": "changed"} if order == "blocks" else {}
    pairs = [
        replace(pair, verdict="inconclusive" if pair in doubtful else weakened.get(pair.verdict, pair.verdict))
        for pair in result.pairs
    ]
    verdict = overall_verdict([pair.verdict for pair in pairs]) if changed else result.verdict
    sentences = []
    if found:
        group, one = min(found, key=lambda item: item[1].p_value)
        sentences.append(_drift_text(group, one, bool(changed)))
    elif order == "blocks":
        sentences.append(
            "All baselines were made before the instrumented runs: a slow drift of the machine cannot be told from a "
            "change; make the runs in turn, and say so with `--order interleaved`."
        )
    if verdict != result.verdict:
        sentences.append(
            f"Without regard to the order of runs the verdict would be {result.verdict}, as the next sentences say; it "
            f"is {verdict}."
        )
    elif doubtful:
        names = listed_names([pair.name for pair in doubtful])
        sentences.append(f"So {names} may not have changed (inconclusive), and the verdict rests on the others.")
    return replace(
        result,
        verdict=verdict,
        pairs=tuple(sorted(pairs, key=lambda pair: VERDICTS.index(pair.verdict))),
        said=(*([Finding(" ".join(sentences))] if sentences else []), *result.said),
        extra_runs_needed=result.extra_runs_needed if verdict == result.verdict else None,
    )


def _explaining(changed: Sequence[Pair], metrics: Sequence[str]) -> list[Couple] | None:
    """The pairs of ``metrics`` whose drift could explain what ``changed``; None, for all, where nothing did."""
    if not changed:
        return None
    return [couple for couple in combinations(metrics, 2) if any(_concerns(couple, pair) for pair in changed)]


def _concerns(couple: Couple, pair: Pair) -> bool:
    """Whether ``couple`` is ``pair``, or has its metric where ``pair`` is of one metric across runs."""
    return pair.a in couple and pair.b in couple


def _explains(drift: Drift, pair: Pair, level: float) -> bool:
    """Whether ``drift``, in all pairs that changed or in ``pair``, is significant at ``level``."""
    own = (p for couple, p in drift.p_values.items() if _concerns(couple, pair))
    return min(drift.together[1], *own, 1.0) <= level


def _drift_text(group: str, drift: Drift, changed: bool) -> str:
    """What drifts most in the runs of ``group``, and the remedy; ``changed``: only pairs that changed were tested."""
    which = "the pairs that changed" if changed else "all pairs"
    pair = drift.pair
    if pair is not None:
        what = f"z of {pair[0]} - {pair[1]} correlates at {drift.correlations[pair]:.2f}"
        p = drift.p_values[pair]
    else:
        what, p = f"the mean of z over {which} correlates at {drift.together[0]:.2f}", drift.together[1]
    return (
        f"The runs of {group} drift in their order: {what} from run to run ({p_text(p)} over {which}). Unless "
        "baselines and instrumented runs alternate, drift looks like a change: make them in turn, and say so with "
        "`--order interleaved`."
    )
