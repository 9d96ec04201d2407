"""The ``measure`` command. Heavy modules are imported only when they are used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from common.interrupts import Terminated, exit_status, interruptible, terminable
from common.settings_option import settings_option
from common.startup import rest_linear_algebra
from common.text_encoding import any_text
from measure.console.output import command_console
from measure.console.run_options import run_options
from measure.cycle_close.cli import cycleclose
from measure.explanation.cli import explain
from measure.first_campaign.cli import init
from measure.foreign.cli import perturb
from measure.merging.cli import merge
from measure.partitioning.cli import partition
from measure.program_phases.cli import phases
from measure.sampling_check.cli import check_sampling
from measure.two_campaigns.cli import compare
from measure.verdict_files.options import VerdictOptions, verdict_options
from measure.watch.cli import watch

if TYPE_CHECKING:
    from pydantic import BaseModel

_RUNS = ("run", "partition", "explain", "check-sampling")  # the commands that make the runs of campaigns
_NO_RUNS = {"--counts", "--dry-run"}  # options of theirs with which they keep nothing
_KINDS = ["campaign", "sampling-check", "machine", "summary", "verdicts"]


class _Commands(click.Group):
    """Turns expected errors into one message and the right exit status."""

    def invoke(self, context: click.Context) -> Any:
        from measure.errors import MeasureError

        rest_linear_algebra()
        makes_runs = not _NO_RUNS & set(context.args)
        try:
            with any_text("measure"), interruptible(), terminable():
                return super().invoke(context)
        except MeasureError as error:
            click.echo(f"measure: {error}", err=True)
            raise SystemExit(error.exit_status) from None
        except KeyboardInterrupt as interrupt:
            how = "ended by SIGTERM" if isinstance(interrupt, Terminated) else "interrupted"
            keeps = makes_runs and context.invoked_subcommand in _RUNS
            kept = "; finished runs are kept, the same command goes on" if keeps else ""
            click.echo(f"measure: {how}{kept}", err=True)
            raise SystemExit(exit_status(interrupt)) from None


@click.group(
    cls=_Commands,
    epilog="""Start with:

\b
  measure init mine.c                            # a campaign of your own
  measure run configs/campaigns/quickstart.yaml  # an example, in a checkout

