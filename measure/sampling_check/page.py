"""The result of a sampling check, in the terminal and as a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from measure.console.tables import print_table
from measure.perturbation.analysis_types import BROKEN, Pair, Perturbation
from measure.perturbation.wording import rhos_text
from measure.report import page
from measure.report.style import (
    INK,
    MUTED,
    VERDICT_MARKERS,
    VERDICT_STYLES,
    VERDICTS,
    new_figure,
    short,
)
from measure.sampling_check.check import (
    ADVICE,
    SamplingCheck,
    SamplingConfiguration,
    SamplingResult,
    equivalent_from,
)

if TYPE_CHECKING:
    from rich.console import Console

_FOLDER = Path(__file__).parent


def describe(configuration: SamplingConfiguration) -> str:
    """The settings that differ from the paper's, in words."""
    paper = SamplingConfiguration.model_validate({})
    changed = []
    for name, value in configuration.model_dump().items():
        if value == getattr(paper, name):
            continue
        words = name.replace("_", " ")
        if not isinstance(value, bool):
            words += f" {value:,}" if isinstance(value, int) else f" {value}"
        changed.append(words)
    return ", ".join(changed) or "as in the paper"


def headline(results: Sequence[SamplingResult]) -> str:
    """The result of the check in one or two sentences."""
    good = [f"{one.name} ({one.caveat})" if one.caveat else one.name for one in results if one.verdict == "equivalent"]
    if good:
        return f"Equivalent to full simulation: {'; '.join(good)}."
    within = [one.name for one in results if one.inner.verdict == "equivalent"]
    if within:
        return f"Equivalent within a run: {', '.join(within)}. Across runs, none is shown to be."
    return "No sampling configuration is shown to be equivalent to full simulation."


def swept(check: SamplingCheck, results: Sequence[SamplingResult]) -> list[str]:
    """For each setting of the sweep, a sentence with the first value from which on sampling is equivalent."""
    sentences = []
    for setting, found in equivalent_from(check, results).items():
        name, last = setting.replace("_", " "), check.sweep[setting][-1]
        inner, both = found["inner"], found["both"]
        if inner is None:
            sentences.append(f"{name}: at {last}, the last value tried, not shown to be equivalent within a run.")
            continue
        across = "not even at the last value" if both is None else f"from {both} on"
        sentences.append(f"{name}: equivalent within a run from {inner} on; across runs, too, {across}.")
    return sentences


def largest(found: Perturbation) -> Pair | None:
    """The pair with the largest change of z that is defined; None when none is."""
    defined = [pair for pair in found.pairs if np.isfinite(pair.delta_z)]
    return max(defined, key=lambda pair: abs(pair.delta_z), default=None)


def worst(found: Perturbation) -> float:
    """The largest change of z that is defined; nan when none is."""
    pair = largest(found)
    return abs(pair.delta_z) if pair is not None else float("nan")


def told(results: Sequence[SamplingResult], most: int) -> list[tuple[str, str, str]]:
    """Sentences on configurations: name, where, and text. Where one is not equivalent, its largest change comes first;
    at most ``most`` of each comparison. What to do is the same for all, see `next_steps`."""
    sentences = []
    for one in results:
        for where, found in (("within a run", one.inner), ("across runs", one.outer)):
            pair, said = largest(found), [one for one in found.said if one.kind != "advice"]
            texts = [one.text for one in said]
            if found.verdict != "equivalent" and pair is not None:
                texts = [
                    f"the largest change of z, {pair.delta_z:+.2f}, is that of {pair.name}: rho went from "
                    f"{rhos_text(pair.baseline_rho, pair.run_rho)}.",
                    *(one.text for one in said if one.pair != pair.name),
                ]
            sentences += [(one.name, where, text) for text in texts[:most]]
    return sentences


def next_steps(check: SamplingCheck, results: Sequence[SamplingResult]) -> str:
    """What to do about configurations that are not equivalent; empty if all are."""
    broken = [one for one in results if one.verdict in BROKEN]
    controls = [one.name for one in broken if one.configuration.everything]
    steps = []
    if controls:
        steps.append(
            f"A control failed: {' and '.join(controls)}. It simulates everything, so what changed is no effect of "
            "sampling. Check again with another `seed`, and do not rely on the other verdicts until then."
        )
    if len(broken) > len(controls):
        sweep = "A `sweep:` of a setting in the file says from which value on traces are equivalent."
        steps += [ADVICE, *_remedies(results), *([] if check.sweep else [sweep])]
    if steps:
        return " ".join(steps)
    if any(one.verdict == "inconclusive" for one in results):
        return f"More baselines and replicates than {check.baselines} and {check.replicates} may decide what is open."
    if any(one.verdict == "not assessable" for one in results):
        return (
            "Nothing could be seen in what is not assessable: choose metrics that take many values, or more intervals."
        )
    return ""


# What may help, by what it does, and whether a configuration has it.
_REMEDIES: tuple[tuple[str, str, Callable[[SamplingConfiguration], bool]], ...] = (
    ("`roll_back` or `samples`", "leaves nothing unsampled", lambda one: one.roll_back or one.samples > 0),
    ("`warm_up: lines`", "brings samples closer", lambda one: one.warm_up == "lines"),
    ("`wait_step: 0.2`", "tells intervals apart that wait differently", lambda one: one.wait_step > 0),
)


