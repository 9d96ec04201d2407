"""What to do about a report: its findings that name a command, as steps with commands to copy."""

from __future__ import annotations

import re
from dataclasses import dataclass

from measure.perturbation.analysis_types import VERDICTS
from measure.report.model import ReportData

_COMMAND = re.compile("`((?:measure|instrument|emulate) [^`]+)`")
_REMEDY = ": Best remedy that was tried: "
"""Stands in the finding of an explanation that names what helps; see `measure.explanation.summary`."""
_CAMPAIGN = re.compile(r"(explain/\S+\.yaml) is the campaign with it")
_EXPLAIN = "`measure explain`, given the directory of these results,"


@dataclass(frozen=True)
class Step:
    """A sentence, and the commands in it; ``finding``: the finding of the report that it tells, empty for none."""

    text: str
    commands: tuple[str, ...]
    finding: str = ""


def next_steps(data: ReportData, results: str = "") -> tuple[Step, ...]:
    """The findings of ``data`` with a command between backticks, and remedies that helped; the gravest first.

    ``results``: the directory of the results as a command line has it; empty if unknown. A campaign in which every
    variant is equivalent gets the command that joins its runs.
    """
    steps = []
    for finding in data.findings:
        text = _with_directory(finding, results) if results else finding
        commands = tuple(dict.fromkeys(_COMMAND.findall(text)))
        if commands or _REMEDY in finding:
            steps.append(Step(text.removeprefix("Next: "), commands, finding))
    if results and data.variants and all(variant.verdict == "equivalent" for variant in data.variants):
        commands = (f"measure merge {results} --out merged.parquet",)
        steps.append(Step("Use the counters: they change nothing that counts. This joins the runs into one trace.",
                          commands))  # fmt: skip
    return tuple(steps)


def _with_directory(finding: str, results: str) -> str:
    """``finding`` with commands that name the directory of the results."""
    text = finding.replace(_EXPLAIN, f"`measure explain {results}`")
    return _CAMPAIGN.sub(rf"`measure run {results}/\1` runs the campaign with it", text)


def headline(data: ReportData) -> str:
    """The variants by verdict in a sentence, the gravest verdict first."""
    parts = []
    for verdict in VERDICTS:
        names = [variant.name for variant in data.variants if variant.verdict == verdict]
        if names:
            parts.append(f"{verdict.capitalize()}: {', '.join(names)}.")
    return " ".join(parts)
