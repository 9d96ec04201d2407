"""The partition search over oracles whose truth is known."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from measure.partitioning.cover import as_bits, as_group, cover_by_table, greedy_cover, minimum_cover
from measure.partitioning.search import PartitionSearch
from measure.partitioning.search_types import Group, GroupVerdict, Oracle, Progress
from measure.partitioning.synthetic import SyntheticOracle


class TableOracle:
    """Any truth at all: a verdict for each of the 2**n groups, drawn at random."""

    def __init__(self, n: int, seed: int, share: float, undecided: float = 0.0) -> None:
        rng = np.random.default_rng(seed)
        draws = rng.random((2, 1 << n))
        self.states = np.where(draws[0] < share, "good", np.where(draws[1] < undecided, "undecided", "bad"))
        self.asked: list[Group] = []

    def test(self, groups: Sequence[Group]) -> list[GroupVerdict]:
        self.asked += groups
        return [GroupVerdict(str(self.states[as_bits(group)])) for group in groups]  # type: ignore[arg-type]


def all_groups(n: int) -> list[Group]:
    return [as_group(bits) for bits in range(1, 1 << n)]


def brute_force(n: int, good: Sequence[Group]) -> tuple[int, int]:
    """Metrics that cannot be covered, and the fewest groups for the others: by trying all collections."""
    target = frozenset[int]().union(*good)
    for size in range(n + 1):
        for chosen in combinations(good, size):
            if frozenset[int]().union(*chosen) == target:
                return n - len(target), size
    raise AssertionError


def finish(search: PartitionSearch) -> Progress:
    *_, last = search.run()
    return last


def check(search: PartitionSearch, progress: Progress) -> None:
    """What every partition must fulfil at any time."""
    covered: Group = frozenset().union(*progress.best.groups)
    assert covered | progress.best.uncovered == search.everything
    assert not covered & progress.best.uncovered
    for group in progress.best.groups:
        assert search.verdicts[group].state == "good"
    assert progress.outlook.lower_bound <= max(1, len(progress.best.groups))


@given(n=st.integers(1, 5), seed=st.integers(0, 10_000), share=st.sampled_from([0.0, 0.1, 0.3, 0.6, 1.0]))
@settings(max_examples=80, deadline=None)
def test_exact_search_of_any_truth_equals_brute_force(n: int, seed: int, share: float) -> None:
    oracle = TableOracle(n, seed, share)
    search = PartitionSearch(n, oracle, seed=seed)
    for progress in search.run():
        check(search, progress)
    good = [group for group in all_groups(n) if oracle.states[as_bits(group)] == "good"]
    assert progress.best.rank == brute_force(n, good)
    assert progress.proof == "optimal"
    assert len(oracle.asked) == len(set(oracle.asked)) == search.calls


@given(seed=st.integers(0, 10_000), width=st.integers(1, 5), undecided=st.sampled_from([0.0, 0.5]))
@settings(max_examples=40, deadline=None)
def test_anytime_partitions_are_of_groups_tested_good(seed: int, width: int, undecided: float) -> None:
    oracle = TableOracle(9, seed, 0.25, undecided)
    search = PartitionSearch(9, oracle, seed=seed, width=width, exact=False)
    previous = (99, 99)
    for progress in search.run():
        check(search, progress)
        assert all(group in oracle.asked for group in progress.best.groups)
        assert progress.best.rank <= previous
        previous = progress.best.rank
    assert len(oracle.asked) == len(set(oracle.asked)) == search.calls == progress.calls


def test_undecided_groups_keep_a_proof_open() -> None:
    oracle = TableOracle(4, 0, 0.0)
    oracle.states[[1, 2, 4, 8]] = "good"
    assert finish(PartitionSearch(4, oracle)).proof == "optimal"
    oracle.states[15] = "undecided"
    search = PartitionSearch(4, oracle)
    last = finish(search)
    assert last.proof == "optimal among tested"
    assert last.outlook.lower_bound == 1
    assert "only undecided ones could make a better partition" in last.outlook.describe(last.proof)
    assert len(search.verdicts) == 15


def test_an_oracle_that_is_not_monotone_does_not_fool_it() -> None:
    """Pairs are bad but their triple is good, the triple's superset bad again, and single metrics bad alone."""
    n = 6
    states = dict.fromkeys(all_groups(n), "bad")
    for group in ({0, 1, 2}, {2, 3, 4}, {4, 5}, {3}, {0}):
        states[frozenset(group)] = "good"

    class Odd:
        def test(self, groups: Sequence[Group]) -> list[GroupVerdict]:
            return [GroupVerdict(states[group]) for group in groups]  # type: ignore[arg-type]

    search = PartitionSearch(n, Odd())
    last = finish(search)
    assert last.best.rank == (0, 3)
    assert last.proof == "optimal"
    assert set(last.best.groups) == {frozenset({0, 1, 2}), frozenset({2, 3, 4}), frozenset({4, 5})}
    anytime = PartitionSearch(n, Odd(), exact=False)
    check(anytime, finish(anytime))


