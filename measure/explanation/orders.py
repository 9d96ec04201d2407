"""What metrics or mechanisms add to a change in some orders, and whether these orders agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from measure.explanation.explanation_types import LEVEL, direction, estimate

INTERACTION = 0.1
"""Share of the whole change from which an interaction is said."""
Steps = dict[str, list[NDArray[np.float64]]]


def sets_of(orders: Sequence[Sequence[str]]) -> list[frozenset[str]]:
    """The sets that are there when factors are added in each of ``orders``, from none to all."""
    return list(dict.fromkeys(frozenset(order[:n]) for order in orders for n in range(len(order) + 1)))


def steps_of(values: Mapping[frozenset[str], NDArray[np.float64]], orders: Sequence[Sequence[str]]) -> Steps:
    """By factor, what it adds in each of ``orders``. ``values``: of their `sets_of`, (n_pairs, n_relations) each."""
    found: Steps = {factor: [] for factor in orders[0]}
    for order in orders:
        for n, factor in enumerate(order):
            found[factor].append(values[frozenset(order[: n + 1])] - values[frozenset(order[:n])])
    return found


def agree(steps: Steps, whole: NDArray[np.float64]) -> bool:
    """Whether no factor is shown to add otherwise in the last order than in the first, by more than `INTERACTION` of
    ``whole``, the change. The factors share the error of that (Bonferroni)."""
    weights, level = direction(whole), 1 - (1 - LEVEL) / len(steps)
    differences = [estimate(np.nansum((one[-1] - one[0]) * weights, axis=1), level) for one in steps.values()]
    return not any(one.excludes_zero and abs(one.mean) > INTERACTION for one in differences)
