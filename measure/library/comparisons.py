"""Verdicts and pairs as DataFrames, for campaigns and for traces that the caller has already."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from common.suggestions import nearest
from measure.arguments import items_of, list_of, not_expected
from measure.errors import MeasureError
from measure.foreign.compare import Levels
from measure.foreign.compare import compare as compare_gathered
from measure.foreign.errors import TraceFileError
from measure.foreign.gather import DEFAULT_VARIANT, gather_traces
from measure.foreign.trace import ForeignTrace, name_and_unit
from measure.library.plots import Kind, Plots
from measure.perturbation.analysis_types import DEFAULT_DELTA, Perturbation
from measure.perturbation.run_order import Order
from measure.report.model import ReportData, VariantReport
from measure.report.pair_columns import OF_A_PAIR, pair_values

if TYPE_CHECKING:
    import pandas as pd

KINDS: tuple[Kind, ...] = ("inner", "outer_joint", "outer_held_out")
"""The comparisons: within runs, and across runs that are aligned on all metrics, or on all but the compared one."""


@dataclass(frozen=True, repr=False)
class Comparison:
    """Instrumented runs of one or more variants, compared with baselines.

    ``report``: everything that the HTML report shows, as plain data.

    ```python
    import measure

    result = measure.load("results/quickstart")      # a `Result` is a comparison, too
    changed = result.pairs("heavy").query("verdict == 'perturbed'")
    result.perturbation("heavy").p_value             # the statistics behind a verdict
    result.plot.correlations("heavy")                # matplotlib Axes
    ```
    """

    report: ReportData

    def __repr__(self) -> str:
        report = self.report
        found = [(one.name, one.verdict) for one in report.variants]
        found += [(one.name, one.verdict) for one in report.without_runs]
        verdicts = ", ".join(f"{name} {verdict}" for name, verdict in found)
        return f"<{type(self).__name__} {report.title!r}: {verdicts or 'no variants'}>"

    @property
    def variants(self) -> tuple[str, ...]:
        """The names of the variants that have runs, which were compared."""
        return tuple(variant.name for variant in self.report.variants)

    @property
    def findings(self) -> tuple[str, ...]:
        """Sentences, the gravest first, each with what to do next."""
        return self.report.all_findings

    @property
    def verdicts(self) -> pd.DataFrame:
        """One row for each variant and comparison; one for a variant without runs, as *not assessable*.

        Columns: ``variant``, ``comparison`` (inner, outer_joint, outer_held_out), ``verdict`` (perturbed, changed,
        inconclusive, equivalent, not assessable), ``p`` (familywise over all pairs, in a paired campaign over those of
        all variants; nan where undefined), ``baselines``, ``runs``, ``exploratory``, ``more_runs`` (that would probably
        settle an inconclusive verdict, NA if unknown), and the mean overhead of the variant, ``instructions_percent``
        and ``cycles_percent`` (nan where unknown).
        """
        import pandas as pd

        rows = []
        for variant in self.report.variants:
            for kind in KINDS:
                found: Perturbation | None = getattr(variant, kind)
                if found is not None:
                    rows.append(
                        {
                            "variant": variant.name,
                            "comparison": kind,
                            "verdict": found.verdict,
                            "p": found.p_value,
                            "baselines": found.n_baseline,
                            "runs": found.n_runs,
                            "exploratory": found.exploratory,
                            "more_runs": found.extra_runs_needed,
                            "instructions_percent": float(np.mean(variant.instructions_percent)),
                            "cycles_percent": float(np.mean(variant.cycles_percent)),
                        }
                    )
        rows += [
            {
                "variant": variant.name,
                "comparison": KINDS[0],
                "verdict": variant.verdict,
                "p": np.nan,
                "baselines": len(self.report.baseline_rho),
                "runs": 0,
                "exploratory": True,
                "more_runs": None,
                "instructions_percent": np.nan,
                "cycles_percent": np.nan,
            }
            for variant in self.report.without_runs
        ]
        names = [
            "variant", "comparison", "verdict", "p", "baselines", "runs", "exploratory", "more_runs",
            "instructions_percent", "cycles_percent",
        ]  # fmt: skip
        table = pd.DataFrame(rows, columns=names)
        return table.astype({"more_runs": "Int64"})

    def pairs(self, variant: str, comparison: Kind = "inner") -> pd.DataFrame:
        """How the relation of each two metrics changed, the largest change first.

        ``variant``: name of a variant; ``comparison``: "inner", "outer_joint" or "outer_held_out".

        Columns: those of pairs.csv that differ from pair to pair, by the same names (pairs.parquet has a description
        of each):
        ``a``, ``b`` (the same metric twice across runs), ``baseline_rho``, ``run_rho``, ``delta_z`` with its interval
        ``ci_low`` to ``ci_high``, its interval over all pairs together, ``p`` (familywise), ``verdict``, ``note`` and
        more. ``attrs`` has ``delta`` and ``alpha``.

        Raises `MeasureError` for a variant or comparison that does not exist.
        """
        import pandas as pd

        found = self.perturbation(variant, comparison)
        table = pd.DataFrame([pair_values(pair) for pair in found.pairs], columns=list(OF_A_PAIR))
        table.attrs = {"delta": found.delta, "alpha": found.alpha}
        return table

    def perturbation(self, variant: str, comparison: Kind = "inner") -> Perturbation:
        """One comparison of one variant, as the statistics have it.

        ``variant``: name of a variant; ``comparison``: "inner", "outer_joint" or "outer_held_out". Raises
        `MeasureError` as `pairs` does.
        """
        if comparison not in KINDS:
            raise MeasureError(f"comparison {comparison!r}: expected one of {', '.join(KINDS)}")
        found: Perturbation | None = getattr(self.variant(variant), comparison)
        if found is None:
            raise MeasureError(f"{variant}: {comparison} was not compared: the campaign has `outer: false`")
        return found

    def variant(self, name: str) -> VariantReport:
        """The report's data on the variant ``name``. Raises `MeasureError` when there is none of that name."""
        for variant in self.report.variants:
            if variant.name == name:
                return variant
        for without in self.report.without_runs:
            if without.name == name:
                raise MeasureError(f"{name} was not compared: {without.reason}")
        known = ", ".join(self.variants) or "none"
        raise MeasureError(f"no variant {name!r}: expected one of {known}{nearest(name, self.variants)}")

    @property
    def plot(self) -> Plots:
        """Pictures of the comparison; every method returns matplotlib Axes."""
        return Plots(self)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{escape(variant.name)}</td><td><b>{variant.verdict}</b></td>"
            f"<td>{escape(variant.in_words(variant.inner))}</td></tr>"
            for variant in self.report.variants
        )
        rows += "".join(
            f"<tr><td>{escape(one.name)}</td><td><b>{one.verdict}</b></td><td>{escape(one.reason)}</td></tr>"
            for one in self.report.without_runs
        )
        findings = "".join(f"<li>{escape(text)}</li>" for text in self.findings)
        return (
            f"<h3>{escape(self.report.title)}</h3><p>{escape(self.report.subtitle)}</p>"
            f"<table><tr><th>variant</th><th>verdict</th><th>within a run</th></tr>{rows}</table><ul>{findings}</ul>"
        )


