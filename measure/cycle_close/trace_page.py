"""A cycle-close trace as one self-contained HTML page, beside trace.parquet.

It costs the command a few milliseconds: it takes the columns of `rates.columns_of` and the content of summary.json as
they are, and the browser draws.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from common.distinct import distinct
from measure.built_in.machine import DESCRIBED
from measure.cycle_close.far_off import about_unsampled, about_worst, is_far_off, worst_metric
from measure.cycle_close.rate_labels import RATE_LABELS
from measure.cycle_close.rates import DEVIATIONS, LEAST_PER_INSTRUCTION, Columns, about_blank
from measure.cycle_close.signature import about_crowded_signatures, entries_for
from measure.cycle_close.tracer import BY_DEFAULT
from measure.perturbation.wording import number_text
from measure.report.elements import Step, bullets, data_link, paragraph, section, table, to_do
from measure.report.page import csv_uri, plain_page
from measure.report.traces import Line, Row, Strip, Style, TraceFigure, scripts

CATEGORIES: tuple[tuple[str, Style], ...] = (("matched", "fourth"), ("unsampled", "fifth"), ("simulated", "after"))
"""Drawn in this order, so that the few intervals that were simulated are on top."""
MOST_PHASES = 20
MUCH_OFF_PERCENT = 10.0
_SHOWN_OFF_PERCENT = 1.0
ACCESSES = "accesses_per_1000_instructions"
_OPTIONS = {
    "interval_instructions": "--interval", "threshold": "--threshold", "base": "--base", "dimensions": "--dimensions",
    "signature": "--signature", "entries": "--entries", "when_full": "--when-full", "update": "--update",
    "predictor": "--predictor", "unsampled": "--unsampled", "wait_step": "--wait-step",
}  # fmt: skip
"""Options of the command by the name of the setting; fractions are given in percent."""
_OF_PREDICTING = ("predictor", "unsampled")


def render_page(about: Mapping[str, Any], estimated: Columns, actual: Columns | None) -> str:
    """The page as text. ``about``: what summary.json has; ``actual``: of the full simulation, None without one."""
    name = str(about["program"]).rsplit("/", 1)[-1].split(".")[0]
    figures = _figures(estimated, actual)
    shares = {one: f"{100 * share:.1f}%" for one, share in about["share"].items()}
    title = f"{name}: cycle-close trace"
    sub = (
        f"{about['instructions'] / 1e6:,.1f} M instructions in {about['intervals']:,} intervals of {about['phases']} "
        f"phases on {about['machine']}: {shares['simulated']} simulated in detail, {shares['matched']} matched to a "
        f"sample of their phase, {shares['unsampled']} unsampled; {about['seconds']:.2f} s. "
        f"{about_blank(about['blank_intervals'], about['settings']['unsampled'])}"
    ).rstrip()
    parts = [
        to_do(_headline(about), _steps(about), "Nothing: the trace is what it says."),
        section("The program over time", *(one.html() for one in figures)),
        *([_deviations(about["validation"]), _events(about["validation"])] if "validation" in about else []),
        _phases(estimated, actual),
        section("What the figures mean", bullets(_MEANING)),
    ]
    return plain_page(
        title=Markup("{}").format(title), heading=Markup("{}").format(title), sub=Markup("{}").format(sub),
        content=Markup("\n").join(parts), scripts=scripts(figures),
    )  # fmt: skip


_MEANING = (
    "Intervals that run the same code in the same proportions, and wait for memory alike, are of one phase. A "
    "simulated interval was simulated in detail. A matched one was only emulated: it has the events of the sample of "
    "its phase that is nearest. An unsampled one was emulated before its phase had a sample: it has what `--unsampled` "
    "says, or no values.",
    "By default the misses of caches and TLBs and the mispredicted branches are counted while the program is emulated: "
    "each interval has its own.",
    "So changes within a phase that neither its samples nor these counts have are not in the trace: a level stretch of "
    "matched intervals may be one sample repeated. Relations between metrics within a phase need "
    "`measure check-sampling`.",
    "A sample begins with what `--warm-up` gives it. By default these are caches, TLBs and a branch predictor that are "
    "kept up to date while the program is emulated, as a full simulation would leave them but for the targets of "
    "branches; else what the last references and branches leave.",
    "Deviation: mean of |actual - estimated| / actual over the intervals that have both. Whole run: the error of the "
    "rate of the whole program, in which errors of intervals cancel.",
    "Energy is the sum of events, each times the picojoules that the machine file gives it.",
)  # fmt: skip


def _headline(about: Mapping[str, Any]) -> str:
    cpi = about["estimate"]["cpi"]
    if not about["complete"]:
        return "The trace ends early: the program was interrupted or failed."
    if "validation" not in about:
        return "How far the estimates are off is not known." if cpi is None else (
            f"CPI of the whole run: {cpi:.3f}, by estimate; how far it is off was not measured."
        )  # fmt: skip
    found = about["validation"]["metrics"].get("cpi")
    if found is None or found["deviation_percent"] is None:
        return "The full simulation has no interval in common with the estimates."
    cpi_off = (
        f"CPI of an interval is {found['deviation_percent']:.1f}% off on average, at most "
        f"{found['largest_percent']:.0f}%, that of the whole run "
        f"{found['whole_run_percent']:.2f}%; full simulation took {duration_text(about['validation'])}."
    )
    worst = about_worst(about["validation"])
    return f"{worst} {cpi_off}" if is_far_off(about["validation"]) else f"{cpi_off} {worst}"


def duration_text(validation: Mapping[str, Any]) -> str:
    """How long the full simulation took beside the trace. ``validation``: its ``full_seconds`` and ``speedup``."""
    speedup, seconds = validation["speedup"], validation["full_seconds"]
    if speedup < 1:
        return (
            f"{seconds:.2f} s, less than the trace: the program is short, or this was the first trace, which compiles "
            "the code that makes it"
        )
    return f"{seconds:.2f} s, {speedup:.1f} times as long"


def _steps(about: Mapping[str, Any]) -> list[Step]:
    """What to do next, with commands."""
    steps = []
    validation = about.get("validation")
    frequent = about["frequent_branches"]
    crowded = about_crowded_signatures(frequent, about["settings"]["dimensions"])
    if crowded:
        steps.append(Step(crowded, (_command(about, dimensions=entries_for(frequent)),)))
    unsampled = about_unsampled(about["share"]["unsampled"])
    if unsampled:
        steps.append(Step(unsampled, (_command(about, "--roll-back"),)))
    if validation is None:
        steps.append(
            Step(
                "Simulate everything once, too, to see how far the estimates are off.", (_command(about, "--validate"),)
            )
        )
    what, off = "cpi", about["sampled_again"]["cpi_off_percent"]
    if validation:
        what, off = worst_metric(validation["metrics"]) or ("cpi", None)
    what = RATE_LABELS[what].partition(" [")[0]
    if off is not None and off > MUCH_OFF_PERCENT and about["settings"]["signature"] == "hashed":
        steps.append(
            Step(
                f"Estimates of {what} are {off:.0f}% off in the mean: loops of unlike code may have the same entry "
                "of a hashed signature. Let each have its own:",
                (_command(about, signature=BY_DEFAULT.signature, dimensions=BY_DEFAULT.dimensions),),
            )
        )
    elif off is not None and off > MUCH_OFF_PERCENT and not about["settings"]["roll_back"] and not unsampled:
        samples = about["samples_per_phase"]
        more, command = "leave no phase unsampled", _command(about, "--roll-back")
        if samples:  # two runs leave none
            more, command = "simulate more of each phase", _command({**about, "samples_per_phase": samples + 2})
        steps.append(
            Step(
                f"Estimates of {what} are {off:.0f}% off in the mean. Try to {more}, or to distinguish more of them. "
                "That does not help where intervals differ in neither code nor waiting:",
                (command, _command(about, threshold=about["settings"]["threshold"] / 2)),
            )
        )  # fmt: skip
    of_relations = "Small deviations do not say that relations between metrics are those of a full simulation. That"
    if validation is not None and is_far_off(validation):
        of_relations = (
            "Use nothing that is far off, by the tables below, and no relation with it. Whether other metrics keep "
            "their relations"
        )
    steps.append(
        Step(
            f"{of_relations} is tested by a campaign of your program with `configurations:`; a checkout has one to "
            "begin with, configs/campaigns/sampling.yaml.",
            ("measure check-sampling --help", "measure schema sampling-check"),
        )
    )
    return steps


def _command(about: Mapping[str, Any], *more: str, **changed: object) -> str:
    """The command that made this trace, with ``more`` options and ``changed`` settings."""
    settings = {**about["settings"], **changed}
    machine = str(about["machine"])
    words = ["measure", "cycleclose", *(["--machine", machine] if machine != DESCRIBED else [])]
    for one in about["machine_settings"]:
        words += ["--set", one]
    predicts = not (settings["roll_back"] or "--roll-back" in more or about["samples_per_phase"])
    for name, option in _OPTIONS.items():
        value = settings[name]
        if value != getattr(BY_DEFAULT, name) and (predicts or name not in _OF_PREDICTING):
            words += [option, f"{100 * value:g}" if isinstance(value, float) else str(value)]
    if settings["warm_up"] == "queues":
        words += ["--warm-up", f"{settings['warm_references']},{settings['warm_branches']}"]
    words += ["--roll-back"] * bool(settings["roll_back"])
    if about["samples_per_phase"]:
        words += ["--twice", str(about["samples_per_phase"])]
    if about["seed"] != 1:
        words += ["--seed", str(about["seed"])]
    return shlex.join([*words, *more, *about["options"], about["program"], *about["arguments"]])


def _figures(estimated: Columns, actual: Columns | None) -> tuple[TraceFigure, ...]:
    """The rates over time, and the phases under them."""
    edges = np.append(estimated["begin_instructions"][:1], estimated["end_instructions"])
    rows = []
    for name, label in RATE_LABELS.items():
        if name in estimated and not np.isnan(estimated[name]).all():
            line = Line("cycle-close", estimated[name], "fourth")
            full = () if actual is None else (Line("full simulation", actual[name], "before"),)
            rows.append(Row(label, (*full, line)))
    compared = "" if actual is None else (
        "See where the estimate and the full simulation part: by a level, which a sample has that is unlike its phase, "
        "or in single intervals. "
    )  # fmt: skip
    groups = np.zeros(len(edges) - 1, np.int64)
    for n, (category, _) in enumerate(CATEGORIES):
        groups[estimated["category"] == category] = n
    strip = Strip("Phase", estimated["phase"], groups, CATEGORIES)
    shared: dict[str, Any] = {"edges": edges, "unit": "instructions", "interval": "interval"}
    over_time = TraceFigure(
        "rates", rows=tuple(rows), **shared,
        caption=f"Rates of each interval. {compared}Drag across a plot, or use the buttons, to zoom in. Single "
        "extremes may run out of the picture; trace.parquet has all events.",
    )  # fmt: skip
    phases = TraceFigure(
        "phases", strip=strip, **shared,
        caption="The phase of each interval, and how it got its values. See whether phases come back in the order that "
        "you expect of the program, and whether a phase that fills much time was simulated more than once.",
    )  # fmt: skip
    return (over_time, phases) if rows else (phases,)


def _deviations(validation: Mapping[str, Any]) -> Markup:
    """The deviation from the full simulation, a row a metric."""
    rows = [
        (
            RATE_LABELS[metric],
            *(_number(found[kind], "%") for kind in DEVIATIONS),
            *("-" if found[kind] is None else f"{found[kind]:.3g}" for kind in ("absolute", ACCESSES)),
        )
        for metric, found in validation["metrics"].items()
    ]
    heads = ("metric", "all intervals", "simulated", "matched", "unsampled", "whole run", "apart", "per 1000")
    return section(
        "Deviation from the full simulation",
        table("Deviation from the full simulation", heads, rows),
        paragraph(
            f"Mean deviation of an interval, by how it got its values. The full simulation took "
            f"{validation['full_seconds']:.2f} s. What simulated intervals deviate is the error of the warm-up; "
            "matched ones have that of the phases, too. Apart: mean difference of an interval in the metric's own "
            "unit. Per 1000: how many accesses or branches there are per 1000 instructions in the median interval; the "
            "rate of few says little about the program's time, and intervals with fewer than one are left out here. So "
            "are, from percentages, those with less than one hit, or branch predicted rightly, in 1000 instructions: "
            "relative to a rate near 0, a deviation says nothing.",
            note=True,
        ),
    )  # fmt: skip


def _events(validation: Mapping[str, Any]) -> Markup:
    """The events of the whole run that are off, a row an event."""
    totals = validation["events"]
    least = LEAST_PER_INSTRUCTION * totals["instructions"]["full"]
    rows = [(name, found["full"], found["estimated"], found["off_percent"]) for name, found in totals.items()]
    shown = [
        (name, f"{full:,.0f}", f"{estimated:,.0f}", f"{off:+.1f}%")
        for name, full, estimated, off in rows if full >= least and abs(off) > _SHOWN_OFF_PERCENT
    ]  # fmt: skip
    link = data_link("events", csv_uri(("event", "full", "estimated", "off_percent"), rows), "Data of all events (CSV)")
    what = (
        "Events in all intervals that have an estimate, for which the columns of trace.parquet add up. Those are not "
        f"shown that are at most {_SHOWN_OFF_PERCENT:.0f}% off, or happen less often than once in "
        f"{1 / LEAST_PER_INSTRUCTION:,.0f} instructions. Samples are chosen for code and waiting for memory: events "
        "that depend on neither and are not counted, such as mispredicted targets of indirect jumps, may be far off "
        "where the rates above are good."
    )
    heads = ("event", "full simulation", "estimates", "off")
    return section(
        "Events of the whole run",
        table("Events of the whole run", heads, shown) if shown else Markup(""),
        Markup('<p class="note">{} {}</p>').format(what, link),
    )


def _phases(estimated: Columns, actual: Columns | None) -> Markup:
    """How each phase was sampled."""
    rows = _phase_rows(estimated, actual)
    heads: tuple[str, ...] = (
        "phase",
        "simulated at",
        "intervals",
        "of all instructions",
        "simulated",
        "matched",
        "unsampled",
        "CPI",
    )
    heads += () if actual is None else ("CPI in full", "deviation")
    largest = sorted(rows, key=lambda row: -row[3])[:MOST_PHASES]
    shown = [
        (f"phase\u00a0{row[0]}", row[1], f"{row[2]:,}", f"{100 * row[3]:.1f}%", *(f"{one:,}" for one in row[4:7]),
         _number(row[7]), *([] if actual is None else [_number(row[8]), _number(row[9], "%")]))
        for row in largest
    ]  # fmt: skip
    of_all = f"The {len(largest)} largest of {len(rows)} phases. " if len(largest) < len(rows) else ""
    link = data_link("phases-sampled", csv_uri(heads, rows), "Data of all phases (CSV)")
    return section(
        "How each phase was sampled",
        table("How each phase was sampled", heads, shown, texts=1),
        Markup('<p class="note">{} {}</p>').format(
            f"{of_all}Simulated at: numbers of the first intervals that were simulated in detail. A large phase with "
            "one rests on it; a phase without one has no values of its own. CPI: of all its intervals.",
            link,
        ),
    )  # fmt: skip


def _phase_rows(estimated: Columns, actual: Columns | None) -> list[tuple[Any, ...]]:
    """For each phase: number, where it was simulated, intervals, share, intervals by category, CPI, and if ``actual``
    is given, its CPI there and the mean deviation [%] of its intervals."""
    phases, lengths = estimated["phase"], estimated["end_instructions"] - estimated["begin_instructions"]
    found = []
    for phase in distinct(phases).tolist():
        mine = np.flatnonzero(phases == phase)
        category = estimated["category"][mine]
        sampled = mine[category == "simulated"].tolist()
        places = ", ".join(f"{one:,}" for one in sampled[:3]) + (", ..." if len(sampled) > 3 else "")
        counts = [int((category == name).sum()) for name in ("simulated", "matched", "unsampled")]
        row = (
            phase,
            places or "-",
            len(mine),
            float(lengths[mine].sum() / lengths.sum()),
            *counts,
            _cpi(estimated, mine),
        )
        if actual is not None:
            truth, guess = actual["cpi"][mine], estimated["cpi"][mine]
            known = ~np.isnan(guess) & (truth > 0)
            off = 100 * np.abs(guess[known] / truth[known] - 1)
            row += (_cpi(actual, mine), float(off.mean()) if len(off) else float("nan"))
        found.append(row)
    return found


def _cpi(columns: Columns, mine: NDArray[np.int64]) -> float:
    """Cycles over instructions of the intervals that have values."""
    cycles, instructions = columns["cycles"][mine], columns["instructions"][mine]
    known = ~np.isnan(cycles)
    total = float(instructions[known].sum())
    return float(cycles[known].sum()) / total if total else float("nan")


def _number(value: float | None, unit: str = "") -> str:
    return f"{value:.2f}{unit}" if unit and value is not None and not np.isnan(value) else number_text(value)
