"""Shapley values and interactions of a few factors whose every combination was measured.

The Shapley value of a factor is its mean effect over all orders in which the factors can be added (Shapley, "A value
for n-person games", 1953). The values add up to the whole effect, and no order is preferred. The dividend of a set of
factors is what they do together beyond what all smaller sets of them do (Harsanyi, 1963): an interaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from math import factorial

import numpy as np
from numpy.typing import NDArray

Values = Mapping[frozenset[str], NDArray[np.float64]]


def subsets(factors: Sequence[str]) -> Iterator[frozenset[str]]:
    """All sets of factors, smaller ones first."""
    for size in range(len(factors) + 1):
        yield from (frozenset(chosen) for chosen in combinations(factors, size))


def shapley_values(values: Values, factors: Sequence[str]) -> dict[str, NDArray[np.float64]]:
    """The Shapley value of each factor. ``values``: of every subset of ``factors``, arrays of one shape. Raises
    `KeyError` for a subset without a value."""
    n = len(factors)
    found = {}
    for factor in factors:
        others = [one for one in factors if one != factor]
        total = np.zeros_like(values[frozenset()])
        for chosen in subsets(others):
            weight = factorial(len(chosen)) * factorial(n - len(chosen) - 1) / factorial(n)
            total = total + weight * (values[chosen | {factor}] - values[chosen])
        found[factor] = total
    return found


def dividends(values: Values, factors: Sequence[str]) -> dict[frozenset[str], NDArray[np.float64]]:
    """The dividend of each set of at least two factors. ``values``: as in `shapley_values`."""
    found = {}
    for chosen in subsets(factors):
        if len(chosen) > 1:
            parts = [(-1) ** (len(chosen) - len(one)) * values[one] for one in subsets(sorted(chosen))]
            found[chosen] = np.sum(parts, axis=0)
    return found
