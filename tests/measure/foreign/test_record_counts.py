"""Runs that are cut short are told, whether traces are aligned or not."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import measure
from measure.foreign.record_counts import RecordCounts, uneven_counts
from measure.run_types import BASELINE

ADVICE = (
    "Where a run was cut short, its relations are those of a part of the program: make such runs again to their end, "
    "or cut all runs at the same place of the program."
)


def told(baseline: list[int], runs: list[int]) -> tuple[str, ...]:
    groups = {BASELINE: baseline, "v": runs}
    return uneven_counts(
        {
            name: RecordCounts([f"{name}{n}" for n in range(len(counts))], np.array(counts))
            for name, counts in groups.items()
        }
    )


def test_runs_that_are_all_shorter_than_baselines_are_told() -> None:
    assert told([400] * 20, [330] * 10) == (f"Runs of v have 330 records where baselines have 400 (medians). {ADVICE}",)


def test_each_run_that_is_shorter_than_its_group_is_told() -> None:
    assert told([400, 402, 398, 401], [200, 400, 201, 400, 199, 399, 402, 400]) == (
        "3 of 8 traces of v have fewer records than the others' 399 to 402: v0 has 200, v2 has 201, v4 has 199. "
        f"{ADVICE}",
    )
    (found,) = told([400, 400, 400, 900], [400, 400])
    assert found.startswith(
        "1 of 4 traces of baseline has more records than the others' 400: baseline3 has 900. Unless"
    )


@pytest.mark.parametrize(
    ("baseline", "runs"),
    [
        ([400] * 20, [370] * 10),  # within a tenth
        ([300, 420, 380, 350, 500, 460], [330, 340, 490]),  # baselines vary by as much
        ([400, 200], [390, 210]),
    ],
)
def test_records_that_vary_are_fine(baseline: list[int], runs: list[int]) -> None:
    assert told(baseline, runs) == ()


def test_short_runs_are_a_finding_without_alignment() -> None:
    """Runs with an eighth of the records were *perturbed*, and nothing said so."""
    random = np.random.default_rng(1)
    runs = [pd.DataFrame(random.poisson(99, (n, 2)), columns=["a", "b"]) for n in (80, 80, 80, 25, 25)]
    found = measure.perturb(runs[:3], runs[3:], align=False).findings
    assert f"Runs of instrumented have 25 records where baselines have 80 (medians). {ADVICE}" in found