Exit status: 0 done; 1 the work failed (finished runs are kept) or its results cannot be written; 2 bad input,
with file, line and what was expected; 3 a verdict that --fail-on names; 130 interrupted (Ctrl-C), 143 ended
(SIGTERM): finished runs are kept.""",
)
@click.version_option(package_name="perturbation")
def main() -> None:
    """Measure a program, and find out what the measurement itself changed.

    A campaign runs a C or C++ program many times on an emulated machine or on this one, with and without software
    counters, and decides whether the counters changed how the machine's metrics relate to one another.
    """


@main.command(short_help="Run a campaign, or continue it, and report its verdicts.")
@click.argument("campaign", metavar="CAMPAIGN.yaml", type=click.Path(path_type=Path))
@run_options
@click.option("--counts", is_flag=True,
              help="Only count: one fast run without timing that lists each software metric's events and places, and "
              "names those that never fire. Keeps nothing.")  # fmt: skip
@click.option("--dry-run", is_flag=True,
              help="Make no runs: say how many there would be, how long they and the builds take and how much disk, "
              "how often each software metric fires, and what change the plan can find. Keeps nothing.")  # fmt: skip
@settings_option("campaign")
@verdict_options
@click.option("--target", type=click.Choice(["emulated", "fake"]), default="emulated", hidden=True)
def run(
    campaign: Path,
    out: Path | None,
    workers: int | None,
    scheduler: str | None,
    counts: bool,
    dry_run: bool,
    settings: tuple[str, ...],
    verdicts: VerdictOptions,
    target: str,
) -> None:
    """Run CAMPAIGN.yaml, or continue where it stopped, and report.

    Leaves DIR/report.html, summary.json, verdicts.json, pairs.csv, pairs.parquet and traces/*.parquet.
    Stored runs are not made again, unless something that they depend on has changed.

    Before a long campaign, --counts shows in seconds whether every software metric fires; its exit status is 0 also
    when one does not. --dry-run says besides what the campaign will take, and what it can find.

    \b
      measure run --counts configs/campaigns/quickstart.yaml
      measure run --dry-run configs/campaigns/quickstart.yaml
      measure run configs/campaigns/quickstart.yaml
    """
    if counts or dry_run:
        from measure.campaign.preview import preview

        option = "--dry-run" if dry_run else "--counts"
        if out is not None:
            raise click.UsageError(f"{option} keeps nothing, so --out means nothing beside it")
        if scheduler is not None:
            raise click.UsageError(
                f"{option} makes no runs, so --scheduler means nothing beside it; --workers N is for so many at once"
            )
        preview(campaign, command_console(), dry_run=dry_run, workers=workers, settings=settings)
        return
    from measure.campaign.run_command import run_campaign

    raise SystemExit(
        run_campaign(
            campaign, out, command_console(), workers=workers, scheduler=scheduler, target=target, settings=settings,
            verdicts=verdicts,
        )
    )  # fmt: skip


@main.command(short_help="Write a report again from the stored runs.")
@click.argument("results", metavar="DIR|CAMPAIGN.yaml", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR",
              help="Where the results of CAMPAIGN.yaml are. Default: results/NAME.")  # fmt: skip
@click.option("--open", "open_page", is_flag=True, help="Open the report in the browser.")
@settings_option("campaign")
@verdict_options
def report(
    results: Path, out: Path | None, open_page: bool, settings: tuple[str, ...], verdicts: VerdictOptions
) -> None:
    """Write the report again from the stored runs; makes no runs.

    DIR is what `measure run` left; neither sources nor compiler are needed. With CAMPAIGN.yaml, settings that do not
    change runs, such as delta, may be changed.

    \b
      measure report results/quickstart
      measure report configs/campaigns/quickstart.yaml
    """
    from measure.campaign.run_command import report_campaign

    if results.is_dir() and out is not None:
        raise click.UsageError("--out goes with a campaign file; a directory of results gets its own report")
    if results.is_dir() and settings:
        raise click.UsageError("--set goes with a campaign file; a directory of results has its own settings")
    raise SystemExit(report_campaign(results, out, command_console(), settings, verdicts, open_page=open_page))


@main.command(short_help="Print the JSON Schema of a kind of file.")
@click.argument("kind", metavar="|".join(_KINDS), type=click.Choice(_KINDS))
def schema(kind: str) -> None:
    """Print the JSON Schema of a kind of file, for editors and checks: every key with its unit and default.

    Files that you write: campaign (for `measure run`), sampling-check (for `measure check-sampling`), machine. Files
    that commands write: summary (summary.json of `measure run`), verdicts (verdicts.json).

    \b
      measure schema campaign > campaign.schema.json
    """
    if kind == "verdicts":
        from measure.verdict_files.verdict_summary import VERDICTS_JSON_SCHEMA

        document = VERDICTS_JSON_SCHEMA
    elif kind == "summary":
        from measure.analysis.analysis import SUMMARY_JSON_SCHEMA

        document = SUMMARY_JSON_SCHEMA
    else:
        from common.editor_schema import editor_schema

        document = editor_schema(_model_of(kind))
    click.echo(json.dumps(document, indent=2))


def _model_of(kind: str) -> type[BaseModel]:
    """The model of a kind of file that users write."""
    if kind == "campaign":
        from measure.runs.campaign_model import Campaign

        return Campaign
    if kind == "sampling-check":
        from measure.sampling_check.check import SamplingCheck

        return SamplingCheck
    from emulator.timing.machine_config import MachineConfig

    return MachineConfig


@main.command(short_help="List the hardware metrics that a machine offers.")
@click.argument("file", metavar="MACHINE.yaml|CAMPAIGN.yaml|host", type=click.Path(path_type=Path))
@settings_option("file")
def metrics(file: Path, settings: tuple[str, ...]) -> None:
    """List the hardware metrics that a machine offers.

    Given a campaign: the metrics of its machine, with a mark at those that it collects, then its software metrics.
    Metrics that the machine lacks are errors, with exit status 2. Given the word host: the metrics of the processor
    that this command runs on, and why others are not counted.

    \b
      measure metrics configs/machines/desktop.yaml
      measure metrics configs/campaigns/quickstart.yaml
      measure metrics host
    """
    from measure.campaign.list_metrics import list_host_metrics, list_metrics, terminal_width
    from measure.errors import CampaignError

    width = terminal_width()
    listing = list_host_metrics(width=width) if str(file) == "host" else list_metrics(file, settings, width)
    for line in listing.lines:
        click.echo(line)
    if listing.problems:
        raise CampaignError("\n".join(listing.problems))


@main.command(short_help="List the programs that campaigns can name.")
@click.argument("catalogue", metavar="[CATALOGUE.yaml]", type=click.Path(path_type=Path),
                default="configs/programs.yaml")  # fmt: skip
def programs(catalogue: Path) -> None:
    """List the programs of CATALOGUE.yaml, which a campaign names by `program: {catalogue: NAME, size: SIZE}`.

    Default: configs/programs.yaml. Programs of a package registry are fetched when a campaign first needs them.

    \b
      measure programs
      measure programs configs/programs.yaml
    """
    from measure.errors import CampaignError
    from measure.programs.catalogue import ProgramError, load_catalogue

    if not catalogue.exists():
        raise CampaignError(
            f"{catalogue}: no such file; expected a catalogue of programs, which a checkout has as "
            "configs/programs.yaml"
        )
    try:
        entries = load_catalogue(catalogue)
    except ProgramError as error:
        raise CampaignError(str(error)) from None
    for name, program in entries.items():
        click.echo(f"{name:<12}{program.description}")
        sizes = (f"{size} ({count / 1e6:,.0f} M instructions)" for size, count in program.instructions.items())
        click.echo(f"{'':<12}sizes: {', '.join(sizes)}")
        if program.package is not None:
            click.echo(f"{'':<12}from {program.package.archive}")


@main.command(short_help="Try this installation out.")
def doctor() -> None:
    """Try this installation out, and print what a report of a defect needs.

    Looks at host, packages, memory, disk and cache, then compiles a small program and runs it on the emulator's
    engines. Exit status: 1 if something fails, 0 if not; warnings say what would be slow.

    \b
      measure doctor
    """
    from measure.console.doctor import examine

    failed = False
    for check in examine():
        click.echo(check.report())
        failed |= check.state == "fails"
    raise SystemExit(1 if failed else 0)


for command in (init, compare, explain, partition, perturb, merge, phases, cycleclose, check_sampling, watch):
    main.add_command(command)
