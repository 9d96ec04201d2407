"""Progress of a run from the reference events of its program."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from measure.run_types import BASELINE, ProbePlaces, Run, RunSpec, Trace
from measure.runs.program_progress import PROGRESS, EventCurve, reference_events_at_boundaries
from measure.truth_checks.merge_truth import alignment_error, true_positions, truth_resolution

SPEC = RunSpec(
    variant=BASELINE, replicate=0, seed=1, build_key="", binary="", arguments=(), stdin=None, files=(), machine="",
    machine_name="", hardware_metrics=("A", "B"), counters=(), sampling_mode="ideal", interval=1000,
    interval_unit="cycles", probes=(ProbePlaces(PROGRESS, (4096,), ()),),
)  # fmt: skip


def run_of(events: NDArray[np.int64], instructions: NDArray[np.int64], variant: str = BASELINE) -> Run:
    """A run with these numbers of reference events at its boundaries."""
    n = len(events) - 1
    rng = np.random.default_rng(n)
    values = np.column_stack([rng.integers(0, 100, (n, 2)), np.diff(events), events[:-1]])
    spec = replace(SPEC, variant=variant)
    trace = Trace(np.arange(n + 1) * 1000, instructions, values, spec.metrics)
    return Run(spec, trace, int(instructions[-1]), 1000 * n, 0.0, "")


def test_positions_are_exact_where_reference_events_are_evenly_spaced() -> None:
    # 1 reference event every 10 instructions at first, then one every 50; looked at every 500 instructions.
    instructions = np.arange(0, 20001, 500)
    events = np.where(instructions <= 10000, instructions // 10, 1000 + (instructions - 10000) // 50)
    curve = EventCurve(events, instructions)
    where = np.array([250, 1300, 4444, 9990, 12345, 19000])
    counted = np.where(where <= 10000, where // 10, 1000 + (where - 10000) // 50)
    run = run_of(counted, where + 777)  # whatever the run itself executed
    assert np.abs(curve.boundaries(run) - where).max() < 50
    low, high = curve.bracket(counted)
    assert ((low <= where) & (where <= high)).all()
    assert (high - low).max() <= 1500


def test_where_no_anchor_happens_the_runs_own_pace_decides() -> None:
    # Nothing between instructions 2000 and 12000, else a reference event every 10; looked at every 200.
    instructions = np.arange(0, 14_001, 200)
    events = (
        np.where(instructions <= 2000, instructions, np.where(instructions <= 12_000, 2000, instructions - 10_000))
        // 10
    )
    curve = EventCurve(events, instructions)
    for swapped in (0, 1):  # one event that comes before the stretch in one build and after it in the other
        counted = np.array([100, 200 + swapped, 200 + swapped, 200 + swapped, 300])
        run = run_of(counted, np.array([1000, 2500, 6500, 10_500, 13_000]))
        assert curve.boundaries(run) == pytest.approx([1000, 2500, 6500, 10_500, 13_000], abs=1)
    low, high = curve.bracket(np.array([200]))
    assert (low[0], high[0]) == (1800, 12_200)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_progress_never_decreases_and_lies_where_it_certainly_is(seed: int) -> None:
    rng = np.random.default_rng(seed)
    looks = np.cumsum(rng.integers(1, 100, 60))
    at = np.sort(
        rng.integers(0, looks[-1], int(rng.integers(1, 400)))
    )  # instructions of the reference events, some stretches empty
    curve = EventCurve(np.searchsorted(at, np.append(0, looks), "right"), np.append(0, looks))
    boundaries = np.sort(rng.choice(looks[-1], 20, replace=False))
    run = run_of(np.searchsorted(at, boundaries, "right"), boundaries)
    found = curve.boundaries(run)
    assert (np.diff(found) >= 0).all()
    counted = reference_events_at_boundaries(run)
    assert counted is not None
    low, high = curve.bracket(counted)
    for values in (found, boundaries):
        assert (values >= low).all()
        assert (values <= high).all()


def test_the_truth_between_two_runs() -> None:
    instructions = np.arange(0, 100_001, 100)
    curve = EventCurve(instructions // 10, instructions)
    baseline = run_of(np.arange(0, 10_001, 500), np.arange(0, 100_001, 5000))
    slower = run_of(np.arange(0, 10_001, 400), np.arange(0, 125_001, 5000), "variant")
    truth = true_positions(baseline, slower, curve)
    assert truth.tolist() == pytest.approx([0.8 * (n + 0.5) - 0.5 for n in range(25)])
    table = alignment_error(baseline, [slower], channel_sets={"all": ("A", "B")}, curve=curve)
    assert set(table["truth"]) == {"reference events"}
    assert set(table["algorithm"]) == {"full", "band", "multiresolution", "penalty", "linear", "none"}
    linear = table[table["algorithm"] == "linear"].iloc[0]
    assert linear["mean_records"] < 0.15
    assert (truth_resolution(baseline, slower, curve) <= 0.1).all()
    without = replace(slower, spec=replace(slower.spec, probes=()), trace=replace(slower.trace, metrics=("A", "B")))
    assert set(alignment_error(baseline, [without], algorithms=["none"], curve=curve)["truth"]) == {"estimate"}


def test_probes_are_columns_behind_the_others() -> None:
    bare = replace(SPEC, probes=())
    assert bare.metrics == ("A", "B")
    assert SPEC.metrics == ("A", "B", "probe:progress", "before:progress")
    run = run_of(np.array([0, 3, 9]), np.array([0, 30, 90]))
    assert run.trace.values[:, 2:].tolist() == [[3, 0], [6, 3]]
    assert run.trace.without_probes().metrics == ("A", "B")
    assert (run.trace.without_probes().values == run.trace.values[:, :2]).all()
