"""The command ``measure check-sampling``: its options and help; `measure.sampling_check.command` does the work."""

from __future__ import annotations

from pathlib import Path

import click

from common.settings_option import settings_option
from measure.console.output import command_console
from measure.console.run_options import run_options


@click.command("check-sampling", short_help="Check whether cycle-close sampling perturbs its metrics.")
@click.argument("campaign", metavar="CAMPAIGN.yaml", type=click.Path(path_type=Path))
@run_options
@settings_option("campaign")
def check_sampling(
    campaign: Path, out: Path | None, workers: int | None, scheduler: str | None, settings: tuple[str, ...]
) -> None:
    """Check whether cycle-close sampling perturbs the metrics that it reports.

    CAMPAIGN.yaml names sampling configurations (`configurations:`). Each is compared with full simulations by the
    statistics that compare instrumented with plain programs, so that *equivalent* means shown to be equivalent.
    Resumes by itself; leaves DIR/summary.json, DIR/report.html and DIR/traces/*.parquet.

    \b
      measure check-sampling configs/campaigns/sampling.yaml
    """
    from measure.sampling_check.command import run_check

    run_check(campaign, out, command_console(), workers=workers, scheduler=scheduler, settings=settings)