def perturb(
    baseline: Sequence[Any],
    runs: Sequence[Any] | Mapping[str, Sequence[Any]],
    *,
    metrics: Sequence[str] = (),
    delta: float = DEFAULT_DELTA,
    alpha: float = 0.05,
    seed: int = 1,
    align: bool = True,
    order: Order = "unknown",
    title: str = "comparison",
) -> Comparison:
    """Judge perturbation from traces that exist already, as `measure perturb` does; nothing is run.

    ``baseline``: a DataFrame for each run without instrumentation, one row a record, one column a metric (``name`` or
    ``name [unit]``; the index, and columns such as ``time`` or ``begin_cycles``, are no metrics); at least 2, better
    20. ``runs``: the same for instrumented runs, or a mapping of variant to such a list. ``metrics``: compare these
    only. ``delta``: a change of z up to this counts as none. ``alpha``: level of the tests, over all pairs together.
    ``seed``: of random permutations. ``align``: compare across aligned runs, too, which takes time by the square of
    their records. ``order``: in which runs were made,
    each list being in the order of its runs: "interleaved", "blocks" (all baselines first) or "unknown"; where runs
    drift and did not alternate, verdicts are weakened. ``title``: of the report.

    Frames with the same numbers, in all metrics or in several, fewer records than others, running totals, negative
    values and whole numbers that doubles round are findings. A pair that does not vary between baselines gets no
    p-value. Raises
    `MeasureError` for frames that cannot be compared: fewer than two common metrics, fewer than 20 records, columns
    that hold no numbers, times that go back or cannot be read (numbers, moments, lengths of time, or text of these),
    and frames that take more than two hours to align.

    ```python
    import numpy as np
    import pandas as pd
    import measure

    random = np.random.default_rng(1)
    columns = ["loads", "misses [lines]"]
    frames = [pd.DataFrame(random.poisson(1000, (100, 2)), columns=columns) for _ in range(24)]
    found = measure.perturb(baseline=frames[:20], runs={"counted": frames[20:]})
    print(found.verdicts[["variant", "comparison", "verdict"]])
    ```
    """
    groups = dict(runs) if isinstance(runs, Mapping) else {DEFAULT_VARIANT: runs}
    before = _traces(baseline, "baseline", "baseline")
    after = {
        str(name): _traces(frames, f"runs[{name!r}]" if isinstance(runs, Mapping) else "runs", str(name))
        for name, frames in groups.items()
    }
    gathered = gather_traces(before, after, metrics=list_of("metrics", metrics, "names of metrics", object))
    return Comparison(compare_gathered(gathered, Levels(delta, alpha, seed, align, order), title))


