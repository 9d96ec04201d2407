"""The report as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from measure.perturbation.analysis_types import Perturbation
from measure.perturbation.uninformative_metrics import TIED
from measure.perturbation.wording import in_words, number_text, over_all, p_number, pair_in_words, percent, rho_text
from measure.report import figures
from measure.report import ground_truth_section as ground_truth
from measure.report.finding_groups import grouped
from measure.report.model import ReportData, VariantReport
from measure.report.next_steps import headline, next_steps
from measure.report.page import Figure, drawn, render_page, verdict_class
from measure.report.page_data import interval_text, page_data, pair_name, pair_rows
from measure.report.pair_columns import pair_values

if TYPE_CHECKING:
    from markupsafe import Markup

STATIC_ROWS = 200
"""Largest number of pairs in a table that is there without the script."""
_CHANGES = ("a", "b", "delta_z", "ci_low", "ci_high", "simultaneous_low", "simultaneous_high", "verdict")
"""Columns of the data of a figure of changes, named as in pairs.csv."""


def render(data: ReportData, results: str = "") -> str:
    """The page as text. ``results``: directory of the results, for commands to copy; empty if unknown."""
    steps = next_steps(data, results)
    told = {step.finding for step in steps}
    return render_page(
        "page.html.jinja", data=data, tied=f"{TIED:.0%}",
        steps=steps, headline=headline(data),
        findings=grouped([one for one in data.said if one not in told], data.variants),
        interactive=page_data(data), rows=pair_rows(data, STATIC_ROWS), all_pairs=_all_pairs(data),
        changes={variant.name: _changes(variant) for variant in data.variants},
        figures=_figures(data),
        percent=percent, in_words=in_words, spread=_spread, verdict_cell=_verdict_cell, pair_table=_pair_table,
        number=number_text, source_error=ground_truth.source_error, alignment_rows=ground_truth.alignment_rows,
        software_rows=partial(ground_truth.software_rows, variants=data.variants),
        truth_kinds=ground_truth.KINDS, truth_names=ground_truth.ALGORITHMS,
        truth_algorithms=list(ground_truth.ALGORITHMS.values()),
    )  # fmt: skip


def _all_pairs(data: ReportData) -> int:
    """Number of pairs that make verdicts."""
    compared = [one for variant in data.variants for one in (variant.inner, variant.outer_held_out) if one is not None]
    return sum(len(one.pairs) for one in compared)


def _changes(variant: VariantReport) -> Figure:
    shown = figures.shown_changes(variant.inner)
    caption = (
        "How the correlation of each pair of hardware metrics changed within a run. A pair is perturbed when its thin "
        "interval lies beyond the shaded zone, and equivalent when its thick interval lies inside it."
    )
    if len(shown) < len(variant.inner.pairs):
        caption += f" The {len(shown)} worst of {len(variant.inner.pairs)} pairs."
    return drawn(
        figures.changes(variant.inner, len(shown)),
        _CHANGES, [[pair_values(pair)[column] for column in _CHANGES] for pair in shown],
        name=f"changes-{variant.name}", text=f"Change of each pair with its interval in {variant.name}",
        caption=caption,
    )  # fmt: skip


def _figures(data: ReportData) -> dict[str, Figure]:
    """The figures over all runs, and those of the ground truth; those without data are missing."""
    known = all(np.isfinite(variant.instructions_percent).all() for variant in data.variants)
    found: dict[str, Figure] = {}
    if data.variants:
        found["across_runs"] = drawn(
            figures.across_runs(data), *figures.across_runs_data(data), name="runs", text="Correlation in each run",
            caption="The pairs that changed most: their correlation in every baseline run, and in the instrumented "
            "runs beside them. Look for a step at a variant's line that is larger than the scatter before it.",
        )  # fmt: skip
    if known and data.variants:
        found["inner"] = drawn(
            figures.inner_against_overhead(data), *figures.inner_against_overhead_data(data), name="overhead-within",
            text="Correlation within a run against overhead",
            caption="Correlation within a run against overhead. A flat line is a relation that the counters leave "
            "alone. More overhead need not mean more perturbation.",
        )  # fmt: skip
    if known and any(variant.outer_held_out is not None for variant in data.variants):
        found["outer"] = drawn(
            figures.outer_against_overhead(data), *figures.outer_against_overhead_data(data), name="overhead-across",
            text="Outer correlation against overhead",
            caption="Each metric with itself, baseline against aligned run; at 0% overhead, baseline against baseline. "
            "A line that falls is a metric whose course over time changed. Alignment on the tested metric itself "
            "inflates the correlation: the right panel leaves it out of the alignment.",
        )  # fmt: skip
    truth = data.ground_truth
    if truth is not None:
        found["truth_software"] = drawn(
            ground_truth.software_changes(truth), *ground_truth.software_changes_data(truth), name="software-pairs",
            text="Change of every pair, by kind of pair",
            caption="Each stroke is a pair. A real machine shows the hardware pairs only, since undisturbed runs have "
            "no software metrics there; here probes count them. Strokes outside the shaded zone in rows with software "
            "are changes that a real machine hides.",
        )  # fmt: skip
        width = f"(median {truth.alignment.resolution_median:.2g} records, 95% {truth.alignment.resolution_p95:.2g})"
        found["truth_alignment"] = drawn(
            ground_truth.alignment_errors(truth), *ground_truth.alignment_errors_data(truth), name="alignment-errors",
            text="Error of each alignment algorithm",
            caption="Mean distance between where a record is placed and where it truly belongs: the lower the better. "
            "Large marks: aligned on all hardware metrics; strokes: on each of them alone. Grey line: width within "
            f"which the truth is certain {width}. Rounding to whole records alone costs 0.25.",
        )  # fmt: skip
    return found


def _markup(text: str) -> Markup:
    import markupsafe

    return markupsafe.Markup(text)


def _spread(values: NDArray[np.float64]) -> str:
    if not np.isfinite(values).all():
        return percent(float("nan"))
    spread = f" ± {values.std(ddof=1):.2f}" if len(values) > 1 else ""
    return f"{values.mean():+.2f}{spread}%"


def _verdict_cell(perturbation: Perturbation | None, variant: VariantReport | None = None) -> Markup:
    """A table cell with a verdict in words; with ``variant``, its caveats are added."""
    from markupsafe import escape

    if perturbation is None:
        return _markup('<td class="text">-</td>')
    words = variant.in_words(perturbation) if variant is not None else in_words(perturbation)
    style = verdict_class(perturbation.verdict)
    return _markup(f'<td class="word {style}">{perturbation.verdict}: <span>{escape(words)}</span></td>')


def _pair_table(perturbation: Perturbation) -> Markup:
    """The worst pairs with effect sizes, intervals and significance."""
    from markupsafe import escape

    head = f"metrics;rho baseline;rho run;change of z;interval;interval {over_all(perturbation)}"
    head += f";spread of baselines;spread of runs;p {over_all(perturbation)};q (FDR);verdict;note"
    heads = "".join(f'<th scope="col">{name}</th>' for name in head.split(";"))
    rows = [f"<thead><tr>{heads}</tr></thead><tbody>"]
    number: Callable[[float], str] = partial(number_text, sign=True)
    for pair in perturbation.pairs[:STATIC_ROWS]:
        cells = [
            rho_text(pair.baseline_rho, 3), rho_text(pair.run_rho, 3), number(pair.delta_z),
            *(interval_text(low, high) for low, high in (pair.ci, pair.simultaneous)),
            number_text(pair.baseline_z_sd), number_text(pair.run_z_sd),
            p_number(pair.p_adjusted), p_number(pair.q_value),
        ]  # fmt: skip
        row = f'<th scope="row">{escape(pair_name(pair))}</th>' + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        note = f'<td class="text">{escape(pair.note)}</td>'
        words = escape(pair_in_words(pair, perturbation.level))
        rows.append(f'<tr>{row}<td class="word {verdict_class(pair.verdict)}">{words}</td>{note}</tr>')
    return _markup('<table class="cards">' + "".join(rows) + "</tbody></table>")
