"""Verdicts as annotations of GitHub Actions: lines of the log that GitHub shows at a line of a file.

Source: GitHub documentation, "Workflow commands for GitHub Actions", setting an error message; the escapes are those
of its toolkit (packages/core/src/command.ts).
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from measure.verdict_files.options import STANDS_FOR
from measure.verdict_files.verdict_table import Invalidation, VerdictTable


def github_lines(table: VerdictTable, failing: Collection[str]) -> list[str]:
    """A line for each verdict but *equivalent*, for each invalidation and for each failed run.

    An error for verdicts in ``failing``, for invalidations that fail with them and for failed runs; a warning for other
    invalidations and other verdicts that show a change; a notice for open verdicts.
    """
    where = _place(table.campaign_file, "")
    lines = [
        _line("error" if one.fails(failing) else "warning", _title(one), one.text, where) for one in table.invalidations
    ]
    for one in table.judgements:
        if one.verdict == "equivalent":
            continue
        kind = "error" if one.verdict in failing else "warning" if one.verdict in STANDS_FOR["perturbed"] else "notice"
        title = f"{one.subject}, {one.what}: {one.verdict}"
        lines.append(_line(kind, title, one.text, _place(table.campaign_file, one.subject)))
    return lines + [_line("error", "a run failed", failure, where) for failure in table.failures]


def _title(invalidation: Invalidation) -> str:
    return f"{invalidation.name} failed" if invalidation.is_control else "read this first"


def _line(kind: str, title: str, message: str, place: tuple[str, int] | None) -> str:
    properties = [f"file={_property(place[0])}", f"line={place[1]}"] if place else []
    properties.append(f"title={_property(title)}")
    return f"::{kind} {','.join(properties)}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _place(campaign_file: str, variant: str) -> tuple[str, int] | None:
    """File and line of a variant in the campaign's files, relative to the current directory; None if unknown."""
    from common.layered_yaml import read_layers
    from measure.errors import CampaignError

    if not campaign_file:
        return None
    try:
        document = read_layers(Path(campaign_file), CampaignError)
    except CampaignError:
        return None  # moved or changed since the runs were made
    keys = ("variants", variant) if "variants" in document.data else ("software_metrics",)
    file, _, line = document.where(*keys).rpartition(":")
    path = Path(file).absolute()
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return str(shown), int(line)
