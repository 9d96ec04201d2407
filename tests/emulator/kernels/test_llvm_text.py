"""Kernels in a small part of Python: what LLVM makes of them does what Python does."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from emulator.engine.entry.entry import Entry
from emulator.kernels.llvm_text import kernel_text

ROW = np.dtype([("small", "u1"), ("signed", "i2"), ("wide", "u8"), ("word", "u4")])
STEP, BIG = 3, 1 << 40


def statements(job, bytes_, rows, table):  # type: ignore[no-untyped-def]
    """A bit of everything."""
    total = 0
    n: Any = job[0]
    while n > 0:
        if n & 1 == 0 and (n > 6 or job[1] < 0):
            total += twice(n) if job[1] != 2 else clamped(n, 4)
        elif not (n == 5 or n > 20):
            total -= n << 1
        else:
            total ^= BIG
        if total > 1 << 50:
            break
        n -= 1
    for place in range(2, 8):
        if bytes_[place] == 0:
            break
        for other in range(place):
            total += bytes_[other] * table[other, place]
        table[0, place] = ~total
    row = rows[job[2]]
    row.small, row.signed = total, -total
    row.wide = row.word | row.small
    fill(rows[0], total, row.signed)
    line = table[2]
    line[1] = line[0] + (1 if total > 0 else -1) + STEP * rows.itemsize
    job[3] = abs(total) >> 2
    small = job[3] < 100
    return total + 7 * small + np.int64(row.signed)


def twice(value):  # type: ignore[no-untyped-def]
    return value + value


def clamped(value, most):  # type: ignore[no-untyped-def]
    if value > most:
        return most
    return value


def fill(row, word, signed):  # type: ignore[no-untyped-def]
    row.word, row.signed = word, signed


def compiled(function: Callable[..., Any], helpers: Any, arrays: Any) -> Callable[[int], int]:
    text = kernel_text("kernel", function, helpers, arrays)
    address = Entry.get().compiler.compile(text, ["kernel"])["kernel"]
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(address)


def run(call: Callable[[int], int], arrays: tuple[NDArray[Any], ...]) -> int:
    addresses = np.array([array.ctypes.data for array in arrays], np.uint64)
    return call(addresses.ctypes.data)


class _Wrapping:
    """A record of which fields are set as a store of that width does it."""

    record: Any

    def __init__(self, record: Any) -> None:
        object.__setattr__(self, "record", record)

    def __getattr__(self, name: str) -> int:
        return int(self.record[name])

    def __setattr__(self, name: str, value: int) -> None:
        self.record[name] = np.array([value & (1 << 64) - 1], np.uint64).astype(self.record.dtype[name])[0]


class _Records:
    def __init__(self, rows: NDArray[Any]) -> None:
        self.rows = rows
        self.itemsize = rows.itemsize

    def __getitem__(self, place: int) -> _Wrapping:
        return _Wrapping(self.rows[place])


class _Numbers:
    """An array of Python's integers, which do not overflow by themselves."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array

    def __getitem__(self, place: Any) -> Any:
        found: Any = self.array[place]
        return _Numbers(found) if isinstance(found, np.ndarray) else int(found)

    def __setitem__(self, place: Any, value: int) -> None:
        self.array[place] = np.uint64(value & (1 << 64) - 1).astype(np.int64)


@pytest.fixture(scope="module")
def arrays() -> tuple[NDArray[Any], ...]:
    return np.zeros(4, np.int64), np.zeros(8, np.uint8), np.zeros(3, ROW), np.zeros((8, 8), np.int64)


@pytest.fixture(scope="module")
def kernel(arrays: tuple[NDArray[Any], ...]) -> Callable[[int], int]:
    return compiled(statements, (twice, clamped, fill), arrays)


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32), n=st.integers(-1, 12), second=st.integers(-2, 3), row=st.integers(0, 2))
def test_a_kernel_does_what_python_does(
    kernel: Callable[[int], int], arrays: tuple[NDArray[Any], ...], seed: int, n: int, second: int, row: int
) -> None:
    rng = np.random.default_rng(seed)
    job, raw, rows, table = arrays
    job[:] = n, second, row, 0
    raw[:] = rng.integers(0, 4, 8)
    rows.view(np.uint8)[:] = rng.integers(0, 256, rows.nbytes)
    table[:] = rng.integers(-1000, 1000, (8, 8))
    copies = tuple(array.copy() for array in arrays)
    expected = statements(_Numbers(copies[0]), _Numbers(copies[1]), _Records(copies[2]), _Numbers(copies[3]))
    assert run(kernel, arrays) == expected
    for ours, theirs in zip(arrays, copies, strict=True):
        assert ours.tobytes() == theirs.tobytes()


def test_what_may_not_be_looked_at_is_not() -> None:
    def careful(job, table):  # type: ignore[no-untyped-def]
        if job[0] < 4 and table[job[0]] == 9:
            return 1
        if job[0] >= 4 or table[job[0]] == 8:
            return 2
        return 3

    job, table = np.array([1 << 60], np.int64), np.array([8, 9, 7, 7], np.int64)
    call = compiled(careful, (), (job, table))
    assert run(call, (job, table)) == 2  # an access there would end the process
    for place, expected in enumerate((2, 1, 3, 3)):
        job[0] = place
        assert run(call, (job, table)) == expected


def _unknown(job):  # type: ignore[no-untyped-def]
    return job[0] + elsewhere(job)  # type: ignore[name-defined]  # noqa: F821


def _as_number(job):  # type: ignore[no-untyped-def]
    return job + 1


def _no_field(job):  # type: ignore[no-untyped-def]
    return job[0].length


def _raises(job):  # type: ignore[no-untyped-def]
    raise ValueError(job)


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (_unknown, "elsewhere"),
        (_as_number, "an array of 1 dimensions of int64 as a number"),
        (_no_field, "length"),
        (_raises, "Raise"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(function: Callable[..., Any], what: str) -> None:
    with pytest.raises(TypeError, match=rf"line \d+ of {function.__name__}: .*{what}.* is not understood"):
        kernel_text("kernel", function, (), (np.zeros(2, np.int64),))


def test_floats_are_refused() -> None:
    def doubled(job):  # type: ignore[no-untyped-def]
        return job[0] + job[0]

    with pytest.raises(TypeError, match="float64"):
        kernel_text("kernel", doubled, (), (np.zeros(2),))
