"""A kernel that takes over the mispredictions of an interval at its end."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.execution.intervals_kernel import DONE
from emulator.kernels.jit import kernel


@kernel
def take_mispredictions(job: NDArray[np.int64], live: NDArray[np.int64], counts: NDArray[np.float64]) -> None:
    """Move ``live``, (1,) those since the last boundary or (0,) where they are not known, to the row of the interval
    that has just ended in ``counts``, (n,)."""
    if len(live):
        counts[job[DONE] - 1] = live[0]
        live[0] = 0