def _traces(frames: Any, argument: str, group: str) -> list[ForeignTrace]:
    """The data frames of the ``group`` of runs as traces. Raises `ArgumentError`, naming the ``argument``."""
    expected = (
        "a list of traces, a pandas DataFrame for each run; two campaigns are compared by "
        "measure.compare(before, after)"
    )
    return [_trace(frame, f"{group}[{n}]") for n, frame in enumerate(items_of(argument, frames, expected))]


def check_frame(name: str, frame: Any) -> None:
    """Raise `ArgumentError` for an argument ``name`` that is no pandas DataFrame."""
    import pandas as pd

    if not isinstance(frame, pd.DataFrame):
        raise not_expected(name, frame, "a pandas DataFrame, such as a Result's trace(...) gives")


def holds_numbers(column: Any) -> bool:
    """Whether a column or an index of a DataFrame holds real numbers, or truth values."""
    import pandas as pd

    return bool(pd.api.types.is_numeric_dtype(column)) and column.dtype.kind != "c"


def check_numbers(where: str, column: Any) -> None:
    """Raise `TraceFileError` for a column of a DataFrame, at ``where``, that holds no real numbers."""
    if not holds_numbers(column):
        raise TraceFileError(f"{where}: got values of type {column.dtype}, expected real numbers")


def _trace(frame: Any, name: str) -> ForeignTrace:
    """A DataFrame as a trace. Raises `ArgumentError` for anything else, and `TraceFileError`."""
    from measure.foreign.table import check_magnitude, row_of, table_trace
    from measure.foreign.times import is_boundary

    check_frame(name, frame)
    headings = [str(column) for column in frame.columns]
    chosen = [n for n, heading in enumerate(headings) if not is_boundary(heading)]
    warnings: list[str] = []
    times: dict[str, NDArray[Any]] = {}
    bounds = [(heading, frame.iloc[:, n]) for n, heading in enumerate(headings) if n not in chosen]
    for level in (frame.index.get_level_values(n) for n in range(frame.index.nlevels)):
        column = level.to_series()
        if is_boundary(str(level.name)) or _is_time(column) or (level.name is None and holds_numbers(frame.index)):
            bounds.append(("index" if level.name is None else str(level.name), column))
    for heading, column in bounds:
        found, told = _times(heading, column, row_of(f"{name}: column {heading!r}"))
        warnings += told
        if found is not None:
            times[heading] = found
    named = [name_and_unit(headings[n]) for n in chosen]
    twice = sorted({metric for metric, _ in named if [m for m, _ in named].count(metric) > 1})
    if twice:
        raise TraceFileError(f"{name}: {', '.join(twice)} named more than once: expected one column a metric")
    columns = []
    for n in chosen:
        column = frame.iloc[:, n]
        check_numbers(f"{name}: column {headings[n]!r}", column)
        columns.append(column.to_numpy(dtype=np.float64, na_value=np.nan))
        check_magnitude(columns[-1], row_of(f"{name}: column {headings[n]!r}"))
    values = np.column_stack(columns) if columns else np.zeros((len(frame), 0))
    return table_trace(Path(name), "DataFrame", named, values, times, warnings)


def _is_time(column: Any) -> bool:
    """Whether a column of a frame holds moments, periods or lengths of time, by its type."""
    import pandas as pd

    return column.dtype.kind in "mM" or isinstance(column.dtype, pd.PeriodDtype)


def _times(heading: str, column: Any, where: Callable[[int], str]) -> tuple[NDArray[Any] | None, tuple[str, ...]]:
    """A column of numbers, times or text as `read_times` gives those of text. Raises `TraceFileError`."""
    import pandas as pd

    from measure.foreign.times import read_times, time_warnings

    if holds_numbers(column):
        times: NDArray[Any] = column.to_numpy(dtype=np.float64, na_value=np.nan)
    elif _is_time(column):
        if isinstance(column.dtype, pd.PeriodDtype):
            column = column.dt.to_timestamp()
        times = column.to_numpy(dtype=f"{'timedelta64' if column.dtype.kind == 'm' else 'datetime64'}[ns]")
    else:
        cells = ["" if unknown else str(value).strip() for value, unknown in zip(column, column.isna(), strict=True)]
        return read_times(heading, cells, where, "read the file with `pandas.read_csv(..., decimal=',')`")
    return times, time_warnings(heading, times, where)
