"""The variants of a campaign share one chance of a false alarm: together in pairs, in equal parts otherwise."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from measure.analysis.stored_runs import load_results
from measure.judging.comparison import Compared, VariantComparison, percent_over, runs_of
from measure.judging.controls import judge_controls
from measure.run_types import BASELINE, NULL_CONTROL, Run
from measure.runs.campaign_model import Campaign
from measure.stats.correlation import fisher_z, spearman
from tests.measure.merging.test_merge_command import CAMPAIGN, make_results

PAIRS = 7


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Campaign, dict[str, list[Run]]]:
    """A campaign of two variants in 7 pairs, and its runs by variant."""
    folder = tmp_path_factory.mktemp("pairs")
    text = CAMPAIGN.replace("baselines: 2", f"baselines: {PAIRS}").replace("replicates: 2", f"replicates: {PAIRS}")
    make_results(folder, text.replace("controls: false", "controls: true"))
    result, outcome = load_results(folder / "out")
    names = (BASELINE, "light", "other", NULL_CONTROL)
    return result.plan.campaign, {name: runs_of(outcome.runs, name) for name in names}


def compare(campaign: Campaign, runs: dict[str, list[Run]], *variants: str) -> VariantComparison:
    return VariantComparison(campaign, runs[BASELINE], {name: runs[name] for name in variants})


def altered(run: Run, seed: int) -> Run:
    """``run`` with a few more events in each record."""
    values = run.trace.values
    more = np.random.default_rng(seed).integers(0, 9, values.shape)
    return replace(run, trace=replace(run.trace, values=values + more))


def test_a_total_is_compared_with_the_mean_of_the_baselines_and_unknown_without_one() -> None:
    """Of a host that does not count instructions, the sampler's overhead was 0 / 0."""
    baselines: Any = [SimpleNamespace(total_instructions=n, total_cycles=0) for n in (90, 110)]
    runs: Any = [SimpleNamespace(total_instructions=n, total_cycles=0) for n in (101, 150, 100)]
    sides = Compared(tuple(baselines), tuple(runs), paired=False)
    np.testing.assert_allclose(percent_over(sides, "total_instructions"), [1, 50, 0], atol=1e-9)
    assert np.isnan(percent_over(sides, "total_cycles")).tolist() == [True] * 3


def test_all_variants_in_pairs_are_tested_together(made: tuple[Campaign, dict[str, list[Run]]]) -> None:
    campaign, runs = made
    comparison = compare(campaign, runs, "light", "other")
    turned = compare(campaign, runs, "other", "light")
    for name in ("light", "other"):
        judged = comparison.judged(name)
        assert judged.outer_held_out is not None
        assert judged.outer_joint is not None
        assert repr(turned.judged(name)) == repr(judged)
        assert judged.inner == comparison.within_runs(name)
        for one in (judged.inner, judged.outer_held_out, judged.outer_joint):
            assert (one.comparisons, one.together, one.level, one.n_runs) == (4, 4, 0.05, PAIRS)
    # With one variant fewer the others' p-values cannot rise.
    alone = compare(campaign, runs, "light").within_runs("light")
    assert alone.together == 2
    assert alone.p_value <= comparison.within_runs("light").p_value


def test_controls_are_tested_beside_the_variants(made: tuple[Campaign, dict[str, list[Run]]]) -> None:
    campaign, runs = made
    comparison = compare(campaign, runs, "light", "other")
    before = repr(comparison.judged("light"))
    controls = judge_controls(comparison, runs[NULL_CONTROL])
    assert repr(comparison.judged("light")) == before
    assert [one.together for one in controls.null] == [4, 4]
    inside = compare(campaign, runs | {"third": runs[NULL_CONTROL]}, "light", "other", "third")
    # In the family it has the same null distribution, but for its own part across runs.
    assert inside.within_runs("third").p_value >= controls.null[0].p_value


def test_a_variant_whose_run_failed_has_its_own_pairs(made: tuple[Campaign, dict[str, list[Run]]]) -> None:
    campaign, runs = made
    lost = runs | {"light": runs["light"][:2] + runs["light"][3:]}
    comparison = compare(campaign, lost, "light", "other")
    assert comparison.within_runs("light").n_runs == PAIRS - 1
    assert comparison.within_runs("other").n_runs == PAIRS
    assert comparison.within_runs("light").together == 4


