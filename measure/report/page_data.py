"""The data of the campaign report's interactive part, as plain JSON types that stay small.

Arrays of numbers and long traces are packed as `measure.report.packing` does it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from measure.perturbation.analysis_types import VERDICTS, Pair, Perturbation
from measure.perturbation.similarity import NEAR_DUPLICATE, alignment_paths
from measure.perturbation.wording import p_number, pair_in_words
from measure.report.figures import mean_rho
from measure.report.model import ReportData, Signals, VariantReport
from measure.report.packing import FEWEST_BUCKETS, bucket_starts, packed, packed_series, packed_singles
from measure.report.pair_columns import (
    OF_A_PAIR,
    PAIR_COLUMNS,
    RELATION_NAMES,
    TEXT_COLUMNS,
    comparison_values,
    pair_values,
)
from measure.report.style import short

TRACE_VALUES = 120_000
"""Largest number of trace values in a page; longer traces are put into buckets."""
RUN_VALUES = 40_000
"""Largest number of correlations of single runs in a page; beyond it, the pairs that changed most have them."""
PATH_POINTS = 200
LONGEST_ALIGNED = 20_000
"""Traces of more records are shown without their alignment."""
WORDS = (*VERDICTS, "changed < delta")
RELATIONS = {
    "inner": "within a run",
    "outer_held_out": "across runs",
    "outer_joint": "across runs, aligned on all (makes no verdict)",
}


def page_data(data: ReportData) -> dict[str, Any]:
    """Everything that the page's script reads."""
    metrics = data.hardware_metrics
    examples = [data.baseline_example, *(variant.example for variant in data.variants)]
    shown = [name for one in examples for name in _shown(one, metrics)]
    kept = max(FEWEST_BUCKETS, TRACE_VALUES // max(len(shown), 1))
    chosen = _pairs_with_runs(data)
    return {
        "campaign": data.title,
        "pairColumns": list(PAIR_COLUMNS),
        "metrics": list(metrics),
        "shortNames": {name: short(name) for name in shown if short(name) != name},
        "interval": data.interval,
        "words": list(WORDS),
        "relations": RELATIONS,
        "baseline": _group(data.baseline_rho, data.baseline_example, metrics, kept, chosen),
        "runPairs": chosen,
        "variants": [
            _group(variant.rho, variant.example, metrics, kept, chosen)
            | {
                "name": variant.name,
                "verdict": variant.verdict,
                "comparisons": {kind: _comparison(getattr(variant, kind), kind, metrics) for kind in _kinds(variant)},
                "paths": _paths(data, variant),
            }
            for variant in data.variants
        ],
    }


def pair_rows(data: ReportData, most: int) -> list[dict[str, Any]]:
    """The ``most`` pairs that matter most for a table without a script: by verdict, then by size of the change."""
    rows = [
        {
            "variant": variant.name, "relation": RELATIONS[kind], "pair": pair, "name": pair_name(pair),
            "words": pair_in_words(pair, getattr(variant, kind).level), "p": p_number(pair.p_adjusted),
            "own_interval": interval_text(*pair.ci), "interval": interval_text(*pair.simultaneous),
        }
        for variant in data.variants
        for kind in _kinds(variant)
        if kind != "outer_joint"
        for pair in getattr(variant, kind).pairs
    ]  # fmt: skip
    return sorted(rows, key=lambda row: _rank(row["pair"]))[:most]


def interval_text(low: float, high: float) -> str:
    """An interval, one without a lower end by its upper one."""
    if not np.isfinite(high):
        return "unknown"
    return f"{low:+.3f} to {high:+.3f}" if np.isfinite(low) else f"at most {high:+.3f}"


def pair_name(pair: Pair) -> str:
    """The metrics of a pair, for a table."""
    return short(pair.a) if pair.a == pair.b else f"{short(pair.a)} – {short(pair.b)}"


def _rank(pair: Pair) -> tuple[int, float]:
    return VERDICTS.index(pair.verdict), -abs(pair.delta_z) if np.isfinite(pair.delta_z) else 1.0


def _kinds(variant: VariantReport) -> list[str]:
    return [kind for kind in RELATIONS if getattr(variant, kind) is not None]


def _group(
    rho: NDArray[np.float64], example: Signals, metrics: Sequence[str], kept: int, chosen: Sequence[tuple[int, int]]
) -> dict[str, Any]:
    """Correlations and example trace of the baselines or a variant."""
    below = np.tril_indices(len(metrics), -1)
    found = {"rho": packed(mean_rho(rho)[below]), "example": _trace(example, metrics, kept)}
    if chosen:
        places = np.array(chosen).T
        found["runs"] = packed(rho[:, places[0], places[1]].T.ravel()) | {"n": len(rho)}
    return found


def _shown(signals: Signals, hardware: Sequence[str]) -> list[str]:
    """The metrics of a trace that the page has: the hardware metrics, then others, without what probes counted and how
    uncertain the places of a second run's counts are."""
    hidden = ("probe:", "before:", "second_run:")
    others = (name for name in signals.metrics if name not in hardware and not name.startswith(hidden))
    return [*hardware, *others]


def _trace(signals: Signals, hardware: Sequence[str], kept: int) -> dict[str, Any]:
    """A trace: all its records, or least, mean and largest values of ``kept`` / 3 buckets if it has more records."""
    names = _shown(signals, hardware)
    n = len(signals.values)
    starts = bucket_starts(n, kept)
    series = {name: packed_series(signals.series(name), starts) for name in names}
    return {
        "records": n,
        "buckets": len(starts),
        "series": series,
        "software": names[len(hardware) :],
    }


def _pairs_with_runs(data: ReportData) -> list[tuple[int, int]]:
    """Pairs of metrics whose correlation in each run is in the page: those that changed most."""
    runs = len(data.baseline_rho) + sum(len(variant.rho) for variant in data.variants)
    index = {metric: n for n, metric in enumerate(data.hardware_metrics)}
    largest: dict[tuple[int, int], float] = {}
    for variant in data.variants:
        for pair in variant.inner.pairs:
            key = (index[pair.a], index[pair.b])
            change = abs(pair.delta_z) if np.isfinite(pair.delta_z) else 0.0
            largest[key] = max(largest.get(key, 0.0), change)
    return sorted(largest, key=lambda key: -largest[key])[: RUN_VALUES // max(runs, 1)]


def _comparison(perturbation: Perturbation, kind: str, metrics: Sequence[str]) -> dict[str, Any]:
    """A comparison's values and pairs, by the names of `PAIR_COLUMNS`; of pairs, a packed array a column.

    ``a``, ``b``, ``word`` and ``note`` are indices into metrics, `WORDS` and ``notes``.
    """
    index = {metric: n for n, metric in enumerate(metrics)}
    pairs = perturbation.pairs
    notes = list(dict.fromkeys(pair.note for pair in pairs))
    indices = {
        "a": [index[pair.a] for pair in pairs],
        "b": [index[pair.b] for pair in pairs],
        "word": [WORDS.index(pair_in_words(pair, perturbation.level)) for pair in pairs],
        "note": [notes.index(pair.note) for pair in pairs],
    }
    rows = [pair_values(pair) for pair in pairs]
    numbers = {name: np.array([row[name] for row in rows]) for name in OF_A_PAIR if name not in TEXT_COLUMNS}
    columns = {name: packed(np.array(values)) for name, values in indices.items()}
    columns |= {name: packed_singles(values) for name, values in numbers.items()}
    return comparison_values(perturbation) | {
        "relation": RELATION_NAMES[kind],
        "alpha": perturbation.alpha,
        "notes": notes,
        "columns": columns,
    }


def _paths(data: ReportData, variant: VariantReport) -> dict[str, Any]:
    """How the example runs of baseline and variant align: ``joint``, and ``heldOut`` by index of the metric left out.

    Each is the mean record of the variant at `PATH_POINTS` evenly spaced records of the baseline.
    """
    metrics = data.hardware_metrics
    tables = [
        np.column_stack([one.series(metric) for metric in metrics]) for one in (data.baseline_example, variant.example)
    ]
    if max(map(len, tables)) > LONGEST_ALIGNED:
        return {"heldOut": {}}
    close = np.abs(np.nan_to_num(data.baseline_rho).mean(axis=0)) > NEAR_DUPLICATE
    duplicates = tuple(tuple(j for j in np.flatnonzero(row).tolist() if j != i) for i, row in enumerate(close))
    points = np.unique(np.linspace(0, len(tables[0]) - 1, PATH_POINTS).astype(np.int64))

    def positions(path: NDArray[np.int64]) -> dict[str, Any]:
        counts = np.bincount(path[:, 0])
        mean = np.bincount(path[:, 0], weights=path[:, 1].astype(np.float64)) / counts
        return packed(mean[points])

    found: dict[str, Any] = {"heldOut": {}}
    joint = alignment_paths(tables[0], tables[1], metrics, held_out=False, duplicates=duplicates)
    if joint:
        found["joint"] = positions(joint[0])
    if variant.outer_held_out is not None and len(metrics) > 1:
        paths = alignment_paths(tables[0], tables[1], metrics, held_out=True, duplicates=duplicates)
        found["heldOut"] = {str(metric): positions(path) for metric, path in sorted(paths.items())}
    return found
