"""Aligning two traces, and merging the runs of a campaign into one trace with every metric."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import numpy as np

from measure.alignment.dtw import Alignment, Method
from measure.alignment.dtw import align as align_channels
from measure.alignment.setting import DEFAULT_ALIGNMENT
from measure.arguments import check_number, check_word, items_of, list_of
from measure.errors import MeasureError
from measure.foreign.times import is_boundary
from measure.library.campaigns import Result, directory_of
from measure.library.comparisons import check_frame, check_numbers, holds_numbers
from measure.merging.aligned_run import AlignBy
from measure.merging.command import load_all
from measure.merging.merge_runs import Scale, merge_runs

if TYPE_CHECKING:
    import pandas as pd


def align(
    a: pd.DataFrame,
    b: pd.DataFrame,
    *,
    metrics: Sequence[str] = (),
    method: Method = "auto",
    band: float | None = None,
    step_penalty: float = DEFAULT_ALIGNMENT.step_penalty,
) -> Alignment:
    """How the records of ``b`` correspond to those of ``a``, by dynamic time warping.

    ``a``, ``b``: one row a record, one column a metric, such as `Result.trace` gives. ``metrics``: the columns to align
    on, by default all numeric ones that both have and that are not times; ``method``, ``band``: as
    `measure.alignment.dtw.align` has them; ``step_penalty``: cost of a step that advances one trace only, in variances
    of a channel (the default is that of `merge`).

    `Alignment.path` has the pairs of record numbers. Raises `MeasureError` for frames without a common metric, with a
    metric in two columns, and for chosen columns that hold no numbers; and `ValueError` for values that are not finite.

    ```python
    import measure

    result = measure.load("results/quickstart")
    found = measure.align(result.trace("baseline", 0), result.trace("heavy", 0))
    print(found.stretched_fraction, found.path[:3])
    ```
    """
    check_frame("a", a)
    check_frame("b", b)
    given = list(list_of("metrics", metrics, "names of metrics", object))
    names = given or [name for name in a.columns if name in b.columns and not is_boundary(str(name))]
    missing = [str(name) for name in names if name not in a.columns or name not in b.columns]
    if missing:
        raise MeasureError(f"{', '.join(missing)}: not in both frames, expected metrics that both have")
    for argument, frame in (("a", a), ("b", b)):
        twice = [str(name) for name in dict.fromkeys(names) if list(frame.columns).count(name) > 1]
        if twice:
            raise MeasureError(f"{argument}: {', '.join(twice)} named more than once: expected one column a metric")
        for name in given:
            check_numbers(f"{argument}: column {str(name)!r}", frame[name])
    chosen = given or [name for name in names if holds_numbers(a[name]) and holds_numbers(b[name])]
    if not chosen:
        raise MeasureError("the frames have no metric in common, expected at least one numeric column")
    check_word("method", method, get_args(Method))
    check_number("step_penalty", step_penalty, least=0, what="variances of a channel")
    if band is not None:
        check_number("band", band, above=0, most=1, what="a fraction of the longer trace")
    penalty = step_penalty * len(chosen)
    first, second = (frame[chosen].to_numpy(np.float64, na_value=np.nan) for frame in (a, b))
    return align_channels(first, second, method=method, band=band, step_penalty=penalty)


def merge(
    results: Result | Path | str | Sequence[Result | Path | str],
    *,
    baseline: int | None = None,
    align_by: AlignBy = "dtw",
    channels: Sequence[str] | None = None,
    scale: Scale = "zscore",
    step_penalty: float | None = None,
    band: float | None = None,
) -> pd.DataFrame:
    """One trace with every metric of a campaign's runs, on the records of one baseline; counts are conserved.

    ``results``: of `run`, or a directory of results, or several of them; ``baseline``: number of the baseline whose
    records are used, the first by default; ``align_by``: "dtw" on ``channels``, or "progress", the program's own
    instructions, which only a campaign with ground truth counts: others estimate them, and a warning says so;
    ``channels``: by default all common hardware metrics; ``scale``: "zscore" for events as they are, "rank" for their
    ranks, which single spikes do not dominate; ``step_penalty``, ``band``: of the alignment, by default the campaign's,
    for which its verdicts across runs hold.

    Of several directories, variants of all but the first begin with their directory: the shortest end of its path that
    no other one has. The frame's ``attrs`` have each metric's run, total and quality of alignment, and ``warnings``,
    which begin with what may make the whole trace wrong. Raises `MeasureError` for runs that do not belong together:
    of different programs, of two versions of one, of other machines or inputs; and `CampaignError` for a directory
    that is given twice.

    ```python
    import measure

    merged = measure.merge("results/quickstart")
    print(merged.columns, merged.attrs["warnings"])
    ```
    """
    if isinstance(results, Result | str | PathLike):
        directories = [directory_of("results", results)]
    else:
        several = items_of("results", results, "a directory of results, a Result, or a list of these")
        directories = [directory_of(f"results[{n}]", one) for n, one in enumerate(several)]
    if channels is not None:
        channels = list_of("channels", channels, "names of metrics")
    loaded = load_all(directories)
    merged = merge_runs(
        loaded.baseline(baseline), loaded.runs, align=align_by, channels=channels, scale=scale,
        alignment=loaded.aligned_with(step_penalty, band), curve=loaded.curve, verdicts=loaded.verdicts,
        notes=loaded.notes,
    )  # fmt: skip
    return merged.table()
