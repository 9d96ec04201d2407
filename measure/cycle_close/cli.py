"""The command ``measure cycleclose``: its options and help; `measure.cycle_close.command` does the work."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click
from click.core import ParameterSource

from common.settings_option import settings_option
from common.startup import starting
from emulator.guest_options import Guest, guest_options, tell_misplaced_options
from measure.console.output import command_console

if TYPE_CHECKING:
    from measure.cycle_close.classifier import Base, Update, WhenFull

_PICTURES = (".png", ".svg", ".pdf", ".jpg", ".jpeg")


@click.command(
    short_help="Trace CPI, energy and hit rates of every interval.",
    context_settings={"allow_interspersed_args": False},
)
@click.option("--machine", type=click.Path(path_type=Path), metavar="M.yaml",
              help="The machine that is simulated in detail. Default: that of the desktop.yaml that `measure init` "
                   "writes.")  # fmt: skip
@settings_option("machine")
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR",
              help="Where results go. Default: results/cycleclose-PROGRAM.")  # fmt: skip
@click.option("--interval", default="200k", show_default=True, metavar="N",
              help="Length of an interval [instructions; k, M, G].")  # fmt: skip
@click.option("--threshold", default=25.0, show_default=True, type=click.FloatRange(0, 100, min_open=True),
              metavar="PERCENT",
              help="Distance up to which signatures are one phase [% of the base].")  # fmt: skip
@click.option("--base", type=click.Choice(["L", "2L"]), default="2L", show_default=True,
              help="Base of the threshold: the interval's length, or the largest possible distance.")  # fmt: skip
@click.option("--dimensions", default=256, show_default=True, type=click.IntRange(1, 65536), metavar="N",
              help="Entries of a signature.")  # fmt: skip
@click.option("--signature", type=click.Choice(["balanced", "hashed"]), default="balanced", show_default=True,
              help="Which entry a branch adds to: the one with the fewest instructions, which a frequent branch keeps "
              "for itself, or one by a hash of its address, with which unlike loops may look the same.")  # fmt: skip
@click.option("--entries", default=1024, show_default=True, type=click.IntRange(1), metavar="N",
              help="Phases in the table.")  # fmt: skip
@click.option("--when-full", type=click.Choice(["oldest", "closest"]), default="oldest", show_default=True,
              help="A full table forgets the phase met longest ago, or takes no new ones.")  # fmt: skip
@click.option("--update", type=click.Choice(["sample", "mean", "never"]), default="sample", show_default=True,
              help="A phase's signature: its last sample's, the mean of its intervals', or the first.")  # fmt: skip
@click.option("--predictor", default="rle-2", show_default=True, metavar="last|rle-N",
              help="What predicts the next phase.")  # fmt: skip
@click.option("--unsampled", type=click.Choice(["none", "last", "closest"]), default="last", show_default=True,
              help="Estimate of an interval whose phase has no sample.")  # fmt: skip
@click.option("--warm-up", default="lines", show_default=True, metavar="lines|M,B",
              help="What a sample begins with: caches, TLBs and a branch predictor that are kept up to date while the "
              "program runs fast, or the last M references and B branches; 0,0: nothing.")  # fmt: skip
@click.option("--wait-step", default=20.0, show_default=True, type=click.FloatRange(0, 1000), metavar="PERCENT",
              help="Take separate samples of intervals of one phase whose waiting for memory differs by this much "
              "[% of an instruction's time], and interpolate; 0: phases are code alone.")  # fmt: skip
@click.option("--paper", is_flag=True,
              help="As the paper has it: --warm-up 50000,50000 --wait-step 0 --signature hashed "
              "--dimensions 32.")  # fmt: skip
@click.option("--roll-back", is_flag=True,
              help="Do not predict: emulate a part, go back, and simulate what was new in it.")  # fmt: skip
@click.option("--twice", "samples", type=click.IntRange(1), metavar="N",
              help="Run the program twice: find the phases first, then simulate each at least N times.")  # fmt: skip
@click.option("--validate", is_flag=True, help="Simulate everything, too, and show the deviation of the estimates.")
@click.option("--picture", is_flag=True, help="Write the trace as a picture, DIR/trace.png, too.")
@click.option("--stdin", type=click.Path(path_type=Path), metavar="FILE", help="The program's standard input.")
@click.option("--exit-status", type=click.IntRange(0, 255), default=0, metavar="N",
              help="The exit status with which the program ends when all is well, 128 + N where signal N ends it. "
                   "Default: 0.")  # fmt: skip
@guest_options
@click.option("--seed", default=1, show_default=True, metavar="N",
              help="Seed of page placement and random devices.")  # fmt: skip
@click.option("--gdb-port", default=0, type=click.IntRange(0, 65535), metavar="PORT",
              help="Where the key g waits for gdb, on the loopback. Default: any free port.")  # fmt: skip
@click.argument("program", type=click.Path(path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def cycleclose(
    machine: Path | None,
    settings: tuple[str, ...],
    out: Path | None,
    interval: str,
    threshold: float,
    base: Base,
    dimensions: int,
    signature: Literal["balanced", "hashed"],
    entries: int,
    when_full: WhenFull,
    update: Update,
    predictor: str,
    unsampled: Literal["none", "last", "closest"],
    warm_up: str,
    wait_step: float,
    paper: bool,
    roll_back: bool,
    samples: int | None,
    validate: bool,
    picture: bool,
    stdin: Path | None,
    exit_status: int,
    guest: Guest,
    seed: int,
    gdb_port: int,
    program: Path,
    arguments: tuple[str, ...],
) -> None:
    """Trace PROGRAM with ARGUMENTS cycle-close: CPI, energy and hit rates of every interval.

    The program is emulated fast; its phases are found while it runs, and only some intervals of each are simulated
    in detail. PROGRAM is a riscv64 Linux executable (a dynamically linked one finds its libraries below --root), or a
    C file. Leaves the page DIR/trace.html, trace.parquet and summary.json. In a terminal the trace is shown as it
    grows: p pauses, any key continues, g pauses and attaches gdb (breakpoints, watchpoints, steps; the trace stays the
    same, and continues when gdb detaches), q or Ctrl-C ends the trace and keeps it.

    \b
      measure cycleclose --machine configs/machines/strongarm.yaml --validate \\
        experiments/workloads/chess.c medium
    """
    with starting():
        from measure.cycle_close.command import Job, parse_warm_up, run_cycleclose
    from common.quantities import parse_interval
    from measure.built_in.machine import DESCRIBED, built_in_machine
    from measure.cycle_close.predictors import predictor_named
    from measure.cycle_close.tracer import TracerSettings
    from measure.errors import RunError

    try:
        by_lines = warm_up == "lines" and not paper
        references, branches = (50_000, 50_000) if by_lines or paper else parse_warm_up(warm_up)
        predictor_named(predictor)
        length = parse_interval(interval)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    misplaced = not program.exists() and bool(arguments) and Path(arguments[0]).is_file()
    if picture and (program.suffix.lower() in _PICTURES or misplaced):
        raise click.UsageError(
            f"--picture takes no name: leave out {program}; the picture is trace.png in the directory that --out names"
        )
    _check_configuration(roll_back, bool(samples))
    tell_misplaced_options(program, arguments)
    tracer_settings = TracerSettings(
        interval_instructions=length,
        dimensions=32 if paper else dimensions,
        threshold=threshold / 100,
        base=base,
        entries=entries,
        when_full=when_full,
        update=update,
        predictor=predictor,
        unsampled=unsampled,
        warm_up="lines" if by_lines else "queues",
        warm_references=references,
        warm_branches=branches,
        wait_step=0.0 if paper else wait_step / 100,
        roll_back=roll_back,
        signature="hashed" if paper else signature,
    )
    console = command_console()
    if machine is None:
        machine = built_in_machine()
        console.print(
            f"Machine: {DESCRIBED}, of which `measure init` writes a copy; --machine M.yaml takes another.", style="dim"
        )
    if gdb_port and (samples or not console.is_terminal):
        raise click.UsageError(
            "--gdb-port is for the key g while the trace is shown: in a terminal, and not with --twice"
        )
    directory = out or Path("results") / f"cycleclose-{program.stem}"
    job = Job(program, arguments, machine, stdin, seed, samples or 0, guest, settings, exit_status)
    interrupted, ending = run_cycleclose(job, tracer_settings, directory, validate, console, gdb_port, picture)
    if interrupted:
        raise SystemExit(interrupted)
    if ending is not None:
        raise RunError(f"{program}: {ending}")


def _check_configuration(roll_back: bool, is_twice: bool) -> None:
    """Refuse options of the command that exclude each other. Raises `click.UsageError`."""
    if roll_back and is_twice:
        raise click.UsageError("--roll-back and --twice both leave nothing unsampled: give one of them")
    for option in ("predictor", "unsampled"):
        is_given = click.get_current_context().get_parameter_source(option) is ParameterSource.COMMANDLINE
        if is_given and (roll_back or is_twice):
            other = "--roll-back" if roll_back else "--twice"
            raise click.UsageError(f"--{option} is for predicting phases, which {other} does not: leave it out")
