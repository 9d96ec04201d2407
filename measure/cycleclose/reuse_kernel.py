"""Cache misses from reuse times, as a kernel."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.jit import kernel


def expected_misses(
    reuse_times: NDArray[np.int64], instructions: NDArray[np.int64], lines: float
) -> NDArray[np.float64]:
    """Misses of each interval in a fully associative LRU cache of so many lines, ``(n,)``.

    ``reuse_times``: ``(n, bins)``, entry b counts times from 2**(b - 1) to 2**b - 1 instructions.

    StatStack (Eklov and Hagersten, ISPASS 2010, section 3): as many different lines come between two accesses to a line
    as there are accesses between whose own line is not touched again before the second. With times spread evenly in a
    bin, that number at time t is the rate of accesses times the integral of the share of times above it.
    """
    out = np.zeros(len(reuse_times))
    fill_misses(np.ascontiguousarray(reuse_times), np.ascontiguousarray(instructions), float(lines), out)
    return out


@kernel
def fill_misses(
    reuse_times: NDArray[np.int64], instructions: NDArray[np.int64], lines: float, out: NDArray[np.float64]
) -> None:
    """Put the misses of `expected_misses` into ``out``."""
    n, bins = reuse_times.shape
    for row in range(n):
        accesses = 0
        for bin_ in range(bins):
            accesses += reuse_times[row, bin_]
        if accesses == 0 or instructions[row] == 0:
            continue
        rate = accesses / instructions[row]
        above = float(accesses)
        between = 0.0  # different lines, at the lower edge of the bin
        for bin_ in range(bins):
            inside = reuse_times[row, bin_]
            width = 1.0 if bin_ == 0 else 2.0 ** (bin_ - 1)
            more = rate * width * (above - 0.5 * inside) / accesses
            if between + more >= lines:
                fraction = (lines - between) / more
                out[row] = above - fraction * inside
                break
            between += more
            above -= inside
