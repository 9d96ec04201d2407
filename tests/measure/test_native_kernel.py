"""Kernels kept as machine code: what they compute, take and refuse, and when they are compiled anew."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from measure import native_kernel
from measure.native_kernel import Native, native, native_relaxed

SCALE = 3


class Pair(NamedTuple):
    values: np.ndarray
    factor: float


@native_relaxed
def times(value: float, factor: float) -> float:
    return value * factor


@native
def scaled(pair: Pair, table: np.ndarray, offset: int, wanted: bool) -> int:
    """Each of the pair's values times its factor, plus ``offset``, into the rows of ``table``; the sum of its sizes."""
    for row in range(table.shape[0]):
        for column in range(table.shape[1]):
            table[row, column] = times(pair.values[column], pair.factor) + offset * SCALE if wanted else 0.0
    return table.shape[0] * 1000 + table.shape[1]


@settings(max_examples=30, deadline=None)
@given(
    values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9),
    rows=st.integers(1, 5),
    factor=st.floats(-1e3, 1e3),
    offset=st.integers(-(2**40), 2**40),
    wanted=st.booleans(),
)
def test_a_kernel_does_what_its_function_does(
    values: list[float], rows: int, factor: float, offset: int, wanted: bool
) -> None:
    pair = Pair(np.array(values), factor)
    table, expected = np.zeros((rows, len(values))), np.zeros((rows, len(values)))
    result = scaled(pair, table, offset, wanted)
    twin = Native(scaled.function)  # only the function of it is used
    names = {"times": times.function, "SCALE": SCALE}
    plain = type(twin.function)(twin.function.__code__, {**twin.function.__globals__, **names})
    assert result == plain(pair, expected, offset, wanted)
    np.testing.assert_allclose(table, expected, rtol=1e-12)  # a product and a sum may be rounded once


def test_kinds_of_arguments_are_told_apart_and_others_refused() -> None:
    @native
    def first(values: np.ndarray) -> int:
        return int(values[0])

    assert first(np.array([2**40])) == 2**40
    assert first(np.array([7], np.int32)) == 7
    assert first(np.array([250], np.uint8)) == 250
    assert first(np.array([2.75])) == 2
    assert len(first._entries) == 4
    with pytest.raises(TypeError, match="contiguous"):
        first(np.arange(6)[::2])
    with pytest.raises(TypeError, match="not str"):
        first("text")


def test_code_is_named_by_all_that_it_is_made_of() -> None:
    def with_helper(helper: Native, constant: int) -> str:
        def kernel(values):  # type: ignore[no-untyped-def]
            return helped(values[0]) + constant_of_the_module  # type: ignore[name-defined] # noqa: F821

        names = {"helped": helper, "constant_of_the_module": constant}
        return Native(type(kernel)(kernel.__code__, names, "kernel")).digest()

    one, other = Native(lambda value: value + 1), Native(lambda value: value + 2)
    relaxed = Native(one.function, relaxed=True)
    digests = [with_helper(one, 1), with_helper(other, 1), with_helper(one, 2), with_helper(relaxed, 1)]
    assert len(set(digests)) == 4
    assert with_helper(one, 1) == digests[0]


def test_kept_code_is_found_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    table = np.zeros((1, 1))
    scaled(Pair(np.ones(1), 2.0), table, 0, True)  # kept by now

    def compile_anew(*_: object) -> str:
        raise AssertionError("nothing is to be compiled")

    monkeypatch.setattr(Native, "_text", compile_anew)
    native_kernel._compiler.cache_clear()
    again = Native(scaled.function)
    assert again(Pair(np.full(1, 5.0), 2.0), table, 1, True) == 1001
    assert table[0, 0] == 13.0