@pytest.mark.parametrize(("n", "seeds"), [(30, 3), (100, 1)])
def test_many_metrics_end_near_the_planted_number(n: int, seeds: int) -> None:
    for seed in range(seeds):
        oracle = SyntheticOracle(n, seed, planted=4, pairs=0.15, triples=n // 2, cured=5)
        search = PartitionSearch(n, oracle, seed=seed, patience=12)
        for progress in search.run():
            check(search, progress)
        assert all(oracle.is_good(group) for group in progress.best.groups)
        assert not progress.best.uncovered
        assert len(progress.best.groups) <= oracle.planted + 3
        assert oracle.calls == search.calls


def test_synthetic_oracles_are_not_monotone() -> None:
    oracle = SyntheticOracle(30, 0, planted=4, pairs=0.2, cured=5)
    falls = rises = 0
    for pair, third in oracle.cures.items():
        if third not in pair:
            falls += not oracle.is_good(pair)
            rises += oracle.is_good(pair | {third})
    assert falls
    assert rises


def test_stopped_and_started_again_it_knows_the_same() -> None:
    def search_over(oracle: Oracle, known: dict[Group, GroupVerdict]) -> PartitionSearch:
        return PartitionSearch(30, oracle, seed=3, width=2, earlier_verdicts=known)

    whole = search_over(SyntheticOracle(30, 7, planted=4, pairs=0.2, triples=10), {})
    expected = finish(whole)
    known: dict[Group, GroupVerdict] = {}
    calls = 0
    for stop_after in (3, 9, 20, 60, None):
        part = search_over(SyntheticOracle(30, 7, planted=4, pairs=0.2, triples=10), known)
        *_, progress = islice(part.run(), stop_after)
        calls += part.calls
        known = dict(part.verdicts)
    assert known == whole.verdicts
    assert calls == whole.calls
    assert progress.best == expected.best


def test_known_groups_are_not_asked_about_and_count_at_once() -> None:
    oracle = SyntheticOracle(30, 7, planted=4, pairs=0.2)
    finish(first := PartitionSearch(30, oracle, seed=1))
    other = PartitionSearch(30, oracle, seed=2, earlier_verdicts=first.verdicts)
    assert other.reported.rank == first.reported.rank
    before = oracle.calls
    last = finish(other)
    assert oracle.calls - before == other.calls == len(other.verdicts) - len(first.verdicts)
    assert last.best.rank <= first.reported.rank


def test_interrupted_oracle_loses_nothing_that_was_answered() -> None:
    class Stops(SyntheticOracle):
        def test(self, groups: Sequence[Group]) -> list[GroupVerdict]:
            if self.calls >= 20:
                raise KeyboardInterrupt
            return super().test(groups)

    search = PartitionSearch(30, Stops(30, 7, planted=4, pairs=0.2), seed=3)
    with pytest.raises(KeyboardInterrupt):
        finish(search)
    assert len(search.verdicts) == search.calls == 20
    last = search.conclude()
    check(search, last)
    assert last.proof == "optimal among tested"


@pytest.mark.parametrize("n", [6, 14])
def test_a_group_that_fails_on_fresh_runs_is_not_used_again(n: int) -> None:
    oracle = SyntheticOracle(n, 1, planted=3, pairs=0.0)
    search = PartitionSearch(n, oracle)
    assert finish(search).best.rank == (0, 1)
    revoked = search.everything
    search.revoke(revoked, GroupVerdict("bad", "not on fresh runs"))
    last = finish(search)
    assert revoked not in last.best.groups
    assert last.best.rank == (0, 2)
    assert last.proof == "optimal"


@given(st.lists(st.frozensets(st.integers(0, 5), min_size=1), max_size=12))
@settings(max_examples=80, deadline=None)
def test_covers_equal_brute_force(groups: list[Group]) -> None:
    cover, proved = minimum_cover(6, groups)
    assert proved
    allowed = np.zeros(64, np.bool_)
    allowed[[as_bits(group) for group in groups]] = True
    table = cover_by_table(6, allowed)
    assert cover.rank == table.rank == brute_force(6, list(dict.fromkeys(groups)))
    for found in (cover, table):
        assert set(found.groups) <= set(groups)
        assert frozenset[int]().union(*found.groups) | found.uncovered == frozenset(range(6))
    wanted = frozenset[int]().union(*groups)
    assert frozenset[int]().union(*greedy_cover(wanted, groups)) == wanted


def test_senseless_arguments_are_refused() -> None:
    oracle = TableOracle(1, 0, 1.0)
    with pytest.raises(ValueError, match="0 metrics, 1 groups at once: expected at least one of each"):
        PartitionSearch(0, oracle)
    with pytest.raises(ValueError, match="13 metrics: proving the fewest groups is affordable for up to 12"):
        PartitionSearch(13, oracle, exact=True)
