"""Error rates of the verdicts over many simulated campaigns: small versions of `experiments/false_alarms`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import binom

from experiments.false_alarms.generators import Design, campaign, normal
from measure.perturbation.perturbation import (
    Pair,
    Perturbation,
    inner_perturbation,
    outer_perturbation,
    outer_z,
)
from measure.stats.correlation import Correlations, fisher_z, spearman
from measure.stats.synthetic import UNDISTURBED, Disturbance, synthetic_program

ALPHA = 0.05


def most_false_alarms(campaigns: int, rate: float = ALPHA) -> int:
    """More than this happens by chance, at the rate promised, once in a thousand repetitions of the test."""
    return int(binom.ppf(0.999, campaigns, rate))


def simulated_inner(seed: int, b: int, r: int, m: int, how: Disturbance = UNDISTURBED, n: int = 120) -> Perturbation:
    program = synthetic_program(seed, n_records=n, n_metrics=m)
    rng = np.random.default_rng((seed, b, r))
    baseline = [spearman(program.run(rng), program.metrics) for _ in range(b)]
    runs = [spearman(program.run(rng, how), program.metrics) for _ in range(r)]
    return inner_perturbation(baseline, runs, n_permutations=499, seed=seed)


def simulated_outer(seed: int, b: int, r: int, held_out: bool, how: Disturbance = UNDISTURBED) -> Perturbation:
    program = synthetic_program(seed, n_records=60, n_metrics=3)
    rng = np.random.default_rng((seed, b, r))
    baseline = [program.run(rng) for _ in range(b)]
    runs = [program.run(rng, how) for _ in range(r)]
    return outer_perturbation(baseline, runs, program.metrics, held_out=held_out, n_permutations=499, seed=seed)


def alarms(campaigns: int, simulate: Callable[[int], Perturbation]) -> int:
    results = [simulate(seed) for seed in range(campaigns)]
    assert all(result.p_value <= ALPHA for result in results if result.verdict == "perturbed")
    return sum(result.p_value <= ALPHA for result in results)


@pytest.mark.parametrize(("b", "r", "m"), [(20, 5, 6), (20, 1, 3), (26, 1, 6), (8, 3, 4)])
def test_inner_false_alarms_are_at_most_five_percent(b: int, r: int, m: int) -> None:
    assert alarms(200, lambda seed: simulated_inner(seed, b, r, m)) <= most_false_alarms(200)


@pytest.mark.parametrize(("b", "r", "held_out"), [(8, 3, False), (8, 3, True), (20, 1, True)])
def test_outer_false_alarms_are_at_most_five_percent(b: int, r: int, held_out: bool) -> None:
    campaigns = 100 if b == 8 else 40
    assert alarms(campaigns, lambda seed: simulated_outer(seed, b, r, held_out)) <= most_false_alarms(campaigns)


def test_the_range_of_the_baselines_is_no_test() -> None:
    """The rule of thumb that the max-T test replaces raises false alarms in most campaigns, on the same data."""
    out = 0
    for seed in range(40):
        program = synthetic_program(seed, n_records=120, n_metrics=6)
        rng = np.random.default_rng(seed)
        rho = np.array([spearman(program.run(rng), program.metrics).rho for _ in range(21)])
        out += bool(((rho[20] < rho[:20].min(axis=0)) | (rho[20] > rho[:20].max(axis=0))).any())
    assert out > 20


def test_a_clear_change_is_found() -> None:
    strong = Disturbance(noise=2.5, n_metrics=1)
    inner = [simulated_inner(seed, 20, 5, 6, strong).verdict for seed in range(30)]
    outer = [simulated_outer(seed, 8, 3, True, strong).verdict for seed in range(30)]
    assert inner.count("perturbed") + inner.count("changed") >= 15  # by 0.3 in z, in runs that scatter more
    assert outer.count("perturbed") + outer.count("changed") >= 20
    assert "equivalent" not in outer


@pytest.mark.parametrize(("b", "r", "spread"), [(20, 5, 1.0), (20, 1, 1.0), (8, 3, 1.0), (20, 5, 3.0)])
def test_a_change_as_large_as_delta_is_called_equivalent_at_most_five_times_in_a_hundred(
    b: int, r: int, spread: float
) -> None:
    """One pair exactly at the limit, where a false claim is likeliest; z of the runs is normal, as it nearly is."""
    campaigns, delta = 600, 0.2
    rng = np.random.default_rng(9)

    def made(z: float) -> Correlations:
        rho = np.array([[1.0, np.tanh(z)], [np.tanh(z), 1.0]])
        return Correlations(("a", "b"), rho, np.zeros(2, bool), np.zeros(2))

    claims = 0
    for number in range(campaigns):
        baseline = [made(z) for z in rng.normal(0.5, 0.05, b)]
        runs = [made(z) for z in rng.normal(0.5 - delta, 0.05 * spread, r)]
        result = inner_perturbation(baseline, runs, delta=delta, n_permutations=99, seed=number)
        claims += result.verdict == "equivalent"
    assert claims <= most_false_alarms(campaigns)
    if r > 1:
        assert claims > 0  # the test is not merely deaf


@pytest.mark.parametrize(("b", "r"), [(3, 20), (5, 20), (20, 20)])
def test_baselines_that_scatter_more_than_runs_raise_no_false_alarms(b: int, r: int) -> None:
    """By three times: of 3 and 20 runs, 26% to 29% of campaigns had a significant change, of 5 and 20 16%."""
    campaigns, design = 60, Design(b, r)
    alarms, wrong, found = 0, 0, 0
    for seed in range(campaigns):
        baseline, runs = campaign(np.random.default_rng(seed), normal, design, 5, spread=1 / 3, sd=0.3)
        result = inner_perturbation(baseline, runs, n_permutations=199, seed=seed)
        alarms += result.p_value <= ALPHA
        wrong += any(not pair.simultaneous[0] <= 0 <= pair.simultaneous[1] for pair in result.pairs)
        found += any("scatter less than baselines" in sentence for sentence in result.findings)
    assert max(alarms, wrong) <= most_false_alarms(campaigns)
    assert found >= campaigns / 2


def test_outer_equivalence_is_not_claimed_for_a_change_as_large_as_delta() -> None:
    program = synthetic_program(5, n_records=60, n_metrics=2)
    rng = np.random.default_rng(0)
    how = Disturbance(0.8, 2)
    changes = [
        outer_z(reference, program.run(rng, how), program.metrics, held_out=False)
        - outer_z(reference, program.run(rng), program.metrics, held_out=False)
        for reference in (program.run(rng) for _ in range(400))
    ]
    delta = -float(np.max(np.mean(changes, axis=0)))  # the smaller change: the other is beyond it
    assert delta > 0.05
    claims = 0
    for seed in range(120):
        rng = np.random.default_rng((1, seed))
        baseline = [program.run(rng) for _ in range(8)]
        runs = [program.run(rng, how) for _ in range(3)]
        result = outer_perturbation(
            baseline, runs, program.metrics, held_out=False, delta=delta, n_permutations=99, seed=seed
        )
        claims += result.verdict == "equivalent"
    assert claims <= most_false_alarms(120)


def test_alignment_inflates_joint_outer_correlation_and_not_held_out() -> None:
    """Why outer correlation is judged against the baselines' own and not against 1."""
    rng = np.random.default_rng(7)
    pairs = [(rng.normal(size=(300, 4)), rng.normal(size=(300, 4))) for _ in range(15)]
    names = ("a", "b", "c", "d")
    joint, held_out = (
        np.mean([np.tanh(outer_z(first, second, names, held_out=flag)) for first, second in pairs])
        for flag in (False, True)
    )
    assert joint > 0.15  # a step penalty keeps it from 0.3 and more
    assert abs(held_out) < 0.05


