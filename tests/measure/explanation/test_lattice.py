"""Shapley values and interactions of factors, and the parts of a change that follow from them."""

from __future__ import annotations

import re
from itertools import permutations

import numpy as np
import pytest

from measure.explanation.lattice import Values, dividends, shapley_values, subsets
from measure.explanation.mechanisms import ACCESSES, COMPILER, EXECUTED, LAYOUT, parts_of_states

FACTORS = ("a", "b", "c")


def random_values(seed: int) -> Values:
    rng = np.random.default_rng(seed)
    return {chosen: rng.standard_normal((4, 3)) for chosen in subsets(FACTORS)}


@pytest.mark.parametrize("seed", range(5))
def test_shapley_values_are_means_over_orders_and_add_up(seed: int) -> None:
    values = random_values(seed)
    found = shapley_values(values, FACTORS)
    assert np.allclose(sum(found.values()), values[frozenset(FACTORS)] - values[frozenset()])
    orders = list(permutations(FACTORS))
    for factor in FACTORS:
        steps = []
        for order in orders:
            before = frozenset(order[: order.index(factor)])
            steps.append(values[before | {factor}] - values[before])
        assert np.allclose(found[factor], np.mean(steps, axis=0))


def test_dividends_are_what_a_set_does_beyond_its_subsets() -> None:
    values = random_values(7)
    found = dividends(values, FACTORS)
    assert set(found) == {frozenset(s) for s in ("ab", "ac", "bc", "abc")}
    single = {f: values[frozenset(f)] - values[frozenset()] for f in FACTORS}
    everything = values[frozenset()] + sum(single.values()) + sum(found.values())
    assert np.allclose(everything, values[frozenset(FACTORS)])


def states(effect: dict[frozenset[str], float], left: float) -> dict[frozenset[str], np.ndarray]:
    """Changes of one relation in six pairs of runs: each set of mechanisms adds its effect where all of it is at work,
    the compiler ``left``."""
    rng = np.random.default_rng(3)
    found = {}
    for state in subsets((EXECUTED, ACCESSES, LAYOUT)):
        size = left + sum(one for needed, one in effect.items() if needed <= state)
        found[state] = size + 0.01 * rng.standard_normal((6, 1))
    return found


def test_the_rest_is_the_compilers_and_parts_add_up_in_every_pair() -> None:
    values = states({frozenset({EXECUTED}): 0.3}, left=0.6)
    change = parts_of_states(values, (EXECUTED, ACCESSES, LAYOUT))
    assert [part.name for part in change.parts[:2]] == [COMPILER, EXECUTED]
    assert change.share(change.parts[0]).mean == pytest.approx(2 / 3, abs=0.05)
    assert np.allclose(sum(part.values for part in change.parts), change.whole)
    assert not change.interactions


def test_what_two_mechanisms_do_only_together_is_said_and_halved() -> None:
    values = states({frozenset({ACCESSES}): 0.2, frozenset({EXECUTED, LAYOUT}): 0.4}, left=0.0)
    change = parts_of_states(values, (EXECUTED, ACCESSES, LAYOUT))
    shares = {part.name: change.share(part).mean for part in change.parts}
    assert shares[EXECUTED] == pytest.approx(1 / 3, abs=0.05)
    assert shares[LAYOUT] == pytest.approx(1 / 3, abs=0.05)
    (sentence,) = change.interactions
    assert sentence.startswith(f"{EXECUTED} and {LAYOUT} interact: 6")
    assert "comes only with both" in sentence
    cancelling = states({frozenset({EXECUTED}): 1.0, frozenset({EXECUTED, ACCESSES}): -0.4}, left=0.0)
    (sentence,) = parts_of_states(cancelling, (EXECUTED, ACCESSES, LAYOUT)).interactions
    assert "goes when both are there" in sentence
    assert "cannot be told" not in sentence


def test_an_interaction_does_not_contradict_the_share_in_the_table() -> None:
    """A mechanism was said to interact for half of the change, beside a table in which its share included 0."""
    effect = {frozenset({EXECUTED}): 0.5, frozenset({LAYOUT}): -0.2, frozenset({EXECUTED, LAYOUT}): 0.4}
    change = parts_of_states(states(effect, left=0.0), (EXECUTED, ACCESSES, LAYOUT))
    share = next(change.share(part) for part in change.parts if part.name == LAYOUT)
    assert share.low < 0 < share.high
    (sentence,) = change.interactions
    assert re.match(rf"{EXECUTED} and {LAYOUT} interact: 5\d% \(\d+ to \d+\) of the change comes only", sentence)
    assert sentence.endswith(f"; the whole share of {LAYOUT} cannot be told from 0")
