"""Measures how similar the intervals of a phase are: metrics by phase, and distances between intervals.

Lau et al., "Structures for phase classification" (ISPASS 2004), section 4 for the spread within phases; Sherwood et al.
(ASPLOS 2002), section 3.3 for the similarity matrix. `phases_figure` draws them.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from measure.program_phases.bbv import BasicBlockVectors, from_dense

if TYPE_CHECKING:
    import pandas as pd

PROGRAM = "program"
_WHITE_PERCENT = 99.5  # of the distances are below white: single ones must not darken all others
_LEAST_WHITE = 0.1  # so that noise between intervals that are all alike stays dark


def homogeneity(labels: ArrayLike, metrics: pd.DataFrame, weights: ArrayLike | None = None) -> pd.DataFrame:
    """Mean, standard deviation and their ratio for each metric: of the whole program first, then by phase.

    ``labels`` (n,): each interval's phase; ``metrics``: n rows, NaN where an interval has no value; ``weights`` (n,):
    of each interval, equal unless given (instructions for what is per instruction). Index ``phase``; columns
    ``intervals``, ``share`` (of all weights) and, per metric, ``<metric>_mean``, ``<metric>_std`` (population) and
    ``<metric>_cov`` (std over |mean|), over the intervals that have a value, whose number is ``<metric>_intervals``.
    Raises `ValueError` on unequal lengths.
    """
    import pandas as pd

    phase = np.asarray(labels)
    mass = np.ones(len(phase)) if weights is None else np.asarray(weights, dtype=np.float64)
    if not len(phase) == len(metrics) == len(mass) or len(phase) == 0:
        raise ValueError(
            f"got {len(phase)} labels, {len(metrics)} rows of metrics and {len(mass)} weights, expected as many of each"
        )
    groups = [(str(number), phase == number) for number in np.unique(phase)]
    rows = {}
    for name, members in [(PROGRAM, np.ones(len(phase), bool)), *groups]:
        row: dict[str, float] = {"intervals": int(members.sum()), "share": mass[members].sum() / mass.sum()}
        for metric in metrics.columns:
            values = metrics[metric].to_numpy(dtype=np.float64)
            row |= _spread(metric, values[members], mass[members])
        rows[name] = row
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("phase")
    counts = [name for name in table.columns if name.endswith("intervals")]
    return table.astype(dict.fromkeys(counts, "int64"))


def metrics_in(table: pd.DataFrame) -> list[str]:
    """The metrics of a table of `homogeneity`."""
    return [column.removesuffix("_mean") for column in table.columns if column.endswith("_mean")]


def mean_text(row: pd.Series, metric: str, separator: str = ", ") -> str:
    """Mean and spread of a metric in a row of `homogeneity`, such as ``0.462 (3.1%)``, and behind ``separator`` of how
    many intervals they are, where some have no value; a single one has no spread. "-" where none has a value."""
    mean, spread, count, of = (row[name] for name in (f"{metric}_mean", f"{metric}_cov", f"{metric}_intervals",
                                                      "intervals"))  # fmt: skip
    if not count:
        return "-"
    if count == of:
        return f"{mean:.3f} ({100 * spread:.1f}%)"
    return f"{mean:.3f}{f' ({100 * spread:.1f}%)' if count > 1 else ''}{separator}{int(count):,} of {int(of):,}"


def is_partial(table: pd.DataFrame) -> bool:
    """Whether some means in a table of `homogeneity` are not of all intervals."""
    return any((table[f"{metric}_intervals"] < table["intervals"]).any() for metric in metrics_in(table))


PARTIAL_NOTE = (
    "Where it says N of M, only N of the M intervals have a value: a hit rate has none in an interval without an "
    "access, and may be of few accesses in others."
)


def _spread(metric: str, values: NDArray[np.float64], mass: NDArray[np.float64]) -> dict[str, float]:
    defined = np.isfinite(values)
    mean = deviation = cov = float("nan")
    if defined.any():
        share = mass[defined] / mass[defined].sum()
        mean = float(share @ values[defined])
        deviation = float(np.sqrt(share @ (values[defined] - mean) ** 2))
        cov = deviation / abs(mean) if mean else 0.0
    return {
        f"{metric}_mean": mean,
        f"{metric}_std": deviation,
        f"{metric}_cov": cov,
        f"{metric}_intervals": int(defined.sum()),
    }


def similarity(vectors: BasicBlockVectors | ArrayLike, at_most: int = 1000) -> NDArray[np.float64]:
    """(m, m) Manhattan distances, 0 to 2, of vectors over their sums; m is the smaller of n and ``at_most``.

    ``vectors``: of blocks, or signatures (n, entries). More than ``at_most`` vectors are merged into ``at_most`` runs
    of neighbours, as equally long as possible, each the mean of its members. Raises `ValueError`.
    """
    from measure.program_phases.vectors_kernel import manhattan

    if at_most < 1:
        raise ValueError(f"got at_most = {at_most}, expected at least 1")
    if not isinstance(vectors, BasicBlockVectors):
        vectors = from_dense(vectors)
    merged = _merged(vectors, at_most)
    return manhattan(*merged, vectors.n_dims)


def faintest(distances: NDArray[np.float64]) -> float:
    """The distance from which on a picture of `similarity` is white.

    Of a program whose intervals are all much alike, the whole scale up to 2 would show a black square.
    """
    return max(_LEAST_WHITE, float(np.percentile(distances, _WHITE_PERCENT)))


def _merged(
    vectors: BasicBlockVectors, at_most: int
) -> tuple[NDArray[np.float64], NDArray[np.int32], NDArray[np.int64]]:
    """Values, dimensions and row starts of at most ``at_most`` rows, each the mean of neighbours."""
    n = vectors.n_intervals
    shares = vectors.shares()
    if n <= at_most:
        return shares, vectors.indices, vectors.indptr
    starts = np.arange(at_most + 1) * n // at_most
    values, indices, lengths = [], [], [0]
    for first, last in pairwise(starts):
        entries = slice(vectors.indptr[first], vectors.indptr[last])
        dimensions, place = np.unique(vectors.indices[entries], return_inverse=True)
        values.append(np.bincount(place, weights=shares[entries]) / (last - first))
        indices.append(dimensions)
        lengths.append(len(dimensions))
    return np.concatenate(values), np.concatenate(indices), np.cumsum(lengths)
