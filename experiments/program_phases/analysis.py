"""What the figures of this folder share: metrics of intervals as the paper has them, and phases of vectors."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from experiments.reproduction import PhaseSearch
from experiments.results import Vectors
from measure.cycle_close.rates import ENERGY
from measure.errors import MeasureError
from measure.program_phases.choose import Phases, find_phases
from measure.program_phases.data_phases import split_by_waits
from measure.program_phases.projection import project

# The paper's metrics in its Figure 1's order: column, and how the axis names it.
METRICS = {
    "l2_mpki": "L2 misses",
    "energy": "energy",
    "l1i_mpki": "L1I misses",
    "l1d_mpki": "L1D misses",
    "branch_mpki": "branches\nmispredicted",
    "ipc": "IPC",
}
_COUNTS = {
    "l2_mpki": "l2_misses",
    "l1i_mpki": "l1i_misses",
    "l1d_mpki": "l1d_misses",
    "branch_mpki": "branches_mispredicted",
}


def metrics_of(table: pd.DataFrame) -> pd.DataFrame:
    """`METRICS` of every interval: misses per 1,000 instructions, nanojoules per instruction, IPC."""
    columns = {name: 1000 * table[count] / table["instructions"] for name, count in _COUNTS.items()}
    columns |= {"energy": table[ENERGY], "ipc": table["instructions"] / table["cycles"]}
    return pd.DataFrame(columns)[list(METRICS)]


def phases_of(vectors: Vectors, search: PhaseSearch, wait_step: float = 0.0, k: int | None = None) -> Phases:
    """The phases paper's steps 2 to 5, with this project's clustering.

    ``wait_step``: cut them by waiting for memory; ``k``: so many phases, without a search.
    """
    points, weights = project(vectors.blocks, search.dimensions), vectors.blocks.instructions
    found = find_phases(
        points, max_k=search.max_k, seeds=search.seeds, threshold=search.score_share, weights=weights, k=k
    )
    return split_by_waits(found, points, vectors.waits, weights.astype(float), wait_step)


def check_same_intervals(program: str, table: pd.DataFrame, ends: NDArray[np.int64]) -> None:
    """Raise `MeasureError` unless the run that was simulated has the intervals of the one that was profiled."""
    if not np.array_equal(table["end_instructions"].to_numpy(), ends):
        raise MeasureError(f"{program}: the runs have different intervals; run this folder's `run` again")
