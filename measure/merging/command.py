"""``measure merge``: loads the runs of result directories; `measure.merging.merge_runs` merges them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from measure.alignment.setting import DEFAULT_ALIGNMENT, AlignmentSetting
from measure.analysis import stored_runs
from measure.arguments import check_number
from measure.console.tables import print_table
from measure.errors import ArgumentError, CampaignError
from measure.merging.merge_runs import Merged, MergeError
from measure.merging.variant_verdict import BASELINES, VariantVerdict, verdict_in_summary
from measure.result_files import SUMMARY_NAME
from measure.run_types import BASELINE, Run
from measure.runs.plan import Plan
from measure.runs.program_identity import different_programs, program_name, same_program
from measure.runs.program_progress import EventCurve
from measure.verdict_files.summary_file import read_summary


@dataclass(frozen=True)
class Results:
    """The runs of a result directory. ``warnings``: damaged or missing traces; ``verdicts``: by variant, where known;
    ``curve``: progress over reference events, if the campaign has its ground truth; ``alignment``: of the verdicts
    across runs; ``plan``: the campaign's, the first one of several; ``notes``: that the programs may not be the same,
    which is to be read first."""

    baselines: tuple[Run, ...]
    runs: tuple[Run, ...]
    clock_hz: int
    warnings: tuple[str, ...]
    verdicts: dict[str, VariantVerdict]
    plan: Plan
    curve: EventCurve | None = None
    alignment: AlignmentSetting = DEFAULT_ALIGNMENT
    notes: tuple[str, ...] = ()

    def baseline(self, replicate: int | None = None) -> Run:
        """The baseline of that number, by default the first. Raises `CampaignError` when there is none."""
        for run in self.baselines:
            if replicate is None or run.spec.replicate == replicate:
                return run
        numbers = ", ".join(str(run.spec.replicate) for run in self.baselines)
        raise CampaignError(f"there is no baseline {replicate}: expected one of {numbers}")

    def aligned_with(self, step_penalty: float | None, band: float | None) -> AlignmentSetting:
        """The campaign's alignment, with what is given in place of its own. Raises `ArgumentError` out of range."""
        if step_penalty is not None:
            check_number("step_penalty", step_penalty, least=0, what="variances of a channel")
        if band is not None:
            check_number("band", band, above=0, most=1, what="a fraction of the longer trace")
        own = self.alignment
        return AlignmentSetting(
            own.step_penalty if step_penalty is None else step_penalty, own.band if band is None else band
        )  # fmt: skip

    def differing(self, used: AlignmentSetting) -> tuple[str, ...]:
        """A warning if the verdicts across runs are about another alignment than the one ``used``."""
        if used == self.alignment:
            return ()
        return (
            f"Aligned with {used}; the campaign's verdicts across runs hold for {self.alignment}: set `alignment:` in "
            "the campaign file and run `measure report` to judge this alignment.",
        )


def load_results(directory: Path, *, baselines_suffice: bool = False) -> Results:
    """The runs that ``measure run`` left. Raises `MergeError` without a baseline, or without an instrumented run unless
    ``baselines_suffice``."""
    result, outcome = stored_runs.load_results(directory)
    plan, warnings = result.plan, [*outcome.warnings, *outcome.incomplete]
    compared = {BASELINE, *plan.campaign.variant_sets()}  # without the runs that only serve the ground truth
    compared_runs = sorted(
        (run for run in outcome.runs if run.spec.variant in compared),
        key=lambda run: (run.spec.variant, run.spec.replicate),
    )
    baselines = tuple(run for run in compared_runs if run.spec.variant == BASELINE)
    runs = tuple(run for run in compared_runs if run.spec.variant != BASELINE)
    if not baselines or not (runs or baselines_suffice):
        lacking = "baseline" if not baselines else "run with software metrics"
        damage = f" ({warnings[0]})" if warnings else ""
        instead = "`measure run` makes them"
        if baselines and len(compared) == 1:
            damage, instead = "", "its campaign has none: name some under `software_metrics:`, then `measure run`"
        raise MergeError(f"{directory} has no {lacking} that can be read{damage}: expected at least one; {instead}")
    curve = result.truth.calibration.curve if result.truth else None
    return Results(baselines, runs, plan.clock_hz, tuple(warnings), _verdicts(directory), plan, curve,
                   plan.campaign.alignment_setting)  # fmt: skip


