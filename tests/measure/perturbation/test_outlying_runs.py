"""Runs that stand out: found where there are some, seldom where there are none, and told with what they change."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from measure.perturbation.outlying_runs import LEAST_RATIO, OutlyingRuns, RunGroup, outlying_runs, standing_out
from measure.perturbation.perturbation import inner_perturbation
from measure.perturbation.wording import seldom_unseen
from measure.stats.correlation import spearman

METRICS = ("TOT", "MSP", "DCM")
Draw = Callable[[np.random.Generator, tuple[int, ...]], NDArray[np.float64]]
NOISE: dict[str, Draw] = {
    "normal": lambda rng, shape: np.maximum(1.0, 1e5 * (1 + 0.15 * rng.standard_normal(shape))),
    "lognormal": lambda rng, shape: 1e5 * rng.lognormal(0, 0.4, shape),
    "gamma": lambda rng, shape: 1e5 * rng.gamma(4, size=shape),
    "few events": lambda rng, shape: rng.poisson(2, shape).astype(np.float64),
}


def group(totals: NDArray[np.float64], z: NDArray[np.float64] | None = None, paired: bool = True) -> RunGroup:
    """Runs with these totals, (r, m); ``z``: of the first two metrics in each run."""
    runs, metrics = totals.shape
    rho = np.zeros((runs, metrics, metrics))
    if z is not None:
        rho[:, 0, 1] = rho[:, 1, 0] = np.tanh(z)
    return RunGroup(range(runs), [f"run {n}" for n in range(runs)], totals, rho, paired)


def like(runs: int, seed: int = 0, noise: float = 0.03) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    return np.array([4e7, 3e5, 5e5]) * (1 + noise * rng.standard_normal((runs, 3)))


@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize("runs", [5, 7, 10, 20, 40])
def test_at_most_one_of_twenty_campaigns_without_such_runs_has_a_finding(noise: str, runs: int) -> None:
    found, campaigns = 0, 150
    names = [f"metric {n}" for n in range(10)]
    for seed in range(campaigns):
        rng = np.random.default_rng([seed, runs])
        groups = {one: group(NOISE[noise](rng, (runs, 10)), paired=False) for one in ("baseline", "a", "b")}
        found += bool(outlying_runs(groups, "baseline", names))
    assert found <= 0.05 * campaigns


def test_runs_that_are_far_in_the_same_metric_are_told_together() -> None:
    """Of three runs cut to half of their records, each was told by its own worst metric, as one of ten."""
    totals = like(10, 1)
    totals[:3] *= np.array([[0.5, 0.4, 0.5], [0.4, 0.5, 0.5], [0.5, 0.5, 0.4]])
    totals[5, 0] *= 3
    groups = {"baseline": group(like(10)), "v": group(totals, paired=False)}
    short, other = outlying_runs(groups, "baseline", METRICS)
    assert (short.numbers, other.numbers) == ((0, 1, 2), (5,))
    assert "3 of 10 runs did so" in short.text


def test_a_run_of_many_mispredictions_is_told_with_the_change_that_it_makes() -> None:
    totals, z = like(10, 1), np.full(10, 0.3)
    totals[8, 1], z[8] = 1_499_673, -0.7
    (one,) = outlying_runs({"baseline": group(like(10)), "functions": group(totals, z)}, "baseline", METRICS)
    assert (one.variant, one.metric, one.runs, one.numbers, one.others) == ("functions", "MSP", ("run 8",), (8,), 9)
    assert one.change == pytest.approx(0.2)
    assert one.change_without == pytest.approx(0.3)
    assert one.text.startswith("Run 8 of functions stands out: MSP 1,499,673 where the other 9 runs have 2")
    assert " Without it the change of z of TOT - MSP is +0.300 (with it +0.200). " in one.text
    assert "1 of 10 runs did so" in one.text


def test_pairs_that_differ_alike_are_told_of_the_baseline_alone() -> None:
    before, after = like(10), like(10, 1)
    before[3, 1] *= 5
    after[3, 1] *= 5
    z = np.full(10, 0.3)
    z[3] = 1.3
    (one,) = outlying_runs({"baseline": group(before), "v": group(after, z)}, "baseline", METRICS)
    assert (one.variant, one.runs, one.relation, one.changed) == ("the baselines", ("run 3",), "TOT - MSP", "v")
    assert " change of z of TOT - MSP in v is " in one.text
    unpaired = {"baseline": group(before, paired=False), "v": group(after, z, paired=False)}
    assert [one.variant for one in outlying_runs(unpaired, "baseline", METRICS)] == ["the baselines", "v"]


def test_runs_that_stand_out_by_one_metric_are_one_finding() -> None:
    totals = like(20, 1)
    totals[[2, 5], 1] *= 4
    totals[5, 2] *= 2
    (one,) = outlying_runs({"baseline": group(like(20)), "v": group(totals)}, "baseline", METRICS)
    assert (one.runs, one.further, one.others) == (("run 2", "run 5"), ("DCM",), 18)
    assert one.text.startswith("Run 2, run 5 of v stand out: MSP ")
    assert "times the median), and in DCM. " in one.text


@pytest.mark.parametrize(
    ("totals", "expected"),
    [
        ([1e6] * 9 + [1e6 * (LEAST_RATIO - 0.01)], False),  # however closely the others agree
        ([1e6] * 9 + [1e6 * (LEAST_RATIO + 0.01)], True),
        ([0.0] * 9 + [5.0], False),  # five rare events
        ([0.0] * 9 + [5e6], True),
        ([3e5] * 9 + [0.0], True),
        ([-1.0] * 9 + [5e6], False),  # no counts
        ([1e6] * 3 + [5e6], False),  # too few runs
        ([1e6] * 5 + [5e6] * 5, False),  # two kinds of runs, neither of which is the other's exception
    ],
)  # fmt: skip
def test_what_stands_out(totals: list[float], expected: bool) -> None:
    assert standing_out(np.array(totals)[:, None])[-1, 0] == expected


def test_a_change_is_told_only_where_one_is_defined() -> None:
    totals = like(10, 1)
    totals[8, 1] *= 5
    undefined = np.full(10, np.nan)
    (one,) = outlying_runs({"b": group(like(10)), "v": group(totals, undefined)}, "b", METRICS[:3])
    assert isinstance(one, OutlyingRuns)
    assert "nan" not in one.text


def test_an_equivalent_verdict_says_what_so_few_runs_do_not_show() -> None:
    shares = {runs: seldom_unseen(runs) for runs in (3, 5, 10, 20)}
    assert shares == {3: "63%", 5: "45%", 10: "26%", 20: "14%"}
    rng = np.random.default_rng(4)
    shared = rng.standard_normal((400, 1))
    tables = [shared + rng.standard_normal((400, 2)) for _ in range(40)]
    before, after = ([spearman(one, METRICS[:2]) for one in some] for some in (tables[:20], tables[20:]))
    result = inner_perturbation(before, after, delta=0.2, seed=1)
    assert result.verdict == "equivalent"
    assert sum("fewer than about 14% of all runs" in sentence for sentence in result.findings) == 1
