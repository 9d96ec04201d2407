"""One alignment setting for verdicts across runs, merged traces and the ground truth."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

from measure.alignment.dtw import AlignmentError, align, mean_over_runs
from measure.alignment.setting import DEFAULT_ALIGNMENT, AlignmentSetting
from measure.analysis.stored_runs import load_results
from measure.errors import CampaignError
from measure.judging.comparison import VariantComparison, runs_of
from measure.merging.cli import merge
from measure.perturbation.perturbation import outer_z
from measure.run_types import BASELINE
from measure.runs.program_progress import EventCurve
from measure.stats.correlation import fisher_z, spearman
from measure.truth_checks.alignment import typical_error
from tests.measure.merging.test_merge_command import CAMPAIGN, make_results


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> set[AlignmentSetting]:
    """The settings by which traces are aligned."""
    seen: set[AlignmentSetting] = set()
    for name in ("align", "held_out"):
        plain = getattr(AlignmentSetting, name)

        def spy(self: AlignmentSetting, *args: object, plain=plain, **kwargs: object) -> object:  # type: ignore[no-untyped-def]
            seen.add(self)
            return plain(self, *args, **kwargs)

        monkeypatch.setattr(AlignmentSetting, name, spy)
    return seen


@pytest.mark.parametrize("key", ["", "alignment: {step_penalty: 1, band: 0.2}\n"])
def test_verdicts_and_merge_use_the_alignment_of_the_campaign(
    tmp_path: Path, used: set[AlignmentSetting], key: str
) -> None:
    make_results(tmp_path, CAMPAIGN + key)
    expected = AlignmentSetting(1.0, 0.2) if key else DEFAULT_ALIGNMENT
    result, outcome = load_results(tmp_path / "out")
    variants = {name: runs_of(outcome.runs, name) for name in result.plan.campaign.variant_sets()}
    baselines = runs_of(outcome.runs, BASELINE)
    judged = VariantComparison(result.plan.campaign, baselines, variants).judged("light")
    assert judged.outer_held_out is not None
    assert used == {expected}
    used.clear()
    done = CliRunner().invoke(merge, [str(tmp_path / "out"), "--out", str(tmp_path / "merged.csv")])
    assert done.exit_code == 0, done.output
    assert used == {expected}
    assert "hold for" not in done.output
    used.clear()
    setting = result.plan.campaign.alignment_setting
    typical_error([(baselines[0], baselines[1], curve())], ("PAPI_LD_INS",), "penalty", setting)
    assert used == {expected}


def curve() -> EventCurve:
    """Progress that is not known by reference events."""
    return EventCurve(np.array([0, 1]), np.array([0, 1]))


def test_another_alignment_is_possible_and_warned_of(tmp_path: Path, used: set[AlignmentSetting]) -> None:
    make_results(tmp_path)
    command = [str(tmp_path / "out"), "--out", str(tmp_path / "merged.csv"), "--step-penalty", "0.5", "--band", "0.3"]
    done = CliRunner().invoke(merge, command)
    assert used == {AlignmentSetting(0.5, 0.3)}
    output = " ".join(done.output.split())
    assert (
        "Aligned with step penalty 0.5, band 0.3; the campaign's verdicts across runs hold for step penalty 3, band"
        in output
    )


def test_a_campaign_with_a_wrong_alignment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CampaignError, match=r"c.yaml:\d+.*band"):
        make_results(tmp_path, CAMPAIGN + "alignment: {band: 0}\n")
    with pytest.raises(AlignmentError, match="step_penalty: got -1"):
        AlignmentSetting(-1.0)


@pytest.mark.parametrize("setting", [DEFAULT_ALIGNMENT, replace(DEFAULT_ALIGNMENT, step_penalty=0.0)])
def test_similarity_across_runs_is_the_correlation_after_that_alignment(setting: AlignmentSetting) -> None:
    rng = np.random.default_rng(4)
    walk = np.cumsum(rng.normal(size=(80, 3)), axis=0)
    first, second = (walk[np.sort(rng.integers(0, 80, n))] + 0.3 * rng.normal(size=(n, 3)) for n in (70, 90))
    path = align(first, second, band=setting.band, step_penalty=3 * setting.step_penalty).path

    def rho(keys: NDArray[np.int64], moved: NDArray[np.float64], fixed: NDArray[np.float64]) -> float:
        return float(spearman(np.column_stack([fixed, mean_over_runs(keys, moved)]), "ab").rho[0, 1])

    for metric, z in enumerate(outer_z(first, second, "abc", held_out=False, alignment=setting)):
        there = rho(path[:, 0], second[path[:, 1], metric], first[:, metric])
        back = rho(path[:, 1], first[path[:, 0], metric], second[:, metric])
        assert z == pytest.approx(fisher_z(np.array([there, back])).mean())
