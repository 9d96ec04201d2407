"""The ``measure`` command. Imports what is heavy only when it is used."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from measure.phases.cli import phases

if TYPE_CHECKING:
    from rich.console import Console

    from measure.executor import Outcome
    from measure.plan import Plan

INTERRUPTED = 130


class _Commands(click.Group):
    """Turns expected errors into one message and the right exit status."""

    def invoke(self, context: click.Context) -> Any:
        from measure.errors import MeasureError

        try:
            return super().invoke(context)
        except MeasureError as error:
            click.echo(f"measure: {error}", err=True)
            raise SystemExit(error.exit_status) from None
        except KeyboardInterrupt:
            click.echo("measure: interrupted; finished runs are kept, the same command goes on", err=True)
            raise SystemExit(INTERRUPTED) from None


@click.group(
    cls=_Commands,
    epilog="""Start with:

\b
  measure run configs/campaigns/quickstart.yaml

Exit status: 0 done; 1 the work failed (finished runs are kept); 2 bad input, with file, line and what was
expected; 130 interrupted.""",
)
@click.version_option(package_name="perturbation")
def main() -> None:
    """Measure a program, and learn what the measurement itself changed.

    A campaign runs a C program many times on an emulated machine, with and without software counters, and tells
    whether the counters changed how the machine's metrics relate to one another.
    """


@main.command()
@click.argument("campaign", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR",
              help="Where results go. Default: results/NAME in the current directory.")  # fmt: skip
@click.option("--workers", type=click.IntRange(1), help="Runs at once. Default: one a processor.")
@click.option("--target", type=click.Choice(["emulated", "fake"]), default="emulated", hidden=True)
def run(campaign: Path, out: Path | None, workers: int | None, target: str) -> None:
    """Run CAMPAIGN.yaml, or go on where it stopped, and report.

    Leaves DIR/summary.json, DIR/report.html and DIR/traces/*.parquet. Runs that are there already and depend on
    nothing that changed are not made again.
    """
    console = _console()
    plan, directory = _plan(campaign, out, console, target)
    from measure.executor import execute_plan
    from measure.plan_file import save_plan
    from measure.store import Store

    with Store(directory) as store, _Bar(console) as bar:
        save_plan(plan, directory)
        outcome = execute_plan(plan.specs, store, workers=workers, started=bar.start, progress=bar.advance)
    _finish(plan, outcome, directory, console)


@main.command()
@click.argument("results", metavar="DIR|CAMPAIGN.yaml", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR",
              help="Where the results of CAMPAIGN.yaml are. Default: results/NAME.")  # fmt: skip
def report(results: Path, out: Path | None) -> None:
    """Write a report anew from the runs that are there; makes none.

    DIR is what `measure run` left; neither sources nor compiler are needed. With CAMPAIGN.yaml what does not
    change runs, such as delta, may be changed.

    \b
      measure report results/quickstart
      measure report configs/campaigns/quickstart.yaml
    """
    console = _console()
    from measure.executor import Outcome
    from measure.plan_file import load_plan
    from measure.store import Store

    if results.is_dir():
        if out is not None:
            raise click.UsageError(
                "--out goes with a campaign file; a directory of results gets its own report"
            )
        plan, directory = load_plan(results), results
    else:
        plan, directory = _plan(results, out, console)
        if not directory.is_dir():
            from measure.errors import CampaignError

            raise CampaignError(f"{directory}: no such directory; `measure run {results}` makes it")
    with Store(directory) as store:
        found = [store.load(key, spec) for key, spec in zip(plan.keys, plan.specs, strict=True)]
    runs = tuple(run for run, _ in found if run is not None)
    warnings = [f"{damage}; `measure run` makes its run again." for _, damage in found if damage]
    if len(runs) < len(plan.specs):
        lacking = len(plan.specs) - len(runs)
        warnings.append(f"{lacking} of {len(plan.specs)} runs are missing: `measure run` makes them.")
    _finish(plan, Outcome(runs, (), len(runs), tuple(warnings)), directory, console)


@main.command()
@click.argument("kind", type=click.Choice(["campaign", "sampling-check", "machine", "summary"]))
def schema(kind: str) -> None:
    """Print the JSON Schema of a file kind, for editors and checks."""
    if kind == "campaign":
        from measure.campaign import Campaign

        document = Campaign.model_json_schema()
    elif kind == "sampling-check":
        from measure.cycleclose.check import SamplingCheck

        document = SamplingCheck.model_json_schema()
    elif kind == "machine":
        from emulator.timing.config import MachineConfig

        document = MachineConfig.model_json_schema()
    else:
        from measure.analysis import SUMMARY_JSON_SCHEMA

        document = SUMMARY_JSON_SCHEMA
    click.echo(json.dumps(document, indent=2))


@main.command()
@click.argument("machine", type=click.Path(path_type=Path))
def metrics(machine: Path) -> None:
    """List the hardware metrics that MACHINE.yaml offers."""
    from emulator.errors import EmulatorError
    from emulator.pmu import available_metrics
    from emulator.timing.load import load_machine
    from measure.errors import CampaignError

    try:
        config = load_machine(machine)
    except EmulatorError as error:
        raise CampaignError(str(error)) from None
    for name, metric in available_metrics(config).items():
        click.echo(f"{name:<16}{metric.unit:<14}{metric.description}")


@main.command()
@click.argument("catalogue", type=click.Path(path_type=Path), default="configs/programs.yaml")
def programs(catalogue: Path) -> None:
    """List the programs of CATALOGUE.yaml, which a campaign names by `program: {catalogue: NAME, size: SIZE}`.

    Default: configs/programs.yaml. Programs of a package registry are fetched when a campaign first needs them.
    """
    from measure.errors import CampaignError
    from measure.programs import ProgramError, load_catalogue

    try:
        known = load_catalogue(catalogue)
    except ProgramError as error:
        raise CampaignError(str(error)) from None
    for name, program in known.items():
        click.echo(f"{name:<12}{program.description}")
        sizes = (
            f"{size} ({count / 1e6:,.0f} M instructions)" for size, count in program.instructions.items()
        )
        click.echo(f"{'':<12}sizes: {', '.join(sizes)}")
        if program.package is not None:
            click.echo(f"{'':<12}from {program.package.archive}")


@main.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--machine", type=click.Path(path_type=Path), required=True, metavar="M.yaml",
              help="The machine that is simulated in detail.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR",
              help="Where results go. Default: results/cycleclose-PROGRAM.")  # fmt: skip
@click.option("--interval", default="200k", show_default=True, help="Length of an interval [instructions].")
@click.option("--threshold", default=25.0, show_default=True, type=click.FloatRange(0, 100, min_open=True),
              help="Distance up to which signatures are one phase [% of the base].")  # fmt: skip
@click.option("--base", type=click.Choice(["L", "2L"]), default="2L", show_default=True,
              help="What the threshold is of: the interval's length, or the largest distance there is.")  # fmt: skip
@click.option("--dimensions", default=32, show_default=True, type=click.IntRange(1, 65536),
              help="Entries of a signature.")  # fmt: skip
@click.option(
    "--entries", default=1024, show_default=True, type=click.IntRange(1), help="Phases in the table."
)
@click.option("--when-full", type=click.Choice(["oldest", "closest"]), default="oldest", show_default=True,
              help="A full table forgets the phase met longest ago, or takes no new ones.")  # fmt: skip
@click.option("--update", type=click.Choice(["sample", "mean", "never"]), default="sample", show_default=True,
              help="A phase's signature: its last sample's, the mean of its intervals', or the first.")  # fmt: skip
@click.option("--predictor", default="rle-2", show_default=True, metavar="last|rle-N",
              help="What predicts the next phase.")  # fmt: skip
@click.option("--unsampled", type=click.Choice(["none", "last", "closest"]), default="last", show_default=True,
              help="Estimate of an interval whose phase has no sample.")  # fmt: skip
@click.option("--warm-up", default="lines", show_default=True, metavar="lines|M,B",
              help="What a sample begins with: every line touched last, which serves caches of any size, or "
              "the last M references and B branches; 0,0: nothing.")  # fmt: skip
@click.option("--wait-step", default=20.0, show_default=True, type=click.FloatRange(0, 1000),
              help="Sample intervals of one phase apart that wait for memory so differently "
              "[% of an instruction's time], and interpolate; 0: phases are code alone.")  # fmt: skip
@click.option("--paper", is_flag=True, help="As the paper has it: --warm-up 50000,50000 --wait-step 0.")
@click.option("--roll-back", is_flag=True,
              help="Do not predict: emulate a stretch, go back, and simulate what was new in it.")  # fmt: skip
@click.option("--twice", "samples", type=click.IntRange(1), metavar="N",
              help="Run the program twice: find the phases first, then simulate each at least N times.")  # fmt: skip
@click.option(
    "--validate", is_flag=True, help="Simulate everything, too, and tell how far the estimates are off."
)
@click.option(
    "--stdin", type=click.Path(path_type=Path), metavar="FILE", help="The program's standard input."
)
@click.option("--seed", default=1, show_default=True, help="Seed of page placement and random devices.")
@click.argument("program", type=click.Path(path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def cycleclose(
    machine: Path,
    out: Path | None,
    interval: str,
    threshold: float,
    base: str,
    dimensions: int,
    entries: int,
    when_full: str,
    update: str,
    predictor: str,
    unsampled: str,
    warm_up: str,
    wait_step: float,
    paper: bool,
    roll_back: bool,
    samples: int | None,
    validate: bool,
    stdin: Path | None,
    seed: int,
    program: Path,
    arguments: tuple[str, ...],
) -> None:
    """Trace PROGRAM with ARGUMENTS cycle-close: CPI, energy and hit rates of every interval.

    The program is emulated fast; its phases are found as it runs, and only some intervals of each are simulated
    in detail. PROGRAM is a static riscv64 Linux executable, or a C file. Leaves DIR/trace.parquet, trace.png and
    summary.json. In a terminal the trace is shown as it grows: p pauses, any key goes on, q or Ctrl-C ends the
    trace and keeps it.

    \b
      measure cycleclose --machine configs/machines/strongarm.yaml --validate experiments/workloads/chess.c medium
    """
    from measure.campaign import parse_count
    from measure.cycleclose.command import Job, parse_warm_up, run_cycleclose
    from measure.cycleclose.predictors import predictor_named
    from measure.cycleclose.tracer import Settings
    from measure.errors import RunError

    try:
        by_lines = warm_up == "lines" and not paper
        references, branches = (50_000, 50_000) if by_lines or paper else parse_warm_up(warm_up)
        predictor_named(predictor)
        length = parse_count(interval)
        if length < 1000:
            raise ValueError(f"an interval of {interval} instructions, expected at least 1000")
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if roll_back and samples:
        raise click.UsageError(
            "--roll-back and --twice are two ways of leaving nothing unsampled: give one of them"
        )
    settings = Settings(
        length, dimensions, threshold / 100, base, entries, when_full, update, predictor,  # type: ignore[arg-type]
        unsampled, "lines" if by_lines else "queues", references, branches,  # type: ignore[arg-type]
        0.0 if paper else wait_step / 100, roll_back,
    )  # fmt: skip
    directory = out or Path("results") / f"cycleclose-{program.stem}"
    job = Job(program, arguments, machine, stdin, seed, samples or 0)
    interrupted, ending = run_cycleclose(job, settings, directory, validate, _console())
    if interrupted:
        raise SystemExit(INTERRUPTED)
    if ending is not None:
        raise RunError(f"{program}: {ending}")


@main.command("check-sampling")
@click.argument("campaign", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR",
              help="Where results go. Default: results/NAME in the current directory.")  # fmt: skip
@click.option("--workers", type=click.IntRange(1), help="Runs at once. Default: one a processor.")
def check_sampling(campaign: Path, out: Path | None, workers: int | None) -> None:
    """Check whether cycle-close sampling perturbs the metrics that it reports.

    CAMPAIGN.yaml names ways of sampling (`ways:`). Each is compared with full simulations by the same statistics
    as instrumentation is with its absence, so that *equivalent* means shown to be so. Resumes by itself; leaves
    DIR/summary.json, DIR/report.html and DIR/traces/*.parquet.

    \b
      measure check-sampling configs/campaigns/sampling.yaml
    """
    console = _console()
    from measure.cycleclose.check import analyse_check, load_check, plan_check, summary_of
    from measure.cycleclose.check_page import print_check, render_check
    from measure.errors import CampaignError, MeasureError
    from measure.executor import execute_plan
    from measure.programs import ProgramError
    from measure.store import Store, write_atomically

    check, document = load_check(campaign)
    try:
        plan = plan_check(check, document, lambda message: console.print(message, style="dim"))
    except ProgramError as error:
        raise CampaignError(f"{document.where('program')}: {error}") from None
    directory = out or Path("results") / check.name
    with Store(directory) as store, _Bar(console) as bar:
        outcome = execute_plan(plan.specs, store, workers=workers, started=bar.start, progress=bar.advance)
    if outcome.failures:
        first = outcome.failures[0]
        console.print(
            f"{len(outcome.failures)} runs failed, the first of {first.spec.group}: {first.reason}",
            style="red",
        )
    with console.status("comparing runs") as status:
        results = analyse_check(check, outcome, lambda what: status.update(f"comparing runs: {what}"))
    text = json.dumps(summary_of(check, results, outcome), indent=1, allow_nan=False)
    write_atomically(directory / "summary.json", lambda path: _write(path, text))
    page = render_check(check, results)
    write_atomically(directory / "report.html", lambda path: _write(path, page))
    print_check(console, check, results)
    console.print(f"Report: {directory / 'report.html'}   Summary: {directory / 'summary.json'}", style="dim")
    if outcome.failures:
        raise MeasureError(f"{len(outcome.failures)} runs failed; the report is of the others")


main.add_command(phases)


def _console() -> Console:
    from rich.console import Console

    return Console(stderr=False, highlight=False)


def _plan(path: Path, out: Path | None, console: Console, target: str = "emulated") -> tuple[Plan, Path]:
    from measure.campaign import load_campaign
    from measure.errors import CampaignError
    from measure.plan import make_plan
    from measure.programs import ProgramError

    campaign, document = load_campaign(path)
    try:
        plan = make_plan(campaign, document, lambda message: console.print(message, style="dim"), target)
    except ProgramError as error:
        raise CampaignError(f"{document.where('program')}: {error}") from None
    return plan, out or Path("results") / campaign.name


def _finish(plan: Plan, outcome: Outcome, directory: Path, console: Console) -> None:
    """Analyse, write, print; the exit status says whether all runs were made."""
    from measure.errors import MeasureError, RunError

    if outcome.failures:
        first = outcome.failures[0]
        message = f"{len(outcome.failures)} runs failed, the first of {first.spec.group}: {first.reason}"
        if not any(run.spec.group != first.spec.group for run in outcome.runs):
            raise RunError(message)
        console.print(message, style="red")
    from measure.analysis import analyse, summary
    from measure.report.html import write_page
    from measure.store import write_atomically
    from measure.terminal import print_result

    with console.status("comparing runs") as status:
        data = analyse(plan, outcome, lambda what: status.update(f"comparing runs: {what}"))
        text = json.dumps(summary(data, outcome), indent=1, allow_nan=False)
        write_atomically(directory / "summary.json", lambda path: _write(path, text))
        status.update("drawing the report")
        write_page(data, directory / "report.html")
    print_result(console, data)
    console.print(f"Report: {directory / 'report.html'}   Summary: {directory / 'summary.json'}", style="dim")
    if outcome.failures:
        raise MeasureError(f"{len(outcome.failures)} runs failed; the report is of the others")


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


class _Bar:
    """A progress bar whose estimate comes from the runs made so far."""

    def __init__(self, console: Console) -> None:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self._progress = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            TextColumn("left:"), TimeRemainingColumn(), console=console, disable=not sys.stdout.isatty(),
        )  # fmt: skip
        self._console = console
        self._task: Any = None

    def __enter__(self) -> _Bar:
        self._progress.__enter__()
        return self

    def __exit__(self, *details: Any) -> None:
        self._progress.__exit__(*details)

    def start(self, to_do: int, there: int) -> None:
        if there:
            self._console.print(f"{there} runs are there already.", style="dim")
        if to_do:
            self._console.print(f"Making {to_do} runs.", style="dim")
        self._task = self._progress.add_task("runs", total=to_do)

    def advance(self) -> None:
        self._progress.advance(self._task)
