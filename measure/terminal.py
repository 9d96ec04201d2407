"""The result in the terminal: the verdict first, then the worst pairs, then what to do."""

from __future__ import annotations

import math

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from measure.perturbation_types import Perturbation
from measure.report.model import ReportData

_STYLES = {"perturbed": "bold red", "equivalent": "bold green", "inconclusive": "bold yellow"}
_WORST = 5


def print_result(console: Console, data: ReportData) -> None:
    """Print tables that fit 100 columns."""
    table = Table(title=f"{data.title}: {data.subtitle}", title_justify="left", title_style="bold")
    for heading, justify in (
        ("variant", "left"), ("verdict", "left"), ("instructions", "right"), ("cycles", "right"),
        ("within a run", "left"), ("across runs", "left"),
    ):  # fmt: skip
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    for variant in data.variants:
        table.add_row(
            escape(variant.name), _styled(variant.verdict),
            _percent(variant.instructions_percent.mean()), _percent(variant.cycles_percent.mean()),
            _verdict(variant.inner), _verdict(variant.outer_held_out),
        )  # fmt: skip
    console.print(table)
    worst = Table(title="Pairs that changed most", title_justify="left", title_style="bold")
    for heading in ("variant", "pair", "rho before", "rho after", "change of z", "p (all pairs)", "verdict"):
        worst.add_column(heading, justify="left" if heading in ("variant", "pair", "verdict") else "right")
    for variant in data.variants:
        pairs = [pair for pair in variant.inner.pairs if np.isfinite(pair.delta_z)][:_WORST]
        for pair in pairs:
            worst.add_row(
                escape(variant.name), pair.name.replace("PAPI_", ""), f"{pair.baseline_rho:.2f}",
                f"{pair.run_rho:.2f}", f"{pair.delta_z:+.2f}", f"{pair.p_adjusted:.3f}", _styled(pair.verdict),
            )  # fmt: skip
    console.print(worst)
    for finding in data.findings:
        console.print(f"- {escape(finding)}", highlight=False)


def _styled(verdict: str) -> str:
    return f"[{_STYLES[verdict]}]{verdict}[/]"


def _verdict(perturbation: Perturbation | None) -> str:
    if perturbation is None:
        return "not compared"
    p = perturbation.p_value
    return perturbation.verdict + ("" if np.isnan(p) else f" (p = {p:.3f})" if p >= 0.001 else " (p < 0.001)")


def _percent(value: float) -> str:
    """A change in percent; traces of other tools may not tell it."""
    return f"{value:+.2f}%" if math.isfinite(value) else "unknown"
