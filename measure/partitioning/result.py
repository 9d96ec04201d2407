"""The result of a partition search as sentences, JSON, and campaign files; `measure.partitioning.page` draws it."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from measure.partitioning.search_types import Group, GroupVerdict, Outlook, Partition, Proof
from measure.result_files import write_text_atomically

if TYPE_CHECKING:
    from common.yaml_document import YamlDocument
    from measure.runs.campaign_model import Campaign

_PROOFS = {
    "optimal": "Proved: by these verdicts, fewer groups cannot have all metrics.",
    "optimal among tested": "Proved: of the groups shown to be good, fewer cannot have as many metrics.",
    "upper bound": "Not proved: fewer groups may do.",
}
HEADINGS = ("group", "software metrics", "closest to the limit", "fresh runs")
"""Of the columns of `PartitionResult.rows`."""

_CAMPAIGN_NAME = re.compile(r"partition(-\d+)?\.yaml")

Status = Literal["validated", "not validated", "undecided", "not tested"]
_STATUS_WORDS: dict[Status, str] = {
    "validated": "good, validated on fresh runs",
    "not validated": "good, not validated on fresh runs",
    "undecided": "measured, but not decided when the time was up",
    "not tested": "not tested",
}


@dataclass(frozen=True)
class CollectedGroup:
    """A group of metrics of the result.

    ``name``: of the group; ``group``: the numbers of its metrics, see `PartitionResult.names`; ``status``: "validated"
    for good on fresh runs, too, "not validated" for good by the search's runs alone, "undecided" where the time limit
    left the verdict open, or "not tested"; ``verdict``: of the search's runs, None without any; ``fresh``: verdict of
    fresh runs, None without any.
    """

    name: str
    group: Group
    status: Status
    verdict: GroupVerdict | None
    fresh: GroupVerdict | None


@dataclass(frozen=True, repr=False)
class PartitionResult:
    """The end of a search for groups of metrics.

    ``name``: of the campaign; ``metrics``: its software metrics; groups hold their numbers in this order. ``best``: the
    best partition that was found; ``proof``: what is known of its optimality; ``stage``: how far the search came;
    ``outlook``: what could still improve. ``tested``: verdict of each group that was tested; ``validated``: verdicts of
    fresh runs; ``calls``: groups that this search tested; ``remembered``: verdicts of earlier searches; ``runs``: runs
    that were made. ``hardware``: sets of hardware metrics that the machine can count at once; ``delta``: largest change
    of z that counts as none; ``alpha``: level of the tests; ``accept``: the verdict that makes a group good;
    ``stopped``: what ended the search early, or "". ``unfinished``: open verdicts on groups whose test the time limit
    ended; ``shortfall``: why there is no verdict at all and what time would do, or ""; ``time_needed``: what time the
    metrics without a good group need, after a time limit, or ""; ``outlying``: sentences on baselines that stand out
    from the others; ``starts_tasks``: whether the program starts threads or processes, of which no second run counts
    anything.
    """

    name: str
    metrics: tuple[str, ...]
    best: Partition
    proof: Proof
    stage: str
    outlook: Outlook
    tested: dict[Group, GroupVerdict]
    validated: dict[Group, GroupVerdict]
    calls: int
    remembered: int
    runs: int
    hardware: tuple[tuple[str, ...], ...]
    delta: float
    alpha: float
    accept: str
    stopped: str = ""
    unfinished: Mapping[Group, GroupVerdict] = field(default_factory=dict)
    shortfall: str = ""
    time_needed: str = ""
    outlying: tuple[str, ...] = ()
    starts_tasks: bool = False

    def __repr__(self) -> str:
        groups = [
            f"\n{one.name}: {', '.join(self.names(one.group))}: {_STATUS_WORDS[one.status]}" for one in self.groups
        ]
        return f"<{type(self).__name__} {self.headline}{''.join(groups)}>"

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in self.rows())
        headings = "".join(f"<th>{heading}</th>" for heading in HEADINGS)
        sentences = "".join(f"<li>{escape(text)}</li>" for text in self.sentences())
        return f"<h3>{escape(self.headline)}</h3><table><tr>{headings}</tr>{rows}</table><ul>{sentences}</ul>"

    @property
    def groups(self) -> tuple[CollectedGroup, ...]:
        """The best so far: groups tested good, then groups of further metrics whose verdict is still open, the largest
        first, and each metric without any verdict in a group of its own."""
        left = set(self.best.uncovered)
        undecided = []
        for group in sorted(self.unfinished, key=lambda one: (-len(one), sorted(one))):
            if group <= left:
                undecided.append(group)
                left -= group
        alone = [frozenset({metric}) for metric in sorted(left)]
        untested = [group for group in alone if group not in self.tested]
        found = []
        for number, group in enumerate([*self.best.groups, *undecided, *untested], start=1):
            verdict, fresh = self.tested.get(group), self.validated.get(group)
            status: Status = "not tested" if verdict is None else "validated" if fresh else "not validated"
            if group in undecided:
                status, verdict = "undecided", self.unfinished[group]
            found.append(CollectedGroup(f"group{number}", group, status, verdict, fresh))
        return tuple(found)

    def with_status(self, status: Status) -> list[str]:
        """Names of the groups of a ``status``: "validated", "not validated", "undecided" or "not tested"."""
        return [one.name for one in self.groups if one.status == status]

    def names(self, group: Group) -> tuple[str, ...]:
        """The metrics of ``group``, such as `CollectedGroup.group`, in the campaign's order."""
        return tuple(self.metrics[metric] for metric in sorted(group))

    @property
    def confirmed(self) -> bool:
        """Whether fresh runs confirmed every group."""
        return all(one.status == "validated" for one in self.groups)

    @property
    def headline(self) -> str:
        """The result in a sentence."""
        count = len(self.best.groups)
        if not count:
            return f"{self.name}: no group of software metrics was shown to be good{self._untested}."
        collected = len(self.metrics) - len(self.best.uncovered)
        runs = max(count, len(self.hardware))
        return (
            f"{self.name}: {collected} of {len(self.metrics)} software metrics in {runs} run"
            f"{'s' if runs > 1 else ''} ({self.proof}){self._untested}."
        )

    @property
    def _untested(self) -> str:
        measured = [one for one in self.groups if one.status == "undecided"]
        metrics, groups = sum(len(one.group) for one in measured), len(measured)
        text = f"; {metrics} in {groups} group{'s' if groups > 1 else ''} measured, but not decided" if measured else ""
        count = len(self.with_status("not tested"))
        return text + (f"; {count} more not tested yet, each in a group of its own" if count else "")

    def rows(self) -> list[tuple[str, str, str, str]]:
        """For each group: its name, metrics, reason, and the result of fresh runs."""
        return [
            (
                one.name,
                ", ".join(self.names(one.group)),
                one.verdict.reason if one.verdict else "not tested",
                one.fresh.reason if one.fresh else one.status,
            )
            for one in self.groups
        ]

    def alone(self) -> dict[str, GroupVerdict]:
        """Metrics that were tested alone and are not good even alone, with their verdicts."""
        found = {m: self.tested.get(frozenset({k})) for k, m in enumerate(self.metrics)}
        return {metric: verdict for metric, verdict in found.items() if verdict and not verdict.good}

    def _validation(self) -> str:
        """The groups of each status, in words."""
        states: list[Status] = ["validated", "not validated", "not tested"]
        if self.with_status("undecided"):
            states.insert(2, "undecided")
        return "; ".join(f"{state}: {', '.join(self.with_status(state)) or 'none'}" for state in states)

    def rejected(self) -> list[tuple[Group, GroupVerdict]]:
        """Groups that are not good, the largest first."""
        return sorted(
            ((group, verdict) for group, verdict in self.tested.items() if not verdict.good),
            key=lambda item: (-len(item[0]), sorted(item[0])),
        )

    def sentences(self) -> list[str]:
        """What was proved, what is still open, and what to do about it."""
        lines = [self.outlook.sentence(self.proof)]
        if self.best.groups:
            lines.insert(0, _PROOFS[self.proof])
        elif self.proof == "optimal":
            lines.insert(0, "Proved: by these verdicts no group of these metrics is good.")
        lines = [*self.outlying, *lines]
        if self.stopped:
            lines.append(f"Stopped by {self.stopped}: this is the best so far; the same command continues.")
        if self.time_needed:
            lines.append(self.time_needed)
        everything = self.tested.get(frozenset(range(len(self.metrics))))
        if everything is not None and not everything.good and len(self.metrics) > 1:
            lines.append(f"All metrics together are no good group: {everything.reason}.")
        if not self.confirmed:
            lines.append(f"Fresh runs: {self._validation()}.")
        for metric, verdict in self.alone().items():
            words = {"bad": "is not shown to be good", "not assessable": "is not assessable"}
            state = words.get(verdict.state, "stays undecided")
            lines.append(f"{metric} {state} even alone: {verdict.reason}.")
        if self.best.uncovered:
            lines.append(f"In no group shown to be good: {', '.join(self.names(self.best.uncovered))}.")
        states = [verdict.state for verdict in self.tested.values()]
        undecided, unseen = states.count("undecided"), states.count("not assessable")
        if unseen:
            lines.append(
                f"{unseen} of {len(self.tested)} groups are not assessable and count as not good: more runs do not "
                "help. Take hardware metrics that take many values, or longer records."
            )
        if undecided:
            lines.append(
                f"{undecided} of {len(self.tested)} groups stayed undecided and count as not good: more baselines "
                "and replicates (--most-replicates), or a larger delta, would settle some."
            )
        if len(self.hardware) > 1:
            lines.append(
                f"The hardware metrics need {len(self.hardware)} sets; relations between metrics of different sets "
                "are seen only across aligned runs."
            )
        lines.append(
            f"groups tested now: {self.calls}; verdicts from before: {self.remembered}; runs made: {self.runs}; "
            f"limit {self.delta:g} in z, alpha {self.alpha:g}, accepted: {self.accept}."
        )
        return lines


