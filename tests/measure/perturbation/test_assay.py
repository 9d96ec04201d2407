"""Outer equivalence needs assay sensitivity: unrelated runs, near-duplicates, and misplaced records."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from measure.alignment.setting import DEFAULT_ALIGNMENT
from measure.perturbation.assay import MOST_PAIRS, assay, not_assessable
from measure.perturbation.findings import findings
from measure.perturbation.perturbation import outer_perturbation, outer_z
from measure.perturbation.similarity import (
    SimilarityRule,
    align_in_threads,
    alignment_paths,
    backwards,
    near_duplicates,
    prepare,
    similarity,
)
from measure.stats.synthetic import synthetic_program

Table = NDArray[np.float64]


@pytest.mark.parametrize("held_out", [False, True])
@pytest.mark.parametrize("rho", [0.0, 0.95])
def test_independent_white_noise_is_not_equivalent(held_out: bool, rho: float) -> None:
    rng = np.random.default_rng(4)
    tables = []
    for _ in range(25):
        table = rng.normal(size=(120, 3))
        table[:, 1] = rho * table[:, 0] + np.sqrt(1 - rho**2) * table[:, 1]
        tables.append(table)
    result = outer_perturbation(tables[:20], tables[20:], "abc", held_out=held_out, seed=0)
    assert result.verdict == "not assessable"
    assert not result.of("equivalent")
    assert any(finding.startswith("Not assessable") for finding in result.findings)


def test_related_runs_are_assessable_and_one_unrelated_metric_is_not() -> None:
    program = synthetic_program(4, n_records=300, n_metrics=3, noise=0.1)
    rng = np.random.default_rng(2)
    tables = [program.run(rng) for _ in range(18)]
    with_noise = [np.column_stack([table, rng.normal(size=len(table))]) for table in tables]
    result = outer_perturbation(with_noise[:12], with_noise[12:], [*program.metrics, "noise"], held_out=True, seed=0)
    verdicts = {pair.a: pair.verdict for pair in result.pairs}
    assert verdicts == dict.fromkeys(program.metrics, "equivalent") | {"noise": "not assessable"}
    assert result.verdict == "equivalent"
    assert "baselines are hardly alike in noise when aligned on other metrics" in result.pairs[-1].note


def test_a_tied_metric_is_never_equivalent_across_runs() -> None:
    """A tied metric whose few bursts align was called equivalent, though most of its records hold one value."""
    program = synthetic_program(4, n_records=300, n_metrics=3, noise=0.1)
    rng = np.random.default_rng(2)
    tables = [program.run(rng) for _ in range(18)]
    for table in tables:
        table[:, 2] = np.maximum(table[:, 2], np.quantile(table[:, 2], 0.7))
    tied = program.metrics[2]
    result = outer_perturbation(tables[:12], tables[12:], program.metrics, held_out=True, seed=0)
    (pair,) = result.of("not assessable")
    assert pair.a == tied
    assert pair.note == f"{tied} is tied: one value in 71% of its records"
    assert pair.within(result.delta)
    assert result.verdict == "equivalent"


def test_similarity_without_correspondence_is_not_assessable() -> None:
    """A signal that repeats itself, forwards and backwards: nothing tells its periods apart."""
    rng = np.random.default_rng(5)
    wave = np.sin(2 * np.pi * np.arange(200) / 10 + np.pi / 2)
    baselines = [
        prepare(np.column_stack([wave, 2 * wave]) + 0.3 * rng.normal(size=(200, 2)), "ab", "x") for _ in range(8)
    ]
    how = SimilarityRule(True, DEFAULT_ALIGNMENT, ((), ()))
    found = assay(baselines, how)
    assert found.shape == (2, 8, 2)
    assert found[0].mean() > 0.5
    reasons = not_assessable(found, how, "ab", 0.2, 0.05)
    assert all("as alike between runs that do not correspond" in reason for reason in reasons)


def test_a_loss_that_so_few_baselines_do_not_show_is_not_said_to_be_none() -> None:
    """z of 0.77 between baselines and 0.18 with one backwards was called as alike; with 16 baselines it was shown."""
    how = SimilarityRule(True, DEFAULT_ALIGNMENT, ((), ()))
    scattered = np.array([0.1, 1.5, 0.2, 1.3, 0.15, 1.4])
    found = np.stack([np.stack([scattered, scattered], axis=1) + 0.5, np.full((6, 2), 0.5)])
    for reason in not_assessable(found, how, "ab", 0.4, 0.05):
        assert "it is not shown that a misalignment would be seen" in reason
        assert "more of them may show enough" in reason
    assert not_assessable(np.repeat(found, 4, axis=1), how, "ab", 0.4, 0.05) == ["", ""]
    found[0] -= 0.5
    assert all(
        reason.endswith("with more baselines it might be") for reason in not_assessable(found, how, "ab", 0.4, 0.05)
    )


def test_metrics_that_all_duplicate_one_another_leave_nothing_to_align_on() -> None:
    rng = np.random.default_rng(6)
    signal = [np.cumsum(rng.normal(size=80)) for _ in range(9)]
    tables = [np.column_stack([one, one + 1e-3 * rng.normal(size=80)]) for one in signal]
    result = outer_perturbation(tables[:6], tables[6:], "ab", held_out=True, seed=0)
    assert result.verdict == "not assessable"
    assert all("there is none to align on" in pair.note for pair in result.pairs)
    assert (
        "Left out of each other's alignment, because they nearly duplicate one another (rho beyond 0.9): a with b."
        in (result.findings)
    )


def test_too_few_baselines_show_no_alignment_and_many_are_sampled() -> None:
    program = synthetic_program(7, n_records=40, n_metrics=2)
    rng = np.random.default_rng(5)
    runs = [prepare(program.run(rng), program.metrics, "x") for _ in range(24)]
    how = SimilarityRule(True, DEFAULT_ALIGNMENT, ((), ()))
    assert assay(runs[:2], how).shape == (2, 0, 2)
    assert all("too few baselines" in reason for reason in not_assessable(assay(runs[:2], how), how, "ab", 0.2, 0.05))
    assert assay(runs, how).shape == (2, MOST_PAIRS, 2)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.booleans())
def test_similarity_is_symmetric(seed: int, held_out: bool) -> None:
    rng = np.random.default_rng(seed)
    # Small integers make ties between paths, which are resolved by the order of the traces.
    first, second = (rng.integers(0, 3, (n, 3)).astype(np.float64) for n in (18, 23))
    one = outer_z(first, second, "abc", held_out=held_out)
    other = outer_z(second, first, "abc", held_out=held_out)
    np.testing.assert_array_equal(one, other)


def test_near_duplicates_are_left_out_of_the_alignment() -> None:
    program = synthetic_program(9, n_records=90, n_metrics=3)
    rng = np.random.default_rng(7)
    tables = [program.run(rng) for _ in range(2)]
    doubled = [np.column_stack([table, table[:, 0] * 2]) for table in tables]
    runs = [prepare(table, "abcd", "x") for table in doubled]
    duplicates = near_duplicates(runs)
    assert duplicates == ((3,), (), (), (0,))
    z = similarity(runs[0], runs[1], SimilarityRule(True, DEFAULT_ALIGNMENT, duplicates))
    plain = outer_z(tables[0], tables[1], "abc", held_out=True)
    assert z[[0, 3]] == pytest.approx(plain[[0, 0]])
    assert outer_z(doubled[0], doubled[1], "abcd", held_out=True)[0] > plain[0]  # alignment on the copy flatters


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000))
def test_metrics_that_are_alike_share_an_alignment_and_get_that_of_each_by_itself(seed: int) -> None:
    rng = np.random.default_rng(seed)
    runs = [prepare(rng.normal(size=(n, 6)), "abcdef", "x") for n in (70, 80)]
    duplicates: tuple[tuple[int, ...], ...] = ((1, 2), (0, 2), (0, 1), (), (5,), (4,))
    first, second = sorted(runs, key=lambda run: run.digest)
    found = alignment_paths(first.values.T, second.values.T, "abcdef", held_out=True, duplicates=duplicates)
    shared = similarity(first, second, SimilarityRule(True, DEFAULT_ALIGNMENT, duplicates))
    for metric, alike in enumerate(duplicates):
        kept = [n for n in range(6) if n != metric and n not in alike]
        channels = [run.channels[[*kept, metric]] for run in (first, second)]
        (path,) = DEFAULT_ALIGNMENT.held_out(channels[0], channels[1], [len(kept)])
        np.testing.assert_array_equal(found[metric], path)
        kept_apart = [one[:-1] for one in channels]
        (in_band,) = DEFAULT_ALIGNMENT.held_out(channels[0], channels[1], [len(kept)], widen=False)
        np.testing.assert_array_equal(DEFAULT_ALIGNMENT.align(*kept_apart, widen=False).path, in_band)
        one = tuple(alike if n == metric else () for n in range(6))
        assert similarity(first, second, SimilarityRule(True, DEFAULT_ALIGNMENT, one))[metric] == shared[metric]


@pytest.mark.parametrize("n", [40, 700])  # one after another, and in threads
def test_many_pairs_are_aligned_as_each_is(n: int) -> None:
    rng = np.random.default_rng(3)
    runs = [prepare(rng.normal(size=(n, 3)), "abc", "x") for _ in range(4)]
    pairs = [(first, second) for first in runs for second in runs if first is not second]
    how = SimilarityRule(True, DEFAULT_ALIGNMENT, ((),) * 3)
    done: list[int] = []
    found = align_in_threads(pairs, how, done.append)
    np.testing.assert_array_equal(found, [similarity(first, second, how) for first, second in pairs])
    assert sum(done) == len(pairs)
    assert align_in_threads([], how, done.append) == []


def test_a_run_backwards_has_the_same_values_in_reverse() -> None:
    program = synthetic_program(9, n_records=30, n_metrics=2)
    table = program.run(np.random.default_rng(7))
    turned = backwards(prepare(table, "ab", "x"))
    again = prepare(table[::-1], "ab", "x")
    np.testing.assert_array_equal(turned.values, again.values)
    np.testing.assert_allclose(turned.channels, again.channels)
    np.testing.assert_allclose(turned.ranks, again.ranks)
    assert turned.digest != again.digest != prepare(table, "ab", "x").digest


def test_a_reason_is_told_whole_and_once_whatever_its_punctuation() -> None:
    """Reasons were told apart by "; ", which one of them has: its end was told as another."""
    rng = np.random.default_rng(8)
    tables = [rng.normal(size=(60, 3)) for _ in range(9)]
    result = outer_perturbation(tables[:6], tables[6:], "abc", held_out=True, seed=0)
    hardly = "no loss could be seen; with more baselines it might be"
    reasons = [("a is tied", hardly), (hardly,), ("too few baselines",)]
    pairs = tuple(
        replace(pair, verdict="not assessable", reasons=of) for pair, of in zip(result.pairs, reasons, strict=True)
    )
    result = replace(result, pairs=pairs, verdict="not assessable")
    (told,) = [one.text for one in findings(result, identical=False, smallest_p=0.01) if "Not assessable" in one.text]
    assert told.endswith(f"for 3 of 3 metrics: {hardly}; a is tied; too few baselines.")
    found = result.as_fields()["pairs"]
    assert [one["note"] for one in found] == [f"a is tied; {hardly}", hardly, "too few baselines"]
    assert list(found[0])[-2:] == ["verdict", "note"]
