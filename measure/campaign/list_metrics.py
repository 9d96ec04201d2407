"""`measure metrics`: lists the metrics that a machine can count, and marks those that a campaign collects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from common.layered_yaml import read_layers
from common.suggestions import nearest
from common.yaml_document import YamlDocument
from measure.errors import CampaignError

if TYPE_CHECKING:
    from measure.campaign.campaign_file import Campaign

_CAMPAIGN_KEYS = ("program", "hardware_metrics", "software_metrics")


@dataclass(frozen=True)
class Listing:
    """Lines to print, and the problems of the campaign's metrics, one per line."""

    lines: tuple[str, ...]
    problems: tuple[str, ...] = ()


def list_metrics(path: Path, settings: Sequence[str] = ()) -> Listing:
    """The hardware metrics of the machine in ``path``, or of the machine that the campaign in ``path`` names.

    Metrics that a campaign collects are marked; those that the machine lacks are problems. Raises `CampaignError`
    for a file that is neither a machine nor a campaign.
    """
    from emulator.errors import EmulatorError
    from emulator.pmu import available_metrics, select_metrics
    from emulator.timing.machine_file import load_machine

    campaign, document = _campaign(path, settings)
    try:
        config = load_machine(campaign.machine) if campaign else load_machine(path, settings)
    except EmulatorError as error:
        raise CampaignError(str(error)) from None
    available = available_metrics(config)
    used = campaign.hardware_metrics if campaign else ()
    rows = [
        ("* " if name in used else "  ", name, metric.unit, metric.description) for name, metric in available.items()
    ]
    widths = [max(len(row[column]) for row in rows) for column in (1, 2)]
    lines = [
        f"{mark if campaign else ''}{name:<{widths[0]}}  {unit:<{widths[1]}}  {about}"
        for mark, name, unit, about in rows
    ]
    if campaign is None or document is None:
        return Listing(tuple(lines))
    lines += _software(campaign)
    problems = list(_unavailable(document, used, available, campaign.machine))
    if not problems:
        try:
            select_metrics(used, config)
        except EmulatorError as error:
            problems.append(f"{document.where('hardware_metrics')}: {error}; `measure partition` splits them")
    return Listing((f"{campaign.machine.name}; * collected by {path.name}", *lines), tuple(problems))


def _campaign(path: Path, settings: Sequence[str]) -> tuple[Campaign | None, YamlDocument | None]:
    """The campaign in ``path``, or None when the file does not look like a campaign."""
    from measure.campaign.campaign_file import load_campaign

    try:
        document = read_layers(path, CampaignError)
    except CampaignError:
        return None, None  # the machine's reader reports the problem
    if not {"configurations", "ways", "sweep"}.isdisjoint(document.data):
        from measure.cycle_close.sampling_check import load_check

        return load_check(path, settings)
    if any(key in document.data for key in _CAMPAIGN_KEYS):
        return load_campaign(path, settings)
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


def _unavailable(document: YamlDocument, used: Iterable[str], available: Iterable[str], machine: Path) -> Iterable[str]:
    for index, name in enumerate(used):
        if name not in available:
            yield (
                f"{document.where('hardware_metrics', index)}: {machine.name} cannot count '{name}'"
                f"{nearest(name, available)}"
            )
