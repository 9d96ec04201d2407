"""The command ``measure init``: its options and their help; `measure.first_campaign.command` does the work."""

from __future__ import annotations

from pathlib import Path

import click

from measure.console.output import command_console


@click.command(short_help="Write a first campaign for a program of yours.")
@click.argument("program", metavar="PROGRAM.c|PROGRAM.cpp|DIR", type=click.Path(path_type=Path))
@click.argument("arguments", metavar="[-- ARGUMENTS...]", nargs=-1, type=click.UNPROCESSED)
@click.option("--machine", type=click.Path(path_type=Path), metavar="M.yaml",
              help="The machine to measure on. Default: a desktop-like one, whose description is written beside "
                   "the campaign.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE",
              help="The campaign file to write. Default: NAME.yaml in the current directory.")  # fmt: skip
@click.option("--stdin", type=click.Path(path_type=Path), metavar="FILE", help="The program's standard input.")
@click.option("--file", "files", multiple=True, metavar="[GUEST=]FILE",
              help="A file that the program reads, or a directory of them, under its own name or as the absolute path "
                   "GUEST; may be repeated. Arguments that name files do so without being listed.")  # fmt: skip
@click.option("--flags", metavar="FLAGS",
              help="Flags of the compiler for sources without a build of their own, such as '-O2 -std=c++20'. "
                   "Default: -O2.")  # fmt: skip
@click.option("--build", metavar="COMMAND",
              help="How DIR is built. Default: by its configure script, makefile or CMakeLists.txt, or by compiling "
                   "its C and C++ files.")  # fmt: skip
@click.option("--binary", metavar="PATH",
              help="The program that the build of DIR makes, below DIR; make is asked for it alone if it can. Default: "
                   "the only one that the build links.")  # fmt: skip
@click.option("--exit-status", type=click.IntRange(0, 255), default=0, metavar="N",
              help="The exit status with which the program ends when all is well, 128 + N where signal N ends it. "
                   "Default: 0.")  # fmt: skip
@click.option("--limit", metavar="N",
              help="Instructions that a run may execute (k, M, G); the campaign keeps it. Default: 10G.")  # fmt: skip
@click.option("--force", is_flag=True, help="Overwrite the campaign file.")
def init(
    program: Path,
    arguments: tuple[str, ...],
    machine: Path | None,
    out: Path | None,
    stdin: Path | None,
    files: tuple[str, ...],
    flags: str | None,
    build: str | None,
    binary: str | None,
    exit_status: int,
    limit: str | None,
    force: bool,
) -> None:
    """Write a first campaign for a C or C++ file, or for a directory with a build of its own.

    Builds the program, runs it four times on the emulated machine, and writes a commented campaign file: the length
    of a record (about 800 of them in a run), hardware metrics that the machine has and that vary in this program, and
    software metrics that vary, too, for the functions and loops where its time goes. `measure run` runs it as it is.

    \b
      measure init chess.c -- medium
      measure init words.cpp --flags "-O2 -std=c++20" -- input.txt
      measure init ../mine --binary src/mine -- input.txt
    """

    from common.quantities import parse_count
    from measure.first_campaign.command import Request, write_first_campaign

    try:
        limit_instructions = None if limit is None else parse_count(limit)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--limit") from None
    request = Request(
        program, arguments, machine, out, stdin, files, flags, build, binary, exit_status, limit_instructions, force
    )
    write_first_campaign(request, command_console())
