"""`measure compare`: compares two results, prints the comparison, and writes it as a page and as JSON."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from common.plain_json import plain_json
from measure.console.progress import Status
from measure.console.tables import print_table
from measure.perturbation.analysis_types import BROKEN
from measure.perturbation.wording import p_number
from measure.report.style import VERDICT_STYLES
from measure.result_files import check_results_place, write_result, write_text_atomically
from measure.two_campaigns.comparison import NULL_HYPOTHESIS, CampaignsCompared, compare_results
from measure.two_campaigns.page import render_page
from measure.two_campaigns.variant_change import NotCompared, PairChange, VariantChange
from measure.two_campaigns.verdicts import table_of_comparison
from measure.verdict_files.deliver import deliver
from measure.verdict_files.options import VerdictOptions

COMPARISON_SCHEMA = 1
COMPARISON_FORMAT = f"perturbation-comparison-{COMPARISON_SCHEMA}"
_MOST_PAIRS = 5


def run_compare(
    before: Path, after: Path, out: Path | None, console: Console, verdicts: VerdictOptions, *,
    delta: float | None, alpha: float | None,
) -> int:  # fmt: skip
    """Compare, print, write DIR/compare.html and DIR/compare.json, and deliver the ``verdicts``; the exit status.

    Raises as `compare_results`, and `StoreError` for files that cannot be written.
    """
    verdicts.check_places()
    if before.is_dir() and after.is_dir() and before.samefile(after):
        console.print(
            f"BEFORE and AFTER are one directory, {before}: nothing can differ.", style="yellow", markup=False
        )
    directory = out or Path("results") / f"{before.resolve().name}-{after.resolve().name}"
    check_results_place(directory)
    with Status(console, "comparing two campaigns"):
        found = compare_results(before, after, delta=delta, alpha=alpha)
    write_result(directory / "compare.json", as_json(found))
    write_text_atomically(directory / "compare.html", render_page(found))
    _print(console, found)
    console.print(f"Page: {directory / 'compare.html'}   For programs: {directory / 'compare.json'}", style="dim")
    return deliver(table_of_comparison(found), verdicts)


def as_json(found: CampaignsCompared) -> dict[str, Any]:
    """The comparison as plain JSON types, nan and unbounded ends of intervals as null."""
    return {
        "format": COMPARISON_FORMAT,
        "schema": COMPARISON_SCHEMA,
        "before": found.before,
        "after": found.after,
        "null_hypothesis": NULL_HYPOTHESIS,
        "delta": found.delta,
        "alpha": found.alpha,
        "hardware_metrics": list(found.metrics),
        "variants": {one.name: plain_json(_variant_json(one)) for one in found.variants}
        | {one.name: _not_compared_json(one) for one in found.without_runs},
        "only_before": list(found.only_before),
        "only_after": list(found.only_after),
        "repeated": list(found.repeated),
        "invalidating": list(found.invalidating),
        "failed_controls": dict(found.failed_controls),
        "design": [asdict(fact) for fact in found.facts],
        "findings": list(found.findings),
    }


def _variant_json(one: VariantChange) -> dict[str, Any]:
    sides = {
        name: {"verdict": side.verdict, "within": side.within, "across": side.across}
        for name, side in (("before", one.before), ("after", one.after))
    }
    return {
        **sides,
        "difference": {
            "verdict": one.verdict, "p_value": one.p_value, "runs": [one.n_before, one.n_after],
            "paired": one.paired, "level": one.alpha,
        },
        "pairs": [_pair_json(pair) for pair in one.pairs if not pair.is_across],
        "across_runs": [_pair_json(pair) for pair in one.pairs if pair.is_across],
    }  # fmt: skip


def _not_compared_json(one: NotCompared) -> dict[str, Any]:
    return {
        "before": {"verdict": one.before}, "after": {"verdict": one.after},
        "difference": {"verdict": one.verdict, "reason": one.reason},
    }  # fmt: skip


def _pair_json(pair: PairChange) -> dict[str, Any]:
    return {
        "a": pair.a, "b": pair.b, "before": pair.before, "after": pair.after,
        "delta_z": [pair.test.before, pair.test.after],
        "difference": pair.test.difference, "ci": pair.test.ci, "simultaneous": pair.test.simultaneous,
        "p_adjusted": pair.test.p_adjusted, "verdict": pair.test.verdict,
    }  # fmt: skip


def _print(console: Console, found: CampaignsCompared) -> None:
    """Print tables that fit the terminal, after what is to be read first."""
    for sentence in found.invalidating:
        console.print(f"!! {escape(sentence)}", style="bold red", highlight=False)
    first = [*([found.notice] if found.notice else []), *found.unlike]
    for sentence in first:
        console.print(sentence, style="yellow", highlight=False, markup=False)
    headings = ("variant", "before", "after", "difference of\nthe changes", "p (all\ntests)")
    rows = [
        (
            escape(one.name), _styled(one.before.verdict), _styled(one.after.verdict), _styled(one.verdict),
            p_number(one.p_value),
        )
        for one in found.variants
    ]  # fmt: skip
    rows += [
        (escape(one.name), _styled(one.before), _styled(one.after), _styled(one.verdict), "-")
        for one in found.without_runs
    ]
    print_table(console, escape(f"{found.before}, then {found.after}"), headings, rows, right=[4])
    for one in found.variants:
        pairs = [pair for pair in one.pairs if math.isfinite(pair.test.difference)][:_MOST_PAIRS]
        if one.verdict not in BROKEN or not pairs:
            continue
        of_pairs = ("pair", "change of z\nbefore", "after", "difference", "p (all\ntests)", "verdict")
        rows_of_pairs = [
            (
                escape(pair.short_name), f"{pair.test.before:+.2f}", f"{pair.test.after:+.2f}",
                f"{pair.test.difference:+.2f}", p_number(pair.test.p_adjusted), _styled(pair.test.verdict),
            )
            for pair in pairs
        ]  # fmt: skip
        print_table(console, escape(f"{one.name}: pairs that differ most"), of_pairs, rows_of_pairs, right=range(1, 5))
    if found.facts:
        facts = [(escape(fact.name), escape(fact.before), escape(fact.after)) for fact in found.facts]
        print_table(console, "What differs between the designs", ("setting", "before", "after"), facts)
    else:
        console.print("The two designs are the same.", highlight=False)
    for finding in found.findings[len(found.invalidating) + len(first) :]:
        console.print(f"- {escape(finding)}", highlight=False)


def _styled(verdict: str) -> str:
    return f"[{VERDICT_STYLES[verdict]}]{verdict}[/]"