def summary_of(outcome: PartitionResult) -> dict[str, Any]:
    """The content of ``partition.json``."""

    def plain(verdict: GroupVerdict | None) -> dict[str, Any] | None:
        if verdict is None:
            return None
        return {
            "state": verdict.state,
            "reason": verdict.reason,
            "pair": list(verdict.worst) if verdict.worst else None,
            "change_of_z": verdict.change if math.isfinite(verdict.change) else None,
            "kind": verdict.kind,
            "runs": verdict.runs,
        }

    return {
        "format": "perturbation-partition-1",
        "schema": 1,
        "campaign": outcome.name,
        "software_metrics": list(outcome.metrics),
        "groups": [
            {
                "name": one.name,
                "metrics": list(outcome.names(one.group)),
                "status": one.status,
                "verdict": plain(one.verdict),
                "fresh_runs": plain(one.fresh),
            }
            for one in outcome.groups
        ],
        "uncovered": list(outcome.names(outcome.best.uncovered)),
        "outlying_baselines": list(outcome.outlying),
        "bad_alone": {metric: plain(verdict) for metric, verdict in outcome.alone().items()},
        "proved": outcome.proof,
        "confirmed": outcome.confirmed,
        "stopped_by": outcome.stopped or None,
        "shortfall": outcome.shortfall or None,
        "time_needed": outcome.time_needed or None,
        "lower_bound": outcome.outlook.lower_bound,
        "outlook": outcome.outlook.sentence(outcome.proof),
        "hardware_sets": [list(one) for one in outcome.hardware],
        "tested_now": outcome.calls,
        "remembered": outcome.remembered,
        "runs_made": outcome.runs,
        "tested": [
            {"metrics": list(outcome.names(group)), **(plain(verdict) or {})}
            for group, verdict in outcome.tested.items()
        ],
    }


