"""Findings stand under one heading a comparison, in the terminal and on the page; what to do next comes last."""

from __future__ import annotations

from dataclasses import replace

from rich.console import Console

from measure.perturbation.finding import RESULTS, Finding
from measure.report.finding_groups import FindingGroup, grouped
from measure.report.html import render
from measure.report.model import ReportData
from measure.report.terminal import print_result
from tests.measure.report.page_structure import problems
from tests.measure.report.synthetic_report import synthetic_report

NEXT = Finding(
    "`measure explain`, given the directory of these results, says why.", "next",
    in_results=f"`measure explain {RESULTS}` says why.",
)  # fmt: skip
CALLS = Finding("most of it comes from calls.", heading="v")


def report() -> ReportData:
    """A report with findings on all comparisons, the names of whose variants begin alike."""
    data = synthetic_report(4)
    variants = (replace(data.variants[0], name="v"), replace(data.variants[1], name="v (new)"))
    said = [NEXT, CALLS]
    for variant in reversed(variants):
        for compared in (variant.inner, variant.outer_held_out):
            assert compared is not None
            said += variant.findings_of(compared)
    return replace(data, variants=variants, said=tuple(said))


def test_findings_are_grouped_in_the_order_of_the_first_of_each_and_none_is_lost() -> None:
    data = report()
    first, second = data.variants
    assert second.outer_held_out is not None
    groups = grouped(data.said, data.variants)
    assert [group.heading for group in groups][:2] == [
        "v (new) (+1.50% instructions), within a run", "v (new) (+1.50% instructions), across aligned runs",
    ]  # fmt: skip
    *own, exploratory = second.findings_of(second.inner)
    assert exploratory.sentence.startswith("Exploratory: 8 baselines")  # as in all four comparisons
    assert groups[0].findings == tuple(own)
    assert groups[2] == FindingGroup(first.heading(first.inner), first.findings_of(first.inner)[:-1])
    assert groups[-1] == FindingGroup("", (Finding(exploratory.sentence, heading="Every comparison"), CALLS, NEXT))
    assert sum(len(group.findings) for group in groups) == len(data.said) - 3
    assert grouped((), data.variants) == []


def test_what_is_said_of_every_comparison_stands_once() -> None:
    data = report()
    exploratory = "Exploratory: 3 baselines and 3 runs; use 10 pairs before relying on it."
    headings = [
        variant.heading(compared)
        for variant in data.variants
        for compared in (variant.inner, variant.outer_held_out)
        if compared is not None
    ]
    findings = [
        Finding(text, heading=heading, of_comparison=True)
        for heading in headings
        for text in (f"about {heading}", exploratory)
    ]
    groups = grouped([*findings, NEXT], data.variants)
    assert [group.heading for group in groups] == [*headings, ""]
    assert groups[0].sentences() == (f"about {headings[0]}",)
    assert groups[-1].sentences() == (f"Every comparison: {exploratory}", NEXT.text)
    one_is_left_out = grouped(findings[:-1], data.variants)
    assert one_is_left_out[0].sentences() == (f"about {headings[0]}", exploratory)
    (only_common,) = grouped(findings[1::2], data.variants)
    assert only_common.sentences() == (f"Every comparison: {exploratory}",)


def test_a_finding_is_chosen_by_its_fields_and_not_by_its_words() -> None:
    """A sentence in other words lost its heading, or its place at the end."""
    data = report()
    variant = data.variants[1]
    heading = variant.heading(variant.inner)
    (pair, *_) = variant.inner.of("changed")
    said = (
        Finding("Make more runs.", "next"),
        Finding(f"The relation {pair.name} is another one.", heading=heading, of_comparison=True, pair=pair.name),
        Finding("A plain sentence.", heading=heading, of_comparison=True),
        Finding(f"{heading}: of the whole campaign."),
    )
    groups = grouped(said, data.variants)
    assert [group.findings for group in groups] == [said[1:3], (said[3], said[0])]
    console = Console(width=300, force_terminal=False)
    with console.capture() as captured:
        print_result(console, replace(data, said=said))
    lines = captured.get().splitlines()
    assert lines[-5:] == [
        f"{heading}:", "- A plain sentence.", "The whole campaign:", f"- {said[3].text}", "- Next: Make more runs.",
    ]  # fmt: skip


def test_the_terminal_names_a_comparison_once_and_a_pair_of_a_table_not_again() -> None:
    data = report()
    console = Console(width=300, force_terminal=False)
    with console.capture() as captured:
        print_result(console, data, "results/drawn")
    lines = captured.get().splitlines()
    heading = "v (new) (+1.50% instructions), within a run:"
    assert lines.count(heading) == 1
    assert data.variants[1].inner.of("changed")  # otherwise no pair is told at all
    inner = lines[lines.index(heading) : lines.index("v (new) (+1.50% instructions), across aligned runs:")]
    assert not any("rho went" in line for line in inner)
    assert any("rho went" in line for line in lines)  # across runs, which has no table
    assert lines[-1] == "- Next: `measure explain results/drawn` says why."
    assert lines[-4] == "The whole campaign:"
    assert lines[-3].startswith("- Every comparison: Exploratory: 8 baselines")
    assert lines[-2] == "- v: most of it comes from calls."


def test_in_a_terminal_a_campaign_without_any_change_is_told_what_its_results_are_good_for() -> None:
    data = synthetic_report(4, variants=1)
    assert data.variants[0].verdict == "equivalent"
    console = Console(width=300, force_terminal=False)
    with console.capture() as captured:
        print_result(console, replace(data, said=()), "results/drawn")
    assert captured.get().splitlines()[-1].endswith("`measure merge results/drawn --out merged.parquet`")


def test_the_page_has_a_heading_for_each_comparison() -> None:
    page = render(report(), "results/drawn")
    assert problems(page) == []
    assert page.count("<h3>v (new) (+1.50% instructions), within a run</h3>") == 1
    assert "<h3>The whole campaign</h3>" in page


def test_the_pair_that_changed_measurably_is_among_those_shown() -> None:
    """Of an inconclusive variant five pairs with p = 1 were shown, and not the one that "changed measurably" meant."""
    data = synthetic_report(8)
    variant = data.variants[0]
    *others, last = variant.inner.pairs
    assert len(others) > 5
    pairs = (
        *(replace(pair, verdict="inconclusive", p_adjusted=1.0, reasons=()) for pair in others),
        replace(last, verdict="equivalent", p_adjusted=0.0123, reasons=()),
    )
    for p_value in (0.0123, 0.2):
        inner = replace(variant.inner, verdict="inconclusive", p_value=p_value, pairs=pairs)
        if p_value == 0.2:
            inner = replace(inner, pairs=(*pairs[:-1], replace(pairs[-1], p_adjusted=0.2)))
        console = Console(width=120, force_terminal=False, highlight=False)
        with console.capture() as captured:
            print_result(console, replace(data, variants=(replace(variant, inner=inner, outer_held_out=None),)))
        rows = [line for line in captured.get().splitlines() if "│" in line and " - " in line and "1.000" in line]
        assert len(rows) == (4 if p_value == 0.0123 else 5)
        assert ("0.012 │ changed < delta" in captured.get()) == (p_value == 0.0123)