def test_synthetic_runs_have_the_properties_that_they_are_for() -> None:
    program = synthetic_program(1, n_records=300, n_metrics=6)
    runs = [program.run(np.random.default_rng(seed)) for seed in range(10)]
    found = [spearman(run, program.metrics) for run in runs]
    assert len({len(run) for run in runs}) > 3
    assert max(one.tie_fraction.max() for one in found) > 0.15  # a value that many records share
    lag = [spearman(np.column_stack([run[1:, 0], run[:-1, 0]]), ("now", "before")).rho[0, 1] for run in runs]
    assert np.mean(lag) > 0.5
    assert (program.run(np.random.default_rng(3)) == runs[3]).all()
    z = fisher_z([one.rho[0, 1] for one in found])
    assert 0.01 < z.std() < 0.3


def planted(seed: int, sizes: tuple[int, int, int], spread: float, effect: float = 0.0) -> Perturbation:
    """A campaign whose correlations are drawn, with a change of known size in z in the first pair of metrics."""
    b, r, m = sizes
    rng = np.random.default_rng((seed, *sizes))
    rows, columns = np.triu_indices(m, 1)
    z = rng.uniform(-1, 1, len(rows)) + spread * (
        np.sqrt(0.7) * rng.normal(size=(b + r, len(rows))) + np.sqrt(0.3) * rng.normal(size=(b + r, 1))
    )
    z[b:, 0] += effect
    names = tuple(f"m{index}" for index in range(m))
    runs = []
    for row in z:
        rho = np.eye(m)
        rho[rows, columns] = rho[columns, rows] = np.tanh(row)
        runs.append(Correlations(names, rho, np.zeros(m, np.bool_), np.zeros(m), 3000))
    return inner_perturbation(runs[:b], runs[b:], n_permutations=999, seed=seed)


def first_pair(result: Perturbation) -> Pair:
    return next(pair for pair in result.pairs if (pair.a, pair.b) == ("m0", "m1"))


@pytest.mark.parametrize(
    ("sizes", "spread"),
    [((20, 5, 8), 0.05), ((20, 5, 8), 0.2), ((26, 1, 8), 0.2), ((20, 1, 4), 0.1), ((8, 3, 4), 0.2)],
)
def test_effects_of_the_size_said_to_be_detectable_are_found(sizes: tuple[int, int, int], spread: float) -> None:
    campaigns = 60
    effect = float(np.median([first_pair(planted(seed, sizes, spread)).detectable_dz for seed in range(9)]))
    found = sum(first_pair(planted(seed, sizes, spread, effect)).verdict == "perturbed" for seed in range(campaigns))
    assert found >= binom.ppf(0.001, campaigns, 0.78)


def test_equivalence_is_found_where_there_is_no_change() -> None:
    verdicts = [planted(seed, (20, 5, 4), 0.05).verdict for seed in range(60)]
    assert verdicts.count("equivalent") >= 54