def write_campaigns(
    outcome: PartitionResult, campaign: Campaign, document: YamlDocument, directory: Path
) -> tuple[Path, ...]:
    """Write ``partition.yaml``: the campaign with one variant per group; no file when no group is good or may be, as
    where none was measured.

    With several sets of hardware metrics, one file per set (``partition-1.yaml`` and so on), with the groups dealt
    out over them: every group and every set is measured, and each file has the baselines of its set. Files that an
    earlier search left, and this one does not write, are removed.
    """
    import yaml

    earlier = {path for path in directory.glob("partition*.yaml") if _CAMPAIGN_NAME.fullmatch(path.name)}
    if not outcome.best.groups and not outcome.with_status("undecided"):
        for path in earlier:
            path.unlink(missing_ok=True)
        return ()
    several = len(outcome.hardware) > 1
    variants = {one.name: list(outcome.names(one.group)) for one in outcome.groups}
    status = {one.name: one.status for one in outcome.groups}
    written = []
    for index, hardware in enumerate(outcome.hardware):
        mine = [name for number, name in enumerate(variants) if number % len(outcome.hardware) == index]
        needed = {metric for name in mine for metric in variants[name]}
        data: dict[str, Any] = {key: value for key, value in document.data.items() if key != "cumulative"}
        suffix = f"-{index + 1}" if several else ""
        data |= {
            "name": f"{outcome.name}-partition{suffix}",
            "program": _program_from(campaign, document.data["program"], directory),
            "machine": _relative(campaign.machine_file, directory),
            "hardware_metrics": list(hardware),
            "software_metrics": {
                metric: document.data["software_metrics"][metric] for metric in outcome.metrics if metric in needed
            },
            "variants": {name: variants[name] for name in mine},
        }
        found = outcome.proof if outcome.best.groups else "no group that is shown to be good"
        header = f"# Found by `measure partition {document.path.name}`: {found}.\n"
        if outcome.stopped:
            header += f"# Stopped by {outcome.stopped}: the best so far.\n"
        header += "".join(f"# {name}: {_STATUS_WORDS[status[name]]}.\n" for name in mine)
        text = header + yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
        path = directory / f"partition{suffix}.yaml"
        write_text_atomically(path, text)
        written.append(path)
    for path in earlier.difference(written):
        path.unlink(missing_ok=True)
    return tuple(written)


def _relative(path: Path, directory: Path) -> str:
    return os.path.relpath(path, directory.resolve())


def _program_from(campaign: Campaign, given: dict[str, Any], directory: Path) -> dict[str, Any]:
    """The program's keys with paths relative to ``directory``."""
    program = campaign.program
    moved: dict[str, Any] = dict(given)
    if program.source:
        moved["source"] = _relative(program.source, directory)
    if program.sources:
        moved["sources"] = [_relative(one, directory) for one in program.sources]
    if "flags" in given:
        moved["flags"] = list(program.flags)
    if program.directory:
        moved["directory"] = _relative(program.directory, directory)
    if program.stdin:
        moved["stdin"] = _relative(program.stdin, directory)
    if program.files:
        moved["files"] = {guest: _relative(host, directory) for guest, host in program.files.items()}
    if program.catalogue_file:
        moved["catalogue_file"] = _relative(program.catalogue_file, directory)
    return moved
