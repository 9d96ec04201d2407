"""The test of a difference of changes between two campaigns, and the facts in which their designs differ."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import ttest_ind

from measure.stats.correlation import MOST_AT_CEILING, share_at_ceiling
from measure.two_campaigns.change_test import (
    ChangeTest,
    _max_t,
    _may_differ_in_spread,
    compare_changes,
    smallest_p,
)
from measure.two_campaigns.comparison import _rho
from measure.two_campaigns.page import _interval
from measure.two_campaigns.variant_change import PairChange, SideVerdicts, VariantChange

ROOT = Path(__file__).parents[3]


def difference_of(
    before: NDArray[np.float64], after: NDArray[np.float64], paired: bool = False, delta: float = 0.2
) -> list[ChangeTest]:
    return compare_changes(
        before, after, paired=paired, delta=delta, alpha=0.05, comparisons=1,
        assessable=[True] * before.shape[1], seed=1, n_permutations=999,
    )  # fmt: skip


# --- the test
@pytest.mark.parametrize(("n", "m", "spread"), [(10, 10, 3.0), (10, 20, 1.0), (8, 12, 0.5)])
def test_equal_changes_are_seldom_called_different(n: int, m: int, spread: float) -> None:
    """Campaigns that change relations alike, also where one scatters more: at most 5% in the long run."""
    rng = np.random.default_rng(5)
    alarms = 0
    for _ in range(150):
        common = rng.normal(0, 0.3, 6)
        before, after = rng.normal(common, 0.1, (n, 6)), rng.normal(common, 0.1 * spread, (m, 6))
        found = difference_of(before, after)
        alarms += any(one.verdict in ("perturbed", "changed") or one.p_adjusted <= 0.05 for one in found)
    assert alarms <= 15  # of 150; 5% are 7.5, with a standard deviation of 2.7


@pytest.mark.parametrize(("m", "most"), [(3, 9), (2, 18)])
def test_a_few_runs_that_scatter_more_are_seldom_called_different(m: int, most: int) -> None:
    """Of 100 comparisons without a difference, 20 runs against 3 and 2 of three times the spread, 12 and 23 had a false
    alarm without Welch's t; two runs do not show their spread, and `docs/method.md` has what is left."""
    rng = np.random.default_rng(7)
    alarms = 0
    for _ in range(100):
        before, after = (
            0.06 * spread * (rng.normal(0, 0.7, (n, 1)) + rng.normal(size=(n, 10)))
            for n, spread in ((20, 1.0), (m, 3.0))
        )
        alarms += any(one.p_adjusted <= 0.05 for one in difference_of(before, after))
    assert alarms <= most


def test_welch_takes_no_power_from_campaigns_of_one_spread() -> None:
    rng = np.random.default_rng(8)
    before, after = rng.normal(0, 0.1, (8, 4)), rng.normal([0.5, 0, 0, 0], 0.1, (8, 4))
    tests = [_max_t(*order, False, 0.2, 0.05, 999, 1) for order in ((before, after), (after, before))]
    assert not _may_differ_in_spread(before, after, 0.05, 999, 1)
    assert [one.p_adjusted for one in difference_of(before, after)] == pytest.approx(
        np.max([p for p, _ in tests], axis=0)
    )
    wider = after * 6
    assert _may_differ_in_spread(before, wider, 0.05, 999, 1)
    assert _may_differ_in_spread(wider, before, 0.05, 999, 1)
    found = [one.p_adjusted for one in difference_of(before, wider)]
    naive = [4 * ttest_ind(before[:, n], wider[:, n], equal_var=False).pvalue for n in range(4)]
    assert all(p >= min(1, least) - 1e-12 for p, least in zip(found, naive, strict=True))


def test_a_difference_beyond_delta_is_found_and_one_within_it_is_equivalent() -> None:
    rng = np.random.default_rng(2)
    before = rng.normal([0.0, 0.5, 0.0, 0.0], 0.05, (12, 4))
    after = rng.normal([0.6, 0.52, 0.2, np.nan], 0.05, (14, 4))
    found = difference_of(before, after)
    assert [one.verdict for one in found] == ["perturbed", "equivalent", "changed", "inconclusive"]
    assert found[0].difference == pytest.approx(after[:, 0].mean() - before[:, 0].mean())
    assert found[0].simultaneous[0] > 0.2
    assert found[0].simultaneous[0] < found[0].ci[0] < found[0].difference < found[0].ci[1] < found[0].simultaneous[1]
    assert found[1].p_adjusted > 0.05 >= found[2].p_adjusted
    assert np.isnan(found[3].p_adjusted)


