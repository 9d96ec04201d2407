"""The command ``measure phases``: its options and their help; `measure.program_phases.command` does the work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from common.settings_option import settings_option
from emulator.guest_options import Guest, guest_options, tell_misplaced_options
from measure.console.output import command_console

_EPILOG = """\b
Phases of a program, and how well the points represent it on a machine:
  measure phases --interval 1M --machine configs/machines/strongarm.yaml \\
    experiments/workloads/bwtzip.c medium

\b
Vectors of Valgrind's exp-bbv, QEMU's bbv plugin or gem5, by SimPoint 3.2's
rules:
  measure phases --compat simpoint-3.2 --max-k 30 bb.out.bb

\b
Points that another tool found, against full simulation:
  measure phases --points p.simpoints --weights p.weights --interval 1M \\
    --machine M.yaml PROGRAM"""


@click.command(
    short_help="Find the phases of a program (SimPoint).",
    context_settings={"allow_interspersed_args": False},
    epilog=_EPILOG,
)
@click.option("--machine", type=click.Path(path_type=Path), metavar="M.yaml",
              help="Simulate everything on this machine, too, and compare.")  # fmt: skip
@settings_option("machine")
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR",
              help="Where results go. Default: results/phases-PROGRAM[-points].")  # fmt: skip
@click.option("--interval", default="10M", show_default=True, metavar="N", help="Length of an interval [instructions].")
@click.option("--max-k", default=30, show_default=True, type=click.IntRange(1), metavar="K", help="Most phases to try.")
@click.option("--k", type=click.IntRange(1), metavar="K",
              help="Exactly so many phases, without a search; cut only if --wait-step is given, too.")  # fmt: skip
@click.option("--search", type=click.Choice(["all", "bisect"]),
              help="Try every k up to --max-k, or find it by bisection: faster, and it may choose a larger k. "
                   "Default: all; with --compat bisect.")  # fmt: skip
@click.option("--threshold", default=90.0, show_default=True, type=click.FloatRange(0, 100), metavar="PERCENT",
              help="Choose the smallest k whose score gets so far from the worst to the best.")  # fmt: skip
@click.option("--starts", default=5, show_default=True, type=click.IntRange(1), metavar="N",
              help="Starts of k-means for each k; the one that scores best counts.")  # fmt: skip
@click.option("--start-method", type=click.Choice(["kmeans++", "sample", "furthest"]),
              help="First centres: drawn by distance, drawn evenly, or each the furthest from the others. "
                   "Default: kmeans++; with --compat sample.")  # fmt: skip
@click.option("--dimensions", default=15, show_default=True, type=click.IntRange(1), metavar="N",
              help="Dimensions of the random projection.")  # fmt: skip
@click.option("--coverage", default=100.0, show_default=True, type=click.FloatRange(0, 100, min_open=True),
              metavar="PERCENT", help="Points only for the largest phases that make up this share.")  # fmt: skip
@click.option("--wait-step", default=20.0, show_default=True, type=click.FloatRange(0, 1000), metavar="PERCENT",
              help="With --machine: cut phases where their intervals wait for its memory differently, by more "
                   "than this share of an instruction's time; 0: phases are code alone, as with --compat.")  # fmt: skip
@click.option("--warm-up", default="1M", show_default=True, metavar="N",
              help="With --machine: the points are also simulated separately: without warm-up, after so many "
                   "instructions in detail, and with caches that are kept up to date until then.")  # fmt: skip
@click.option("--fixed-length/--variable", default=None,
              help="Whether intervals weigh the same, or by their instructions. Default: --variable; with --compat "
                   "--fixed-length.")  # fmt: skip
@click.option(
    "--compat",
    type=click.Choice(["simpoint-3.2"]),
    help="Follow this program's rules: its random numbers, starts, score and choice, and so its labels.",
)
@click.option("--points", type=click.Path(path_type=Path), metavar="FILE.simpoints",
              help="Use these simulation points, do not search. Needs --weights and --machine.")  # fmt: skip
@click.option("--weights", type=click.Path(path_type=Path), metavar="FILE.weights", help="The weights of --points.")
@click.option("--stdin", type=click.Path(path_type=Path), metavar="FILE", help="The program's standard input.")
@click.option("--exit-status", type=click.IntRange(0, 255), default=0, metavar="N",
              help="The exit status with which the program ends when all is well, 128 + N where signal N ends it. "
                   "Default: 0.")  # fmt: skip
@guest_options
@click.option("--picture/--no-picture", default=None,
              help="Make phases.html (what to do, figures to zoom into, tables) and phases.png. Default: for programs, "
                   "not for FILE.bb, where they take longest.")  # fmt: skip
@click.option("--seed", type=int, metavar="N",
              help="Seed of the projection, of k-means and of the machine. Default: 1. With --compat of k-means "
                   "(-seedkm) and of the machine.")  # fmt: skip
@click.argument("program", type=click.Path(path_type=Path), metavar="PROGRAM|FILE.bb")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def phases(context: click.Context, program: Path, arguments: tuple[str, ...], machine: Path | None,
           settings: tuple[str, ...], out: Path | None, interval: str, stdin: Path | None, exit_status: int,
           guest: Guest, points: Path | None, weights: Path | None, **given: Any) -> None:  # fmt: skip
    """Find the phases of PROGRAM, and the intervals that represent them (SimPoint).

    PROGRAM is a riscv64 Linux executable (a dynamically linked one finds its libraries below --root) or a C file;
    FILE.bb[.gz] has basic block vectors, and takes no options for running a program. Intervals that run the same
    code in the same proportions are of one phase: vectors are projected to a few dimensions, clustered by k-means for
    k = 1 to --max-k, and scored (BIC). The interval nearest to the centre of its phase represents it.

    Leaves DIR/NAME.bb, .simpoints, .weights and .labels in SimPoint's formats, phases.html, phases.png and
    summary.json; with --machine trace.parquet and homogeneity.csv, too.
    """

    from common.quantities import parse_count, parse_interval
    from measure.cycle_close.job import Job
    from measure.errors import RunError
    from measure.program_phases.command import Options, is_vectors_file, run_phases, run_points

    of_vectors = is_vectors_file(program)
    if of_vectors:
        _refuse_what_runs_programs(context, program, arguments)
    tell_misplaced_options(program, arguments)
    try:
        length = parse_interval(interval)
        given["warm_up_instructions"] = parse_count(given.pop("warm_up"))
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    compat = given.pop("compat") is not None
    if compat and given["start_method"] == "kmeans++":
        raise click.UsageError("SimPoint 3.2 has no kmeans++: give --start-method sample or furthest")
    if (points is None) != (weights is None):
        raise click.UsageError("--points and --weights go together: which intervals, and how much each stands for")
    for share in ("threshold", "coverage", "wait_step"):
        given[share] /= 100
    step_is_given = context.get_parameter_source("wait_step") is click.core.ParameterSource.COMMANDLINE
    if machine is None or compat or (given["k"] is not None and not step_is_given):
        given["wait_step"] = 0.0
    if given["picture"] is None:
        given["picture"] = not of_vectors
    if settings and machine is None:
        raise click.UsageError("--set changes the machine's description: give it with --machine M.yaml")
    options = Options(length, compat=compat, **given)
    seed = 1 if options.seed is None else options.seed
    job = Job(
        program, arguments, machine or Path(), stdin, seed, guest=guest, settings=settings, exit_status=exit_status
    )
    kind = "" if points is None else "-points"  # beside the analysis that they may be of
    directory = out or Path("results") / f"phases-{program.name.split('.')[0]}{kind}"
    console = command_console()
    if points is not None and weights is not None:
        if machine is None:
            raise click.UsageError("--points needs --machine M.yaml: the machine to simulate the points on")
        ending = run_points(job, machine, options, (points, weights), directory, console)
    else:
        ending = run_phases(job, machine, options, directory, console)
    if ending is not None:
        raise RunError(f"{program}: {ending}")


def _refuse_what_runs_programs(context: click.Context, program: Path, arguments: tuple[str, ...]) -> None:
    """Raise `click.UsageError` for options that have no effect on a file of vectors."""
    if arguments:
        given = " ".join(arguments)
        raise click.UsageError(
            f"got '{given}' after {program}, which is a file of vectors and takes no arguments; options go before it: "
            f"measure phases {given} {program}"
        )
    for name in (
        "machine",
        "settings",
        "interval",
        "stdin",
        "exit_status",
        "points",
        "weights",
        "wait_step",
        "warm_up",
        "root",
        "maps",
        "writable",
        "env",
    ):
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            option = next(one.opts[0] for one in context.command.params if one.name == name)
            raise click.UsageError(
                f"{program} is a file of vectors: {option} is about running a program, so give the program itself"
            )
