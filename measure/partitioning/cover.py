"""Minimum set cover: the fewest of the given groups that cover all metrics; no testing."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np
from numpy.typing import NDArray

from measure.partitioning.search_types import Group, Partition

EXACT_METRICS = 12
"""Largest number of metrics for which a table over all subsets is affordable (4096 x 4096 unions)."""

_NODES = 2000  # limit of branch and bound; unlike a time limit it gives the same answer every time


def minimum_cover(n: int, good: Iterable[Group]) -> tuple[Partition, bool]:
    """Cover as many of ``n`` metrics as ``good`` can with as few groups as possible, and whether that is proved.

    Integer programming by HiGHS: one binary variable per group that is in no other group, one row per metric.
    """
    columns = _maximal(good)
    reachable: Group = frozenset().union(*columns)
    uncovered = frozenset(range(n)) - reachable
    if not columns:
        return Partition((), uncovered), True
    from scipy.optimize import Bounds, LinearConstraint, milp

    rows = sorted(reachable)
    table = np.array([[metric in column for column in columns] for metric in rows], dtype=np.float64)
    solved = milp(
        np.ones(len(columns)),
        constraints=LinearConstraint(table, lb=1),
        integrality=np.ones(len(columns), dtype=np.int64),
        bounds=Bounds(0, 1),
        options={"node_limit": _NODES},
    )
    if solved.x is None:
        return Partition(tuple(greedy_cover(reachable, columns)), uncovered), False
    chosen = [columns[k] for k in np.flatnonzero(solved.x > 0.5)]
    return Partition(tuple(chosen), uncovered), solved.status == 0


def greedy_cover(wanted: Group, groups: Collection[Group]) -> list[Group]:
    """Groups that cover ``wanted`` as far as possible; each step takes the group that adds most."""
    missing, chosen = set(wanted), []
    while missing and groups:
        best = max(groups, key=lambda group: (len(group & missing), sorted(group)))
        if not best & missing:
            break
        chosen.append(best)
        missing -= best
    return chosen


def _maximal(groups: Iterable[Group]) -> list[Group]:
    """The groups that are in no other group, in a fixed order."""
    kept: list[tuple[int, Group]] = []
    for group in sorted(set(groups), key=lambda one: (-len(one), sorted(one))):
        bits = as_bits(group)
        if not any(bits & ~other == 0 for other, _ in kept):
            kept.append((bits, group))
    return [group for _, group in kept]


def as_bits(group: Iterable[int]) -> int:
    """The group as a bit mask."""
    return sum(1 << metric for metric in group)


def as_group(bits: int) -> Group:
    """The group of a bit mask."""
    return frozenset(k for k in range(bits.bit_length()) if bits >> k & 1)


def cover_rank_by_table(n: int, allowed: NDArray[np.bool_]) -> tuple[int, int]:
    """Number of metrics that cannot be covered, and the fewest groups that cover the others (see `cover_by_table`)."""
    levels = _levels(n, allowed)
    return n - int(np.flatnonzero(levels[-1])[-1]).bit_count(), len(levels) - 1


def cover_by_table(n: int, allowed: NDArray[np.bool_]) -> Partition:
    """As `minimum_cover`, always proved, for up to `EXACT_METRICS` metrics.

    ``allowed`` ``(2**n,)``: whether each group may be used, by bit mask. Raises ValueError for more metrics.
    """
    levels = _levels(n, allowed)
    target = union = int(np.flatnonzero(levels[-1])[-1])
    groups, unions = np.flatnonzero(allowed), np.arange(1 << n)
    chosen = []
    for level in reversed(levels[:-1]):
        for group in groups.tolist():
            before = np.flatnonzero(level & (unions | group == union))
            if len(before):
                chosen.append(as_group(group))
                union = int(before[0])
                break
    return Partition(tuple(chosen), frozenset(range(n)) - as_group(target))


def _levels(n: int, allowed: NDArray[np.bool_]) -> list[NDArray[np.bool_]]:
    """Level k, ``(2**n,)``: the unions of k allowed groups, by bit mask; up to the first level with the largest union.

    The unions of two levels are a convolution over "or": subset sums are multiplied, and the sums inverted.
    """
    if n > EXACT_METRICS:
        raise ValueError(f"{n} metrics: expected at most {EXACT_METRICS} for a table over all subsets")
    groups = allowed.copy()
    groups[0] = False
    target = int(np.bitwise_or.reduce(np.flatnonzero(groups)))
    levels = [np.arange(1 << n) == 0]
    sums = _subset_sums(n, groups.astype(np.int64), 1)
    while not levels[-1][target]:
        pairs = _subset_sums(n, _subset_sums(n, levels[-1].astype(np.int64), 1) * sums, -1)
        levels.append(pairs > 0)
    return levels


def _subset_sums(n: int, values: NDArray[np.int64], sign: int) -> NDArray[np.int64]:
    """Sums over all subsets of each mask; with ``sign`` -1 the inverse."""
    result = values.reshape((2,) * n).copy()
    for axis in range(n):
        halves = np.moveaxis(result, axis, 0)
        halves[1] += sign * halves[0]
    return result.reshape(-1)
