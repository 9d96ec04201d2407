"""The pairs of metrics of a report as one table: `pairs.csv` and `pairs.parquet`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from measure.perturbation.analysis_types import Pair, Perturbation
from measure.report.model import ReportData, VariantReport
from measure.result_files import write_atomically

_OF_WHAT = {
    "campaign": "Name of the campaign",
    "variant": "Name of the variant",
    "relation": "inner: within a run; outer: of a metric with itself across aligned runs (held out)",
}
OF_A_PAIR = {
    "a": "First metric",
    "b": "Second metric; of an outer relation, the same",
    "baseline_rho": "Spearman's rho in baselines, from the mean z",
    "run_rho": "The same in instrumented runs",
    "baseline_z": "Mean of z = atanh(rho) over baselines",
    "baseline_z_sd": "Its standard deviation between baselines",
    "run_z": "Mean of z over instrumented runs",
    "run_z_sd": "Its standard deviation between runs",
    "delta_z": "run_z - baseline_z",
    "ci_low": "Lower end of its 1 - 2 alpha interval, on which `equivalent` rests",
    "ci_high": "Upper end",
    "simultaneous_low": "Lower end of the interval that holds for all pairs, on which `perturbed` rests; -inf: none",
    "simultaneous_high": "Upper end",
    "p": "Of no change, familywise over all pairs of the comparisons that were tested together",
    "q": "False discovery rate over these pairs (Benjamini-Hochberg)",
    "p_spread": "That runs scatter no more than baselines, familywise",
    "detectable_dz": "Change that is called perturbed with 80% probability (inner only)",
    "verdict": "perturbed, changed, inconclusive, equivalent or not assessable",
    "note": "Why values are undefined, or why the pair cannot be assessed",
}
"""Columns that say something of one pair, and their meaning."""
_OF_A_COMPARISON = {
    "delta": "Change of z that counts as none",
    "level": "Level of this test: the share of alpha of the comparisons that were tested together",
    "together": "Number of comparisons (variants, within and across runs) that were tested together with this one",
    "baselines": "Number of baselines",
    "runs": "Number of instrumented runs",
    "paired": "Whether baselines and runs were compared in pairs",
}
PAIR_COLUMNS: dict[str, str] = {**_OF_WHAT, **OF_A_PAIR, **_OF_A_COMPARISON}
"""Columns of the table and their meaning; undefined numbers are null in Parquet and empty in CSV."""
_TEXT = ("campaign", "variant", "relation", "a", "b", "verdict", "note")
_WHOLE = ("together", "baselines", "runs")


def pair_rows(data: ReportData) -> list[dict[str, Any]]:
    """A row for each variant, relation and pair, by `PAIR_COLUMNS`; undefined numbers are None."""
    return [row for variant in data.variants for row in _rows(data.title, variant)]


def write_pairs(data: ReportData, directory: Path) -> None:
    """Write ``directory``/pairs.csv and pairs.parquet. Raises `StoreError`."""
    import pyarrow as pa
    import pyarrow.csv as pa_csv
    import pyarrow.parquet as pq

    def kind(name: str) -> Any:
        text = pa.string() if name in _TEXT else pa.bool_() if name == "paired" else pa.float64()
        return pa.int64() if name in _WHOLE else text

    schema = pa.schema(
        [pa.field(name, kind(name), metadata={"description": about}) for name, about in PAIR_COLUMNS.items()]
    )
    table = pa.Table.from_pylist(pair_rows(data), schema=schema)
    write_atomically(directory / "pairs.parquet", lambda path: pq.write_table(table, path))
    write_atomically(directory / "pairs.csv", lambda path: pa_csv.write_csv(table, path))


def _rows(campaign: str, variant: VariantReport) -> Iterator[dict[str, Any]]:
    for one, relation in ((variant.inner, "inner"), (variant.outer_held_out, "outer")):
        if one is not None:
            for pair in one.pairs:
                of = {"campaign": campaign, "variant": variant.name, "relation": relation}
                values = {**of, **pair_values(pair), **_design(one)}
                yield {name: _defined(values[name]) for name in PAIR_COLUMNS}


def pair_values(pair: Pair) -> dict[str, Any]:
    """The values of `OF_A_PAIR` of ``pair``; undefined numbers are nan."""
    low, high = zip(pair.ci, pair.simultaneous, strict=True)
    return {
        "a": pair.a, "b": pair.b, "baseline_rho": pair.baseline_rho, "run_rho": pair.run_rho,
        "baseline_z": pair.baseline_z, "baseline_z_sd": pair.baseline_z_sd, "run_z": pair.run_z,
        "run_z_sd": pair.run_z_sd, "delta_z": pair.delta_z, "ci_low": low[0], "ci_high": high[0],
        "simultaneous_low": low[1], "simultaneous_high": high[1], "p": pair.p_adjusted, "q": pair.q_value,
        "p_spread": pair.p_spread, "detectable_dz": pair.detectable_dz, "verdict": pair.verdict, "note": pair.note,
    }  # fmt: skip


def _design(one: Perturbation) -> dict[str, Any]:
    return {
        "delta": one.delta, "level": one.level, "together": one.together,
        "baselines": one.n_baseline, "runs": one.n_runs, "paired": one.paired,
    }  # fmt: skip


def _defined(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value
