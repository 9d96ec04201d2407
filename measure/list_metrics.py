"""`measure metrics`: what a machine can count, and what of it a campaign asks for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from measure.errors import CampaignError, nearest
from measure.yaml_positions import Document

if TYPE_CHECKING:
    from measure.campaign import Campaign

_CAMPAIGN_KEYS = ("program", "hardware_metrics", "software_metrics")


@dataclass(frozen=True)
class Listing:
    """Lines for people, and what is wrong with the campaign's metrics, a line each."""

    lines: tuple[str, ...]
    problems: tuple[str, ...] = ()


def list_metrics(path: Path) -> Listing:
    """The hardware metrics of the machine in ``path``, or of the machine that the campaign in ``path`` names.

    Of a campaign, those that it collects are marked, and those that the machine lacks are problems. Raises
    `CampaignError` for a file that is neither.
    """
    from emulator.errors import EmulatorError
    from emulator.pmu import available_metrics, select_metrics
    from emulator.timing.load import load_machine

    campaign, document = _campaign(path)
    try:
        config = load_machine(campaign.machine if campaign else path)
    except EmulatorError as error:
        raise CampaignError(str(error)) from None
    known = available_metrics(config)
    used = campaign.hardware_metrics if campaign else ()
    rows = [
        ("* " if name in used else "  ", name, metric.unit, metric.description)
        for name, metric in known.items()
    ]
    widths = [max(len(row[column]) for row in rows) for column in (1, 2)]
    lines = [
        f"{mark if campaign else ''}{name:<{widths[0]}}  {unit:<{widths[1]}}  {about}"
        for mark, name, unit, about in rows
    ]
    if campaign is None or document is None:
        return Listing(tuple(lines))
    lines += _software(campaign)
    problems = list(_unknown(document, used, known, campaign.machine))
    if not problems:
        try:
            select_metrics(used, config)
        except EmulatorError as error:
            problems.append(f"{document.where('hardware_metrics')}: {error}; `measure partition` splits them")
    return Listing((f"{campaign.machine.name}; * collected by {path.name}", *lines), tuple(problems))


def _campaign(path: Path) -> tuple[Campaign | None, Document | None]:
    """The campaign in ``path``, or nothing when the file does not look like one."""
    from measure.campaign import load_campaign

    try:
        document = Document(path)
    except CampaignError:
        return None, None  # whatever is wrong with it, the machine's reader says it in its words
    if "ways" in document.data or "sweep" in document.data:
        from measure.cycleclose.check import load_check

        return load_check(path)
    if any(key in document.data for key in _CAMPAIGN_KEYS):
        return load_campaign(path)
    return None, None


def _software(campaign: Campaign) -> list[str]:
    names = campaign.software_metrics
    if not names:
        return []
    width = max(map(len, names))
    return [
        "Software metrics:",
        *(f"  {name:<{width}}  {metric.describe()}" for name, metric in names.items()),
    ]


def _unknown(document: Document, used: Iterable[str], known: Iterable[str], machine: Path) -> Iterable[str]:
    for index, name in enumerate(used):
        if name not in known:
            yield (
                f"{document.where('hardware_metrics', index)}: {machine.name} cannot count '{name}'"
                f"{nearest(name, known)}"
            )
