"""`measure metrics`: lists the metrics that a machine can count, and marks those that a campaign collects."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from common.layered_yaml import read_layers
from common.suggestions import nearest
from common.yaml_document import YamlDocument
from measure.errors import CampaignError
from measure.runs.machine_kind import uncounted_metrics

if TYPE_CHECKING:
    from measure.runs.campaign_model import SharedKeys

_HOW = {"probe": ", by a probe", "second_run": ", in a second run"}
"""How a software metric is counted, if not by a counter in the measured program."""
_NO_LIMIT = 10**6  # characters of a line: programs that read a listing get each metric on one
_LIST_WIDTH = 78  # characters of a line of names
_LEAST_DESCRIPTION = 20  # characters of a line, for descriptions in a column of their own
_CAMPAIGN_KEYS = ("program", "hardware_metrics", "software_metrics")


@dataclass(frozen=True)
class Listing:
    """Lines to print, and the problems of the campaign's metrics, one per line."""

    lines: tuple[str, ...]
    problems: tuple[str, ...] = ()


def terminal_width() -> int:
    """Characters of a line of the terminal or, where there is none, of ``COLUMNS``; without both there is no limit."""
    return shutil.get_terminal_size((_NO_LIMIT, 1)).columns


def list_metrics(path: Path, settings: Sequence[str] = (), width: int = _NO_LIMIT) -> Listing:
    """The hardware metrics of the machine in ``path``, or of the machine that the campaign in ``path`` names, in lines
    of ``width`` characters.

    Metrics that a campaign collects are marked; those that the machine lacks are problems. Raises `CampaignError`
    for a file that is neither a machine nor a campaign.
    """
    from emulator.errors import EmulatorError
    from emulator.pmu import available_metrics, select_metrics
    from emulator.timing.machine_file import load_machine

    campaign, document = _campaign(path, settings)
    if campaign is not None and document is not None and campaign.host is not None:
        return _host_listing(path, campaign, document, width)
    try:
        config = load_machine(campaign.machine_file) if campaign else load_machine(path, settings)
    except EmulatorError as error:
        raise CampaignError(str(error)) from None
    available = available_metrics(config)
    used = campaign.hardware_metrics if campaign else ()
    rows = [
        ("* " if name in used else "  ", name, metric.unit, metric.description) for name, metric in available.items()
    ]
    widths = [max(len(row[column]) for row in rows) for column in (1, 2)]
    lines: list[str] = []
    for mark, name, unit, about in rows:
        lines += _entry(f"{mark if campaign else ''}{name:<{widths[0]}}  {unit:<{widths[1]}}  ", about, width)
    if campaign is None or document is None:
        return Listing(tuple(lines))
    lines += _software(campaign, width)
    problems = list(_unavailable(document, used, available, campaign.machine_file))
    if not problems:
        try:
            select_metrics(used, config)
        except EmulatorError as error:
            problems.append(f"{document.where('hardware_metrics')}: {error}; `measure partition` splits them")
    first = _entry("", f"{campaign.machine_file.name}; * collected by {path.name}", width)
    return Listing((*first, *lines), tuple(problems))


def list_host_metrics(used: Sequence[str] = (), width: int = _NO_LIMIT) -> Listing:
    """The metrics of this machine's processor: those that it counts, then the others, each with the reason; then what
    makes measurements noisy. ``used``: metrics that a campaign collects, which are marked; ``width``: of lines."""
    from measure.host.metrics import METRICS, metric_named, why_not
    from measure.host.processor import default_processor, model, warnings

    names = [*METRICS, *(name for name in used if name not in METRICS and metric_named(name))]
    known = {name: metric for name in names if (metric := metric_named(name))}
    reasons = {name: why_not(name) for name in names}
    widths = max(map(len, names)), max(len(metric.unit) for metric in known.values())
    lines = [f"{model()}, this machine"]
    for name, metric in known.items():
        if not reasons[name]:
            mark = ("* " if name in used else "  ") if used else ""
            begin = f"{mark}{name:<{widths[0]}}  {metric.unit:<{widths[1]}}  "
            lines += _entry(begin, metric.description, width)
    if not why_not("PAPI_TOT_INS"):
        lines += _entry(
            "rUUEE: ", "an event of this model by unit mask and number, as in perf, where events are counted", width
        )
    missing: dict[str, list[str]] = {}
    for name in names:
        if reasons[name]:
            missing.setdefault(reasons[name], []).append(name)
    for why, without in missing.items():
        lines += ["", *_entry("", f"Not counted here, because {why}:", width)]
        lines += _entry("  ", ", ".join(without), min(width, _LIST_WIDTH))
    noisy = warnings(default_processor())
    if noisy:
        lines += ["", "What makes measurements here noisy:"]
        for warning in noisy:
            lines += _entry("- ", warning, width)
    return Listing(tuple(lines))


def _host_listing(path: Path, campaign: SharedKeys, document: YamlDocument, width: int) -> Listing:
    """As `list_metrics`, for a campaign on the host."""
    listing = list_host_metrics(campaign.hardware_metrics, width)
    first = _entry("", f"the host; * collected by {path.name}", width)
    return Listing((*first, *listing.lines, *_software(campaign, width)), tuple(uncounted_metrics(campaign, document)))


def _entry(begin: str, text: str, width: int) -> list[str]:
    """``text`` behind ``begin``, in lines of ``width`` characters, of which those after the first begin below it."""
    indent = len(begin) if width - len(begin) >= _LEAST_DESCRIPTION else 4
    lines = textwrap.wrap(
        begin + text, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )
    return lines or [begin]


def _campaign(path: Path, settings: Sequence[str]) -> tuple[SharedKeys | None, YamlDocument | None]:
    """The campaign in ``path``, or None when the file does not look like a campaign."""
    from measure.runs.campaign_file import load_campaign

    try:
        document = read_layers(path, CampaignError)
    except CampaignError:
        return None, None  # the machine's reader reports the problem
    if not {"configurations", "sweep"}.isdisjoint(document.data):
        from measure.sampling_check.check import load_check

        return load_check(path, settings)
    if any(key in document.data for key in _CAMPAIGN_KEYS):
        return load_campaign(path, settings)
    return None, None


def _software(campaign: SharedKeys, width: int) -> list[str]:
    from measure.runs.campaign_model import Campaign

    if not isinstance(campaign, Campaign) or not campaign.software_metrics:
        return []
    names = campaign.software_metrics
    longest = max(map(len, names))
    lines = ["Software metrics:"]
    for name, metric in names.items():
        lines += _entry(f"  {name:<{longest}}  ", f"{metric.describe()}{_HOW.get(metric.method, '')}", width)
    return lines


def _unavailable(document: YamlDocument, used: Iterable[str], available: Iterable[str], machine: Path) -> Iterable[str]:
    for index, name in enumerate(used):
        if name not in available:
            yield (
                f"{document.where('hardware_metrics', index)}: {machine.name} cannot count '{name}'"
                f"{nearest(name, available)}"
            )
