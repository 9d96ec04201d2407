"""The change that such a campaign would find: against plain simulation, and what makes it larger."""

from __future__ import annotations

import numpy as np
import pytest

from measure.perturbation.detectable import AIM, errors_beyond_delta


def test_pairs_of_normal_runs_need_what_plain_simulation_says() -> None:
    rng = np.random.default_rng(1)
    baseline, runs = rng.normal(size=(2, 10, 200))  # the residuals of 200 pairs of metrics show the distribution
    needed = []
    for _ in range(4000):
        now, later = rng.normal(size=(2, 10))
        error_now, error = (one.std(ddof=1) / np.sqrt(10) for one in (now, later))
        needed.append((3.6 * error - later.mean()) / error_now)
    assert errors_beyond_delta(baseline, runs, True, 3.6) == pytest.approx(np.quantile(needed, AIM), rel=0.08)


def test_heavy_tails_need_more_errors_for_errors_are_mostly_too_small() -> None:
    rng = np.random.default_rng(2)
    normal, heavy = rng.normal(size=(20, 100)), rng.standard_t(2, (20, 100))
    few = [errors_beyond_delta(values, values[:3], False, 3.0) for values in (normal, heavy)]
    assert few[1] > 1.03 * few[0]


def test_runs_that_scatter_more_and_fewer_runs_need_more() -> None:
    rng = np.random.default_rng(3)
    baseline, runs = rng.normal(size=(20, 30)), rng.normal(size=(5, 30))
    plain, wide, few = (
        errors_beyond_delta(baseline, after, False, 3.0) for after in (runs, 3 * runs, runs[:2])
    )  # fmt: skip
    assert plain < wide
    assert plain < few


def test_units_and_order_of_metrics_do_not_matter() -> None:
    rng = np.random.default_rng(4)
    baseline, runs = rng.normal(size=(20, 6)), rng.normal(size=(5, 6))
    baseline[3, 2] = runs[1, 4] = np.nan
    plain = errors_beyond_delta(baseline, runs, False, 3.0)
    assert np.isfinite(plain)
    assert errors_beyond_delta(5 * baseline[:, ::-1], 5 * runs[:, ::-1], False, 3.0) == pytest.approx(plain)


def test_nothing_is_said_where_nothing_can_be_found() -> None:
    runs = np.random.default_rng(5).normal(size=(10, 3))
    assert np.isnan(errors_beyond_delta(runs, runs[::-1], True, np.inf))
    assert np.isnan(errors_beyond_delta(runs, runs, True, 3.0))  # no difference varies
    assert np.isnan(errors_beyond_delta(np.full((20, 2), np.nan), np.full((5, 2), np.nan), False, 3.0))
