"""Estimates from the groups tested so far which metrics conflict; it only orders what to test next.

Pairs inside a group tested good are cleared. A bad group spreads its blame evenly over its pairs that are not
cleared: a blame of 1 means that this pair alone can explain some bad group. That would be certain if only pairs made
groups bad; since that is not so, no conclusion rests on it.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from measure.partitioning.search_types import Group, State

_CERTAIN = 1.0
_UNSEEN = 0.02  # weight of a pair without any verdict


class Suspicion:
    """Blame of every pair of ``n`` metrics."""

    def __init__(self, n: int) -> None:
        self._cleared = np.eye(n, dtype=np.bool_)
        self._blame = np.zeros((n, n))

    def note(self, group: Group, state: State) -> None:
        """Update the blame with one verdict."""
        members = np.array(sorted(group))
        block = np.ix_(members, members)
        if state == "good":
            self._cleared[block] = True
            self._blame[block] = 0.0
        elif state == "bad":
            suspects = ~self._cleared[block]
            count = suspects.sum() // 2
            if count:
                self._blame[block] += suspects / count

    def between(self, first: Iterable[int], second: Iterable[int]) -> float:
        """Total blame of pairs with one metric in each."""
        return float(self._blame[np.ix_(list(first), list(second))].sum())

    def hopeless(self, first: Iterable[int], second: Iterable[int]) -> bool:
        """Whether a pair between the two alone explains a bad group, if pairs explain it."""
        block = self._blame[np.ix_(list(first), list(second))]
        return bool(block.size and block.max() >= _CERTAIN)

    def weights(self) -> NDArray[np.float64]:
        """Blame ``(n, n)``; pairs that were never together in a good group have a small weight, too."""
        return np.where(self._cleared, 0.0, self._blame + _UNSEEN)
