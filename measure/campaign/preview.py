"""`measure run --counts` and `--dry-run`: what a campaign would do, without making its runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from measure.campaign.dry_run import print_dry_run
from measure.campaign.event_counts import count_campaign, print_counts
from measure.runs.campaign_file import load_campaign
from measure.runs.machine_kind import check_emulated
from measure.runs.plan import checked_machine


def preview(
    path: Path, console: Console, *, dry_run: bool, workers: int | None = None, settings: Sequence[str] = ()
) -> None:
    """Print the events of the campaign's software metrics, and with ``dry_run`` what the campaign takes and finds."""
    campaign, document = load_campaign(path, settings)
    check_emulated(campaign, document, "--dry-run" if dry_run else "--counts")
    if dry_run:
        print_dry_run(campaign, document, console, workers)
        return
    checked_machine(campaign, document)  # a metric that the machine cannot count would end the runs
    counted = count_campaign(campaign, document, console)
    print_counts(counted, campaign, document, console)
    console.print(f"The run took {counted.seconds:.1f} s; nothing was kept.", style="dim")
