"""Oracles with a known answer, for tests and the benchmark of the search."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from measure.partitioning.search_types import Group, GroupVerdict


class SyntheticOracle:
    """``n`` metrics of which some conflict; answers at once and counts the calls.

    Metrics fall at random into ``planted`` classes, and every conflict joins different classes, so that ``planted``
    groups are enough. ``pairs``: fraction of the pairs of different classes that conflict; ``triples``: number of
    conflicts of three metrics, not all of one class, whose pairs are good; ``cured``: number of conflicting pairs
    that are good beside some third metric, which makes the oracle not monotone in either direction.
    """

    def __init__(self, n: int, seed: int, *, planted: int, pairs: float, triples: int = 0, cured: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.n = n
        self.calls = 0
        classes = rng.integers(planted, size=n)
        self.planted = len(set(classes.tolist()))
        self.pairs: set[Group] = {
            frozenset({a, b}) for a in range(n) for b in range(a) if classes[a] != classes[b] and rng.random() < pairs
        }
        self.triples: set[Group] = set()
        for _ in range(triples):
            three = rng.permutation(n)[:3]
            if len(three) == 3 and len(set(classes[three].tolist())) > 1:
                self.triples.add(frozenset(int(k) for k in three))
        self.cures: dict[Group, int] = {}
        for pair in sorted(self.pairs, key=sorted)[:: max(1, len(self.pairs) // cured)] if cured else []:
            self.cures[pair] = int(rng.integers(n))

    def is_good(self, group: Group) -> bool:
        """Whether the group is good by construction."""
        for pair in self.pairs:
            if pair <= group and not (pair in self.cures and self.cures[pair] in group - pair):
                return False
        return not any(triple <= group for triple in self.triples)

    def test(self, groups: Sequence[Group]) -> list[GroupVerdict]:
        """See `measure.partitioning.search_types.Oracle`."""
        self.calls += len(groups)
        return [GroupVerdict("good" if self.is_good(group) else "bad") for group in groups]
