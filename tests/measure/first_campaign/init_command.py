"""Runs `measure` in an empty directory, and reads the campaigns that it writes."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner, Result

from measure.campaign.event_counts import count_events
from measure.cli import main
from measure.runs.campaign_file import load_campaign


def measure(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def failed(*arguments: object) -> str:
    """The message of a command that finds bad input, on one line."""
    result = measure("init", *arguments)
    assert result.exit_code == 2, result.output
    return " ".join(result.output.split())


def counted(path: Path) -> dict[str, tuple[str, str | None, int]]:
    """Event, function and number of events of each software metric of a campaign file."""
    campaign, document = load_campaign(path)
    return {
        one.metric: (spec.event, spec.function, one.events)
        for one in count_events(campaign, document).metrics
        for spec in [campaign.software_metrics[one.metric]]
    }
