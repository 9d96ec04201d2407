"""The figures and tables of a report's ground truth, from plain data like those of `measure.report.figures`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from measure.perturbation.analysis_types import Pair, gravest
from measure.perturbation.uninformative_metrics import caveat
from measure.report.model import GroundTruth, MetricSource, SoftwareTruth, VariantReport
from measure.report.style import INK, LINES, MARKERS, MUTED, RULE, VERDICTS, new_figure

ALGORITHMS = {
    "full": "exact warping",
    "band": "in a 5% band",
    "multiresolution": "coarse to fine",
    "penalty": "with a step penalty",
    "linear": "straight line",
    "none": "record by record",
}
KINDS = ("hardware – hardware", "software – hardware", "software – software")


def pairs_by_kind(one: SoftwareTruth) -> tuple[tuple[Pair, ...], ...]:
    """The pairs of a variant in the order of `KINDS`."""
    return one.hardware.pairs, one.of_kind(False), one.of_kind(True)


def largest_change(pairs: tuple[Pair, ...]) -> float:
    """The largest change of z among ``pairs``, without sign; nan where none is defined."""
    changes = [abs(pair.delta_z) for pair in pairs if np.isfinite(pair.delta_z)]
    return max(changes, default=float("nan"))


def software_changes(truth: GroundTruth) -> Any:
    """Every pair's change of z in each variant: hardware pairs, and pairs that involve software metrics."""
    variants = truth.software
    delta = variants[0].software.delta if variants else 0.2
    figure, axes = new_figure(7.4, 1.3 + 0.75 * max(len(variants), 1))
    axes.axvspan(-delta, delta, color="#e8f1ec", zorder=0)
    axes.axvline(0, color=MUTED, linewidth=0.8)
    rows = []
    for n, one in enumerate(variants):
        for k, pairs in enumerate(pairs_by_kind(one)):
            row = 4 * n + k
            rows.append((row, KINDS[k]))
            for pair in pairs:
                if np.isfinite(pair.delta_z):
                    axes.plot(
                        pair.delta_z,
                        row,
                        "|",
                        color=VERDICTS[pair.verdict],
                        markersize=9,
                        markeredgewidth=1.3,
                    )
        axes.text(-0.01, 4 * n - 0.85, one.variant, transform=axes.get_yaxis_transform(), ha="right", va="center",
                  fontsize=9, fontweight="bold", color=INK)  # fmt: skip
    axes.set_yticks([row for row, _ in rows], [name for _, name in rows], fontsize=8)
    axes.set_ylim(4 * len(variants) - 1.4, -1.4)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("change of z = atanh(rho), instrumented minus baseline")
    handles = [
        axes.plot([], [], "|", color=colour, markersize=9, markeredgewidth=1.6, label=verdict)[0]
        for verdict, colour in VERDICTS.items()
    ]
    axes.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=5)
    return figure


def software_changes_data(truth: GroundTruth) -> tuple[list[str], list[list[object]]]:
    """Columns and rows of `software_changes`: a row a pair."""
    rows: list[list[object]] = [
        [one.variant, kind, pair.a, pair.b, pair.delta_z, pair.verdict]
        for one in truth.software
        for kind, pairs in zip(KINDS, pairs_by_kind(one), strict=True)
        for pair in pairs
    ]
    return ["variant", "kind", "a", "b", "change_of_z", "verdict"], rows


def alignment_errors(truth: GroundTruth) -> Any:
    """Mean error of each algorithm, on all channels and on each alone, by group of runs."""
    groups = [group for group, _ in truth.alignment.estimate_error]
    figure, axes = new_figure(10.5, 3.4, 1, 1)
    algorithms = list(ALGORITHMS)
    for g, group in enumerate(groups):
        colour, marker = LINES[g % len(LINES)], MARKERS[g % len(MARKERS)]
        place = (g - (len(groups) - 1) / 2) * 0.8 / len(groups)
        for x, algorithm in enumerate(algorithms):
            single = [
                one.mean
                for one in truth.alignment.errors
                if one.variant == group and one.algorithm == algorithm and one.channels not in ("all", "")
            ]
            axes.plot([x + place] * len(single), single, "_", color=colour, markersize=7, alpha=0.7)
        means = [truth.alignment.error(group, algorithm) for algorithm in algorithms]
        axes.plot([x + place for x in range(len(algorithms))], means, marker, color=colour, markersize=5.5,
                  label=group)  # fmt: skip
    axes.axhline(truth.alignment.resolution_median, color=RULE, linewidth=1.4, zorder=0)
    axes.set_yscale("log")
    axes.set_xticks(range(len(algorithms)), list(ALGORITHMS.values()))
    axes.set_ylabel("mean error [records]")
    axes.grid(axis="x", visible=False)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure


def alignment_errors_data(truth: GroundTruth) -> tuple[list[str], list[list[object]]]:
    """Columns and rows of `alignment_errors`, errors in records."""
    rows: list[list[object]] = [
        [one.variant, one.algorithm, one.channels, one.runs, one.mean, one.median, one.p95, one.largest]
        for one in truth.alignment.errors
    ]
    return ["variant", "algorithm", "channels", "runs", "mean", "median", "p95", "largest"], rows


def software_rows(truth: GroundTruth, variants: Sequence[VariantReport] = ()) -> list[dict[str, Any]]:
    """A row per variant for the page: gravest verdict and largest change of each kind of pairs.

    ``variants``: as the report has them; their metric findings become the caveat of an *equivalent*.
    """
    findings = {variant.name: variant.metric_findings for variant in variants}
    rows = []
    for one in truth.software:
        cells = []
        for pairs in pairs_by_kind(one):
            perturbed = sum(pair.verdict == "perturbed" for pair in pairs)
            cells.append(
                (
                    gravest(pair.verdict for pair in pairs) if pairs else "-",
                    largest_change(pairs),
                    perturbed,
                    len(pairs),
                )
            )
        beside = caveat(findings.get(one.variant, ())) if "equivalent" in [cell[0] for cell in cells] else ""
        rows.append({"variant": one.variant, "cells": cells, "hidden": one.hidden, "caveat": beside})
    return rows


def source_error(source: MetricSource) -> str:
    """How far values derived from reference events are from counted ones, for the page."""
    if not np.isfinite(source.error_percent):
        return "unknown: nothing was counted"
    rho = f"{source.rho:.3f}" if np.isfinite(source.rho) else "undefined"
    return f"{source.error_percent:.2g}% off, rho {rho}"


def alignment_rows(truth: GroundTruth) -> list[tuple[str, list[float], float]]:
    """By group: mean errors in records of each of `ALGORITHMS` on all channels, and the mean error of the estimate."""
    return [
        (group, [truth.alignment.error(group, algorithm) for algorithm in ALGORITHMS], estimate)
        for group, estimate in truth.alignment.estimate_error
    ]
