"""The figures of a report; each takes plain data and returns a matplotlib figure.

Figures 3 to 8 of Mytkowicz et al., "Understanding Measurement Perturbation in Trace-based Data", for one campaign,
and one figure more: the size of each change against the largest change that counts as none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from measure.perturbation.analysis_types import Pair, Perturbation
from measure.perturbation.wording import over_all
from measure.report.model import ReportData, VariantReport
from measure.report.style import (
    INK,
    LINES,
    MARKERS,
    MUTED,
    RULE,
    VERDICT_MARKERS,
    VERDICTS,
    new_figure,
    short,
)

MOST_PAIRS_SHOWN = 6
MOST_METRICS_SHOWN = 8
_MOST_TICKS = 4


def mean_rho(rho: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean correlation matrix of ``rho`` (runs, m, m), averaged as z; nan where any run is undefined."""
    z = np.arctanh(np.clip(rho, -0.9999, 0.9999))
    return np.tanh(z.mean(axis=0))


def shown_changes(perturbation: Perturbation, most: int = 28) -> list[Pair]:
    """The ``most`` worst pairs whose change is defined."""
    return [pair for pair in perturbation.pairs if np.isfinite(pair.delta_z)][:most]


def changes(perturbation: Perturbation, most: int = 28) -> Any:
    """The change of z of the ``most`` worst pairs with its interval; the zone that counts as no change is shaded."""
    pairs = shown_changes(perturbation, most)
    figure, axes = new_figure(7.4, 1.1 + 0.24 * max(len(pairs), 1))
    axes.axvspan(-perturbation.delta, perturbation.delta, color="#e8f1ec", zorder=0)
    axes.axvline(0, color=MUTED, linewidth=0.8)
    limit = 1.3 * max([perturbation.delta, *(abs(pair.delta_z) for pair in pairs)])  # intervals may be infinite
    limit = max([limit, *(abs(end) for pair in pairs for end in pair.ci if np.isfinite(end))])
    for row, pair in enumerate(pairs):
        colour = VERDICTS[pair.verdict]
        low, high = np.clip(pair.simultaneous, -limit, limit)
        axes.plot([low, high], [row, row], color=colour, linewidth=0.8, alpha=0.7, solid_capstyle="butt")
        axes.plot(pair.ci, [row, row], color=colour, linewidth=2.2, solid_capstyle="butt")
        axes.plot(pair.delta_z, row, VERDICT_MARKERS[pair.verdict], color=colour, markersize=5)
    axes.set_yticks(range(len(pairs)), [_pair_label(pair) for pair in pairs], fontsize=8)
    axes.set_ylim(len(pairs) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    level = round(100 * (1 - 2 * perturbation.alpha))
    axes.set_xlabel(
        f"change of z = atanh(rho), instrumented minus baseline\nthick: its {level}% interval, "
        f"thin: {100 * (1 - perturbation.level):.3g}% {over_all(perturbation)}"
    )
    for verdict in dict.fromkeys(pair.verdict for pair in pairs):
        axes.plot([], [], VERDICT_MARKERS[verdict], color=VERDICTS[verdict], markersize=5, label=verdict)
    if pairs:
        axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3)
    axes.set_title(f"Shaded: up to {perturbation.delta:g} counts as none", color=MUTED, fontsize=8.5,
                   fontweight="normal")  # fmt: skip
    return figure


def _pair_label(pair: Pair) -> str:
    return short(pair.a) if pair.a == pair.b else f"{short(pair.a)} – {short(pair.b)}"


def heat_maps(data: ReportData, variant: VariantReport) -> Any:
    """Correlations of the baselines, of the variant's runs, and their difference."""
    before, after = mean_rho(data.baseline_rho), mean_rho(variant.rho)
    names = [short(name) for name in data.hardware_metrics]
    m = len(names)
    size = max(3.1, 0.42 * m)
    figure, axes = new_figure(3 * size + 1.2, size + 0.9, 1, 3)
    panels = (("Baseline", before, 1.0), (variant.name, after, 1.0), ("Difference", after - before, 0.5))
    for axis, (title, matrix, limit) in zip(axes, panels, strict=True):
        shown = np.ma.masked_invalid(np.where(np.tri(m, k=-1, dtype=bool), matrix, np.nan))
        image = axis.imshow(shown, cmap="RdBu_r", vmin=-limit, vmax=limit)
        for i in range(1, m):
            for j in range(i):
                value = matrix[i, j]
                text = "–" if np.isnan(value) else f"{value:.2f}".replace("0.", ".").replace("-.00", ".00")
                dark = abs(value) > 0.6 * limit
                axis.text(j, i, text, ha="center", va="center", fontsize=7, color="white" if dark else INK)
        axis.set_xticks(range(m - 1), names[:-1], rotation=60, ha="right", rotation_mode="anchor", fontsize=7.5)
        axis.set_yticks(range(1, m), names[1:], fontsize=7.5)
        axis.set_xlim(-0.5, m - 1.5)
        axis.set_ylim(m - 0.5, 0.5)
        axis.grid(False)
        axis.set_title(title)
        if axis is not axes[0]:
            figure.colorbar(image, ax=axis, shrink=0.7, pad=0.02, ticks=[-limit, 0, limit])
    return figure


