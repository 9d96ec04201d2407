"""Compares software metrics of disturbed and undisturbed runs, where hardware pairs may not show a perturbation.

"A given perturbation may not affect relationship between hardware metrics but may affect the relationship between two
software metrics or one software and one hardware metric" (Mytkowicz et al., section 4, the second open problem). On a
real machine this cannot be measured, since undisturbed runs have no software metrics. Here baselines have them: from
exact probes, or derived from reference events, by which the counter values of one run follow for any other
(`measure.ground_truth.calibration`). Runs with and without instrumentation are evaluated alike, so that only the
instrumentation differs between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from measure.errors import MeasureError
from measure.ground_truth.calibration import Calibration
from measure.perturbation.analysis_types import VERDICTS, Pair, Perturbation
from measure.perturbation.verdict import overall_verdict
from measure.report.model import Control
from measure.run_types import BASELINE, PROBE, Run
from measure.runs.program_progress import PROGRESS, reference_events_at_boundaries
from measure.stats.correlation import Correlations, fisher_z, spearman


def software_column(run: Run, metric: str, calibration: Calibration, exact: bool) -> NDArray[np.int64]:
    """Events of a software metric in each record of ``run``, ``(n,)``, whether or not the run counts it.

    ``exact``: from its probe, or from the counter in a run that counts the metric; else derived from reference events.
    """
    if exact:
        name = metric if run.spec.variant != BASELINE else f"{PROBE}{metric}"
        return np.asarray(run.trace.values[:, run.trace.metrics.index(name)], np.int64)
    if reference_events_at_boundaries(run) is None:
        raise MeasureError(
            f"{run.spec.variant}/{run.spec.replicate} has no probe '{PROGRESS}': its {metric} cannot be derived"
        )
    return np.asarray(np.diff(calibration.counter_at(metric, calibration.curve.boundaries(run))))


def with_software(
    run: Run,
    hardware: Sequence[str],
    software: Sequence[str],
    calibration: Calibration,
    exact: frozenset[str],
) -> Correlations:
    """Correlations of ``hardware`` and then ``software`` metrics in one run."""
    columns = [software_column(run, metric, calibration, metric in exact) for metric in software]
    values = np.column_stack([run.trace.columns(tuple(hardware)), *columns])
    return spearman(values, (*hardware, *software))


def controls(runs: Sequence[Run]) -> tuple[Control, ...]:
    """Probe compared with counter, for every metric that has both in any of ``runs``."""
    found: dict[str, list[tuple[int, int, int]]] = {}
    for run in runs:
        for name, _, _ in run.spec.counters:
            if f"{PROBE}{name}" in run.trace.metrics:
                counted = run.trace.values[:, run.trace.metrics.index(name)]
                probed = run.trace.values[:, run.trace.metrics.index(f"{PROBE}{name}")]
                gap = probed - counted
                found.setdefault(name, []).append((int(counted.sum()), int(gap.sum()), int(np.abs(gap).max(initial=0))))
    return tuple(
        Control(
            name,
            len(rows),
            sum(one[0] for one in rows),
            sum(abs(one[1]) for one in rows),
            max(one[2] for one in rows),
        )
        for name, rows in found.items()
    )


def errors_of_derived(
    runs: Sequence[Run], hardware: Sequence[str], metrics: Sequence[str], calibration: Calibration,
    exact: frozenset[str],
) -> dict[frozenset[str], float]:  # fmt: skip
    """How far z of each pair with a metric that is derived from reference events is off.

    ``runs``: instrumented ones. The largest of all variants that count what the pair needs: the mean difference of z
    with derived values and with counted ones.
    """
    found: dict[frozenset[str], float] = {}
    for variant in dict.fromkeys(run.spec.variant for run in runs):
        group = [run for run in runs if run.spec.variant == variant]
        counts = {counter.metric for counter in group[0].spec.counters}
        mine = [metric for metric in metrics if metric in counts]
        if not set(mine) - exact:
            continue
        tables = [
            np.array([fisher_z(with_software(run, hardware, mine, calibration, known).rho) for run in group])
            for known in (exact, frozenset(mine))
        ]
        apart = np.abs(np.nanmean(tables[0] - tables[1], axis=0))
        names = (*hardware, *mine)
        for i, j in combinations(range(len(names)), 2):
            pair = frozenset((names[i], names[j]))
            if pair & set(mine) - exact and np.isfinite(apart[i, j]):
                found[pair] = max(found.get(pair, 0.0), float(apart[i, j]))
    return found


def without_unreliable(
    found: Perturbation, errors: Mapping[frozenset[str], float], rhos: Mapping[str, float]
) -> Perturbation:
    """``found`` with pairs *not assessable* whose derived values may change more than the instrumentation does.

    ``errors``: in z, see `errors_of_derived`; at most half of delta is allowed. ``rhos``: of each derived metric with
    its counted values, nan if unknown; a metric that correlates at r with another one's ranks may have correlations
    that are sqrt(1 - r^2) off, of which at most delta is allowed.
    """

    def why_unknown(pair: Pair) -> str:
        error = errors.get(frozenset((pair.a, pair.b)), 0.0)
        if error > found.delta / 2:
            return f"values derived from reference events are {error:.2f} off in z"
        for metric in (pair.a, pair.b):
            rho = rhos.get(metric, 1.0)
            if not (1 - rho**2) ** 0.5 <= found.delta:  # also for nan
                return f"{metric} derived from reference events correlates at {rho:.2f} with what was counted"
        return ""

    pairs = [
        replace(pair, verdict="not assessable", reasons=(why,)) if (why := why_unknown(pair)) else pair
        for pair in found.pairs
    ]
    known = [pair.p_adjusted for pair in pairs if pair.verdict != "not assessable"]
    order = {verdict: n for n, verdict in enumerate(VERDICTS)}
    return replace(
        found, pairs=tuple(sorted(pairs, key=lambda pair: order[pair.verdict])),
        verdict=overall_verdict([pair.verdict for pair in pairs]), p_value=min(known, default=float("nan")),
    )  # fmt: skip


def transfer_error(
    runs: Sequence[Run], calibration: Calibration, metrics: Sequence[str], exact: frozenset[str]
) -> dict[str, tuple[float, float]]:
    """Difference between derived and counted values of each metric that any of ``runs`` counts.

    Derived from reference events; counted by exact probes in baselines, by counters elsewhere. For each metric: mean
    absolute difference per record in percent of the mean count, and Spearman's rho of the two, means over runs; nan
    where undefined.
    """
    found = {}
    for metric in metrics:
        errors, rhos = [], []
        for run in runs:
            if metric not in (
                exact if run.spec.variant == BASELINE else [counter.metric for counter in run.spec.counters]
            ):
                continue
            counted = software_column(run, metric, calibration, True)
            derived = software_column(run, metric, calibration, False)
            if counted.any():
                errors.append(100 * float(np.abs(derived - counted).mean() / counted.mean()))
                pair = np.column_stack([counted, derived])
                rhos.append(float(spearman(pair, ("counted", "derived")).rho[0, 1]))
        nan = float("nan")
        found[metric] = (float(np.mean(errors)), float(np.mean(rhos))) if errors else (nan, nan)
    return found
