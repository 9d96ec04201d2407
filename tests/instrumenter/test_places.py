"""The places of a metric, as reports list them, are those that `file:` and `line:` choose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from instrumenter.building.generated_sources import generate
from instrumenter.languages import is_cplusplus
from instrumenter.spec.software_metrics import MetricSpec

TEXT = """\
int count;
int f(int n)
{
    for (int i = 0; i < n; i++)
        count++;
    while (n-- > 0)
    {
        if (n == 3)
            count += 2;
        count =
            n;
    }
    return n ? 1
             : 2;
}
int main(void)
{
    return f(1) +
        f(2);
}
"""


@pytest.mark.parametrize("name", ["places.c", "places.cpp"])
@pytest.mark.parametrize(
    ("spec", "places"),
    [
        ({"event": "entry", "function": "f"}, 1), ({"event": "loop", "function": "f"}, 2),
        ({"event": "branch", "function": "f"}, 2), ({"event": "call", "callee": "f"}, 2),
        ({"event": "write", "variable": "count"}, 3),
    ],
)  # fmt: skip
def test_each_place_can_be_counted_alone(name: str, spec: dict[str, Any], places: int) -> None:
    sources = {Path(name): TEXT.replace("(void)", "()") if is_cplusplus(name) else TEXT}
    found = generate(sources, [], {"m": MetricSpec.model_validate(spec)}).places["m"]
    assert len(found) == places
    for place, number in found.items():
        file, _, line = place.rpartition(":")
        alone = {"m": MetricSpec.model_validate(spec | {"file": file, "line": int(line)})}
        assert generate(sources, [], alone).places["m"] == {place: number}
