"""The text of a first campaign: YAML with comments that say where each value is from."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from instrumenter.spec.software_metrics import MetricSpec
from measure.first_campaign.software_choice import Choice
from measure.first_campaign.trial_run import RECORDS, SHORTEST_RECORD_CYCLES, Trial
from measure.perturbation.uninformative_metrics import TIED, MetricFinding
from measure.runs.campaign_model import Program

_WIDTH = 110  # of a line


def draft_text(name: str, program: Mapping[str, Any], machine: str, limit_instructions: int | None = None) -> str:
    """The least campaign that is valid, to build and run the program by."""
    return yaml.safe_dump(
        {
            "name": name, "program": dict(program), "machine": machine,
            "hardware_metrics": ["PAPI_TOT_CYC", "PAPI_TOT_INS"],
            **_limits(limit_instructions),
        },
        sort_keys=False, allow_unicode=True,
    )  # fmt: skip


def campaign_text(
    name: str,
    program: Mapping[str, Any],
    machine: str,
    trial: Trial,
    choice: Choice,
    file: str,
    limit_instructions: int | None = None,
) -> str:
    """The campaign file. ``file``: its path, as the user would type it. ``limit_instructions``: None: by default."""
    lines = [
        f"# A first campaign for {program.get('directory') or program.get('source') or name}, "
        "written by `measure init`.",
        f"#   measure run --counts {file}     how often each software metric fires, in seconds",
        f"#   measure run --dry-run {file}    what the campaign costs, and what it can find",
        f"#   measure run {file}              run it",
        "# Every key, with its unit and default: measure schema campaign",
        _yaml({"name": name}),
        "",
        *_program(program),
        "",
        "# What a campaign needs to know of a processor: pipeline, caches, predictors, counters.",
        _yaml({"machine": machine}),
        "",
        *_sampling(trial),
        "",
        *_hardware(trial),
        "",
        *(_software(trial, choice) if choice.counters else _no_software()),
        "# Of each variant, and of the plain program, so many runs; run i of all of them shares its noise.",
        "baselines: 10",
        "replicates: 10",
        "",
        "# Everything random comes from it: the same seed gives the same traces, to the bit.",
        "seed: 1",
    ]
    if limit_instructions is not None:
        lines += ["", "# Instructions that a run may execute before it is given up.", _flow_line(limit_instructions)]
    return "\n".join(lines) + "\n"


def _limits(instructions: int | None) -> dict[str, Any]:
    return {} if instructions is None else {"limits": {"instructions": instructions}}


def _flow_line(limit_instructions: int) -> str:
    return f"limits: {_flow(_limits(limit_instructions)['limits'])}"


def _program(program: Mapping[str, Any]) -> list[str]:
    if "build" in program:
        about = "Built in a copy of the directory, once for each set of counters, with $CC for the compiler."
    else:
        flags = _flow(list(program.get("flags", Program.model_fields["flags"].default)))
        about = f"Compiled with `flags: {flags}` and linked statically for riscv64-linux-musl."
    return [f"# {about}", "# It sees its arguments and the files listed here, and no other file.",
            _yaml({"program": dict(program)})]  # fmt: skip


def _sampling(trial: Trial) -> list[str]:
    short = trial.cycles < RECORDS * SHORTEST_RECORD_CYCLES
    lines = [
        f"# A run takes {trial.cycles:,} cycles ({trial.instructions:,} instructions), which are about "
        f"{trial.records:,} records.",
        *(["# Records are as short as is sensible: more work for the program would make more of them."] * short),
        "# Shorter records show shorter phases; each metric should still have events in most of them.",
    ]
    if trial.uneven is not None:
        why = (
            "Cycles are the better unit where their records are even, since events are then those of a time. In this "
            f"program {trial.uneven.described}, and all of their events rise and fall together; records of "
            "instructions are even, and PAPI_TOT_CYC tells the time that each took."
        )
        lines += textwrap.wrap(why, _WIDTH, initial_indent="# ", subsequent_indent="# ")
    return [*lines, f"sampling: {{mode: ideal, every: {trial.every} {trial.unit}}}"]


def _hardware(trial: Trial) -> list[str]:
    width = max(len(metric.name) for metric in trial.metrics)
    lines = ["# Their relations, pair by pair, are what counters may perturb. `measure metrics`, given this file,",
             "# lists others.",
             "hardware_metrics:"]  # fmt: skip
    lines += [f"  - {one.name:<{width}}  # {one.description}: {one.events:,} in a run" for one in trial.metrics]
    return lines + _about_steady(trial.steady, trial.left_out)


def _about_steady(taken: Sequence[MetricFinding], left_out: Sequence[MetricFinding]) -> list[str]:
    """Comments on metrics that vary too little from record to record."""
    lines = [f"  # taken for want of others: {one.brief}" for one in taken]
    lines += textwrap.wrap(
        f"left out: {', '.join(one.brief for one in left_out)}", _WIDTH, initial_indent="  # ",
        subsequent_indent="  #   ", break_on_hyphens=False,
    ) if left_out else []  # fmt: skip
    if any(one.problem == "tied" for one in (*taken, *left_out)):
        lines.append(f"  # (tied: one value fills so much of the records, more than {TIED:.0%})")
    return lines


def _software(trial: Trial, choice: Choice) -> list[str]:
    counters = choice.counters
    cost = choice.instructions_an_event
    lines = [
        "# Counters in the functions and loops where the time goes."
        + (f" Counters in all candidates added {cost:.1f} instructions an event." if cost else ""),
        "software_metrics:",
    ]
    for one in counters:
        share = f"{percent(100 * one.function.share)} of all instructions"
        share += f", most in line {one.function.hottest}" if one.function.hottest else ""
        events = one.counts.events
        added = choice.added_percent(one, trial.instructions)
        lines += [
            f"  # {one.function.name}, {one.function.place}: {share}",
            f"  {one.name}: {_spec(one.spec)}  # {events:,} events; adds about {percent(added)} of the instructions",
        ]
    lines += _about_steady(choice.steady, choice.left_out)
    if not choice.starts_tasks:  # of threads a second run counts nothing
        costliest = max(counters, key=lambda one: one.counts.events)
        second = costliest.spec.model_copy(update={"method": "second_run"})
        lines += [
            "  # A second run counts, and the measured program stays plain: helps where a counter's own instructions",
            "  # make a variant `perturbed`, if the program does the same in each run. In place of its line:",
            f"  # {costliest.name}: {_spec(second)}",
        ]
    entries = [one.name for one in counters if one.spec.event == "entry"]
    lines += ["", "# Sets of counters that runs collect together, each compared with the plain program."]
    lines.append("variants:")
    if entries and len(entries) < len(counters):
        lines.append(f"  functions: {_flow(entries)}")
    lines += [f"  all: {_flow([one.name for one in counters])}", ""]
    return lines


def _spec(spec: MetricSpec) -> str:
    """A software metric as YAML in one line, without defaults."""
    return _flow(spec.model_dump(exclude_none=True, exclude_defaults=True))


def percent(value: float) -> str:
    """Two digits, and never a power of ten: ``0.38%``, ``12%``, ``240%``."""
    return f"{value:.0f}%" if value >= 10 else f"{value:.2g}%" if value >= 0.001 else "less than 0.001%"


def _no_software() -> list[str]:
    return [
        "# No function or loop of the program's own takes much of its time and runs often: name what to count.",
        "# Without software metrics there is nothing to compare the plain program with.",
        "# software_metrics:",
        "#   calls: {event: entry, function: NAME}",
        "#   iterations: {event: loop, function: NAME}",
        "",
    ]


def _yaml(data: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(data), sort_keys=False, allow_unicode=True, width=_WIDTH).rstrip()


def _flow(value: Any) -> str:
    text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, default_flow_style=True, width=1 << 16)
    return text.strip()
