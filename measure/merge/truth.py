"""How far alignments are off, against the true alignment by progress: in records, per channel set and algorithm.

The truth is `measure.merge.progress`, exact as far as every event's counter costs the same; the cost that
was found is in the table, so that it can be judged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from measure.merge.progress import instructions_per_event, progress_boundaries
from measure.merge.runs import MergeError, align_run
from measure.types import Run

if TYPE_CHECKING:
    import pandas as pd

Algorithm = Literal["full", "band", "linear", "none"]
BAND = 0.05


def true_positions(baseline: Run, run: Run) -> NDArray[np.float64]:
    """Where the middle of each record of ``run`` truly lies, in records of ``baseline``, ``(m,)``."""
    own, reference = progress_boundaries(run, baseline), progress_boundaries(baseline, baseline)
    at = np.interp((own[:-1] + own[1:]) / 2, reference, np.arange(len(reference)))
    return np.asarray(at - 0.5)


def alignment_error(
    baseline: Run,
    runs: Sequence[Run],
    *,
    channel_sets: Mapping[str, Sequence[str]] | None = None,
    algorithms: Sequence[Algorithm] = get_args(Algorithm),
) -> pd.DataFrame:
    """Errors of aligning each of ``runs`` to ``baseline``, a row each run, channel set and algorithm.

    ``channel_sets``: name to hardware metrics; default: ``all``, and each metric alone. ``algorithms``: exact
    dynamic time warping, the same in a band of 5%, the straight line between the traces' ends, or record by record.
    The last two use no channels. Columns: group, replicate, channels, algorithm; mean, median, p95 and largest
    absolute error in records; bias (mean error; positive: placed too late); instructions_per_event. Only records
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
        truth = true_positions(baseline, run)
        inside = (truth > -0.5) & (truth < baseline.trace.n_records - 0.5)
        if not inside.any():
            raise MergeError(
                f"{run.spec.group}/{run.spec.replicate} has no record within the baseline's progress: "
                "expected runs of one program on one input"
            )
        for algorithm in algorithms:
            sets = channel_sets if algorithm in ("full", "band") else {"": ()}
            for name, channels in sets.items():
                error = (_positions(baseline, run, channels, algorithm) - truth)[inside]
                size = np.abs(error)
                rows.append(
                    {
                        "group": run.spec.group, "replicate": run.spec.replicate, "channels": name,
                        "algorithm": algorithm, "mean_records": size.mean(), "median_records": np.median(size),
                        "p95_records": np.quantile(size, 0.95), "largest_records": size.max(),
                        "bias_records": error.mean(), "instructions_per_event": instructions_per_event(run, baseline),
                    }
                )  # fmt: skip
    return pd.DataFrame(rows)


def _positions(baseline: Run, run: Run, channels: Sequence[str], algorithm: Algorithm) -> NDArray[np.float64]:
    n, m = baseline.trace.n_records, run.trace.n_records
    if algorithm == "none":
        return np.minimum(np.arange(m), n - 1).astype(np.float64)
    if algorithm == "linear":
        return np.linspace(0, n - 1, m)
    band = BAND if algorithm == "band" else None
    method: Literal["auto", "band"] = "band" if algorithm == "band" else "auto"
    return align_run(baseline, run, channels=channels, method=method, band=band).spread.positions()