def test_pairs_of_the_same_noise_find_what_independent_runs_do_not() -> None:
    rng = np.random.default_rng(3)
    noise = rng.normal(0, 0.5, (10, 3))
    before, after = noise, noise + 0.3 + rng.normal(0, 0.02, (10, 3))
    assert {one.verdict for one in difference_of(before, after, paired=True)} == {"perturbed"}
    assert {one.verdict for one in difference_of(before, after)} == {"inconclusive"}


def test_too_few_runs_and_what_cannot_be_assessed_settle_nothing() -> None:
    one = np.zeros((1, 2))
    assert {each.verdict for each in difference_of(one, np.ones((9, 2)))} == {"inconclusive"}
    still = np.zeros((8, 1))
    assert difference_of(still, still)[0].verdict == "equivalent"  # no run differs from another
    unknown = compare_changes(
        still, still, paired=False, delta=0.2, alpha=0.05, comparisons=1, assessable=[False], seed=1
    )
    assert unknown[0].verdict == "not assessable"


@given(st.integers(0, 1000), st.booleans())
def test_exchanging_the_campaigns_changes_the_sign_only(seed: int, paired: bool) -> None:
    rng = np.random.default_rng(seed)
    before, after = rng.normal(0, 0.2, (6, 3)), rng.normal(0.1, 0.2, (6, 3))
    there, back = difference_of(before, after, paired), difference_of(after, before, paired)
    for one, other in zip(there, back, strict=True):
        assert one.difference == pytest.approx(-other.difference)
        assert one.p_adjusted == pytest.approx(other.p_adjusted)
        assert one.simultaneous == pytest.approx(tuple(-end for end in reversed(other.simultaneous)))


@pytest.mark.parametrize(("runs", "paired"), [((6, 6), True), ((4, 5), False)])
def test_the_smallest_p_is_that_of_a_difference_of_any_size(runs: tuple[int, int], paired: bool) -> None:
    rng = np.random.default_rng(4)
    before, after = (rng.normal(change, 0.01, (n, 1)) for n, change in zip(runs, (0.0, 9.0), strict=True))
    found = compare_changes(
        before, after, paired=paired, delta=0.2, alpha=0.05, comparisons=1, assessable=[True], seed=1
    )
    assert found[0].p_adjusted == pytest.approx(smallest_p(*runs, paired=paired, comparisons=1))


def test_a_p_value_counts_all_comparisons() -> None:
    """A p-value of 0.02 stood where 0.0125 was the level: it is to be compared with alpha itself."""
    rng = np.random.default_rng(9)
    before, after = rng.normal(0.0, 0.1, (8, 2)), rng.normal([0.0, 0.35], 0.1, (8, 2))

    def tests(comparisons: int) -> list[ChangeTest]:
        return compare_changes(
            before, after, paired=True, delta=0.2, alpha=0.05, comparisons=comparisons, assessable=[True] * 2, seed=1
        )

    alone, among_four = tests(1), tests(4)
    assert [one.p_adjusted for one in among_four] == [min(1.0, 4 * one.p_adjusted) for one in alone]
    assert alone[1].p_adjusted <= 0.05 < among_four[1].p_adjusted
    assert smallest_p(8, 8, paired=True, comparisons=4) == 4 * smallest_p(8, 8, paired=True, comparisons=1)
    assert [one.verdict in ("changed", "perturbed") for one in (alone[1], among_four[1])] == [True, False]


def test_too_few_runs_have_no_interval_that_holds_for_all_pairs() -> None:
    """Neither have pairs that do not vary, whose standard error is 0. Warnings of numpy are errors."""
    before, after = np.zeros((6, 2)), np.zeros((6, 2))
    before[:, 0] = np.random.default_rng(1).normal(0, 0.1, 6)
    with np.errstate(all="raise"):
        found = compare_changes(
            before, after, paired=True, delta=0.2, alpha=0.0125, comparisons=1, assessable=[True] * 2, seed=1
        )
    assert [one.simultaneous for one in found] == [(-np.inf, np.inf)] * 2
    assert [one.verdict for one in found] == ["equivalent"] * 2
    assert _interval(found[1].simultaneous) == "none: too few runs"
    assert _interval(found[1].ci) == "+0.000 to +0.000"


