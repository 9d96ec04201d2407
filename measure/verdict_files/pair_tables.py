"""The pairs of metrics of a report as one table: `pairs.csv` and `pairs.parquet`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from measure.report.model import ReportData, VariantReport
from measure.report.pair_columns import (
    PAIR_COLUMNS,
    RELATION_NAMES,
    TEXT_COLUMNS,
    WHOLE_COLUMNS,
    comparison_values,
    pair_values,
)
from measure.result_files import write_atomically


def pair_rows(data: ReportData) -> list[dict[str, Any]]:
    """A row for each variant, relation and pair, by `PAIR_COLUMNS`; undefined numbers are None."""
    return [row for variant in data.variants for row in _rows(data.title, variant)]


def write_pairs(data: ReportData, directory: Path) -> None:
    """Write ``directory``/pairs.csv and pairs.parquet. Raises `StoreError`."""
    import pyarrow as pa
    import pyarrow.csv as pa_csv
    import pyarrow.parquet as pq

    def kind(name: str) -> Any:
        text = pa.string() if name in TEXT_COLUMNS else pa.bool_() if name == "paired" else pa.float64()
        return pa.int64() if name in WHOLE_COLUMNS else text

    schema = pa.schema(
        [pa.field(name, kind(name), metadata={"description": about}) for name, about in PAIR_COLUMNS.items()]
    )
    table = pa.Table.from_pylist(pair_rows(data), schema=schema)
    write_atomically(directory / "pairs.parquet", lambda path: pq.write_table(table, path))
    write_atomically(directory / "pairs.csv", lambda path: pa_csv.write_csv(table, path))


def _rows(campaign: str, variant: VariantReport) -> Iterator[dict[str, Any]]:
    for kind in ("inner", "outer_held_out"):
        one = getattr(variant, kind)
        if one is not None:
            for pair in one.pairs:
                of = {"campaign": campaign, "variant": variant.name, "relation": RELATION_NAMES[kind]}
                values = {**of, **pair_values(pair), **comparison_values(one)}
                yield {name: _defined(values[name]) for name in PAIR_COLUMNS}


def _defined(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value
