"""Prints explanations: sentences, causes, compiler decisions, remedies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.markup import escape

from measure.console.tables import print_table
from measure.explanation.explanation_types import Change, Explanation, Part, Remedy, share_text, unexplained
from measure.explanation.relations import relation_text
from measure.explanation.summary import CYCLES_ARE, rho, sentences
from measure.perturbation.wording import percent

_STYLES = {"perturbed": "bold red", "changed": "bold yellow", "equivalent": "bold green"}
_MOST_DECISIONS = 6
_MOST_PARTS = 8


def print_explained(console: Console, explanations: Sequence[Explanation], fine: Mapping[str, str]) -> None:
    """Print tables that fit the terminal."""
    for one in explanations:
        console.print(
            f"{escape(one.campaign)}, {escape(one.variant)}: why it is {one.verdict} {one.where}", style="bold"
        )
        for sentence in sentences(one):
            console.print(f"- {escape(sentence)}", highlight=False)
        _print_relations(console, one)
        _print_parts(console, "by software metric", one.metrics)
        _print_parts(console, "by mechanism", one.mechanisms)
        for decision in one.decisions[:_MOST_DECISIONS]:
            place = f" ({decision.place})" if decision.place else ""
            console.print(f"- {decision.kind}: {escape(decision.text + place)}", highlight=False)
        if one.remedies:
            _print_remedies(console, one)
            console.print(f"cycles: {CYCLES_ARE}", style="dim")
            if pairs := next((remedy.confirming_pairs for remedy in one.remedies if remedy.confirming_pairs), 0):
                console.print(
                    f"(*) judged again, in {pairs} further pairs of runs; the others' pairs only rank them",
                    style="dim",
                )
            if any(remedy.by_construction for remedy in one.remedies):
                console.print(
                    "(=) by construction: the machine counts in every pair of runs what it counts in the plain one",
                    style="dim",
                )
        for refusal in one.refused:
            console.print(f"- not tried: {escape(refusal)}", highlight=False)
        console.print(f"{one.n_pairs} pairs of runs; {one.runs} runs in {one.seconds:.0f} s", style="dim")
    for name, verdict in fine.items():
        console.print(f"{escape(name)}: {verdict}, {unexplained(verdict)}", style="dim")


def _print_relations(console: Console, one: Explanation) -> None:
    rows = []
    for n, relation in enumerate(one.relations):
        change = float((one.run_z - one.baseline_z)[:, n].mean())
        largest = [max(c.parts, key=lambda p: abs(p.of(n).mean)) for c in (one.metrics, one.mechanisms)]
        rows.append(
            (
                escape(relation_text(relation)),
                f"{rho(one.baseline_z[:, n]):.2f}", f"{rho(one.run_z[:, n]):.2f}", f"{change:+.2f}",
                *(_first(part, n) for part in largest),
            )
        )  # fmt: skip
    headings = ("pair", "rho\nbefore", "rho\nafter", "change\nof z", "first metric", "first mechanism")
    print_table(console, "broken relations, in paired runs", headings, rows, right=range(1, 6))


def _first(part: Part, relation: int) -> str:
    """The part that changes a relation most, and by how much, if that can be told from 0."""
    change = part.of(relation)
    return f"{escape(part.name)}\n{'not told from 0' if change.includes_zero else f'{change.mean:+.2f}'}"


def _print_parts(console: Console, title: str, change: Change) -> None:
    rows = [
        (escape(part.name), share_text(change.share(part)), escape(part.about)) for part in change.parts[:_MOST_PARTS]
    ]
    headings = ("part", "share (95% interval)", "what it is")
    print_table(console, f"share of the change {title}", headings, rows, right=[1])


def _mark(remedy: Remedy) -> str:
    """What the verdict on a remedy rests on, as a sign that is explained below the table."""
    if remedy.by_construction:
        return " ="
    return " *" if remedy.confirming_pairs else ""


def _print_remedies(console: Console, one: Explanation) -> None:
    rows = []
    for remedy in one.remedies:
        style = _STYLES.get(remedy.verdict, "bold yellow")
        rows.append(
            (
                escape(remedy.name), f"[{style}]{remedy.verdict}[/]{_mark(remedy)}",
                f"{remedy.left:.2f}",
                percent(remedy.cycles_percent), escape(remedy.gives_up),
            )
        )  # fmt: skip
    headings = ("remedy", "verdict", "largest\nchange of z", "cycles", "gives up")
    print_table(console, "remedies that were tried", headings, rows, right=[2, 3])
