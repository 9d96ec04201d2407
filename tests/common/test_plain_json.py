"""Results become values that JSON has."""

from __future__ import annotations

import json

import numpy as np

from common.plain_json import plain_json


def test_numbers_that_json_does_not_have_become_null_at_any_depth() -> None:
    found = plain_json({
        "nan": float("nan"), "unbounded": (np.float64("-inf"), np.float32(0.5)), "counts": [np.int64(3), True, 2],
        "flags": {"on": np.bool_(True)}, "text": "nan", "none": None,
    })  # fmt: skip
    assert found == {
        "nan": None, "unbounded": [None, 0.5], "counts": [3, True, 2], "flags": {"on": True}, "text": "nan",
        "none": None,
    }  # fmt: skip
    assert json.loads(json.dumps(found, allow_nan=False)) == found
