"""Kernels that find the closest samples of an interval, and their weights."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.kernels.jit import kernel

NEIGHBOURS = 4
_EXACT = 0.02  # distance at which the weight is a quarter of that at distance 0
# Variance of waiting times [(cycles/instruction)**2] from which the samples themselves show the effect of waiting.
_SPREAD = 0.01
# Of samples that are alike the one nearest in time is best: the distance between the first and the last interval of a
# long program, and the number of intervals between two with half of it.
_LONG_AGO, _SOON = 0.1, 100.0
_CYCLES_A_WAIT = 0.5  # additional cycles per cycle of waiting, where the samples do not show it


@kernel
def neighbours(
    shares: NDArray[np.float64], waits: NDArray[np.float64], scaled: NDArray[np.float64], numbers: NDArray[np.int64],
    share: NDArray[np.float64], wait: float, number: int, reach: float, step: float, places: NDArray[np.int64],
    weights: NDArray[np.float64],
) -> float:  # fmt: skip
    """The samples closest to an interval; returns cycles per instruction to add to their weighted sum.

    ``shares``: (n, d) signatures that sum to 1, ``waits``: (n,), ``scaled``: (n,) log(1 + wait) over ``step``,
    ``numbers``: (n,) of the samples; ``share``, ``wait``, ``number``: of the interval. Distance is the sum of
    Manhattan's over ``reach``, of the difference of log(1 + wait) over ``step``, and of a little for intervals that lie
    between. Outputs ``places``, ``weights``: (m,), the indices of the samples, the
    closest first, and their weights: one over the square of the distance, corrected by the linear effect of waiting on
    events within the samples' range of waiting. With fewer than m samples the rest has weight 0.
    """
    found, most = 0, len(places)
    own = np.log1p(wait) / step
    apart = np.empty(most)
    places[:], weights[:] = 0, 0.0
    for sample in range(len(waits)):
        between = float(abs(numbers[sample] - number))
        distance = abs(scaled[sample] - own) + _LONG_AGO * between / (between + _SOON)
        for entry in range(len(share)):
            if found == most and distance >= apart[most - 1]:
                break
            distance += abs(shares[sample, entry] - share[entry]) / reach
        if found == most and distance >= apart[most - 1]:
            continue
        place = min(found, most - 1)
        while place > 0 and apart[place - 1] > distance:
            apart[place], places[place] = apart[place - 1], places[place - 1]
            place -= 1
        apart[place], places[place] = distance, sample
        found = min(found + 1, most)
    total, mean, shortest, longest = 0.0, 0.0, np.inf, 0.0
    for place in range(found):
        weights[place] = 1.0 / (apart[place] + _EXACT) ** 2
        total += weights[place]
    for place in range(found):
        weights[place] /= total
        sampled = waits[places[place]]
        mean += weights[place] * sampled
        shortest, longest = min(shortest, sampled), max(longest, sampled)
    inside = min(max(wait, shortest), longest)
    spread = _SPREAD
    for place in range(found):
        spread += weights[place] * (waits[places[place]] - mean) ** 2
    for place in range(found):
        weights[place] *= 1.0 + (inside - mean) * (waits[places[place]] - mean) / spread
    return _CYCLES_A_WAIT * (wait - inside + (inside - mean) * _SPREAD / spread)


@kernel
def neighbours_of_all(
    shares: NDArray[np.float64], waits: NDArray[np.float64], scaled: NDArray[np.float64], numbers: NDArray[np.int64],
    wanted: NDArray[np.float64], wanted_waits: NDArray[np.float64], reach: float, step: float,
    places: NDArray[np.int64], weights: NDArray[np.float64], more_cycles: NDArray[np.float64],
) -> None:  # fmt: skip
    """`neighbours` of each of a program's first intervals, with signatures ``wanted``, (k, d), and waiting
    ``wanted_waits``, (k,)."""
    for row in range(len(wanted)):
        more_cycles[row] = neighbours(
            shares, waits, scaled, numbers, wanted[row], wanted_waits[row], row, reach, step, places[row], weights[row]
        )
