"""Prints explanations: sentences, causes, compiler decisions, remedies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from measure.explanation.explanation_types import Change, Explanation, Remedy
from measure.explanation.relations import relation_text
from measure.explanation.summary import rho, sentences, share_text
from measure.perturbation.wording import percent

_STYLES = {"perturbed": "bold red", "changed": "bold yellow", "equivalent": "bold green"}
_MOST_DECISIONS = 6
_MOST_PARTS = 8


def print_explained(console: Console, explanations: Sequence[Explanation], fine: Mapping[str, str]) -> None:
    """Print tables that fit 80 columns."""
    for one in explanations:
        console.print(
            f"{escape(one.campaign)}, {escape(one.variant)}: why it is {one.verdict} {one.where}", style="bold"
        )
        for sentence in sentences(one):
            console.print(f"- {escape(sentence)}", highlight=False)
        console.print(_relations(one))
        console.print(_parts("by software metric", one.metrics))
        console.print(_parts("by mechanism", one.mechanisms))
        for decision in one.decisions[:_MOST_DECISIONS]:
            place = f" ({decision.place})" if decision.place else ""
            console.print(f"- {decision.kind}: {escape(decision.text + place)}", highlight=False)
        if one.remedies:
            console.print(_remedies(one))
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
        console.print(f"{escape(name)}: {verdict}, nothing to explain", style="dim")


def _relations(one: Explanation) -> Table:
    table = Table(title="broken relations, in paired runs", title_justify="left", title_style="bold")
    table.add_column("pair", overflow="fold")
    for heading in ("rho\nbefore", "rho\nafter", "change\nof z", "first metric", "first mechanism"):
        table.add_column(heading, justify="right", no_wrap=heading.startswith(("rho", "change")))
    for n, relation in enumerate(one.relations):
        change = float((one.run_z - one.baseline_z)[:, n].mean())
        largest = [max(c.parts, key=lambda p: abs(p.of(n).mean)) for c in (one.metrics, one.mechanisms)]
        table.add_row(
            escape(relation_text(relation)),
            f"{rho(one.baseline_z[:, n]):.2f}", f"{rho(one.run_z[:, n]):.2f}", f"{change:+.2f}",
            *(f"{escape(part.name)}\n{part.of(n).mean:+.2f}" for part in largest),
        )  # fmt: skip
    return table


def _parts(title: str, change: Change) -> Table:
    table = Table(title=f"share of the change {title}", title_justify="left", title_style="bold")
    table.add_column("part", overflow="fold")
    table.add_column("share (95% interval)", justify="right", no_wrap=True)
    table.add_column("what it is", overflow="fold")
    for part in change.parts[:_MOST_PARTS]:
        table.add_row(escape(part.name), share_text(change.share(part)), escape(part.about))
    return table


def _mark(remedy: Remedy) -> str:
    """What the verdict on a remedy rests on, as a sign that is explained below the table."""
    if remedy.by_construction:
        return " ="
    return " *" if remedy.confirming_pairs else ""


def _remedies(one: Explanation) -> Table:
    table = Table(title="remedies that were tried", title_justify="left", title_style="bold")
    table.add_column("remedy", overflow="fold")
    table.add_column("verdict", no_wrap=True)
    table.add_column("largest\nchange of z", justify="right", no_wrap=True)
    table.add_column("cycles", justify="right", no_wrap=True)
    table.add_column("gives up", overflow="fold")
    for remedy in one.remedies:
        style = _STYLES.get(remedy.verdict, "bold yellow")
        table.add_row(
            escape(remedy.name), f"[{style}]{remedy.verdict}[/]{_mark(remedy)}",
            f"{remedy.left:.2f}",
            percent(remedy.cycles_percent), escape(remedy.gives_up),
        )  # fmt: skip
    return table