def test_runs_of_which_few_are_left_are_compared_with_their_own_baselines(
    made: tuple[Campaign, dict[str, list[Run]]],
) -> None:
    """They were compared with all baselines, as if they did not share their noise with some of them."""
    campaign, runs = made
    left = [altered(runs["light"][n], n) for n in (1, 4, 6)]
    few = compare(campaign, runs | {"light": left}, "light", "other")
    light, other = few.within_runs("light"), few.within_runs("other")
    assert (light.paired, light.together, light.level, light.n_runs) == (True, 1, pytest.approx(0.05 / 4), 3)
    assert (other.paired, other.together, other.level) == (True, 2, pytest.approx(0.05 / 2))
    metrics = campaign.hardware_metrics
    partners = [runs[BASELINE][n] for n in (1, 4, 6)]
    z = [[fisher_z(spearman(run.trace.counts(metrics), metrics).rho) for run in group] for group in (partners, left)]
    for pair in light.pairs:
        at = metrics.index(pair.a), metrics.index(pair.b)
        before, after = (np.array([table[at] for table in group]) for group in z)
        assert pair.baseline_z == pytest.approx(before.mean())
        assert pair.delta_z == pytest.approx((after - before).mean())
        assert pair.p_adjusted >= 2 / 2**3
        assert np.isnan(pair.simultaneous).all()  # so few have none
    assert light.too_few
    alone = compare(campaign, runs, "other").within_runs("other")
    assert other.p_value == alone.p_value  # flips of three pairs do not hide changes of the others


@pytest.mark.parametrize("left", [[3], [0, 2, 5], list(range(PAIRS))])
def test_runs_with_the_counts_of_their_baselines_are_unchanged_however_few(
    made: tuple[Campaign, dict[str, list[Run]]], left: list[int]
) -> None:
    campaign, runs = made
    same = [replace(runs["light"][n], trace=runs[BASELINE][n].trace) for n in left]
    judged = compare(campaign, runs | {"light": same}, "light", "other").judged("light")
    for one in (judged.inner, judged.outer_held_out):
        assert one is not None
        assert one.verdict == "equivalent"
        low = 0.0 if one is judged.inner else -np.inf  # across runs, where only a loss counts, there is no lower end
        assert {(pair.delta_z, pair.ci, pair.simultaneous, pair.p_adjusted) for pair in one.pairs} == {
            (0.0, (0.0, 0.0), (low, 0.0), 1.0)
        }
        assert any("exactly the counts of the baseline that shares its noise" in said for said in one.findings)
    other = [*same[:-1], altered(same[-1], 0)]
    judged = compare(campaign, runs | {"light": other}, "light", "other").judged("light")
    assert not any("exactly the counts" in said for said in judged.inner.findings)


def test_totals_are_compared_in_the_pairs_that_are_left() -> None:
    """Three runs of expensive layouts were compared with the mean of all baselines: 30% more in place of 1%."""
    before: Any = [SimpleNamespace(total_cycles=n) for n in (200, 300, 100, 100)]
    after: Any = [SimpleNamespace(total_cycles=n) for n in (202, 303)]
    found = percent_over(Compared(tuple(before), tuple(after), paired=True), "total_cycles")
    np.testing.assert_allclose(found, [1, 1], atol=1e-9)


def test_unpaired_variants_have_equal_shares(made: tuple[Campaign, dict[str, list[Run]]]) -> None:
    campaign, runs = made
    comparison = compare(campaign.model_copy(update={"paired": False}), runs, "light", "other")
    found = comparison.within_runs("light")
    assert (found.paired, found.comparisons, found.together, found.level) == (False, 4, 1, pytest.approx(0.05 / 4))
    within = compare(campaign.model_copy(update={"outer": False}), runs, "light", "other")
    assert within.within_runs("light").together == 2
    assert within.judged("light").outer_held_out is None
    with pytest.raises(KeyError):
        within.judged("unknown")


def test_the_baselines_that_are_alike_leave_the_others_their_test(made: tuple[Campaign, dict[str, list[Run]]]) -> None:
    campaign, runs = made
    same = [replace(runs[BASELINE][0], spec=one.spec) for one in runs[BASELINE]]
    found = compare(campaign, runs | {BASELINE: same}, "light", "other").within_runs("light")
    assert any("do not differ from one another" in sentence for sentence in found.findings)
