"""Writes the files of a cycle-close trace, trace.parquet and trace.png, from the columns of `rates.columns_of`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from emulator.timing.machine_events import Event
from measure.cycle_close.rates import ENERGY, RATES, Columns
from measure.result_files import write_atomically

if TYPE_CHECKING:
    import pyarrow as pa


def with_actual(estimated: Columns, actual: Columns | None) -> Columns:
    """The columns of a trace, with the rates and cycles of a full simulation, if there was one, as ``actual_NAME``."""
    if actual is None:
        return dict(estimated)
    added = {f"actual_{name}": actual[name] for name in (*RATES, ENERGY) if name in actual}
    return estimated | added | {"actual_cycles": actual[Event.CYCLES.name.lower()]}


def write_table(directory: Path, estimated: Columns, actual: Columns | None) -> None:
    """Write trace.parquet: the columns of `with_actual`.

    Raises `StoreError` when it cannot be written.
    """
    import pyarrow as pa
    from pyarrow.parquet import write_table as write_parquet

    columns = with_actual(estimated, actual)
    table = pa.table({name: _arrow_array(values) for name, values in columns.items()})
    write_atomically(directory / "trace.parquet", lambda path: write_parquet(table, path))


def _arrow_array(values: NDArray[Any]) -> pa.Array:
    """A column, numbers of 64 bits or text, as Arrow has it. `pyarrow.array` would load pandas to look for its types,
    which takes longer than all else that is done to write a trace."""
    import pyarrow as pa

    if values.dtype != object:
        kind = {"f": pa.float64(), "i": pa.int64()}[values.dtype.kind]
        return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])
    texts = [str(value).encode() for value in values]
    ends = np.cumsum([0, *map(len, texts)], dtype=np.int32)
    return pa.Array.from_buffers(pa.utf8(), len(texts), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(texts))])


def write_picture(directory: Path, title: str, estimated: Columns, actual: Columns | None) -> None:
    """Write trace.png. Raises `StoreError` when it cannot be written."""
    import pandas as pd

    from measure.cycle_close.trace_figure import trace_figure

    actual_table = pd.DataFrame(actual) if actual is not None else None
    figure = trace_figure(pd.DataFrame(estimated), actual_table, title)
    write_atomically(directory / "trace.png", lambda path: figure.savefig(path, dpi=110, format="png"))
