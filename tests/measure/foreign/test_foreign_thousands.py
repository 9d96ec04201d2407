"""A point before three digits is a decimal point or a separator of thousands, as the rest of the column tells."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from measure.foreign.errors import TraceFileError
from measure.foreign.formats import read_trace
from measure.foreign.thousands import check_thousands


def with_separators(value: float) -> str:
    return f"{int(value):,}".replace(",", ".")


def is_refused(cells: list[str]) -> bool:
    try:
        check_thousands(cells, str)
    except TraceFileError:
        return True
    return False


def test_separators_of_thousands_are_refused_with_both_readings(tmp_path: Path) -> None:
    """They were read as decimal points: 1227 was less than 984, and unchanged relations were called changed."""
    (tmp_path / "bad").write_text("m0;m1\n984;901\n1.227;950\n;873\n1.049;899\n")
    with pytest.raises(TraceFileError) as caught:
        read_trace(tmp_path / "bad")
    assert str(caught.value) == (
        f"{tmp_path}/bad:3: column 'm0': got '1.227': with a decimal point it is 1.227, with a separator of thousands "
        "1227; the column has no other values than such and whole numbers below 1000 (984), which speaks for "
        "separators. Expected numbers without them: write 1227; if points are decimal points, give every value "
        "decimals (984.000)"
    )
    (tmp_path / "bad").write_text("time [ms];m1\n980;901\n990;950\n1.000;873\n1.010;899\n")
    with pytest.raises(TraceFileError, match=r"bad:4: column 'time \[ms\]': got '1\.000': with a decimal point"):
        read_trace(tmp_path / "bad")


@pytest.mark.parametrize(
    "cells",
    [
        ["984", "0.512", "1.049"],  # no separator comes after 0
        ["984", "1.227", "1.5"],
        ["984", "1.227", "1049"],
        ["800", "799.987", "800", "800.013"],  # a clock rate whose trailing zeros are dropped
        ["7", "7.333", "7.667", "8", "9.333", "12"],  # means of three whole numbers
        ["0", "1.230", "0", "2.345"],  # in the same order by both readings
        ["33.333", "66.667", "100"],
        ["1.000", "999.999"],
        ["", "nan"],
        [],
    ],
)
def test_decimals_are_read(cells: list[str]) -> None:
    assert not is_refused(cells)


@given(seed=st.integers(0, 2**32 - 1), low=st.floats(0, 3), spread=st.floats(0.01, 3), n=st.integers(20, 60))
def test_random_columns_of_numbers_are_read(seed: int, low: float, spread: float, n: int) -> None:
    values = 10 ** np.random.default_rng(seed).uniform(low, low + spread, n)
    for format in ("%.3f", "%g", "%d", "%.9g", "%.2f", "%e"):
        assert not is_refused([format % value for value in values]), format
    assert not is_refused([f"{value:.9g}" for value in values.round(3)])


@given(seed=st.integers(0, 2**32 - 1), median=st.floats(300, 3000), spread=st.floats(0.05, 2), n=st.integers(40, 200))
def test_random_counts_with_separators_are_refused(seed: int, median: float, spread: float, n: int) -> None:
    """All but columns that have no whole number below 1000, or nothing else: their values keep their order."""
    counts = np.minimum(np.random.default_rng(seed).lognormal(np.log(median), spread, n), 999_999).astype(int)
    above = int((counts >= 1000).sum())
    is_mixed = 0 < above < n and (counts[counts < 1000] > 0).any()
    if not is_mixed:
        assert not is_refused([with_separators(value) for value in counts])
    elif min(above, n - above) >= 5:
        assert is_refused([with_separators(value) for value in counts])
