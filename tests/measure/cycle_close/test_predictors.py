"""Predictors on sequences worked out by hand."""

from __future__ import annotations

import pytest

from measure.cycle_close.predictors import LastValue, Predictor, RunLength, predictor_named


def predictions(predictor: Predictor, phases: list[int]) -> list[int | None]:
    """What was predicted before each of ``phases``."""
    found = []
    for phase in phases:
        found.append(predictor.next_phase())
        predictor.observe(phase)
    return found


def test_last_value() -> None:
    assert predictions(LastValue(), [1, 1, 2, 2, 1]) == [None, 1, 1, 2, 2]


def test_rle_1_learns_what_follows_a_run_of_a_length() -> None:
    # 1 1 2 | 1 1 2 | ...: after the first round it knows that two 1s are followed by a 2, and one 2 by a 1.
    assert predictions(RunLength(1), [1, 1, 2] * 3) == [None, 1, 1, 2, 1, 2, 1, 1, 2]


def test_rle_1_cannot_tell_runs_apart_that_rle_2_can() -> None:
    # A run of one 1 is followed by 2 after a 3, and by 3 after a 2.
    sequence = [3, 1, 2, 1] * 6
    right = {}
    for runs in (1, 2):
        told = predictions(RunLength(runs), sequence)
        right[runs] = sum(a == b for a, b in zip(told[12:], sequence[12:], strict=True))
    assert right[2] == 12
    assert right[1] < 12


def test_a_trusted_entry_survives_an_exception() -> None:
    predictor = RunLength(1)
    predictions(predictor, [1, 2] * 5)
    assert predictor.next_phase() == 1
    predictor.observe(7)  # for once a 2 was followed by a 7
    predictions(predictor, [1, 2])
    assert predictor.next_phase() == 1


def test_an_untrusted_entry_is_replaced() -> None:
    predictor = RunLength(1)
    predictions(predictor, [1, 2, 3, 1, 4, 3, 1])
    assert predictor.next_phase() == 4


def test_a_small_table_is_tagged() -> None:
    # All runs share the only entry; the tag keeps them from being taken for one another.
    predictor = RunLength(1, entries=1)
    predictions(predictor, [1, 2, 3, 4])
    assert predictor.next_phase() == 4


def test_names() -> None:
    assert isinstance(predictor_named("last"), LastValue)
    assert isinstance(predictor_named("rle-3"), RunLength)
    for name in ("rle-0", "rle-", "markov"):
        with pytest.raises(ValueError, match=f"got the predictor '{name}', expected"):
            predictor_named(name)
    with pytest.raises(ValueError, match="RLE-0"):
        RunLength(0)
