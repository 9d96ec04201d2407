"""Shapley values of software metrics, of made-up runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pytest

from measure.explanation.explanation_types import MetricEffect
from measure.explanation.metric_effects import MetricEffects
from measure.explanation.paired_runs import PLAIN, ProgramChoice
from measure.explanation.relations import Relations


@dataclass(frozen=True)
class MadeRun:
    """In place of a run, and of its trace, in which every metric counts one event."""

    metrics: tuple[str, ...]

    @property
    def trace(self) -> MadeRun:
        return self

    def columns(self, names: Sequence[str]) -> Any:
        return np.ones((1, len(names)))


class Made:
    """In place of `PairedRuns` and `Relations`: a relation changes by the weights of the metrics of a run."""

    chosen: tuple[tuple[str, str], ...] = (("x", "y"),)

    def __init__(self, weights: dict[str, float]) -> None:
        self.weights = weights
        self.asked: list[frozenset[str]] = []

    def runs(self, choices: Sequence[ProgramChoice]) -> dict[ProgramChoice, list[MadeRun]]:
        self.asked += [frozenset(one.metrics) for one in choices if one != PLAIN]
        return {one: [MadeRun(one.metrics)] for one in choices}

    def values(self, runs: list[MadeRun], plain: list[MadeRun]) -> Any:
        (metrics,) = (set(run.metrics) for run in runs)
        together = 0.5 if {"a", "b"} <= metrics else 0.0
        return np.full((2, 1), sum(self.weights[metric] for metric in metrics) + together)


@pytest.mark.parametrize("count", [3, 5])
def test_values_are_exact_and_ready_as_soon_as_every_set_was_run(count: int) -> None:
    """More metrics are sampled in random orders until the deadline, but not beyond the last set that is new."""
    made = Made({name: 0.1 * n for n, name in enumerate("abcdefg"[:count])})
    choice = ProgramChoice(tuple(made.weights))
    effects = MetricEffects(cast(Any, made), choice, cast(Relations, made))
    began = time.monotonic()
    change = effects.shapley(began + 60.0, seed=1)
    assert time.monotonic() - began < 20.0
    assert len(set(made.asked)) == 2**count - 1  # the empty set is the plain program
    expected = {name: weight + (0.25 if name in "ab" else 0.0) for name, weight in made.weights.items()}
    assert {part.name: float(part.values.mean()) for part in change.parts} == pytest.approx(expected)
    assert {part.about for part in change.parts} == {"mean over all orders"}


def test_what_a_metric_makes_in_an_interaction_has_its_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was said to make 5% of the change when it is added last, where that could not be told from 0."""
    effects = MetricEffects(cast(Any, None), ProgramChoice(("m", "n")), cast(Relations, None))
    one = np.ones((4, 1))
    last, alone = 0.05 + 0.1 * np.array([[1.0], [-1.0], [1.0], [-1.0]]), np.array([[0.7], [0.6], [0.7], [0.6]])
    other = MetricEffect("n", 0.3 * one, 0.3 * one)
    monkeypatch.setattr(effects, "left_out_and_alone", lambda: (MetricEffect("m", last, alone), other))
    assert effects._interactions(one) == [
        "m interacts with the others: of the change it makes 65% (56 to 74) alone and a share that cannot be told from "
        "0, 5% (-13 to 23), when it is added last"
    ]
    # As many metrics as are looked at share the chance that one seems to interact.
    few = np.array([[0.35], [0.8], [0.5], [0.75]])
    monkeypatch.setattr(effects, "left_out_and_alone", lambda: (MetricEffect("m", few, 0.2 * one),))
    assert len(effects._interactions(one)) == 1
    monkeypatch.setattr(effects, "left_out_and_alone", lambda: (MetricEffect("m", few, 0.2 * one), *[other] * 9))
    assert effects._interactions(one) == []


def test_orders_are_sampled_until_the_deadline() -> None:
    made = Made(dict.fromkeys("abcdefghij", 0.1))
    effects = MetricEffects(cast(Any, made), ProgramChoice(tuple(made.weights)), cast(Relations, made))
    change = effects.shapley(time.monotonic() - 1.0, seed=1)
    assert {part.about for part in change.parts} == {"mean over 2 orders"}
    assert sum(float(part.values.mean()) for part in change.parts) == pytest.approx(1.5)


class Cancelling(Made):
    """Relations in which three metrics interact with opposite signs: each changes the first by 0.6, as all do together;
    the second changes with all three only, by as much as the first lacks."""

    chosen = ("x", "y"), ("v", "w")

    def values(self, runs: list[MadeRun], plain: list[MadeRun]) -> Any:
        (metrics,) = (set(run.metrics) for run in runs)
        z = [0.6 * bool(metrics), 0.6 * (len(metrics) == len(self.weights))]
        return np.array(z) + 0.01 * np.random.default_rng(len(metrics)).standard_normal((6, 2))


@pytest.mark.parametrize("count", [3, 4])
def test_interactions_of_opposite_sign_do_not_cancel(count: int) -> None:
    made = Cancelling(dict.fromkeys("abcd"[:count], 0.0))
    effects = MetricEffects(cast(Any, made), ProgramChoice(tuple(made.weights)), cast(Relations, made))
    change = effects.shapley(time.monotonic() + 60.0, seed=1)
    assert {part.about for part in change.parts} == {"mean over all orders"}
    for part in change.parts:  # by symmetry an equal share of both
        assert part.values.mean(axis=0) == pytest.approx([0.6 / count] * 2, abs=0.02)
        assert change.share(part).low < 1 / count < change.share(part).high
    assert change.interactions[0].startswith(
        "the metrics interact: what they change alone does not add up to what they change together, most in x - y: a "
    )
    assert change.interactions[0].endswith(", together +0.60")
