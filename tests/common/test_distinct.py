"""Distinct values are those of `numpy.unique`."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from common.distinct import distinct


@given(arrays(st.sampled_from([np.int64, np.uint8]), array_shapes(min_dims=1, max_dims=2, min_side=0)))
def test_distinct_values_are_those_of_numpy(values: np.ndarray) -> None:
    found = distinct(values)
    assert found.dtype == values.dtype
    np.testing.assert_array_equal(found, np.unique(values))
