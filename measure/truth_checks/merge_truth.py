"""Errors of alignment algorithms against the true alignment by progress: in records, per channel set and algorithm.

True positions are from `measure.runs.program_progress`: exact for runs whose reference events were counted, else
estimated, which is right if every event's counter costs the same. The table names which of the two it used and the
cost per event, so that the estimate can be judged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from measure.alignment.dtw import DEFAULT_BAND, align_normalised, normalised_channels
from measure.alignment.setting import DEFAULT_ALIGNMENT, AlignmentSetting
from measure.merging.merge_runs import MergeError
from measure.merging.spread import spread_of_path
from measure.run_types import Run
from measure.runs.program_progress import (
    PROGRESS,
    EventCurve,
    has_reference_events,
    instructions_per_event,
    progress_boundaries,
    reference_events_at_boundaries,
)

if TYPE_CHECKING:
    import pandas as pd

Algorithm = Literal["full", "band", "multiresolution", "penalty", "linear", "none"]
BY_CHANNELS: tuple[Algorithm, ...] = ("full", "band", "multiresolution", "penalty")


def true_positions(baseline: Run, run: Run, curve: EventCurve | None = None) -> NDArray[np.float64]:
    """True position of the middle of each record of ``run``, in records of ``baseline``, ``(m,)``.

    By ``curve`` when the reference events of both runs were counted, else by the estimate.
    """
    if curve is not None and has_reference_events(baseline, run):
        own, reference = curve.boundaries(run), curve.boundaries(baseline)
    else:
        own, reference = progress_boundaries(run, baseline), progress_boundaries(baseline, baseline)
    return positions_by_progress(own, reference)


def positions_by_progress(own: NDArray[np.float64], reference: NDArray[np.float64]) -> NDArray[np.float64]:
    """Middles of the records bounded by ``own`` ``(m + 1,)`` in records bounded by ``reference``, ``(m,)``."""
    at = np.interp((own[:-1] + own[1:]) / 2, reference, np.arange(len(reference)))
    return np.asarray(at - 0.5)


def within_baseline(baseline: Run, truth: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Flags ``(m,)``: which of the ``truth`` positions lie within the baseline."""
    return (truth > -0.5) & (truth < baseline.trace.n_records - 0.5)


def truth_resolution(baseline: Run, run: Run, curve: EventCurve) -> NDArray[np.float64]:
    """Width of the interval that certainly contains each boundary of ``run``, in records of the baseline, ``(m + 1,)``.

    The true positions are more accurate than that, if reference events between two observations are evenly spaced.
    """
    events = reference_events_at_boundaries(run)
    if events is None:
        raise MergeError(f"{run.spec.variant}/{run.spec.replicate} has no probe '{PROGRESS}': its progress is unknown")
    reference = curve.boundaries(baseline)
    index = np.arange(len(reference))
    low, high = (np.interp(end, reference, index) for end in curve.bracket(events))
    return np.asarray(high - low)


def alignment_error(
    baseline: Run,
    runs: Sequence[Run],
    *,
    channel_sets: Mapping[str, Sequence[str]] | None = None,
    algorithms: Sequence[Algorithm] = get_args(Algorithm),
    curve: EventCurve | None = None,
    alignment: AlignmentSetting = DEFAULT_ALIGNMENT,
) -> pd.DataFrame:
    """Errors of aligning each of ``runs`` to ``baseline``; a row per run, channel set and algorithm.

    ``channel_sets``: name to hardware metrics; default: ``all``, and each metric alone. ``algorithms``: exact
    dynamic time warping, the same in a band of 5%, from coarse to fine, or with a step penalty (``alignment``, as in
    `merge`), the straight line between the traces' ends, or record by record. The last two use no channels.
    ``curve``: see `true_positions`.
    Columns: group, replicate, channels, algorithm; mean, median, p95 and largest absolute error in records; bias
    (mean error; positive: placed too late); truth (reference events or estimate); instructions_per_event. Only records
    that lie within the baseline count. Raises `MergeError`.
    """
    import pandas as pd

    unknown = [name for name in algorithms if name not in get_args(Algorithm)]
    if unknown:
        raise MergeError(f"got algorithm '{unknown[0]}', expected some of {', '.join(get_args(Algorithm))}")
    if channel_sets is None:
        metrics = baseline.spec.hardware_metrics
        channel_sets = {"all": metrics} | {metric: (metric,) for metric in metrics}
    rows = []
    for run in runs:
        truth = true_positions(baseline, run, curve)
        inside = within_baseline(baseline, truth)
        source = "reference events" if curve is not None and has_reference_events(baseline, run) else "estimate"
        if not inside.any():
            raise MergeError(
                f"{run.spec.variant}/{run.spec.replicate} has no record within the baseline's progress: "
                "expected runs of one program on one input"
            )
        for algorithm in algorithms:
            sets = channel_sets if algorithm in BY_CHANNELS else {"": ()}
            for name, channels in sets.items():
                error = (aligned_positions(baseline, run, channels, algorithm, alignment) - truth)[inside]
                size = np.abs(error)
                rows.append(
                    {
                        "group": run.spec.variant, "replicate": run.spec.replicate, "channels": name,
                        "algorithm": algorithm, "mean_records": size.mean(), "median_records": np.median(size),
                        "p95_records": np.quantile(size, 0.95), "largest_records": size.max(),
                        "bias_records": error.mean(), "truth": source,
                        "instructions_per_event": instructions_per_event(run, baseline),
                    }
                )  # fmt: skip
    return pd.DataFrame(rows)


def aligned_positions(
    baseline: Run,
    run: Run,
    channels: Sequence[str],
    algorithm: Algorithm,
    alignment: AlignmentSetting = DEFAULT_ALIGNMENT,
) -> NDArray[np.float64]:
    """Position of the middle of each record of ``run`` by ``algorithm``, in records of ``baseline``, ``(m,)``.

    ``alignment``: for the algorithm "penalty".
    """
    n, m = baseline.trace.n_records, run.trace.n_records
    if algorithm == "none":
        return np.minimum(np.arange(m), n - 1).astype(np.float64)
    if algorithm == "linear":
        return np.linspace(0, n - 1, m)
    first, second = (normalised_channels(one.trace.columns(tuple(channels))) for one in (baseline, run))
    if algorithm == "penalty":
        found = alignment.align(first, second)
    else:
        found = align_normalised(
            first, second, method="auto" if algorithm == "full" else algorithm,
            band=DEFAULT_BAND if algorithm == "band" else None,
        )  # fmt: skip
    return spread_of_path(found.path).positions()
