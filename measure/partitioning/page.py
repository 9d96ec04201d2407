"""The result of a partition search as one self-contained page with pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from measure.partitioning.result import PartitionResult
from measure.perturbation.wording import counted, listed_names, seldom_unseen
from measure.report import page
from measure.report.elements import Step
from measure.report.style import INK, MUTED, VERDICTS, new_figure

_MOST_METRICS_DRAWN = 60
_COLOURS = {
    "good": VERDICTS["equivalent"],
    "bad": VERDICTS["perturbed"],
    "undecided": VERDICTS["inconclusive"],
    "not assessable": VERDICTS["not assessable"],
}
_STATUS_COLOURS = {
    "validated": _COLOURS["good"], "not validated": _COLOURS["undecided"], "undecided": _COLOURS["undecided"],
    "not tested": MUTED,
}  # fmt: skip
_WORDS = {"good": "good", "bad": "changes", "undecided": "undecided", "not assessable": "not assessable"}
_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class NextCommands:
    """Command lines that may come next; empty where there is none.

    ``again``: goes on with the search; ``runs``: collect the groups; ``merge``: joins their runs; ``explain``: say what
    perturbs, and try remedies; ``remedies``: run the campaigns with remedies where that is done.
    """

    again: str = ""
    runs: tuple[str, ...] = ()
    merge: str = ""
    explain: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()


def render_page(outcome: PartitionResult, steps: Sequence[Step]) -> str:
    """The report as one self-contained page. ``steps``: of `next_steps`."""
    return page.render_page(
        "partition.html.jinja", _FOLDER, outcome=outcome, pictures=_pictures(outcome), steps=steps,
    )  # fmt: skip


def next_steps(outcome: PartitionResult, commands: NextCommands) -> tuple[Step, ...]:
    """What to do with the groups, by what fresh runs said of them, with commands."""
    steps = []
    unsure = _unsure(outcome)
    if outcome.shortfall:
        steps.append(Step(outcome.shortfall))
    if commands.again and (outcome.stopped or unsure):
        what = f"; {', '.join(unsure)} may perturb until it has" if unsure else ""
        steps.append(Step(f"Go on where the search stopped{what}:", (commands.again,)))
    if commands.runs:
        collect = f"Collect the groups, with the verdict on each; {_may_change(outcome)}:"
        steps.append(Step(f"{confirmed_text(outcome)} {collect}", commands.runs))
        if commands.merge:
            steps.append(
                Step("Join their runs into one trace with every metric that is in a group:", (commands.merge,))
            )
    if alone := outcome.alone():
        second = "" if outcome.starts_tasks else ", or in a second run without timing (`method: second_run`)"
        steps.append(
            Step(f"Not shown to be good even alone: {', '.join(alone)}. Count what fires less often for the same "
                 f"quantity{second}."
                 + (" What perturbs, and which remedy helps:" if commands.explain else "")
                 + (" With the remedies that `measure explain` found:" if commands.remedies else ""),
                 commands.explain + commands.remedies)
        )  # fmt: skip
    return tuple(steps)


def _may_change(outcome: PartitionResult) -> str:
    """By how much groups may change relations, as far as runs tell."""
    searched = outcome.with_status("not validated")
    open_ones = [name for name in _unsure(outcome) if name not in searched]
    if not searched and not open_ones:
        return "they may still change relations, by less than delta"
    told = (
        (outcome.with_status("validated"), "may still change relations, by less than delta"),
        (
            searched,
            "changed relations by less than delta in the runs that chose them; no fresh run has confirmed it",
        ),
        (open_ones, "may change relations by any amount"),
    )
    return "; ".join(f"{listed_names(names)} {what}" for names, what in told if names)


def confirmed_text(outcome: PartitionResult) -> str:
    """Which groups fresh runs confirmed, and which not."""
    good, unsure, undecided = outcome.with_status("validated"), _unsure(outcome), outcome.with_status("undecided")
    rest = f", but not {', '.join(unsure)}" if unsure and good else ""
    said = "No fresh runs confirmed a group yet."
    if good:
        fresh = [one.fresh.runs for one in outcome.groups if one.status == "validated" and one.fresh is not None]
        said = (
            f"{min(fresh)} fresh runs{' or more of each' if len(good) > 1 else ''} confirmed {', '.join(good)}{rest}."
        )
        said += (
            f" {counted(min(fresh), 'run')} may not show a change that happens in fewer than about "
            f"{seldom_unseen(min(fresh))} of all code layouts."
        )
    return said + (f" Too few runs were made to decide on {', '.join(undecided)}." if undecided else "")


def _unsure(outcome: PartitionResult) -> list[str]:
    return [name for status in ("not validated", "undecided", "not tested") for name in outcome.with_status(status)]


def _pictures(outcome: PartitionResult) -> list[page.Figure]:
    """The pictures, as far as there are data for them."""
    pictures = []
    if outcome.groups and len(outcome.metrics) <= _MOST_METRICS_DRAWN:
        pictures.append(
            page.drawn(
                membership(outcome),
                ("metric", "group", "status"),
                [(outcome.metrics[n], one.name, one.status) for one in outcome.groups for n in sorted(one.group)],
                name="groups", text="Which metrics are collected together",
                caption="Which metrics are collected together, a column a group. Green: validated on fresh runs; "
                "yellow: not validated, or not decided; grey: not tested. Fewer columns are fewer runs.",
            )
        )  # fmt: skip
    if any(np.isfinite(verdict.change) for verdict in outcome.tested.values()):
        pictures.append(
            page.drawn(
                tested_groups(outcome),
                ("metrics", "largest_change_of_z", "verdict", "software_metrics"),
                [
                    (len(group), verdict.change, verdict.state, ", ".join(outcome.names(group)))
                    for group, verdict in outcome.tested.items()
                ],
                name="tested-groups", text="Largest change of each group that was tested",
                caption="Every group that was tested, by its largest change of z; up to the edge of the shaded zone a "
                "change counts as none. A red group inside it is shown to change a relation, perhaps by too little to "
                "count: it is not taken. Groups are not monotone: more metrics may perturb less, so each verdict says "
                "something about its own group only.",
            )
        )  # fmt: skip
    return pictures


def membership(outcome: PartitionResult) -> Any:
    """A row per metric, a column per group of the result."""
    groups = outcome.groups
    figure, axes = new_figure(2.6 + 0.5 * len(groups), 0.9 + 0.22 * len(outcome.metrics))
    for column, one in enumerate(groups):
        colour = _STATUS_COLOURS[one.status]
        axes.plot([column] * len(one.group), sorted(one.group), "s", color=colour, markersize=8)
    axes.set_yticks(range(len(outcome.metrics)), outcome.metrics, fontsize=8)
    axes.set_xticks(range(len(groups)), [one.name for one in groups], fontsize=8)
    placed = frozenset[int]().union(*(one.group for one in groups))
    for metric in outcome.best.uncovered - placed:
        axes.text(0, metric, "in no good group", color=_COLOURS["bad"], fontsize=8, va="center", ha="center")
    axes.set_xlim(-0.6, max(len(groups), 2) - 0.4)
    axes.set_ylim(len(outcome.metrics) - 0.4, -0.6)
    return figure


def tested_groups(outcome: PartitionResult) -> Any:
    """The largest change of z of every tested group over its number of metrics."""
    figure, axes = new_figure(7.4, 3.6)
    axes.axhspan(0, outcome.delta, color="#e8f1ec", zorder=0)
    jitter = np.random.default_rng(0)
    places = {
        group: (len(group) + jitter.uniform(-0.18, 0.18), abs(verdict.change))
        for group, verdict in outcome.tested.items()
        if np.isfinite(verdict.change)
    }
    for state, colour in _COLOURS.items():
        drawn = [place for group, place in places.items() if outcome.tested[group].state == state]
        if drawn:
            axes.plot(
                *zip(*drawn, strict=True), "o", color=colour, markersize=4.5, alpha=0.75, markeredgewidth=0,
                label=f"{_WORDS[state]} ({len(drawn)})",
            )  # fmt: skip
    for place in (places[group] for group in outcome.best.groups if group in places):
        axes.plot(*place, "o", markersize=10, markerfacecolor="none", color=INK)
    axes.set_xlabel("software metrics in the group (points of a number lie side by side); circled: chosen")
    axes.set_ylabel("largest |change of z|")
    axes.set_title(f"Shaded: up to {outcome.delta:g} counts as none", color=MUTED, fontsize=8.5, fontweight="normal")
    axes.set_ylim(bottom=0)
    axes.set_xlim(0.5, max(map(len, places)) + 0.5)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(title="verdict of its runs", title_fontsize=8.5)
    return figure
