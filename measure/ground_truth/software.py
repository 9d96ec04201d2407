"""Perturbation of relations that involve software metrics, which hardware pairs may not show.

"A given perturbation may not affect relationship between hardware metrics but may affect the relationship between two
software metrics or one software and one hardware metric" (Mytkowicz et al., section 4, the second open problem). On a
real machine it cannot be told, since undisturbed runs have no software metrics. Here baselines have them: from exact
probes, and for metrics without one from the anchors, by which the counters' values of one run can be read off for any
other (`measure.ground_truth.calibration`). Runs of both kinds are read in the same way, so that nothing but the
instrumentation differs between them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from measure.errors import MeasureError
from measure.ground_truth.calibration import Calibration
from measure.merge.progress import anchors_at_boundaries
from measure.perturbation import TIED
from measure.perturbation_types import DEFAULT_DELTA, DEFAULT_PERMUTATIONS, MOST_STATISTICS, Perturbation
from measure.perturbation_verdict import Evidence, check_levels, judge
from measure.report.model import Control
from measure.stats.correlation import Correlations, fisher_z, spearman
from measure.stats.permutation import labellings, mean_differences
from measure.types import BASELINE, PROBE, Run


def software_column(run: Run, metric: str, calibration: Calibration, exact: bool) -> NDArray[np.int64]:
    """Events of a software metric in each record of ``run``, ``(n,)``, whether or not the run counts it.

    ``exact``: from its probe, or in a run that counts the metric from the counter; else from the anchors.
    """
    if exact:
        name = metric if run.spec.group != BASELINE else f"{PROBE}{metric}"
        return np.asarray(run.trace.values[:, run.trace.metrics.index(name)], np.int64)
    if anchors_at_boundaries(run) is None:
        raise MeasureError(
            f"{run.spec.group}/{run.spec.replicate} has no probe of its progress: its {metric} is unknown"
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


def software_perturbation(
    baseline: Sequence[Correlations],
    runs: Sequence[Correlations],
    software: Sequence[str],
    *,
    delta: float = DEFAULT_DELTA,
    alpha: float = 0.05,
    n_permutations: int = DEFAULT_PERMUTATIONS,
    seed: int,
) -> Perturbation:
    """As `measure.perturbation.inner_perturbation`, over all pairs with a metric of ``software`` in them.

    These pairs are a family of their own: the chance that any is called perturbed when nothing changed is at most
    ``alpha``, beside the hardware pairs' chance and not shared with it. Raises ValueError for groups that are
    empty or have different metrics, for levels out of range, and when there is no such pair.
    """
    check_levels(delta, alpha)
    if not baseline or not runs:
        raise ValueError(f"{len(baseline)} baselines and {len(runs)} runs: expected at least one of each")
    metrics = baseline[0].metrics
    everything = [*baseline, *runs]
    different = next((one.metrics for one in everything if one.metrics != metrics), None)
    if different is not None:
        raise ValueError(f"got metrics {', '.join(different)}, expected {', '.join(metrics)} as in the first")
    first, second = np.triu_indices(len(metrics), 1)
    concerned = np.isin(metrics, list(software))
    kept = concerned[first] | concerned[second]
    first, second = first[kept], second[kept]
    if not len(first):
        raise ValueError(f"no pair of {', '.join(metrics)} has one of {', '.join(software) or 'no metrics'}")
    rho = np.array([one.rho[first, second] for one in everything])
    z = fisher_z(rho)
    affordable = min(n_permutations, MOST_STATISTICS // len(first))
    labels = labellings(len(baseline), len(runs), affordable, seed)
    ties = np.max([one.tie_fraction for one in everything], axis=0)
    evidence = Evidence(
        kind="inner",
        names=[(metrics[i], metrics[j]) for i, j in zip(first, second, strict=True)],
        baseline_z=z[: len(baseline)],
        run_z=z[len(baseline) :],
        undefined=np.isnan(rho),
        labels=labels,
        statistics=mean_differences(z, labels.labels),
        losses_only=False,
        interval_scale=1.0,
        identical=len(baseline) > 1
        and all(np.array_equal(one.rho, baseline[0].rho, equal_nan=True) for one in baseline[1:]),
        n_references=0,
        notes=[_tie_note(metrics, ties, (int(i), int(j))) for i, j in zip(first, second, strict=True)],
        findings=_constants(metrics, software, baseline, runs),
    )
    return judge(evidence, delta=delta, alpha=alpha)


def _tie_note(metrics: Sequence[str], ties: NDArray[np.float64], pair: tuple[int, int]) -> str:
    return ", ".join(f"{metrics[i]} has up to {ties[i]:.0%} tied records" for i in pair if ties[i] > TIED)


def _constants(
    metrics: Sequence[str],
    software: Sequence[str],
    baseline: Sequence[Correlations],
    runs: Sequence[Correlations],
) -> tuple[str, ...]:
    everything = [*baseline, *runs]
    always = np.all([one.constant for one in everything], axis=0)
    named = [name for name, flag in zip(metrics, always, strict=True) if flag and name in software]
    if not named:
        return ()
    return (f"Constant in every run, so without correlations, and left out: {', '.join(named)}.",)


def controls(runs: Sequence[Run]) -> tuple[Control, ...]:
    """Probe against counter, for every metric that has both in some of ``runs``."""
    found: dict[str, list[tuple[int, int, int]]] = {}
    for run in runs:
        for name, _, _ in run.spec.counters:
            if f"{PROBE}{name}" in run.trace.metrics:
                counted = run.trace.values[:, run.trace.metrics.index(name)]
                probed = run.trace.values[:, run.trace.metrics.index(f"{PROBE}{name}")]
                gap = probed - counted
                found.setdefault(name, []).append(
                    (int(counted.sum()), int(gap.sum()), int(np.abs(gap).max(initial=0)))
                )
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
    """How far values read off by anchors are from those counted: by exact probes in baselines, by counters elsewhere.

    For each metric that any of ``runs`` counts: mean absolute difference a record in percent of the mean count, and
    Spearman's rho of the two, means over runs; nan where undefined.
    """
    found = {}
    for metric in metrics:
        errors, rhos = [], []
        for run in runs:
            if metric not in (
                exact if run.spec.group == BASELINE else [name for name, _, _ in run.spec.counters]
            ):
                continue
            counted = software_column(run, metric, calibration, True)
            read = software_column(run, metric, calibration, False)
            if counted.any():
                errors.append(100 * float(np.abs(read - counted).mean() / counted.mean()))
                pair = np.column_stack([counted, read])
                rhos.append(float(spearman(pair, ("counted", "read")).rho[0, 1]))
        nan = float("nan")
        found[metric] = (float(np.mean(errors)), float(np.mean(rhos))) if errors else (nan, nan)
    return found
