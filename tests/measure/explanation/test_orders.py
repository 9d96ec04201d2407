"""What is said from few orders: where factors add up, or two interact, an order and its reverse give Shapley values."""

from __future__ import annotations

import numpy as np
import pytest

from measure.explanation.explanation_types import Part, ordered
from measure.explanation.lattice import Values, shapley_values, subsets
from measure.explanation.mechanisms import ACCESSES, EXECUTED, LAYOUT, parts_of_states
from measure.explanation.orders import agree, sets_of, steps_of

FACTORS = ("a", "b", "c", "d")
ORDERS = FACTORS, FACTORS[::-1]


def game(effects: dict[str, float], factors: tuple[str, ...] = FACTORS, noise: float = 0.01) -> Values:
    """Changes of one relation in six pairs: the factors of each key add its effect where all of them are there."""
    rng = np.random.default_rng(5)
    return {
        chosen: sum(size for names, size in effects.items() if set(names) <= chosen)
        + noise * rng.standard_normal((6, 1))
        for chosen in subsets(factors)
    }


def test_an_order_and_its_reverse_are_exact_where_two_interact() -> None:
    values = game({"a": 0.5, "b": 0.1, "ab": 0.2, "cd": -0.1, "ad": 0.05}, noise=0)
    steps = steps_of(values, ORDERS)
    exact = shapley_values(values, FACTORS)
    for factor in FACTORS:
        assert np.allclose(np.mean(steps[factor], axis=0), exact[factor])
    assert len(sets_of(ORDERS)) == 8 < len(values)
    assert not np.allclose(
        *(np.mean(steps_of(game({"abc": 1}, noise=0), ORDERS)["b"], axis=0), 1 / 3)
    )  # where three do, they are not


@pytest.mark.parametrize(("effects", "expected"), [
    ({"a": 1.0}, True),
    ({"a": 0.6, "b": 0.3, "d": 0.1}, True),
    ({"a": 1.0, "bc": 0.05}, True),
    ({"a": 0.8, "ab": 0.2}, False),
    ({"abc": 0.5, "d": 0.5}, False),
])  # fmt: skip
def test_orders_agree_unless_an_interaction_is_shown(effects: dict[str, float], expected: bool) -> None:
    values = game(effects)
    assert agree(steps_of(values, ORDERS), values[frozenset(FACTORS)] - values[frozenset()]) == expected


def test_noise_alone_shows_no_interaction() -> None:
    wrong = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        values = {one: len(one & {"a"}) + 0.3 * rng.standard_normal((4, 3)) for one in sets_of(ORDERS)}
        wrong += not agree(steps_of(values, ORDERS), values[frozenset(FACTORS)] - values[frozenset()])
    assert wrong <= 0.05 * 200 + 3 * np.sqrt(0.05 * 0.95 * 200)


def test_parts_of_few_states_add_up_in_every_pair() -> None:
    factors = EXECUTED, ACCESSES, LAYOUT
    rng = np.random.default_rng(2)
    values = {state: len(state & {ACCESSES}) + 0.1 * rng.standard_normal((4, 2)) for state in sets_of([factors])}
    values |= {state: values.get(state, rng.standard_normal((4, 2))) for state in sets_of([factors[::-1]])}
    change = parts_of_states(values, factors)
    assert np.allclose(sum(part.values for part in change.parts), change.whole)
    assert change.interactions == ()


def test_the_first_part_is_clear_when_pairs_of_runs_agree_on_it() -> None:
    noise = np.array([[0.05], [-0.05], [0.02], [-0.02]])
    one, other = Part("one", "", 0.6 + noise), Part("other", "", 0.4 - noise)
    assert ordered(one.values + other.values, [one, other]).first_is_clear(0.95)
    assert not ordered(one.values + other.values, [one, other]).first_is_clear(0.99)
    alone = ordered(one.values, [one])
    assert alone.first_is_clear(0.99)
    near = Part("near", "", 0.58 + noise[::-1])
    assert not ordered(one.values + near.values, [one, near]).first_is_clear(0.95)
