"""Whether runs were made in an order that lets drift of the machine pass for instrumentation.

Tests exchange runs as if each could have been made at any moment. If all baselines were made before all instrumented
runs and the machine drifts (temperature, memory that fragments, a file that grows), the two groups differ without any
instrumentation. Drift shows in the order of runs of one group: runs that follow one another are alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from measure.perturbation.analysis_types import Perturbation, Verdict
from measure.perturbation.wording import p_text
from measure.stats.correlation import Correlations, fisher_z
from measure.stats.permutation import NO_VARIATION, max_t

Order = Literal["unknown", "interleaved", "blocks"]
"""How the runs of baselines and variants followed one another: not told, alternating, or one group after the other."""

FEWEST_RUNS = 6
"""Runs of a group without which drift is not looked for: fewer have too few orders."""

N_ORDERS = 999


@dataclass(frozen=True)
class Drift:
    """Test for drift over the runs of a group, in their order.

    ``p_value``: familywise over all pairs of metrics, nan if there are too few runs; ``pair``: where runs that follow
    one another are most alike; ``correlation``: of its z from one run to the next.
    """

    p_value: float
    pair: tuple[str, str]
    correlation: float


def drift_of(runs: Sequence[Correlations], seed: int) -> Drift:
    """Whether runs that follow one another are more alike than others, in any pair of metrics or in all together.

    The statistic is the lag-one autocorrelation of z (von Neumann 1941), and that of its mean over pairs, each brought
    to deviation 1; their largest is judged by permuting the order of runs.
    """
    metrics = runs[0].metrics
    first, second = np.triu_indices(len(metrics), 1)
    z = fisher_z(np.array([one.rho[first, second] for one in runs]))
    usable = np.isfinite(z).all(axis=0) & (np.nan_to_num(z).std(axis=0) > NO_VARIATION)
    names = [(metrics[i], metrics[j]) for i, j in zip(first[usable], second[usable], strict=True)]
    if len(runs) < FEWEST_RUNS or not names:
        return Drift(float("nan"), ("", ""), float("nan"))
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
    best = int(np.argmax(found[0, : len(names)]))
    return Drift(float(test.p_adjusted.min()), names[best], float(found[0, best]))


def _from_run_to_run(series: NDArray[np.float64]) -> NDArray[np.float64]:
    """Lag-one autocorrelation of each column of ``series`` ``(n, c)`` of mean 0."""
    square = (series**2).sum(axis=0)
    return np.asarray((series[1:] * series[:-1]).sum(axis=0) / np.where(square > 0, square, 1.0))


def weighed(result: Perturbation, order: Order, drifts: Sequence[tuple[str, Drift]]) -> Perturbation:
    """``result`` with the verdict that the order of runs allows, and a finding that says why.

    Interleaved runs share any drift, so nothing changes. Else a significant change may be drift: where a drift is
    found, *perturbed* and *changed* become *inconclusive*. Where all baselines are known to come first and no drift
    is found, a slow one cannot be excluded, and *perturbed* becomes *changed*. ``drifts``: group and its test.
    """
    found = [(group, one) for group, one in drifts if one.p_value <= result.alpha]
    if order == "interleaved" or (order == "unknown" and not found):
        return result
    if found:
        group, one = min(found, key=lambda item: item[1].p_value)
        weakened: dict[Verdict, Verdict] = {"perturbed": "inconclusive", "changed": "inconclusive"}
        sentence = (
            f"The runs of {group} drift in their order: z of {one.pair[0]} - {one.pair[1]} correlates at "
            f"{one.correlation:.2f} from run to run ({p_text(one.p_value)} over all pairs). Unless baselines and "
            "instrumented runs alternate, drift looks like a change: make them in turn, and say so with "
            "`--order interleaved`."
        )
    else:
        weakened = {"perturbed": "changed"}
        sentence = (
            "All baselines were made before the instrumented runs: a slow drift of the machine cannot be told from a "
            "change; make the runs in turn, and say so with `--order interleaved`."
        )
    pairs = tuple(replace(pair, verdict=weakened.get(pair.verdict, pair.verdict)) for pair in result.pairs)
    verdict = weakened.get(result.verdict, result.verdict)
    extra = result.extra_runs_needed if verdict == result.verdict else None
    if verdict == result.verdict:
        findings = (sentence, *result.findings)
    else:
        before = (
            f"Without regard to the order of runs the verdict would be {result.verdict}, as the next sentences say; it "
            f"is {verdict}."
        )
        findings = (f"{sentence} {before}", *result.findings)
    return replace(result, verdict=verdict, pairs=pairs, findings=findings, extra_runs_needed=extra)
