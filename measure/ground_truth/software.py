"""Compares software metrics of disturbed and undisturbed runs, where hardware pairs may not show a perturbation.

"A given perturbation may not affect relationship between hardware metrics but may affect the relationship between two
software metrics or one software and one hardware metric" (Mytkowicz et al., section 4, the second open problem). On a
real machine this cannot be measured, since undisturbed runs have no software metrics. Here baselines have them: from
exact probes, or derived from reference events, by which the counter values of one run follow for any other
(`measure.ground_truth.calibration`). Runs with and without instrumentation are evaluated alike, so that only the
instrumentation differs between them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from measure.campaign.run_types import BASELINE, PROBE, Run
from measure.errors import MeasureError
from measure.ground_truth.calibration import Calibration
from measure.merging.program_progress import PROGRESS, reference_events_at_boundaries
from measure.report.model import Control
from measure.stats.correlation import Correlations, spearman


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
