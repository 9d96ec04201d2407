"""``measure merge``: reads the runs of a directory of results and merges them. The merging is left to `runs`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from measure.errors import CampaignError
from measure.merge.runs import Merged, MergeError
from measure.plan_file import load_plan
from measure.store import Store
from measure.types import BASELINE, Run


@dataclass(frozen=True)
class Results:
    """What a directory holds. ``warnings``: traces that are damaged or missing."""

    baselines: tuple[Run, ...]
    runs: tuple[Run, ...]
    clock_hz: int
    warnings: tuple[str, ...]

    def baseline(self, replicate: int | None = None) -> Run:
        """The baseline of that number, or the first. Raises `CampaignError` when it is not there."""
        for run in self.baselines:
            if replicate is None or run.spec.replicate == replicate:
                return run
        there = ", ".join(str(run.spec.replicate) for run in self.baselines)
        raise CampaignError(f"there is no baseline {replicate}: expected one of {there}")


def load_results(directory: Path) -> Results:
    """The runs that ``measure run`` left. Raises `MergeError` without a baseline or without others."""
    plan = load_plan(directory)
    with Store(directory) as store:
        found = [store.load(key, spec) for key, spec in zip(plan.keys, plan.specs, strict=True)]
    warnings = [
        f"{damage}; it is left out. `measure run` makes its run again." for _, damage in found if damage
    ]
    there = sorted(
        (run for run, _ in found if run is not None), key=lambda run: (run.spec.group, run.spec.replicate)
    )
    if len(there) < len(found):
        warnings.append(
            f"{len(found) - len(there)} of {len(found)} runs are missing: `measure run` makes them."
        )
    baselines = tuple(run for run in there if run.spec.group == BASELINE)
    runs = tuple(run for run in there if run.spec.group != BASELINE)
    if not baselines or not runs:
        lacking = "baseline" if not baselines else "run with software metrics"
        damage = f" ({warnings[0]})" if warnings else ""
        raise MergeError(
            f"{directory} has no {lacking} that can be read{damage}: expected at least one; `measure run` makes them"
        )
    return Results(baselines, runs, plan.clock_hz, tuple(warnings))


def print_merged(console: Console, merged: Merged, warnings: tuple[str, ...]) -> None:
    """Where each metric is from, how well its run aligned, and the warnings."""
    trace = merged.baseline.trace
    title = (
        f"{len(merged.metrics)} metrics on the {trace.n_records:,} records of {merged.metadata()['baseline']}"
    )
    table = Table(title=title, title_justify="left", title_style="bold")
    for heading in ("metric", "run", "total", "cost", "distance [sd]", "stretched"):
        table.add_column(heading, justify="left" if heading in ("metric", "run") else "right")
    for source in merged.sources:
        if source.run is None:
            table.add_row(escape(source.metric), "the baseline", f"{source.total:,}", "", "", "")
            continue
        aligned = merged.runs[source.run]
        cost = "" if aligned.align == "progress" else f"{aligned.cost:.3g}"
        table.add_row(
            escape(source.metric), escape(aligned.name), f"{source.total:,}", cost,
            f"{aligned.distance:.2f}", f"{100 * aligned.stretched_fraction:.1f}%",
        )  # fmt: skip
    console.print(table)
    for warning in (*merged.warnings, *warnings):
        console.print(f"- {escape(warning)}", style="yellow", highlight=False)