def test_a_p_value_stands_beside_its_level_and_too_few_runs_are_said() -> None:
    side = SideVerdicts("perturbed", "perturbed", None, {})
    enough = VariantChange("v", side, side, "inconclusive", 0.125, (), 9, 9, True, 0.05, 4, 0.0156)
    assert enough.text == (
        "v: perturbed before and after; no difference of the changes is shown, nor its absence (p = 0.125 over all "
        "comparisons, at a level of 0.05)."
    )
    few = replace(enough, n_before=6, n_after=6, smallest_p=0.125)
    assert few.text == (
        "v: perturbed before and after; no difference of the changes is shown, nor its absence: 6 pairs allow no "
        "p-value below 0.125, so give both campaigns 8 or more (p = 0.125 over all comparisons, at a level of 0.05)."
    )
    assert "so give" not in replace(few, verdict="equivalent").text
    assert "so give" not in replace(few, verdict="not assessable").text
    unpaired = replace(few, paired=False, n_after=1, smallest_p=1.0)
    assert "6 and 1 runs allow no p-value below 1.000, so give both campaigns 7 or more" in unpaired.text
    # If no run were missing, the runs would be paired, and four tests of 7 pairs find nothing at this level.
    missing = replace(unpaired, is_paired_by_design=True)
    assert "6 and 1 runs allow no p-value below 1.000, so give both campaigns 8 or more" in missing.text


def test_verdicts_on_what_only_one_campaign_compares_are_not_laid_to_chance() -> None:
    """Chance was said of a verdict that came from a metric which the other campaign does not have."""
    pairs: dict[frozenset[str], Any] = {
        frozenset("AB"): "equivalent", frozenset("AC"): "perturbed", frozenset("A"): "changed",
    }  # fmt: skip
    side = SideVerdicts("perturbed", "perturbed", "changed", pairs)
    assert side.on("ABC", across=False) == "perturbed"
    assert side.on("AB", across=False) == "equivalent"
    assert side.on("AB", across=True) == "changed"
    other = SideVerdicts("equivalent", "equivalent", None, {})
    found = VariantChange("v", side, other, "inconclusive", 0.125, (), 9, 9, True, 0.05, 4, 0.0156)
    assert "nor its absence: the verdicts may differ by chance" in found.text
    shared = replace(found, agrees_on_shared=True)
    assert "nor its absence: the verdicts differ on what only one of the campaigns compares" in shared.text


def test_small_differences_that_are_significant_are_said_to_be_shown() -> None:
    """It read "no difference of the changes is shown (p < 0.001)"."""
    side, other = (SideVerdicts(verdict, verdict, None, {}) for verdict in ("perturbed", "changed"))
    found = VariantChange("v", side, other, "inconclusive", 0.0003, (), 9, 9, True, 0.05, 4, 0.0156)
    assert found.text == (
        "v: perturbed before, changed after; the changes differ measurably, by less than delta; elsewhere no "
        "difference is shown, nor its absence (p < 0.001 over all comparisons, at a level of 0.05)."
    )


def test_correlations_whose_z_is_cut_off_are_not_compared() -> None:
    """A change of -0.30 was one of -0.20, as z ends at rho of 0.99."""
    rng = np.random.default_rng(5)
    driver = rng.normal(0, 1, 500)

    def runs(noise: float) -> Any:
        table = np.column_stack([driver, driver + rng.normal(0, noise, 500), rng.normal(0, 1, 500)])
        return _rho([SimpleNamespace(trace=SimpleNamespace(counts=lambda names: table))] * 9, ("a", "b", "c"))  # type: ignore[list-item]

    loose, close = runs(0.3), runs(0.02)
    assert (share_at_ceiling(loose, close) > MOST_AT_CEILING).tolist() == [True, False, False]
    assert (share_at_ceiling(close, loose) > MOST_AT_CEILING).tolist() == [True, False, False]
    assert not share_at_ceiling(loose, loose).any()


def test_only_the_pairs_that_differ_by_more_than_delta_are_said_to() -> None:
    """One of 13 pairs differed by more than delta, and "by more than delta" stood before 12 others, too."""

    def pair(name: str, verdict: Any) -> PairChange:
        test = ChangeTest(0.1, 0.2, 0.1, (0.0, 0.2), (0.0, 0.3), 0.01, verdict)
        return PairChange(name, "B", "equivalent", "equivalent", test)

    pairs = (pair("A", "perturbed"), *(pair(name, "changed") for name in "CDEF"), pair("G", "inconclusive"))
    side = SideVerdicts("perturbed", "perturbed", None, {})
    found = VariantChange("v", side, side, "perturbed", 0.001, pairs, 9, 9, True, 0.05, 4, 0.0156)
    assert found.text == (
        "v: perturbed before and after; the instrumentation changes relations otherwise than before, by more than "
        "delta: A - B, and perhaps by less than delta: C - B, D - B, E - B and 1 more (p = 0.001 over all "
        "comparisons, at a level of 0.05)."
    )
    alone = replace(found, verdict="changed", pairs=pairs[1:3])
    assert "otherwise than before, perhaps by less than delta: C - B, D - B (p = 0.001" in alone.text