def _shown_pairs(data: ReportData) -> list[tuple[int, int]]:
    """The pairs that changed most in any variant, as indices into the hardware metrics."""
    chosen: list[tuple[int, int]] = []
    ranked = sorted(
        (pair for variant in data.variants for pair in variant.inner.pairs if np.isfinite(pair.delta_z)),
        key=lambda pair: -abs(pair.delta_z),
    )
    for pair in ranked:
        indices = (data.hardware_metrics.index(pair.a), data.hardware_metrics.index(pair.b))
        if indices not in chosen:
            chosen.append(indices)
    return chosen[:MOST_PAIRS_SHOWN]


def across_runs(data: ReportData) -> Any:
    """The paper's Figure 3, with the instrumented runs beside the baselines."""
    pairs = _shown_pairs(data)
    figure, axes = new_figure(10.5, 3.9)
    n_baseline = len(data.baseline_rho)
    for n, (i, j) in enumerate(pairs):
        colour, marker = LINES[n % len(LINES)], MARKERS[n % len(MARKERS)]
        label = f"{short(data.hardware_metrics[i])} – {short(data.hardware_metrics[j])}"
        axes.plot(range(n_baseline), data.baseline_rho[:, i, j], color=colour, marker=marker,
                  markersize=3.5, linewidth=1, label=label)  # fmt: skip
        start = n_baseline + 1
        for variant in data.variants:
            axes.plot(range(start, start + len(variant.rho)), variant.rho[:, i, j], color=colour, marker=marker,
                      markersize=3.5, linewidth=1)  # fmt: skip
            start += len(variant.rho) + 1
    start = n_baseline + 1
    top = axes.get_ylim()[1]
    axes.text((n_baseline - 1) / 2, top, "baselines", ha="center", va="bottom", color=MUTED, fontsize=8.5)
    for variant in data.variants:
        axes.axvline(start - 1, color=RULE, linewidth=1.2)
        middle = start + (len(variant.rho) - 1) / 2
        axes.text(middle, top, variant.name, ha="center", va="bottom", color=MUTED, fontsize=8.5)
        start += len(variant.rho) + 1
    ticks = _run_ticks([n_baseline, *(len(variant.rho) for variant in data.variants)])
    axes.set_xticks([place for place, _ in ticks], [str(number) for _, number in ticks])
    axes.set_xlabel("run of the baselines, and of each variant")
    axes.set_ylabel("Spearman's rho within a run")
    if pairs:  # where no correlation is defined there is none to name
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure


def _run_ticks(counts: Sequence[int]) -> list[tuple[int, int]]:
    """Places on the axis of `across_runs` and the numbers there: in each group of ``counts`` runs from 0, at most
    `_MOST_TICKS`, the first and the last run among them."""
    found, start = [], 0
    for count in counts:
        numbers = sorted({round(n * (count - 1) / (_MOST_TICKS - 1)) for n in range(_MOST_TICKS)}) if count else []
        found += [(start + number, number) for number in numbers]
        start += count + 1
    return found


def across_runs_data(data: ReportData) -> tuple[list[str], list[list[object]]]:
    """Columns and rows of `across_runs`: a row a run."""
    pairs = _shown_pairs(data)
    groups = [("baseline", data.baseline_rho), *((variant.name, variant.rho) for variant in data.variants)]
    rows = [[name, n, *(one[i, j] for i, j in pairs)] for name, rho in groups for n, one in enumerate(rho)]
    return ["variant", "run", *_pair_columns(data, pairs)], rows


def _pair_columns(data: ReportData, pairs: Sequence[tuple[int, int]]) -> list[str]:
    return [f"{data.hardware_metrics[i]} - {data.hardware_metrics[j]}" for i, j in pairs]


def inner_against_overhead(data: ReportData) -> Any:
    """The paper's Figures 4 and 6: correlation within a run against the overhead of its instrumentation."""
    pairs = _shown_pairs(data)
    figure, axes = new_figure(10.5, 3.9)
    ordered = _by_overhead(data.variants)
    x = [0.0, *(float(variant.instructions_percent.mean()) for variant in ordered)]
    for n, (i, j) in enumerate(pairs):
        groups = [data.baseline_rho[:, i, j], *(variant.rho[:, i, j] for variant in ordered)]
        means = [float(np.mean(group)) for group in groups]
        spread = [float(np.std(group)) for group in groups]
        label = f"{short(data.hardware_metrics[i])} – {short(data.hardware_metrics[j])}"
        axes.errorbar(x, means, yerr=spread, color=LINES[n % len(LINES)], marker=MARKERS[n % len(MARKERS)],
                      markersize=4.5, linewidth=1.2, capsize=2.5, label=label)  # fmt: skip
    _name_variants(axes, ordered)
    axes.set_xlabel("instrumentation overhead, % more instructions than the mean baseline")
    axes.set_ylabel("Spearman's rho within a run\n(mean ± sd over runs)")
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure


def inner_against_overhead_data(data: ReportData) -> tuple[list[str], list[list[object]]]:
    """Columns and rows of `inner_against_overhead`: a row the baselines and each variant, mean and sd of each pair."""
    pairs = _shown_pairs(data)
    names = [f"{name}, {what}" for name in _pair_columns(data, pairs) for what in ("mean", "sd")]
    rows: list[list[object]] = []
    groups = [("baseline", 0.0, data.baseline_rho)]
    groups += [(one.name, float(one.instructions_percent.mean()), one.rho) for one in _by_overhead(data.variants)]
    for name, overhead, rho in groups:
        numbers = [float(value) for i, j in pairs for value in (np.mean(rho[:, i, j]), np.std(rho[:, i, j]))]
        rows.append([name, overhead, *numbers])
    return ["variant", "overhead_percent", *names], rows


def _by_overhead(variants: Sequence[VariantReport]) -> list[VariantReport]:
    return sorted(variants, key=lambda variant: float(variant.instructions_percent.mean()))


def outer_against_overhead(data: ReportData) -> Any:
    """The paper's Figures 7 and 8: each metric with itself across aligned runs, against overhead.

    Of many metrics, those that changed most.
    """
    ordered = _aligned(data)
    figure, axes = new_figure(10.5, 3.9, 1, 2, sharey=True)
    x = [0.0, *(float(variant.instructions_percent.mean()) for variant in ordered)]
    kinds = (("outer_joint", "Aligned on all metrics (as in the paper)"),
             ("outer_held_out", "Aligned on the other metrics only"))  # fmt: skip
    metrics = _shown_metrics(data, ordered)
    for axis, (kind, title) in zip(axes, kinds, strict=True):
        for n, metric in enumerate(metrics):
            heights = _own_rho(ordered, kind, metric)
            if heights is None:
                continue
            axis.plot(x, heights, color=LINES[n % len(LINES)], marker=MARKERS[n % len(MARKERS)], markersize=4.5,
                      linewidth=1.2, label=short(metric))  # fmt: skip
        _name_variants(axis, ordered)
        axis.set_title(title, pad=16)
        axis.set_xlabel("overhead, % more instructions")
    axes[0].set_ylabel("Spearman's rho of a metric\nwith itself, baseline to run")
    axes[1].legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure


def outer_against_overhead_data(data: ReportData) -> tuple[list[str], list[list[object]]]:
    """Columns and rows of `outer_against_overhead`: a row each alignment and metric, rho of baselines and variants."""
    ordered = _aligned(data)
    rows: list[list[object]] = [
        [how, metric, *heights]
        for kind, how in (("outer_joint", "on all metrics"), ("outer_held_out", "on the other metrics"))
        for metric in _shown_metrics(data, ordered)
        if (heights := _own_rho(ordered, kind, metric)) is not None
    ]
    return ["aligned", "metric", "baseline", *(variant.name for variant in ordered)], rows


def _aligned(data: ReportData) -> list[VariantReport]:
    """The variants that were compared across runs, by overhead."""
    return _by_overhead([variant for variant in data.variants if variant.outer_held_out is not None])


def _shown_metrics(data: ReportData, variants: Sequence[VariantReport]) -> list[str]:
    """The metrics whose similarity across runs changed most, in the order of the report."""
    largest = dict.fromkeys(data.hardware_metrics, 0.0)
    for variant in variants:
        for pair in variant.outer_held_out.pairs if variant.outer_held_out else ():
            if np.isfinite(pair.delta_z):
                largest[pair.a] = max(largest[pair.a], abs(pair.delta_z))
    kept = sorted(largest, key=lambda metric: -largest[metric])[:MOST_METRICS_SHOWN]
    return [metric for metric in data.hardware_metrics if metric in kept]


def _own_rho(variants: Sequence[VariantReport], kind: str, metric: str) -> list[float] | None:
    """Correlation of a metric with itself among baselines, then in each variant; None where one has not got it."""
    found = []
    for variant in variants:
        perturbation: Perturbation | None = getattr(variant, kind)
        pairs = perturbation.pairs if perturbation is not None else ()
        pair = next((pair for pair in pairs if pair.a == metric), None)
        if pair is None:
            return None
        found.append(pair)
    return [found[0].baseline_rho, *(pair.run_rho for pair in found)] if found else None


def _name_variants(axes: Any, variants: Sequence[VariantReport]) -> None:
    top = axes.get_ylim()[1]
    for variant in variants:
        x = float(variant.instructions_percent.mean())
        axes.axvline(x, color=RULE, linewidth=1.2, zorder=0)
        axes.text(x, top, f" {variant.name}", ha="left", va="bottom", color=MUTED, fontsize=8)
