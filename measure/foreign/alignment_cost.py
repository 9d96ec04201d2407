"""Estimates how long it takes to align traces, before it is begun: the time grows with the square of their records."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from measure.alignment.setting import DEFAULT_ALIGNMENT
from measure.foreign.errors import TraceFileError
from measure.foreign.gather import Gathered
from measure.perturbation.assay import MOST_PAIRS
from measure.perturbation.outer import ALL_PAIRS_RUNS, DEFAULT_REFERENCES

CELLS_PER_SECOND = 1e8
"""Of a few metrics on two processors (measured: 20,000 records of 3 metrics, 1.7e9 cells in 10 to 16 s)."""
MOST_HOURS = 2.0
"""An estimate above this is refused. Bands that widen, and other processors, change it by a factor of a few."""


def alignment_hours(gathered: Gathered) -> float:
    """About how many hours the comparisons across aligned runs take, on all metrics and on the others of each."""
    n_metrics = len(gathered.metrics)
    baselines = _lengths(gathered.baselines)
    whole = 2 * _mean_cells(baselines) * n_metrics * min(len(baselines), MOST_PAIRS)  # the assay, there and backwards
    pairs_of_baselines = 0
    for tables in gathered.variants.values():
        runs = len(tables)
        if len(baselines) + runs <= ALL_PAIRS_RUNS:
            pairs_of_baselines = math.comb(len(baselines), 2)  # aligned once for all variants
            pairs = len(baselines) * runs + math.comb(runs, 2)
        else:
            pairs = DEFAULT_REFERENCES * (len(baselines) + runs)
        whole += pairs * (1 + n_metrics) * _mean_cells(np.concatenate([baselines, _lengths(tables)]))
    whole += pairs_of_baselines * (1 + n_metrics) * _mean_cells(baselines)
    return whole / CELLS_PER_SECOND / 3600


def check_alignment_hours(gathered: Gathered) -> None:
    """Raise `TraceFileError` for traces so long that it takes more than `MOST_HOURS` to align them."""
    hours = alignment_hours(gathered)
    if hours <= MOST_HOURS:
        return
    longest = max(len(table) for tables in (gathered.baselines, *gathered.variants.values()) for table in tables)
    together = math.ceil(math.sqrt(hours / MOST_HOURS))
    raise TraceFileError(
        f"{len(gathered.traces)} traces of up to {longest:,} records: to align them all takes about {hours:,.0f} "
        f"hours, expected at most {MOST_HOURS:g}. Give coarser records, such as the sums of {together} neighbouring "
        f"ones (`frame.groupby(numpy.arange(len(frame)) // {together}).sum()` without its columns of times), or an "
        "interval of that length; or compare within runs only: `align=False`, `--no-align`"
    )


def _lengths(tables: tuple[NDArray[np.float64], ...]) -> NDArray[np.float64]:
    return np.array([len(table) for table in tables], np.float64)


def _mean_cells(records: NDArray[np.float64]) -> float:
    """Cells of the band in which two traces are aligned at first, in the mean over pairs of those with ``records``."""
    longest = np.array([max(pair) for pair in combinations(records.tolist(), 2)])
    return float(np.mean(longest * (1 + 2 * DEFAULT_ALIGNMENT.band * longest)))
