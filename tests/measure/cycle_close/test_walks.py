"""One loop over data that changes: conflicts in caches and TLBs, pages, and a few lines more than a cache holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.cycle_close.walks import WALKS, build, measure

MACHINES = Path(__file__).parents[3] / "configs" / "machines"


@pytest.fixture(scope="module")
def walks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("walks"))


@pytest.mark.parametrize("machine", ["desktop", "strongarm"])
@pytest.mark.parametrize("name", WALKS)
def test_waiting_tells_walks_of_the_same_code_apart(walks: Path, name: str, machine: str) -> None:
    larger = 5 if "rows" in name else 1  # so that an interval has several columns
    found = measure(walks, WALKS[name], MACHINES / f"{machine}.yaml", larger * 60_000, larger * 20_000)
    for way, (mean, whole, simulated) in found.items():
        assert mean < 4, way
        assert whole < 3, way
        assert simulated < 15, way
