"""The verdicts of a command in a form that all its files for continuous integration are made from."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from measure.perturbation.wording import percent
from measure.report.model import ReportData, VariantReport
from measure.verdict_files.options import STANDS_FOR


@dataclass(frozen=True)
class Judgement:
    """One verdict. ``subject``: the variant; ``what``: which comparison; ``text``: the verdict in words, with what to
    know about it."""

    subject: str
    what: str
    verdict: str
    text: str


@dataclass(frozen=True)
class Invalidation:
    """What makes figures or verdicts wrong, as a sentence ``text``. ``name``: the control that failed, or a number;
    ``is_control``: whether it is one."""

    name: str
    text: str
    is_control: bool

    def fails(self, failing: Collection[str]) -> bool:
        """Whether it fails a command where the verdicts ``failing`` do: a failed control where any do, since it
        shows that verdicts may be false, or that changes were overlooked; anything else where open verdicts fail,
        since it leaves open what the verdicts are worth."""
        return bool(failing) if self.is_control else any(one in failing for one in STANDS_FOR["inconclusive"])


def invalidations_of(invalidating: Sequence[str], failed_controls: Mapping[str, str]) -> tuple[Invalidation, ...]:
    """One for each sentence of ``invalidating``. ``failed_controls``: those of them on controls, by name."""
    controls = {text: name for name, text in failed_controls.items()}
    return tuple(
        Invalidation(controls.get(text, f"finding {number}"), text, text in controls)
        for number, text in enumerate(dict.fromkeys(invalidating), start=1)
    )


@dataclass(frozen=True)
class VerdictTable:
    """The verdicts of one command. ``headings``, ``rows``: a table for people; ``findings``: sentences; ``failures``:
    runs that failed, as sentences; ``campaign_file``: path of the file that the verdicts are about, "" without one;
    ``invalidations``: what makes figures or verdicts wrong, which is not among ``findings``."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    judgements: tuple[Judgement, ...]
    findings: tuple[str, ...]
    failures: tuple[str, ...] = ()
    campaign_file: str = ""
    invalidations: tuple[Invalidation, ...] = ()

    def fails(self, failing: Collection[str]) -> bool:
        """Whether a command fails where the verdicts ``failing`` do."""
        return any(one.verdict in failing for one in self.judgements) or any(
            one.fails(failing) for one in self.invalidations
        )


def table_of(
    data: ReportData, failures: Sequence[str] = (), campaign_file: str = "", results: str = ""
) -> VerdictTable:
    """The verdicts of a report: of each variant within runs, and across aligned runs. ``results``: the directory of the
    results as a command line has it, for the commands in findings; empty if unknown."""
    return VerdictTable(
        data.title,
        ("variant", "verdict", "instructions", data.time_name, "within a run", "across aligned runs"),
        (
            *map(_row, data.variants),
            *((one.name, one.verdict, "-", "-", f"no verdict: {one.reason}", "-") for one in data.without_runs),
        ),
        (
            *(one for variant in data.variants for one in _judgements(variant)),
            *(Judgement(one.name, "within a run", one.verdict, one.reason) for one in data.without_runs),
        ),
        (*data.before_verdicts, *(one.text_in(results) for one in data.said)),
        tuple(failures),
        campaign_file,
        invalidations_of(data.invalidating, data.failed_controls),
    )


def _row(variant: VariantReport) -> tuple[str, ...]:
    across = variant.outer_held_out
    return (
        variant.name,
        f"{variant.verdict}, but {variant.caveat}" if variant.caveat else variant.verdict,
        percent(float(variant.instructions_percent.mean())),
        percent(float(variant.cycles_percent.mean())),
        f"{variant.inner.verdict}: {variant.in_words(variant.inner)}",
        f"{across.verdict}: {variant.in_words(across)}" if across is not None else "-",
    )


def _judgements(variant: VariantReport) -> list[Judgement]:
    compared = ((variant.inner, "within a run"), (variant.outer_held_out, "across aligned runs"))
    return [
        Judgement(variant.name, what, one.verdict, " ".join([f"{variant.in_words(one)}.", *one.findings[:1]]))
        for one, what in compared
        if one is not None
    ]
