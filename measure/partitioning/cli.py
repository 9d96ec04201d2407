"""The command ``measure partition``: its options and their help; `measure.partitioning.command` does the work."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from common.settings_option import settings_option
from measure.console.output import command_console
from measure.console.run_options import scheduler_option

if TYPE_CHECKING:
    from measure.partitioning.group_verdicts import Accept

_EPILOG = """\b
The fewest runs that collect all software metrics of a campaign:
  measure partition configs/campaigns/quickstart.yaml --minutes 10
  measure run results/quickstart-partition/partition.yaml"""


@click.command(short_help="Split metrics into the fewest runs that do not perturb.", epilog=_EPILOG)
@click.argument("campaign", metavar="CAMPAIGN.yaml", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR",
              help="Where results go. Default: results/NAME-partition.")  # fmt: skip
@click.option("--minutes", type=click.FloatRange(0, min_open=True), metavar="N",
              help="Be done after so long, builds, validation and report included, with the best so far. Exit status 1 "
                   "if no group was measured by then: the message says how many minutes that takes. Default: when "
                   "nothing more is found.")  # fmt: skip
@click.option("--exact/--anytime", default=None,
              help="Prove the fewest groups, or search without. Default: prove it for up to 10 metrics.")  # fmt: skip
@click.option("--resume/--no-resume", default=True, show_default=True,
              help="Use the stored verdicts on groups tested before, by this campaign and others.")  # fmt: skip
@click.option("--most-replicates", type=click.IntRange(2), metavar="R",
              help="Runs of a group before it is called undecided. Default: 4 times `replicates`.")  # fmt: skip
@click.option("--accept", type=click.Choice(["equivalent", "not perturbed"]), default="equivalent",
              show_default=True,
              help="A good group is shown to change no relation by more than delta, or is not shown to.")  # fmt: skip
@click.option("--counters", type=click.IntRange(1), metavar="C",
              help="Events that can be counted at once, beside cycles and instructions. Hardware metrics that need "
                   "more are split over the runs, too. Default: as many as the machine has.")  # fmt: skip
@click.option("--shared", metavar="M,M", default="",
              help="Metrics that every run counts, to align on. Default: all that need no counter.")  # fmt: skip
@click.option("--workers", type=click.IntRange(1), metavar="N",
              help="Runs at once. Default: one a processor.")  # fmt: skip
@scheduler_option
@click.option("--memory", type=click.Path(path_type=Path), metavar="FILE",
              help="File with the verdicts of all campaigns. Default: in the user's cache directory.")  # fmt: skip
@settings_option("campaign")
@click.option("--target", type=click.Choice(["emulated", "fake"]), default="emulated", hidden=True)
def partition(
    campaign: Path,
    out: Path | None,
    minutes: float | None,
    exact: bool | None,
    resume: bool,
    most_replicates: int | None,
    accept: Accept,
    counters: int | None,
    shared: str,
    workers: int | None,
    scheduler: str | None,
    memory: Path | None,
    settings: tuple[str, ...],
    target: str,
) -> None:
    """Split the software metrics of CAMPAIGN.yaml into the fewest runs that do not perturb.

    A group of metrics is good when the runs that collect it are shown to differ from the baselines by less than
    delta, within runs and aligned across them. Ctrl-C, SIGTERM and the end of --minutes stop the search at any time;
    all verdicts are kept, and the best partition so far is reported with the groups that fresh runs confirmed; groups
    that were measured by too few runs to decide are in it, and marked. The same command continues. Leaves
    DIR/partition.yaml (the campaign by that partition, if a group is good or may be), partition.json and
    partition.html.
    """
    from measure.partitioning.command import Request, run_partition

    request = Request(
        campaign=campaign, out=out, minutes=minutes, exact=exact, resume=resume, most_replicates=most_replicates,
        accept=accept, counters=counters, shared=tuple(filter(None, shared.split(","))), workers=workers,
        scheduler=scheduler, memory=memory, target=target, settings=settings,
    )  # fmt: skip
    if status := run_partition(request, command_console()):
        raise SystemExit(status)
