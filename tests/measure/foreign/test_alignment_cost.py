"""Traces that take hours to align are refused before the work begins."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from measure.foreign.alignment_cost import MOST_HOURS, alignment_hours
from measure.foreign.compare import Levels, compare
from measure.foreign.errors import TraceFileError
from measure.foreign.gather import Gathered, gather_traces
from measure.library.comparisons import _traces


def gathered(records: int, baselines: int = 3, **runs: int) -> Gathered:
    tables = [np.broadcast_to(np.arange(3.0), (records, 3))] * 60
    variants = {name: tuple(tables[:number]) for name, number in (runs or {"v": 1}).items()}
    return Gathered(("a", "b", "c"), tuple(tables[:baselines]), variants, (), {}, ())


def test_the_estimate_is_that_of_all_alignments() -> None:
    cells = 20_000 * (1 + 0.1 * 20_000)
    of_baselines, assay = 3 * 4, 2 * 3 * 3
    assert alignment_hours(gathered(20_000)) == pytest.approx((of_baselines + 3 * 4 + assay) * cells / 3.6e11)
    both = of_baselines + 2 * 3 * 4 + assay
    assert alignment_hours(gathered(20_000, v=1, w=1)) == pytest.approx(both * cells / 3.6e11)
    assert alignment_hours(gathered(2_000, baselines=50, v=10)) < 0.1
    assert alignment_hours(gathered(40_000)) == pytest.approx(4 * alignment_hours(gathered(20_000)), rel=1e-3)


def test_traces_that_take_hours_are_refused_with_what_to_do() -> None:
    """A million records did not end within hours, and nothing said so before."""
    with pytest.raises(TraceFileError) as caught:
        compare(gathered(1_000_000), Levels(), "")
    assert str(caught.value) == (
        "0 traces of up to 1,000,000 records: to align them all takes about 12 hours, expected at most 2. Give coarser "
        "records, such as the sums of 3 neighbouring ones (`frame.groupby(numpy.arange(len(frame)) // 3).sum()` "
        "without its columns of times), or an interval of that length; or compare within runs only: "
        "`align=False`, `--no-align`"
    )
    assert alignment_hours(gathered(1_000_000 // 3)) < MOST_HOURS


def test_progress_has_the_alignments_that_are_done() -> None:
    random = np.random.default_rng(1)
    frames = [pd.DataFrame(random.poisson(99, (30, 2)), columns=["a", "b"]) for _ in range(4)]
    before, after = _traces(frames[:3], "b", "b"), {"v": _traces(frames[3:], "v", "v")}
    told: list[str] = []
    compare(gather_traces(before, after), Levels(), "", told.append)
    assert told[-1] == "v: across runs, aligned on the other metrics: 12 of 12 alignments"
