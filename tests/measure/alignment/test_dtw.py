"""Dynamic time warping: against a naive twin, against tslearn, and what holds for any alignment."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import measure.alignment.dtw as dtw
from measure.alignment.dtw import AlignmentError, align, normalised_channels
from measure.alignment.held_out import held_out_paths
from measure.alignment.windows import Window, band_window, corridor_window, full_window

steady = settings(deadline=None)  # kernels compile on first use, and machines are shared

SHAPES = st.tuples(st.integers(1, 25), st.integers(1, 25), st.integers(1, 9), st.integers(0, 10_000))


def traces(shape: tuple[int, int, int, int], tied: bool = False) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    n, m, channels, seed = shape
    rng = np.random.default_rng(seed)
    if tied:
        return rng.integers(0, 3, (n, channels)).astype(float), rng.integers(0, 3, (m, channels)).astype(float)
    return rng.normal(size=(n, channels)), rng.normal(size=(m, channels))


def standardised(values: NDArray[np.float64]) -> NDArray[np.float64]:
    spread = values.std(axis=0)
    return (values - values.mean(axis=0)) / np.where(spread > 1e-12, spread, 1.0)


def naive_dtw(
    a: NDArray[np.float64], b: NDArray[np.float64], window: Window, penalty: float
) -> tuple[float, list[tuple[int, int]]]:
    """The definition, cell by cell, with predecessors preferred in the order diagonal, up, left."""
    costs: dict[tuple[int, int], float] = {(-1, -1): 0.0}
    came: dict[tuple[int, int], tuple[int, int]] = {}
    for i in range(len(a)):
        for j in range(int(window.low[i]), int(window.high[i])):
            choices = [(i - 1, j - 1), (i - 1, j), (i, j - 1)]
            reach = [costs.get(cell, np.inf) + (penalty if k else 0.0) for k, cell in enumerate(choices)]
            best = int(np.argmin(reach))
            came[i, j] = choices[best]
            costs[i, j] = reach[best] + float(((a[i] - b[j]) ** 2).sum())
    path = [(len(a) - 1, len(b) - 1)]
    while path[-1] != (0, 0):
        path.append(came[path[-1]])
    return float(np.sqrt(costs[path[0]])), path[::-1]


def assert_sound(path: NDArray[np.int64], n: int, m: int) -> None:
    assert path[0].tolist() == [0, 0]
    assert path[-1].tolist() == [n - 1, m - 1]
    steps = np.diff(path, axis=0)
    assert ((steps == 0) | (steps == 1)).all()
    assert (steps.sum(axis=1) > 0).all()


@steady
@given(SHAPES, st.sampled_from([0.0, 0.5]))
def test_full_and_checkpoint_equal_the_naive_twin(shape: tuple[int, int, int, int], penalty: float) -> None:
    a, b = traces(shape)
    cost, path = naive_dtw(standardised(a), standardised(b), full_window(len(a), len(b)), penalty)
    for method in ("full", "checkpoint"):
        result = align(a, b, method=method, step_penalty=penalty)
        assert result.cost == pytest.approx(cost)
        assert result.path.tolist() == [list(cell) for cell in path]


@steady
@given(SHAPES, st.integers(1, 6))
def test_any_band_equals_the_naive_twin(shape: tuple[int, int, int, int], radius: int) -> None:
    a, b = (standardised(values) for values in traces(shape))
    window = band_window(len(a), len(b), radius)
    cost, path = naive_dtw(a, b, window, 0.0)
    ours, our_cost = dtw._solve(np.ascontiguousarray(a.T), np.ascontiguousarray(b.T), window, 0.0)
    assert our_cost == pytest.approx(cost)
    assert ours.tolist() == [list(cell) for cell in path]


@steady
@given(SHAPES, st.integers(1, 40))
def test_windows_hold_a_path_and_stay_inside(shape: tuple[int, int, int, int], radius: int) -> None:
    n, m = shape[0] * 7, shape[1] * 5
    coarse, _ = dtw._solve(
        np.zeros((1, -(-n // 4))),
        np.random.default_rng(0).normal(size=(1, -(-m // 4))),
        full_window(-(-n // 4), -(-m // 4)),
        0.0,
    )
    for window in (band_window(n, m, radius), corridor_window(coarse, 4, n, m, radius)):
        assert window.low[0] == 0
        assert window.high[-1] == m
        assert (window.low < window.high).all()
        assert (window.low >= 0).all()
        assert (window.high <= m).all()
        assert (np.diff(window.low) >= 0).all()
        assert (np.diff(window.high) >= 0).all()
        assert (window.low[1:] <= window.high[:-1]).all()


@steady
@given(SHAPES, st.booleans())
def test_alignment_is_sound_and_its_cost_is_what_the_path_costs(shape: tuple[int, int, int, int], tied: bool) -> None:
    a, b = traces(shape, tied)
    za, zb = standardised(a), standardised(b)
    for method in ("full", "checkpoint", "band", "multiresolution"):
        result = align(a, b, method=method)
        assert_sound(result.path, len(a), len(b))
        walked = ((za[result.path[:, 0]] - zb[result.path[:, 1]]) ** 2).sum()
        assert result.cost == pytest.approx(np.sqrt(walked))
        assert (result.n_reference, result.n_other) == (len(a), len(b))
    full = align(a, b, method="full")
    assert full.cost <= align(a, b, method="band").cost + 1e-9
    assert align(b, a, method="full").cost == pytest.approx(full.cost)


@pytest.mark.slow
@pytest.mark.parametrize("channels", [1, 4])
@pytest.mark.parametrize("lengths", [(60, 60), (150, 97)])
def test_cost_equals_tslearn(channels: int, lengths: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba.config, "DISABLE_JIT", True)  # its loops take longer to compile than to interpret
    from tslearn.metrics import dtw_path  # takes seconds to load

    a, b = traces((*lengths, channels, 5))
    _, cost = dtw_path(normalised_channels(a).T, normalised_channels(b).T)
    assert align(a, b).cost == pytest.approx(cost)


def test_identical_traces_correspond_one_to_one() -> None:
    a, _ = traces((50, 1, 2, 0))
    result = align(a, a * 3 + 7)
    assert result.cost == pytest.approx(0.0, abs=1e-6)
    assert result.stretched_fraction == 0.0
    assert result.path[:, 0].tolist() == result.path[:, 1].tolist() == list(range(50))


def test_a_known_stretch_is_found() -> None:
    rng = np.random.default_rng(1)
    reference = rng.normal(size=(80, 2)).cumsum(axis=0)
    copies = np.where(np.arange(80) % 5 == 0, 3, 1)
    other = np.repeat(reference, copies, axis=0)
    result = align(reference, other)
    zr, zo = standardised(reference), standardised(other)
    truth = np.repeat(np.arange(80), copies)
    assert np.abs(result.path[:, 0] - truth[result.path[:, 1]]).mean() < 1.0
    assert result.cost <= np.sqrt(((zr[truth] - zo) ** 2).sum()) + 1e-9
    assert 0 < result.stretched_fraction < 1


def test_band_widens_until_the_path_is_clear_of_its_edge() -> None:
    bump = np.exp(-(((np.arange(400) - 150) / 30.0) ** 2))[:, None]
    late = np.exp(-(((np.arange(400) - 210) / 30.0) ** 2))[:, None]
    result = align(bump, late, band=0.05)
    assert result.method == "band"
    assert result.band is not None
    assert result.band > 60 / 400
    assert result.cost == pytest.approx(align(bump, late, method="full").cost)


def test_multiresolution_is_close_to_exact_on_a_smooth_trace() -> None:
    rng = np.random.default_rng(2)
    progress = np.cumsum(rng.uniform(0.5, 1.5, 9000))
    signal = np.cumsum(rng.normal(size=(9100, 3)), axis=0)
    other = signal[np.minimum(progress.astype(int), 9099)]
    exact = align(signal[:9000], other, method="full")
    quick = align(signal[:9000], other, method="multiresolution")
    assert quick.cost == pytest.approx(exact.cost, rel=0.02)


@pytest.mark.parametrize(
    ("n", "m", "band", "expected"),
    [
        (50, 60, None, "full"),
        (50, 60, 0.1, "band"),
        (12_000, 9000, None, "checkpoint"),
        (9, 100_001, None, "multiresolution"),
    ],
)
def test_automatic_method(n: int, m: int, band: float | None, expected: str) -> None:
    assert dtw._automatic_method(n, m, band) == expected


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 40), st.integers(1, 40), st.sampled_from([2, 3, 8, 11]), st.integers(0, 1000),
    st.sampled_from([0.0, 0.5, 6.0]),
)  # fmt: skip
def test_held_out_paths_equal_aligning_on_the_other_channels(
    n: int, m: int, channels: int, seed: int, penalty: float
) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(n, channels)), rng.normal(size=(m, channels))
    za, zb = normalised_channels(a), normalised_channels(b)
    paths = held_out_paths(za, zb, band=0.1, step_penalty=penalty)
    assert len(paths) == channels
    for channel, path in enumerate(paths):
        kept = np.delete(np.arange(channels), channel)
        expected = align(a[:, kept], b[:, kept], band=0.1, step_penalty=penalty)
        assert path.tolist() == expected.path.tolist()


@pytest.mark.parametrize("widen", [True, False])
def test_held_out_paths_of_traces_too_long_for_lanes_are_the_same(monkeypatch: pytest.MonkeyPatch, widen: bool) -> None:
    a, b = (normalised_channels(values) for values in traces((60, 50, 3, 1)))
    lanes = held_out_paths(a, b, band=0.02, step_penalty=0.1, widen=widen)  # paths would leave the band
    monkeypatch.setattr("measure.alignment.held_out.FULL_CELLS", 1)
    one_by_one = held_out_paths(a, b, band=0.02, step_penalty=0.1, widen=widen)
    assert [path.tolist() for path in lanes] == [path.tolist() for path in one_by_one]


def test_blocks_are_used_for_large_windows_and_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = traces((90, 70, 2, 1))
    kept = align(a, b, band=0.2)
    monkeypatch.setattr(dtw, "FULL_CELLS", 100)
    assert align(a, b, band=0.2).path.tolist() == kept.path.tolist()
    assert align(a, b).method == "checkpoint"


def test_constant_channels_count_for_nothing() -> None:
    a, b = traces((30, 35, 2, 3))
    alone = align(a, b)
    beside = align(np.column_stack([a, np.full(30, 0.1)]), np.column_stack([b, np.full(35, 7e9)]))
    assert beside.path.tolist() == alone.path.tolist()


GOOD = np.arange(12.0).reshape(6, 2)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (
            (GOOD, GOOD[:, :1]),
            {},
            "the reference has 2 channels and the other trace 1: expected the same metrics",
        ),
        ((GOOD[:0], GOOD), {}, r"reference has shape \(0, 2\): expected \(records, channels\)"),
        (
            (GOOD, np.full((3, 2), np.nan)),
            {},
            "other is nan at record 0 of channel 0: expected finite numbers",
        ),
        ((GOOD, GOOD), {"method": "magic"}, "unknown method 'magic': expected one of auto, full, checkpoint"),
        ((GOOD, GOOD), {"band": 1.5}, "band: got 1.5, expected a fraction of the longer trace"),
        ((GOOD, GOOD), {"step_penalty": -1.0}, "step_penalty: got -1.0, expected a number"),
        (
            (np.zeros((60_000, 1)),) * 2,
            {"method": "full"},
            "method 'full' needs 3.6 GB for traces of 60000 and 60000",
        ),
    ],
)
def test_what_cannot_be_aligned_is_refused(
    arguments: tuple[NDArray[np.float64], NDArray[np.float64]], options: dict[str, object], message: str
) -> None:
    with pytest.raises(AlignmentError, match=message):
        align(*arguments, **options)  # type: ignore[arg-type]
