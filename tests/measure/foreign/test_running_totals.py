"""Columns that are told to be running totals, with and without falls where a counter wraps, and those that are not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from measure.foreign.running_totals import running_totals

Column = NDArray[np.float64]


def events(random: np.random.Generator, n: int = 300) -> Column:
    """The events of a counter that 2^32 holds for about 86 records."""
    return random.poisson(5e7 * np.exp(random.normal(0, 0.3, n))).astype(np.float64)


def told(columns: list[Column]) -> str:
    """The sentence on a metric with these traces; "" without one."""
    return "".join(running_totals(["a"], [[column[:, None] for column in columns]]))


def test_totals_of_counters_that_wrap_are_told() -> None:
    """Relations of -0.55 were shown as 0.01, and *equivalent*, without a word."""
    random = np.random.default_rng(0)
    assert told([np.cumsum(events(random)) % 2**32 for _ in range(6)]) == (
        "a rises from record to record but for rare, deep falls in 6 of 6 traces: if it is one of a counter that wraps "
        "or is reset, give events per interval instead, the differences of neighbouring records, modulo 2^32 if the "
        "counter has 32 bits; how running totals relate says nothing of the events."
    )


def test_one_trace_that_wraps_hides_no_totals_of_the_others() -> None:
    random = np.random.default_rng(0)
    whole = [np.cumsum(events(random)) for _ in range(5)]
    once = np.cumsum(events(random)) + 3e9
    once[150:] -= once[150]
    assert told([*whole, once]).startswith(
        "a rises from record to record but for rare, deep falls in 1 of 6 traces, and never falls in 5: if it is"
    )
    assert told([*whole, events(random)]).startswith("a never falls in 5 of 6 traces: if it is a running total")
    before = [[events(random)[:, None] for _ in range(20)], [column[:, None] for column in whole]]
    assert "a never falls in 5 of 25 traces" in running_totals(["a"], before)[0]


@pytest.mark.parametrize(
    "column",
    [
        pytest.param(lambda random, n: random.poisson(99.0, n), id="unrelated records"),
        pytest.param(lambda random, n: random.poisson(1e4 * np.arange(n) / n + 9), id="trend"),
        pytest.param(lambda random, n: random.poisson(1e6 * (1 + np.arange(n) / n)), id="trend above its noise"),
        pytest.param(lambda random, n: random.poisson(np.where(np.arange(n) < n / 2, 9.0, 999.0)), id="phases"),
        pytest.param(lambda random, n: 999 + np.cumsum(random.normal(0, 9, n)), id="gauge"),
        pytest.param(lambda random, n: random.poisson(0.02, n), id="rare event"),
        pytest.param(lambda random, n: (np.arange(n) % 12 + 1) * random.normal(99, 9, n), id="growth, repeated"),
        pytest.param(lambda random, n: 999 + 99 * np.sin(np.arange(n) / 9) + random.normal(0, 9, n), id="waves"),
        pytest.param(lambda random, n: np.arange(n) % 7, id="short pattern"),
    ],
)
@pytest.mark.parametrize("n", [20, 60, 300])
def test_events_that_grow_or_repeat_are_no_totals(column: Callable[[np.random.Generator, int], Column], n: int) -> None:
    random = np.random.default_rng(1)
    for _ in range(20):
        assert told([np.asarray(column(random, n), np.float64) for _ in range(12)]) == ""