def _remedies(results: Sequence[SamplingResult]) -> list[str]:
    """Sentences on what to do where a configuration is broken, by the verdicts of all: which one to take, what none has
    tried, and what has not helped."""
    tried = [one for one in results if not one.configuration.everything]
    broken = [one for one in tried if one.verdict in BROKEN]
    good = [one.name for one in tried if one.verdict == "equivalent"]
    sentences = [f"Take {' or '.join(good)}, which is equivalent to full simulation."] if good else []
    new, in_vain = [], []
    for name, effect, has in _REMEDIES:
        having = [one for one in tried if has(one.configuration)]
        if not having:
            new.append(f"{name} {effect}")
        elif all(one.verdict in BROKEN for one in having):
            in_vain.append(f"{name} ({', '.join(f'{one.name} is {one.verdict}' for one in having)})")
    least = min(one.configuration.threshold for one in broken)
    new.append(f"a `threshold` below {least:g} takes more samples")
    sentences.append(f"No configuration here tries what may bring estimates closer: {'; '.join(new)}.")
    if in_vain:
        sentences.append(f"Not enough by itself here: {'; '.join(in_vain)}.")
    return sentences


def print_check(console: Console, check: SamplingCheck, results: Sequence[SamplingResult]) -> None:
    """Print a table, then the findings on configurations that are not equivalent."""
    from rich.markup import escape

    rows = [
        (
            escape(one.name), f"[{VERDICT_STYLES[one.verdict]}]{one.verdict}[/]",
            f"{100 * one.simulated:.2f}", f"{one.speedup:.1f}",
            f"within: {one.inner.verdict} ({worst(one.inner):.2f});\n"
            f"across: {one.outer.verdict} ({worst(one.outer):.2f})",
        )
        for one in results
    ]  # fmt: skip
    headings = (
        "configuration", "verdict", "simulated\n\\[%]", "speed-up\n\\[times]",
        "within a run, and\nacross runs (change of z)",
    )  # fmt: skip
    title = escape(f"{check.name}: sampling against {check.baselines} full simulations")
    print_table(console, title, headings, rows, right=[2, 3])
    console.print(headline(results), style="bold")
    for sentence in swept(check, results):
        console.print(sentence)
    console.print("In brackets: the largest change of z, of which "
                  f"{check.delta:g} still counts as none.", style="dim")  # fmt: skip
    for name, where, text in told(results, 3):
        console.print(f"- {name}, {where}: {text}", markup=False)
    if step := next_steps(check, results):
        console.print(f"Next: {step[:1].lower()}{step[1:]}", markup=False)


def _figure(check: SamplingCheck, results: Sequence[SamplingResult]) -> Any:
    """The changes of z of each configuration, pair by pair, with the band that counts as none."""
    figure, axes = new_figure(9.8, 1.2 + 0.62 * len(results), 1, 2, sharey=True)
    for axis, (title, kind) in zip(axes, (("Within a run", "inner"), ("Across runs", "outer")), strict=True):
        axis.axvspan(-check.delta, check.delta, color="#e7f2ec", zorder=0)
        axis.axvline(0, color=MUTED, linewidth=0.8)
        for place, one in enumerate(results):
            found: Perturbation = getattr(one, kind)
            pairs = [pair for pair in found.pairs if np.isfinite(pair.delta_z)]
            spread = np.linspace(-0.24, 0.24, len(pairs)) if len(pairs) > 1 else [0.0]
            for pair, offset in zip(sorted(pairs, key=lambda pair: pair.delta_z), spread, strict=True):
                colour = VERDICTS[pair.verdict]
                if np.isfinite(pair.ci).all():
                    axis.plot(pair.ci, [place + offset] * 2, color=colour, linewidth=1.0, alpha=0.55)
                axis.plot(pair.delta_z, place + offset, VERDICT_MARKERS[pair.verdict], color=colour, markersize=3.2)
        axis.set_title(title)
        axis.set_xlabel("change of z, every pair of metrics with its interval", color=INK)
        axis.set_yticks(range(len(results)), [one.name for one in results])
    axes[0].invert_yaxis()
    return figure


def render_check(check: SamplingCheck, results: Sequence[SamplingResult]) -> str:
    """The page as text, self-contained."""
    kinds = {"within a run": "inner", "across runs": "outer"}
    changes = page.drawn(
        _figure(check, results),
        ("configuration", "relation", "a", "b", "change_of_z", "low", "high", "verdict"),
        [
            (one.name, where, pair.a, pair.b, pair.delta_z, *pair.ci, pair.verdict)
            for one in results
            for where, kind in kinds.items()
            for pair in getattr(one, kind).pairs
        ],
        name="changes", text="Changes of z by sampling configuration",
        caption="Every pair of metrics with its interval, a line a pair. A configuration whose lines all lie in the "
        "shaded zone says of the metrics what full simulation says.",
    )  # fmt: skip
    return page.render_page(
        "check.html.jinja", _FOLDER, check=check, results=results, changes=changes, findings=told(results, 4),
        next_steps=next_steps(check, results),
        headline=headline(results), swept=swept(check, results), describe=describe, worst=worst,
        metrics=", ".join(short(metric) for metric in check.hardware_metrics),
    )  # fmt: skip
