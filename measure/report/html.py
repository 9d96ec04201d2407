"""The report as one self-contained HTML page."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from measure.perturbation.analysis_types import Perturbation
from measure.perturbation.uninformative_metrics import TIED
from measure.perturbation.wording import in_words, over_all, p_number, pair_in_words, percent
from measure.report import figures
from measure.report import ground_truth_section as ground_truth
from measure.report.model import ReportData, VariantReport
from measure.report.style import as_data_uri, short

if TYPE_CHECKING:
    import jinja2


def page_environment(*folders: Path) -> jinja2.Environment:
    """Reads templates from ``folders``, and from this one, which has the style sheet of all pages."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader([*folders, Path(__file__).parent]), autoescape=True,
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip


def render(data: ReportData) -> str:
    """The page as text."""
    environment = page_environment()
    environment.globals.update(
        percent=percent, in_words=in_words, spread=_spread, verdict_class=verdict_class,
        verdict_cell=_verdict_cell, pair_table=_pair_table,
        number=_number, source_error=ground_truth.source_error, alignment_rows=ground_truth.alignment_rows,
        software_rows=partial(ground_truth.software_rows, variants=data.variants),
        truth_kinds=ground_truth.KINDS, truth_names=ground_truth.ALGORITHMS,
        truth_algorithms=list(ground_truth.ALGORITHMS.values()),
    )  # fmt: skip
    drawn: dict[str, Any] = {variant.name: _figures_of(data, variant) for variant in data.variants}
    drawn["across_runs"] = as_data_uri(figures.across_runs(data))
    overheads_known = all(np.isfinite(variant.instructions_percent).all() for variant in data.variants)
    drawn["inner"] = as_data_uri(figures.inner_against_overhead(data)) if overheads_known else None
    with_outer = overheads_known and any(variant.outer_held_out is not None for variant in data.variants)
    drawn["outer"] = as_data_uri(figures.outer_against_overhead(data)) if with_outer else None
    drawn["traces"] = as_data_uri(figures.traces(data))
    if data.ground_truth is not None:
        drawn["truth: software"] = as_data_uri(ground_truth.software_changes(data.ground_truth))
        drawn["truth: alignment"] = as_data_uri(ground_truth.alignment_errors(data.ground_truth))
    return environment.get_template("page.html.jinja").render(data=data, figures=drawn, tied=f"{TIED:.0%}")


def _figures_of(data: ReportData, variant: VariantReport) -> dict[str, str | None]:
    defined = [pair for pair in variant.inner.pairs if np.isfinite(pair.delta_z)]
    worst = max(defined, key=lambda pair: abs(pair.delta_z), default=None)
    return {
        "changes": as_data_uri(figures.changes(variant.inner)),
        "heat_maps": as_data_uri(figures.heat_maps(data, variant)),
        "signals": as_data_uri(figures.good_and_perturbed(data, variant, worst)) if worst else None,
        "pair": f"{short(worst.a)} and {short(worst.b)}" if worst else None,
    }


def _markup(text: str) -> Any:
    import markupsafe

    return markupsafe.Markup(text)


def _spread(values: NDArray[np.float64]) -> str:
    if not np.isfinite(values).all():
        return percent(float("nan"))
    spread = f" ± {values.std(ddof=1):.2f}" if len(values) > 1 else ""
    return f"{values.mean():+.2f}{spread}%"


def _verdict_cell(perturbation: Perturbation | None, variant: VariantReport | None = None) -> Any:
    """A table cell with a verdict in words; with ``variant``, its caveats are added."""
    from markupsafe import escape

    if perturbation is None:
        return _markup('<td class="text">-</td>')
    words = variant.in_words(perturbation) if variant is not None else in_words(perturbation)
    style = verdict_class(perturbation.verdict)
    return _markup(f'<td class="word {style}">{perturbation.verdict}: <span>{escape(words)}</span></td>')


def verdict_class(verdict: str) -> str:
    """The name of a verdict's class in the style sheet."""
    return verdict.replace(" ", "-")


def _number(value: float, sign: bool = False) -> str:
    return "-" if np.isnan(value) else f"{value:+.3f}" if sign else f"{value:.3f}"


def _pair_table(perturbation: Perturbation) -> Any:
    """All pairs with effect sizes, intervals and significance."""
    from markupsafe import escape

    head = f"metrics;rho baseline;rho run;change of z;interval;interval {over_all(perturbation)}"
    head += f";spread of baselines;spread of runs;p {over_all(perturbation)};q (FDR);verdict;note"
    rows = ["<tr>" + "".join(f"<th>{name}</th>" for name in head.split(";")) + "</tr>"]
    for pair in perturbation.pairs:
        name = short(pair.a) if pair.a == pair.b else f"{short(pair.a)} – {short(pair.b)}"
        cells = [
            name, _number(pair.baseline_rho), _number(pair.run_rho), _number(pair.delta_z, True),
            *(f"{_number(low, True)} to {_number(high, True)}" for low, high in (pair.ci, pair.simultaneous)),
            _number(pair.baseline_z_sd), _number(pair.run_z_sd),
            p_number(pair.p_adjusted), p_number(pair.q_value),
        ]  # fmt: skip
        row = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        note = f'<td class="text">{escape(pair.note)}</td>'
        words = escape(pair_in_words(pair, perturbation.level))
        rows.append(f'<tr>{row}<td class="word {verdict_class(pair.verdict)}">{words}</td>{note}</tr>')
    return _markup("<table>" + "".join(rows) + "</table>")
