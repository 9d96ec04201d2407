"""One loop over data that changes: conflicts in caches and TLBs, pages, and a few lines more than a cache holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.cycle_close.walks import WALKS, build, measure

MACHINES = Path(__file__).parents[3] / "configs" / "machines"


@pytest.fixture(scope="module")
def walks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("walks"))


# By the machine whose sets and sizes they are made for; two fit both.
BOTH = ("30 pages, or 180", "504 lines, or 520")
FOR_STRONGARM = (*BOTH, "120 pages, or 140", "100 pages: spread, or in one set of a TLB")
FOR_DESKTOP = [name for name in WALKS if name not in FOR_STRONGARM or name in BOTH]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "machine"),
    [*((name, "desktop") for name in FOR_DESKTOP), *((name, "strongarm") for name in FOR_STRONGARM)],
)
def test_waiting_tells_walks_of_the_same_code_apart(walks: Path, name: str, machine: str) -> None:
    larger = 5 if "rows" in name else 1  # so that an interval has several columns
    found = measure(walks, WALKS[name], MACHINES / f"{machine}.yaml", larger * 60_000, larger * 20_000)
    for way, (mean, whole, simulated) in found.items():
        assert mean < 4, way
        assert whole < 3, way
        assert simulated < 15, way
