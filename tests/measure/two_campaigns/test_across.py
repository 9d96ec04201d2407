"""Changes of similarity across runs: which baselines are compared, and that they are independent."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from measure.alignment.setting import DEFAULT_ALIGNMENT
from measure.perturbation.similarity import PreparedRun, SimilarityRule, outer_z
from measure.two_campaigns.across import AcrossRuns, common_duplicates, opponents
from measure.two_campaigns.change_test import compare_changes

METRICS = ("a", "b", "c")


@given(st.integers(0, 40))
def test_of_any_two_exactly_one_has_the_other(n: int) -> None:
    found = opponents(n)
    assert all((j in found[i]) != (i in found[j]) for i in range(n) for j in range(n) if i != j)
    assert all(i not in others for i, others in enumerate(found))
    assert {len(others) for others in found} <= {(n - 1) // 2, n // 2}


def walks(rng: np.random.Generator, count: int) -> list[NDArray[np.int64]]:
    """Traces of METRICS that are somewhat alike."""
    common = rng.normal(0, 1, (60, 3)).cumsum(axis=0)
    return [np.rint(100 * (common + rng.normal(0, 0.8, (60, 3)))).astype(np.int64) for _ in range(count)]


@pytest.mark.parametrize("spare", [0, 2])
def test_a_change_is_the_similarity_of_a_run_less_that_of_its_baseline(spare: int) -> None:
    rng = np.random.default_rng(3)
    runs = walks(rng, 4)
    baselines = walks(rng, 4 + spare)
    side = AcrossRuns(baselines, METRICS, DEFAULT_ALIGNMENT)
    assert side.duplicates() == ((), (), ())
    found = side.changes(runs, ((), (), ()))
    for i, run in enumerate(runs):
        others = [baselines[j] for j in [*opponents(4)[i], *range(4, 4 + spare)]]
        expected = np.mean(
            [
                outer_z(run, other, METRICS, held_out=True) - outer_z(baselines[i], other, METRICS, held_out=True)
                for other in others
            ],
            axis=0,
        )
        assert found[i] == pytest.approx(expected)


def test_what_has_no_value_has_no_change() -> None:
    rng = np.random.default_rng(4)
    still = [table * [1, 1, 0] for table in walks(rng, 3)]
    found = AcrossRuns(still, METRICS, DEFAULT_ALIGNMENT).changes(walks(rng, 3), ((), (), ()))
    assert np.isfinite(found[:, :2]).all()
    assert np.isnan(found[:, 2]).all()
    alone = AcrossRuns(walks(rng, 1), METRICS, DEFAULT_ALIGNMENT).changes(walks(rng, 1), ((), (), ()))
    assert np.isnan(alone).all()  # there is no other baseline


def test_a_metric_is_aligned_on_the_same_metrics_in_both_campaigns() -> None:
    rng = np.random.default_rng(5)
    alike = [np.column_stack([table[:, 0], table[:, 0] + table[:, 2] // 50, table[:, 2]]) for table in walks(rng, 3)]
    sides = [AcrossRuns(tables, METRICS, DEFAULT_ALIGNMENT) for tables in (walks(rng, 3), alike)]
    assert sides[1].duplicates() == ((1,), (0,), ())
    assert common_duplicates(sides) == ((1,), (0,), ())


def noise(rng: np.random.Generator, of_runs: float) -> Callable[..., list[NDArray[np.float64]]]:
    """An aligner that finds alignments of unit noise, and runs that are alike to others by a noise of their own."""
    known: dict[frozenset[bytes], NDArray[np.float64]] = {}
    own: dict[bytes, NDArray[np.float64]] = {}

    def align(
        pairs: Sequence[tuple[PreparedRun, PreparedRun]], how: SimilarityRule, done: Callable[[int], None]
    ) -> list[NDArray[np.float64]]:
        found = []
        for pair in pairs:
            digests = [one.digest for one in pair]
            for digest in digests:
                own.setdefault(digest, rng.normal(0, of_runs, len(METRICS)))
            each = known.setdefault(frozenset(digests), rng.normal(0, 1, len(METRICS)))
            found.append(each + own[digests[0]] + own[digests[1]])
        return found

    return align


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("of_runs", [0.0, 0.5])
def test_equal_changes_across_runs_are_seldom_called_different(paired: bool, of_runs: float) -> None:
    """Two campaigns without any difference, where alignments or runs are the noise: at most 5% in the long run. With
    each baseline compared with all others it was 16% of pairs of 10 where alignments are all."""
    rng = np.random.default_rng(6)
    alarms = 0
    for seed in range(150):
        changes = [
            AcrossRuns(walks(rng, 10), METRICS, DEFAULT_ALIGNMENT, noise(rng, of_runs)).changes(
                walks(rng, 10), ((), (), ())
            )
            for _ in range(2)
        ]
        found = compare_changes(
            *changes, paired=paired, delta=0.2, alpha=0.05, comparisons=1, assessable=[True] * 3, seed=seed,
            n_permutations=999,
        )  # fmt: skip
        alarms += any(one.p_adjusted <= 0.05 for one in found)
    assert alarms <= 15  # of 150; 5% are 7.5, with a standard deviation of 2.7
