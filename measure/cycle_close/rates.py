"""Derives rates from events: CPI, energy, hit rates; and the deviation of estimated from actual rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from common.listed_names import listed
from emulator.timing.machine_events import Event
from measure.cycle_close.tracer import Interval

if TYPE_CHECKING:
    import pandas as pd

Columns = dict[str, NDArray]
FAR_OFF_PERCENT, LEAST_PER_INSTRUCTION = 5.0, 1e-5
"""Events are said to be far off from the first on; of those that happen less often, nothing is said."""
_MOST_FAR = 8

# name: (numerator, denominator, complement): the rate is numerator / denominator, or one minus it.
RATES: dict[str, tuple[Event, Event, bool]] = {
    "cpi": (Event.CYCLES, Event.INSTRUCTIONS, False),
    "l1d_hit_rate": (Event.L1D_MISSES, Event.L1D_ACCESSES, True),
    "l1i_hit_rate": (Event.L1I_MISSES, Event.L1I_ACCESSES, True),
    "l2_hit_rate": (Event.L2_MISSES, Event.L2_ACCESSES, True),
    "branch_hit_rate": (Event.BRANCHES_MISPREDICTED, Event.BRANCHES_CONDITIONAL, True),
}
ENERGY = "energy_nj_per_instruction"
FEW_ACCESSES = 1.0
"""Accesses per 1000 instructions below which an interval's hit rate says nothing: a hit of three accesses is a rate of
0.33 where the truth may be 0.001. With fewer hits than that, a rate near 0, its relative deviation says nothing either:
twice almost none is almost none."""


def columns_of(intervals: Sequence[Interval], energy_pj: NDArray[np.float64] | None = None) -> Columns:
    """One row per interval: bounds, phase, category, source, the rates of `RATES`, energy, and all events.

    ``energy_pj``: (N_EVENTS,) picojoules of one event of each kind. A rate without accesses is NaN.
    """
    events = np.array([interval.events for interval in intervals]).reshape(len(intervals), len(Event))
    columns: Columns = {
        "begin_instructions": np.array([interval.begin_instructions for interval in intervals], np.int64),
        "end_instructions": np.array([interval.end_instructions for interval in intervals], np.int64),
        "phase": np.array([interval.phase for interval in intervals], np.int64),
        "category": np.array([interval.category.name.lower() for interval in intervals], object),
        "source": np.array([interval.source for interval in intervals], np.int64),
        "distance": np.array([interval.distance for interval in intervals], np.float64),
    }
    with np.errstate(invalid="ignore", divide="ignore"):
        for name, (above, below, complement) in RATES.items():
            rate = np.where(events[:, below] > 0, events[:, above] / events[:, below], np.nan)
            columns[name] = 1 - rate if complement else rate
        if energy_pj is not None:
            columns[ENERGY] = events @ energy_pj / 1000 / events[:, Event.INSTRUCTIONS]
    columns.update({event.name.lower(): events[:, event] for event in Event})
    return columns


def table_of(intervals: Sequence[Interval], energy_pj: NDArray[np.float64] | None = None) -> pd.DataFrame:
    """`columns_of` as a table."""
    import pandas as pd

    return pd.DataFrame(columns_of(intervals, energy_pj))


def about_blank(blank: int, unsampled: str) -> str:
    """A sentence on ``blank`` intervals of a trace without an estimate; empty where there are none. ``unsampled``: the
    setting of the trace."""
    if not blank:
        return ""
    has, ended, it = ("1 interval has", "it", "it") if blank == 1 else (f"{blank:,} intervals have", "they", "them")
    why = (
        "--unsampled none estimates no interval whose phase had no sample"
        if unsampled == "none"
        else f"no interval had been simulated before {ended} ended"
    )
    return f"{has} no estimate, as {why}; figures of the whole run leave {it} out."


DEVIATIONS = ("deviation_percent", "simulated_percent", "matched_percent", "unsampled_percent", "whole_run_percent")
"""The columns of `deviations` that tables show in percent, in this order."""


def pointwise_deviation(actual: NDArray[np.float64], estimated: NDArray[np.float64]) -> float:
    """Average point-wise deviation: the mean of |actual - estimated| / actual, in percent (the paper, section 5).

    As printed the sum has N + 1 terms and no value at actual = 0. Here it has those of `_deviation_of_each`. NaN when
    there is none.
    """
    each = _deviation_of_each(actual, estimated)
    return float(100 * each.mean()) if len(each) else float("nan")


def _deviation_of_each(actual: NDArray[np.float64], estimated: NDArray[np.float64]) -> NDArray[np.float64]:
    """|actual - estimated| / actual of each interval.

    Where both are 0 it is 0, where only the actual value is 0 it is 1; intervals without an estimate or without an
    actual value (no accesses) are left out.
    """
    defined = ~(np.isnan(actual) | np.isnan(estimated))
    actual, estimated = actual[defined], estimated[defined]
    with np.errstate(invalid="ignore", divide="ignore"):
        apart = np.abs(actual - estimated) / np.abs(actual)
    apart[(actual == 0) & (estimated == 0)] = 0.0
    apart[(actual == 0) & (estimated != 0)] = 1.0
    return np.asarray(apart)


def whole_run_error(actual: pd.DataFrame, estimated: pd.DataFrame, name: str) -> float:
    """Error of the whole run's rate ``name`` from the estimates, in percent of the actual rate; NaN without one, and
    for a hit rate of fewer hits than `FEW_ACCESSES`."""

    def rate(table: pd.DataFrame) -> float:
        if name == ENERGY:
            weights = table["instructions"]
            total = float(weights.sum())
            return float((table[ENERGY] * weights).sum()) / total if total else float("nan")
        above, below, complement = RATES[name]
        total = float(table[below.name.lower()].sum())
        value = float(table[above.name.lower()].sum()) / total if total else float("nan")
        return 1 - value if complement else value

    kept = estimated["cpi"].notna()
    truth = rate(actual)
    if name in RATES and RATES[name][2]:
        accesses = float(actual[RATES[name][1].name.lower()].sum())
        if 1000 * truth * accesses < FEW_ACCESSES * float(actual["instructions"].sum()):
            return float("nan")
    return 100 * abs(rate(estimated[kept]) - truth) / truth if truth > 0 else float("nan")


def event_totals(actual: Columns, estimated: Columns) -> dict[str, tuple[float, float]]:
    """By the name of each event: its number in the full simulation, and its number by the estimates, in the intervals
    that have an estimate.

    The event with the largest relative error comes first; events that never happen are left out. Both tables must have
    the same intervals."""
    kept = ~np.isnan(estimated["cpi"])
    names = [event.name.lower() for event in Event]
    totals = {name: (float(actual[name][kept].sum()), float(estimated[name][kept].sum())) for name in names}
    found = {name: pair for name, pair in totals.items() if pair[0] > 0}
    return dict(sorted(found.items(), key=lambda item: -abs(item[1][1] / item[1][0] - 1)))


def events_off(totals: Mapping[str, tuple[float, float]]) -> str:
    """A sentence on the events of `event_totals` that are far off for the whole run."""
    least = LEAST_PER_INSTRUCTION * totals["instructions"][0]
    off = [(name, 100 * (total / full - 1)) for name, (full, total) in totals.items() if full >= least]
    far = [f"{name} {percent:+.0f}%" for name, percent in off if abs(percent) > FAR_OFF_PERCENT]
    rare = f"those that happen less often than once in {1 / LEAST_PER_INSTRUCTION:,.0f} instructions left out"
    if not far:
        return f"for the whole run all are less than {FAR_OFF_PERCENT:.0f}% off, {rare}."
    return f"for the whole run {listed(far, _MOST_FAR)}; others are less than {FAR_OFF_PERCENT:.0f}% off, {rare}."


def _accesses_per_1000_instructions(table: pd.DataFrame, name: str) -> NDArray[np.float64]:
    """Of each interval, (n,), for a rate of accesses; nan for others."""
    below = RATES[name][1] if name in RATES else Event.INSTRUCTIONS
    if below == Event.INSTRUCTIONS:
        return np.full(len(table), np.nan)
    return np.asarray(1000 * table[below.name.lower()] / table["instructions"], np.float64)


def deviations(actual: pd.DataFrame, estimated: pd.DataFrame) -> pd.DataFrame:
    """Per metric: average point-wise deviation over all intervals and by category, the largest of an interval and the
    one that 1% of them are beyond, and the whole run's error, all in percent; the mean absolute difference of an
    interval, in the metric's unit; and for rates of accesses, how
    many of them there are per 1000 instructions in the median interval, else NaN. Rates of accesses are compared in the
    intervals that have at least `FEW_ACCESSES`; their relative deviations are of the intervals with at least as many
    hits. Both tables must have the same intervals."""
    if not np.array_equal(actual["end_instructions"], estimated["end_instructions"]):
        raise ValueError("the traces have different intervals")
    import pandas as pd

    rows = []
    for name in (*RATES, ENERGY):
        if name not in actual or name not in estimated or actual[name].isna().all():
            continue
        truth, guess = actual[name].to_numpy(), estimated[name].to_numpy()
        accesses = _accesses_per_1000_instructions(actual, name)
        apart = np.abs(np.where(accesses < FEW_ACCESSES, np.nan, truth) - guess)
        truth = np.where(accesses * truth < FEW_ACCESSES, np.nan, truth)
        row: dict[str, object] = {"metric": name, "deviation_percent": pointwise_deviation(truth, guess)}
        for category in ("simulated", "matched", "unsampled"):
            mine = (estimated["category"] == category).to_numpy()
            row[f"{category}_percent"] = pointwise_deviation(truth[mine], guess[mine])
        row["whole_run_percent"] = whole_run_error(actual, estimated, name)
        each = 100 * _deviation_of_each(truth, guess)
        row["percentile_99_percent"] = float(np.quantile(each, 0.99)) if len(each) else float("nan")
        row["largest_percent"] = float(each.max()) if len(each) else float("nan")
        row["absolute"] = float(np.nanmean(apart)) if not np.isnan(apart).all() else float("nan")
        row["accesses_per_1000_instructions"] = float(np.median(accesses))
        rows.append(row)
    return pd.DataFrame(rows)
