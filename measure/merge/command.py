"""``measure merge``: reads the runs of directories of results and merges them. The merging is left to `runs`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from measure import run_command
from measure.errors import CampaignError
from measure.merge.progress import EventCurve
from measure.merge.runs import Merged, MergeError
from measure.types import BASELINE, Run


@dataclass(frozen=True)
class Results:
    """What a directory holds. ``warnings``: traces that are damaged or missing; ``verdicts``: of groups, if known;
    ``curve``: of the program's progress, if the campaign has its ground truth."""

    baselines: tuple[Run, ...]
    runs: tuple[Run, ...]
    clock_hz: int
    warnings: tuple[str, ...]
    verdicts: dict[str, str]
    curve: EventCurve | None = None

    def baseline(self, replicate: int | None = None) -> Run:
        """The baseline of that number, or the first. Raises `CampaignError` when it is not there."""
        for run in self.baselines:
            if replicate is None or run.spec.replicate == replicate:
                return run
        there = ", ".join(str(run.spec.replicate) for run in self.baselines)
        raise CampaignError(f"there is no baseline {replicate}: expected one of {there}")


def load_results(directory: Path) -> Results:
    """The runs that ``measure run`` left. Raises `MergeError` without a baseline or without others."""
    made, outcome = run_command.load_results(directory)
    plan, warnings = made.plan, list(outcome.warnings)
    groups = {BASELINE, *plan.campaign.variant_sets()}  # and not those that only tell the ground truth
    there = sorted(
        (run for run in outcome.runs if run.spec.group in groups),
        key=lambda run: (run.spec.group, run.spec.replicate),
    )
    baselines = tuple(run for run in there if run.spec.group == BASELINE)
    runs = tuple(run for run in there if run.spec.group != BASELINE)
    if not baselines or not runs:
        lacking = "baseline" if not baselines else "run with software metrics"
        damage = f" ({warnings[0]})" if warnings else ""
        raise MergeError(
            f"{directory} has no {lacking} that can be read{damage}: expected at least one; `measure run` makes them"
        )
    curve = made.truth.calibration.curve if made.truth else None
    return Results(baselines, runs, plan.clock_hz, tuple(warnings), _verdicts(directory), curve)


def load_all(directories: Sequence[Path]) -> Results:
    """Runs of several directories: baselines of the first, and what else there is, of the others with their names.

    The others' baselines are among the runs: they may have hardware metrics that the first's lack. Raises
    `CampaignError` and `MergeError`, as `load_results`.
    """
    first, *others = [load_results(directory) for directory in directories]
    runs, warnings, verdicts = list(first.runs), list(first.warnings), dict(first.verdicts)
    for directory, results in zip(directories[1:], others, strict=True):
        if results.clock_hz != first.clock_hz:
            raise MergeError(
                f"{directory} is of a machine of {results.clock_hz:,} Hz, {directories[0]} of {first.clock_hz:,} Hz: "
                "expected runs of one machine"
            )
        place = directory.resolve().name
        for run in (*results.baselines, *results.runs):
            runs.append(replace(run, spec=replace(run.spec, group=f"{place}:{run.spec.group}")))
        verdicts |= {f"{place}:{group}": verdict for group, verdict in results.verdicts.items()}
        warnings += results.warnings
    return Results(first.baselines, tuple(runs), first.clock_hz, tuple(warnings), verdicts, first.curve)


def _verdicts(directory: Path) -> dict[str, str]:
    """Of each group, from summary.json; of baselines, that they change nothing. Empty before `measure run` ended."""
    try:
        variants = json.loads((directory / "summary.json").read_text(encoding="utf-8"))["variants"]
        return {BASELINE: "equivalent"} | {name: str(about["verdict"]) for name, about in variants.items()}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def print_merged(console: Console, merged: Merged, warnings: tuple[str, ...]) -> None:
    """Where each metric is from, how well its run aligned, and the warnings; fits 80 columns."""
    trace = merged.baseline.trace
    title = (
        f"{len(merged.metrics)} metrics on the {trace.n_records:,} records of {merged.metadata()['baseline']}"
    )
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for heading in ("metric", "run"):
        table.add_column(heading, overflow="fold")
    table.add_column("group is", no_wrap=True)
    for heading in ("total", "cost", "distance\n\\[sd]", "stretched"):
        table.add_column(heading, justify="right", no_wrap=True)
    for source in merged.sources:
        if source.run is None:
            table.add_row(
                escape(source.metric), merged.metadata()["baseline"], "", f"{source.total:,}", "", "", ""
            )
            continue
        aligned = merged.runs[source.run]
        cost = "" if aligned.align == "progress" else f"{aligned.cost:.3g}"
        table.add_row(
            escape(source.metric), escape(aligned.name), merged.verdict_of(aligned), f"{source.total:,}", cost,
            f"{aligned.distance:.2f}", f"{100 * aligned.stretched_fraction:.1f}%",
        )  # fmt: skip
    console.print(table)
    for warning in (*merged.warnings, *warnings):
        console.print(f"- {escape(warning)}", style="yellow", highlight=False)
