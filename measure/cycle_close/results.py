"""Writes the files of a cycle-close trace, trace.parquet and trace.png, from the columns of `rates.columns_of`."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from common.startup import starting
from emulator.timing.machine_events import N_EVENTS, Event
from measure.campaign.store import write_atomically
from measure.cycle_close.rates import ENERGY, RATES, Columns, columns_of
from measure.cycle_close.tracer import Category, Interval

_EMPTY = Interval(0, 0, 1, 0, Category.SIMULATED, 0, 0.0, np.ones(N_EVENTS))


def prepare(n_metrics: int) -> None:
    """Load and use once everything that `write_table` and `write_picture` need, since the first use takes longer, and
    make the figure of a trace with ``n_metrics`` ahead."""
    columns = columns_of([_EMPTY, _EMPTY])
    with tempfile.TemporaryDirectory() as directory:
        write_table(Path(directory), columns, None)
    from measure.cycle_close.trace_figure import prepare_figure

    prepare_figure(n_metrics)


def write_table(directory: Path, estimated: Columns, actual: Columns | None) -> None:
    """Write trace.parquet: the trace, and the ``actual`` rates and cycles of a full simulation if there was one.

    Raises `StoreError` when it cannot be written.
    """
    import pandas as pd

    columns = dict(estimated)
    if actual is not None:
        columns |= {f"actual_{name}": actual[name] for name in (*RATES, ENERGY) if name in actual}
        columns["actual_cycles"] = actual[Event.CYCLES.name.lower()]
    table = pd.DataFrame(columns)
    write_atomically(directory / "trace.parquet", lambda path: table.to_parquet(path))


def write_picture(directory: Path, title: str, estimated: Columns, actual: Columns | None) -> None:
    """Write trace.png. Raises `StoreError` when it cannot be written."""
    with starting(freeze=False):  # loads half a second of modules
        import pandas as pd

        from measure.cycle_close.trace_figure import save_figure, trace_figure

        actual_table = pd.DataFrame(actual) if actual is not None else None
        figure = trace_figure(pd.DataFrame(estimated), actual_table, title)
        write_atomically(directory / "trace.png", lambda path: save_figure(figure, path))
