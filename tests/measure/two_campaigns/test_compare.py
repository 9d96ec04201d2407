"""`measure compare`: the test of a difference of changes, the differing designs, and the command."""

from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import ttest_ind

from measure.analysis.stored_runs import load_results
from measure.cli import main
from measure.runs.program_identity import different_programs
from measure.stats.correlation import MOST_AT_CEILING, share_at_ceiling
from measure.two_campaigns.change_test import (
    ChangeTest,
    _max_t,
    _may_differ_in_spread,
    compare_changes,
    smallest_p,
)
from measure.two_campaigns.comparison import CampaignsCompared, _rho
from measure.two_campaigns.design_facts import differing_facts, unlike_designs
from measure.two_campaigns.page import _interval
from measure.two_campaigns.variant_change import PairChange, SideVerdicts, VariantChange
from tests.measure.demo_program import CAMPAIGN, PROGRAM
from tests.measure.fake_runs import fake_runs_in_this_process
from tests.measure.report.page_structure import csv_in
from tests.measure.shown_tables import widest_row

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


# --- the command
@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results `first`, `same` (the same seed, heavy counts less) and `other` (another seed and machine)."""
    folder = tmp_path_factory.mktemp("two")
    (folder / "demo.c").write_text(PROGRAM)
    (folder / "c.yaml").write_text(CAMPAIGN)
    desktop = f"machine={ROOT}/configs/machines/desktop.yaml"
    for name, settings in (
        ("first", []), ("same", ["variants.heavy=[rounds]", "delta=0.3"]),
        ("other", ["seed=2", "outer=false", desktop, "variants={heavy: [perturbing], alone: [rounds]}"]),
    ):  # fmt: skip
        given = [text for one in settings for text in ("--set", one)]
        with fake_runs_in_this_process():
            made = measure("run", folder / "c.yaml", "--out", folder / name, "--target", "fake", *given)
        assert made.exit_code == 0, made.output
    return folder


def measure(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def remove_runs(directory: Path, variant: str) -> None:
    plan = load_results(directory)[0].plan
    for spec, key in zip(plan.specs, plan.keys, strict=True):
        if spec.variant == variant:
            (directory / "traces" / f"{key}.parquet").unlink()


@pytest.mark.slow
def test_a_variant_that_ceases_to_perturb_is_shown_by_a_test(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result = measure("compare", results / "first", results / "same", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "compare.json").read_text())
    across = {one["a"]: one["verdict"] for one in found["variants"]["heavy"]["across_runs"]}
    assert across["PAPI_TOT_INS"] == "perturbed"
    assert across["PAPI_LD_INS"] == "equivalent"
    heavy, light = found["variants"]["heavy"], found["variants"]["light"]
    assert (heavy["before"]["verdict"], heavy["after"]["verdict"]) == ("perturbed", "equivalent")
    assert heavy["difference"]["verdict"] == "perturbed"
    assert heavy["difference"]["paired"] is True
    worst = heavy["pairs"][0]
    assert worst["difference"] == pytest.approx(worst["delta_z"][1] - worst["delta_z"][0])
    assert (light["difference"]["verdict"], light["before"]["verdict"]) == ("equivalent", "equivalent")
    assert list(found["variants"]) == ["heavy", "light"]  # the gravest first
    assert found["delta"] == 0.2
    design = {fact["name"]: (fact["before"], fact["after"]) for fact in found["design"]}
    assert design == {"variants.heavy": ("rounds, perturbing", "rounds"), "delta": ("0.2", "0.3")}
    told = " ".join(result.output.split())
    assert "PAPI_TOT_INS across runs" in told
    assert "heavy: perturbed before, equivalent after; the instrumentation changes relations otherwise" in told
    assert widest_row(result.output) <= 80
    page = (tmp_path / "compare.html").read_text()
    assert "Null hypothesis: the instrumentation changes the relation of the two metrics, or of a metric" in page
    assert '<th scope="row">variants.heavy</th>' in page
    rows = csv_in(page, "changes-heavy")[1:]
    in_a_run = [(row[0], row[1], row[12]) for row in rows if row[0] != row[1]]
    assert in_a_run == [(one["a"], one["b"], one["verdict"]) for one in heavy["pairs"]]
    assert [row[0] for row in rows if row[0] == row[1]] == [one["a"] for one in heavy["across_runs"]]


def test_other_seeds_are_not_paired_and_other_variants_are_named(results: Path, tmp_path: Path) -> None:
    result = measure("compare", results / "first", results / "other", "--out", tmp_path, "--delta", "0.5")
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "compare.json").read_text())
    assert found["variants"]["heavy"]["difference"]["paired"] is False
    assert found["variants"]["heavy"]["difference"]["verdict"] == "equivalent"
    assert found["delta"] == 0.5
    assert (found["only_before"], found["only_after"]) == (["light"], ["alone"])
    names = [fact["name"] for fact in found["design"]]
    assert "seed" in names
    assert "machine clock_hz" in names
    assert "machine, further values" in names
    assert any("light: only in " in finding for finding in found["findings"])


def test_results_that_are_compared_with_themselves_are_told(results: Path, tmp_path: Path) -> None:
    result = measure("compare", results / "first", results / "first", "--out", tmp_path / "out")
    assert result.exit_code == 0
    assert "AFTER are one directory" in result.output


def test_results_with_the_same_runs_show_nothing(results: Path, tmp_path: Path) -> None:
    """A copy, or the results of a change that did not reach the program."""
    shutil.copytree(results / "first", tmp_path / "copy")
    compare = ("compare", results / "first", tmp_path / "copy", "--out", tmp_path / "out")
    result = measure(*compare)
    assert result.exit_code == 0
    told = " ".join(result.output.split())
    notice = (
        f"All compared runs of {results / 'first'} and {tmp_path / 'copy'}, baselines included, have the same numbers: "
        "they are the same runs, and no evidence of their own, so that nothing is shown."
    )
    assert told.replace(" ", "").startswith(notice.replace(" ", ""))  # paths are broken where a line ends
    assert "shown to be the same" not in told
    assert "heavy: perturbed before and after; the runs have the same numbers in both campaigns, so that" in told
    assert "so give both campaigns" not in told
    found = json.loads((tmp_path / "out/compare.json").read_text())
    assert found["repeated"] == ["light", "heavy"]
    assert found["findings"][0].startswith(notice)
    assert {one["difference"]["verdict"] for one in found["variants"].values()} == {"not assessable"}
    assert "they are the same runs" in (tmp_path / "out/compare.html").read_text()
    assert measure(*compare, "--fail-on", "perturbed").exit_code == 0
    assert measure(*compare, "--fail-on", "inconclusive").exit_code == 3


def test_a_variant_that_a_change_does_not_reach_is_told(results: Path, tmp_path: Path) -> None:
    """The runs of `light` are the same in both, those of `heavy` are not."""
    measure("compare", results / "first", results / "same", "--out", tmp_path / "out")
    found = json.loads((tmp_path / "out/compare.json").read_text())
    assert found["repeated"] == ["light"]
    assert found["variants"]["light"]["difference"]["verdict"] == "equivalent"
    assert (
        "light: runs and baselines have the same numbers in both campaigns, as the program is the same, so that no "
        "difference can show."
    ) in found["findings"]


def test_other_metrics_take_a_row_each_and_another_program_is_told(results: Path) -> None:
    before = load_results(results / "first")[0].plan
    campaign = before.campaign
    kept, left_out = list(campaign.software_metrics)
    after = replace(
        before,
        builds={},
        program_digest="of another program",
        campaign=campaign.model_copy(
            update={
                "software_metrics": {kept: campaign.software_metrics[kept]},
                "program": campaign.program.model_copy(update={"source": Path("lookup.c")}),
            }
        ),
    )
    facts = {fact.name: fact for fact in differing_facts(before, after)}
    metric = facts.pop(f"software_metrics.{left_out}")
    assert metric.before.startswith("event ")
    assert metric.after == "-"
    assert not any("software_metrics" in name for name in facts)
    assert different_programs(before, before) is None
    assert different_programs(before, after) == ("demo.c", "lookup.c")
    unlike = unlike_designs(before, after, ("a", "b"))
    assert len(unlike) == 1
    found = CampaignsCompared("a", "b", (), (), (), (), (), ("1 run is missing.",), 0.2, 0.05, unlike=unlike)
    assert found.findings[0].startswith("a measures demo.c, and b lookup.c: their relations may differ without any")
    assert found.findings[1:] == ("1 run is missing.",)


def test_what_alone_makes_relations_differ_is_said_first(results: Path, tmp_path: Path) -> None:
    """Records of 20,000 cycles and of 10,000 instructions stood in the table of designs only, and the verdict laid the
    difference to the instrumentation."""
    before = load_results(results / "first")[0].plan
    assert unlike_designs(before, before, ("a", "b")) == ()
    program = before.campaign.program.model_copy(update={"args": ("7",)})
    sampling = before.campaign.sampling.model_copy(update={"every": "10000 instructions", "mode": "signal"})
    after = replace(
        before,
        machine_text="{}",
        campaign=before.campaign.model_copy(update={"program": program, "sampling": sampling}),
    )
    unlike = unlike_designs(before, after, ("a", "b"))
    length = before.campaign.sampling.described
    assert unlike[0] == (
        f"Records are not of one length ({length} in a, 10,000 instructions in b): this alone changes correlations; "
        "sample all runs alike."
    )
    assert unlike[1].startswith("Records are not taken in one way (mode ideal in a and signal in b): ")
    assert unlike[2].startswith("The machines differ (two descriptions of ")
    assert unlike[3].startswith("The programs have other arguments (none in a, 7 in b): this alone")
    result = measure("compare", results / "first", results / "other", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert result.output.startswith("The machines differ (")
    assert json.loads((tmp_path / "compare.json").read_text())["findings"][0].startswith("The machines differ (")
    page = (tmp_path / "compare.html").read_text()
    assert page.count("The machines differ (") == 1
    assert page.index("The machines differ (") < page.index("<li>heavy: ")


def test_a_variant_without_runs_leaves_the_others_comparable(results: Path, tmp_path: Path) -> None:
    shutil.copytree(results / "first", tmp_path / "copy")
    remove_runs(tmp_path / "copy", "light")
    assert measure("report", tmp_path / "copy").exit_code == 0
    result = measure("compare", results / "same", tmp_path / "copy", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "out/compare.json").read_text())
    assert list(found["variants"]) == ["heavy", "light"]
    assert found["variants"]["light"]["before"]["verdict"] == "equivalent"
    assert found["variants"]["light"]["after"]["verdict"] == "not assessable"
    assert any(one.startswith("light: not compared, as") for one in found["findings"])
    assert any("/copy lacks " in one and "runs: `measure run" in one for one in found["findings"])


def test_results_without_baselines_are_refused(results: Path, tmp_path: Path) -> None:
    """It was a traceback of numpy."""
    shutil.copytree(results / "same", tmp_path / "copy")
    remove_runs(tmp_path / "copy", "baseline")
    result = measure("compare", results / "first", tmp_path / "copy", "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert (
        "copy: 0 baseline runs succeeded, expected at least 2: nothing to compare with. `measure run" in result.output
    )


def test_what_makes_a_campaign_wrong_comes_first(results: Path, tmp_path: Path) -> None:
    """A control that failed was not said, and the verdict stood as if it had not."""
    shutil.copytree(results / "same", tmp_path / "copy")
    summary = tmp_path / "copy/summary.json"
    stored = json.loads(summary.read_text())
    stored["invalidating"] = ["The positive control was not found."]
    stored["failed_controls"] = {"positive control": "The positive control was not found."}
    summary.write_text(json.dumps(stored))
    arguments = ("compare", results / "first", tmp_path / "copy", "--out", tmp_path / "out", "--junit", tmp_path / "j")
    result = measure(*arguments)
    assert result.exit_code == 0
    sentence = f"{tmp_path / 'copy'}: The positive control was not found."
    assert "".join(result.output.split()).startswith("".join(f"!! {sentence}".split()))
    found = json.loads((tmp_path / "out/compare.json").read_text())
    assert found["invalidating"] == [sentence] == found["findings"][:1]
    page = (tmp_path / "out/compare.html").read_text()
    assert page.index("Read this first") < page.index(sentence) < page.index('class="verdicts"')
    assert page.count(sentence) == 1
    cases = {case.get("name"): case.find("error") for case in ET.parse(tmp_path / "j").iter("testcase")}
    assert cases[f"{tmp_path / 'copy'}: positive control"] is not None
    assert measure(*arguments, "--fail-on", "perturbed").exit_code == 3


def test_what_cannot_be_compared_is_told(results: Path, tmp_path: Path) -> None:
    def refused(before: Path, after: Path) -> str:
        result = measure("compare", before, after, "--out", tmp_path / "out")
        assert result.exit_code == 2, result.output
        assert not (tmp_path / "out").exists()
        return " ".join(result.output.split())

    first = results / "first"
    assert "no such directory; expected one that `measure run` left" in refused(first, tmp_path / "none")
    assert "has no results of a campaign" in refused(first, tmp_path)
    shutil.copytree(first, tmp_path / "copy")
    summary = tmp_path / "copy/summary.json"
    stored = json.loads(summary.read_text())
    del stored["variants"]["light"]
    summary.write_text(json.dumps(stored))
    assert "has no verdict on light: `measure report" in refused(first, tmp_path / "copy")
    summary.write_text("{")
    assert "summary.json is missing or damaged: `measure report" in refused(first, tmp_path / "copy")
    summary.write_text(json.dumps({**stored, "schema": 1}))
    assert "summary.json: got schema 1, expected 2: `measure report" in refused(first, tmp_path / "copy")
    plan = json.loads((tmp_path / "copy/plan.json").read_text())
    plan["campaign"]["variants"] = {"elsewhere": ["rounds"]}
    (tmp_path / "copy/plan.json").write_text(json.dumps(plan))
    summary.write_text(json.dumps(stored))
    assert "expected at least one of the same name" in refused(first, tmp_path / "copy")
