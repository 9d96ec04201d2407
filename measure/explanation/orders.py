"""What metrics or mechanisms add to a change in some orders, and whether these orders agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from measure.explanation.explanation_types import LEVEL
from measure.stats.intervals import t_quantile

INTERACTION = 0.1
"""Share of the whole change from which an interaction is said."""
ALWAYS_EXACT = 3
"""Metrics of which every set is measured: 8 sets, of which an order and its reverse have 6."""
MOST_EXACT = 4
"""Metrics of which every set is measured where orders disagree: 16 sets."""
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
    """Whether no factor is shown to add otherwise in the last order than in the first (see `is_shown`). The factors
    share the error of that (Bonferroni); with none of them, as of probes alone, nothing can be shown."""
    level = 1 - (1 - LEVEL) / max(len(steps), 1)
    return not any(is_shown(one[-1] - one[0], whole, level) for one in steps.values())


def is_shown(difference: NDArray[np.float64], whole: NDArray[np.float64], level: float = LEVEL) -> bool:
    """Whether relations are shown to differ, (n_pairs, n_relations), by more than `INTERACTION` of their change
    ``whole``: some relation by itself, or all together.

    Relations share the error of the first (Bonferroni), and both share that of ``level``. For the second, absolute
    differences are added up, so that those of opposite sign do not cancel, and compared with the sum of the half-widths
    of their intervals: where all relations scatter alike, that is Student's test, and else a stricter one.
    """
    pairs = np.isfinite(difference).sum(axis=0)
    many = pairs > 1
    if not many.any():
        return False
    some, n = difference[:, many], pairs[many]
    sizes, errors = np.abs(np.nanmean(some, axis=0)), np.nanstd(some, axis=0, ddof=1) / np.sqrt(n)
    changes = np.abs(np.where(np.isfinite(whole), whole, 0).mean(axis=0))
    least = INTERACTION * np.maximum(changes[many], changes.mean())
    error = (1 - level) / 2
    one_by_one = sizes > np.maximum(least, t_quantile(n - 1, 1 - error / 2 / len(n)) * errors)
    together = sizes.sum() > max(INTERACTION * changes.sum(), (t_quantile(n - 1, 1 - error / 2) * errors).sum())
    return bool(one_by_one.any() or together)
