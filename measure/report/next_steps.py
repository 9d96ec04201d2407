"""What to do about a report: its findings that name a command, as steps with commands to copy."""

from __future__ import annotations

from dataclasses import dataclass

from measure.perturbation.analysis_types import VERDICTS
from measure.perturbation.finding import Finding
from measure.perturbation.wording import listed_names
from measure.report import elements
from measure.report.model import ReportData, VariantReport


@dataclass(frozen=True)
class NextStep(elements.Step):
    """``finding``: the finding of the report that the sentence tells; None for none."""

    finding: Finding | None = None


def next_steps(data: ReportData, results: str = "") -> tuple[NextStep, ...]:
    """The findings of ``data`` with a command, and remedies that helped; the gravest first.

    ``results``: the directory of the results as a command line has it; empty if unknown. A campaign in which every
    variant is equivalent, and nothing makes that doubtful, gets the command that joins its runs.
    """
    steps = []
    for finding in data.said:
        commands = finding.commands_in(results)
        if commands or finding.kind == "remedy":
            text = finding.text_in(results)
            if finding.kind == "next":
                text = finding.sentence_in(results)
                text = text[:1].upper() + text[1:]
            steps.append(NextStep(text, commands, finding))
    if not steps:  # traces of other tools: no command is known
        steps = [NextStep(one.text, (), one) for one in data.said if one.kind == "advice"]
    is_sound = bool(data.variants) and not data.invalidating
    if results and is_sound and all(variant.verdict == "equivalent" for variant in data.variants):
        blind = [variant.name for variant in data.variants if variant.inner.verdict == "not assessable"]
        commands = () if blind else (f"measure merge {results} --out merged.parquet",)
        text = "Use the counters: they change nothing that counts. This joins the runs into one trace."
        if restrictions := _restrictions(data):
            text = (
                "Use the counters with care: in the mean over runs they change nothing that counts, but "
                f"{', and '.join(restrictions)}. This joins the runs into one trace."
            )
        if unaligned := [one.name for one in data.variants if _is_not_assessable_across(one)]:
            text += (
                f" Across runs nothing could be judged of {listed_names(unaligned)}: whether these runs align with "
                "others is not shown, so their metrics may be related more weakly to others than they are."
            )
        if unjudged := _unjudged(data):
            text += f" Not judged, so not shown to be unchanged: {unjudged}."
        if blind:
            text = (
                f"Within a run nothing could be seen in {', '.join(blind)}: watch metrics that take many values, or "
                "take longer records, and run again."
            )
        steps.append(NextStep(text, commands))
    return tuple(steps)


def _restrictions(data: ReportData) -> list[str]:
    """What single runs of variants that change nothing in the mean are shown to do."""
    found = []
    if data.outlying_runs:
        runs = "; ".join(f"{', '.join(one.runs)} of {one.variant}" for one in data.outlying_runs)
        found.append(f"some runs stand out ({runs})")
    compared = {one.name: filter(None, (one.inner, one.outer_held_out)) for one in data.variants}
    if scattered := [name for name, each in compared.items() if any(one.scattered for one in each)]:
        names = listed_names(scattered)
        found.append(f"runs of {names} scatter more than baselines, so that one run says less than a plain one")
    return found


def _is_not_assessable_across(variant: VariantReport) -> bool:
    return variant.outer_held_out is not None and variant.outer_held_out.verdict == "not assessable"


def _unjudged(data: ReportData) -> str:
    """The pairs within a run that are not assessable, by variant; empty for none."""
    names = {one.name: [pair.name for pair in one.inner.of("not assessable")] for one in data.variants}
    return "; ".join(f"{listed_names(pairs)} of {name}" for name, pairs in names.items() if pairs)


def headline(data: ReportData) -> str:
    """The variants by verdict in a sentence, the gravest verdict first."""
    if not data.variants and not data.without_runs:
        return "Nothing was compared: the campaign has no variants."
    parts = []
    for verdict in VERDICTS:
        variants = [variant for variant in data.variants if variant.verdict == verdict]
        blind = [one for one in variants if verdict == "equivalent" and one.inner.verdict == "not assessable"]
        for names, what in (
            ([one.name for one in variants if all(one is not other for other in blind)], verdict.capitalize()),
            ([one.name for one in blind], "Equivalent across runs, not assessable within a run"),
        ):
            if names:
                parts.append(f"{what}: {', '.join(names)}.")
    if data.without_runs:
        parts.append(f"Without a verdict: {', '.join(one.name for one in data.without_runs)}.")
    return " ".join(parts)