def load_all(directories: Sequence[Path]) -> Results:
    """The runs of several directories; baselines are those of the first, variants of the others begin with the label of
    their directory (`labels`).

    Baselines of the other directories become runs: they may have hardware metrics that the first's lack; none of
    several directories needs runs with software metrics. Raises `ArgumentError` without a directory and for one that
    is given twice, and `CampaignError` and `MergeError` as `load_results`.
    """
    if not directories:
        raise ArgumentError("results: got no directory, expected at least one that `measure run` left")
    label_of = labels(directories)
    several = len(directories) > 1
    first, *others = [load_results(directory, baselines_suffice=several) for directory in directories]
    runs, warnings, verdicts = list(first.runs), list(first.warnings), dict(first.verdicts)
    notes: list[str] = []
    for directory, label, results in zip(directories[1:], label_of[1:], others, strict=True):
        if results.clock_hz != first.clock_hz:
            raise MergeError(
                f"{directory} is of a machine of {results.clock_hz:,} Hz, {directories[0]} of {first.clock_hz:,} Hz: "
                "expected runs of one machine"
            )
        if first.plan.machine_text == results.plan.machine_text:  # else its runs are refused for that
            notes += _check_program(directories[0], first.plan, directory, results.plan)
        for run in (*results.baselines, *results.runs):
            runs.append(replace(run, spec=replace(run.spec, variant=f"{label}:{run.spec.variant}")))
        verdicts |= {f"{label}:{variant}": verdict for variant, verdict in results.verdicts.items()}
        warnings += results.warnings
    return Results(
        first.baselines, tuple(runs), first.clock_hz, tuple(warnings), verdicts, first.plan, first.curve,
        first.alignment, tuple(notes),
    )  # fmt: skip


def _check_program(first: Path, own: Plan, directory: Path, other: Plan) -> list[str]:
    """Check that the plans of two directories are of the same program; a sentence where that is not known.

    Raises `MergeError`.
    """
    if programs := different_programs(own, other):
        raise MergeError(
            f"{first} measures {programs[0]}, and {directory} {programs[1]}: expected the same program on the same "
            "input and machine, as the counts of one are put on the records of the other"
        )
    same = same_program(own, other)
    if same is False:
        raise MergeError(
            f"{first} and {directory} measure two versions of {program_name(own)}: its sources, flags, libraries or "
            "compiler changed between the campaigns. Expected the same program on the same input and machine: make the "
            f"runs of the older one again, `measure run {own.campaign_words}` or `measure run {other.campaign_words}`"
        )
    if same is None:
        return [
            f"{first} and {directory} may measure two versions of {program_name(own)}: the programs without counters "
            "were built in different places, or from different files, or by different versions of the compiler or of "
            "this tool. If its code is not the same, what the merged trace says of metrics of both is wrong."
        ]
    return []


def labels(directories: Sequence[Path]) -> tuple[str, ...]:
    """For each directory the shortest end of its path that no other one's path ends with: `s`, or `x/s` beside `y/s`.

    Raises `ArgumentError` for a directory that is given twice.
    """
    parts = [directory.resolve().parts for directory in directories]
    twice = next((directory for n, directory in enumerate(directories) if parts[n] in parts[:n]), None)
    if twice is not None:
        raise ArgumentError(f"results: got {twice} twice, expected directories of different results")

    def shortest(own: tuple[str, ...]) -> str:
        ends = (own[-length:] for length in range(1, len(own)))
        alone = (end for end in ends if sum(other[-len(end) :] == end for other in parts) == 1)
        return "/".join(next(alone, own)).replace("//", "/")

    return tuple(map(shortest, parts))


def _verdicts(directory: Path) -> dict[str, VariantVerdict]:
    """The verdict of each variant, from summary.json; baselines are equivalent. Empty before `measure run` ended.

    Raises `CampaignError` for a summary that is damaged or of another version.
    """
    if not (directory / SUMMARY_NAME).exists():
        return {}
    variants = read_summary(directory)["variants"]
    return {BASELINE: BASELINES} | {name: verdict_in_summary(about) for name, about in variants.items()}


def print_merged(console: Console, merged: Merged, warnings: tuple[str, ...]) -> None:
    """Print each metric's run, the quality of that run's alignment, and the warnings; fits 80 columns."""
    trace = merged.baseline.trace
    title = f"{len(merged.metrics)} metrics on the {trace.n_records:,} records of {merged.metadata()['baseline']}"
    rows = []
    for source in merged.sources:
        if source.run is None:
            rows.append((escape(source.metric), merged.metadata()["baseline"], f"{source.total:,}", "", "", ""))
            continue
        aligned = merged.runs[source.run]
        verdict = str(merged.verdict_of(aligned)).replace(" but not ", " but\nnot ").replace(" across ", "\nacross ")
        left = f"{100 * aligned.left.share:.0f}" if aligned.left.is_known else ""
        left += f"\n{100 * aligned.left_of_two.share:.0f} of two" if aligned.left_of_two.is_known else ""
        rows.append(
            (
                escape(source.metric), escape(f"{aligned.name}\n{verdict}"), f"{source.total:,}",
                f"{aligned.distance:.2f}", f"{100 * aligned.stretched_fraction:.1f}", left,
            )
        )  # fmt: skip
    headings = ("metric", "run, verdict\non its variant", "total", "distance\n\\[sd]", "stretched\n\\[%]",
                "relations\nleft \\[%]")  # fmt: skip
    print_table(console, title, headings, rows, right=range(2, 6))
    for warning in (*merged.warnings, *warnings):
        console.print(f"- {escape(warning)}", style="yellow", highlight=False)
