"""The ``emulate`` command: run a RISC-V Linux program, and print the counts."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from common.interrupts import TERMINATED, exit_status, terminable
from common.listed_names import listed
from common.settings_option import settings_option
from common.startup import starting
from common.text_encoding import AnyTextCommand
from emulator.cache_command import clear_cache, show_cache
from emulator.guest_options import Guest, about_hidden_files, guest_options, tell_misplaced_options

if TYPE_CHECKING:
    from emulator.analyzers.analysis_session import Session
    from emulator.machine import Ending, Machine

USAGE_ERROR, WORK_FAILED = 2, 1
KILLED = 128 + 9


def _count(value: str, hint: str = "--limit") -> int:
    """A count such as 500M. Raises `click.BadParameter`."""
    factors = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
    digits, factor = (value[:-1], factors[value[-1]]) if value[-1:] in factors else (value, 1)
    try:
        number = round(float(digits) * factor)
    except ValueError:
        number = 0
    if number < 1:
        raise click.BadParameter(f"got {value!r}, expected a positive count such as 500M or 2G", param_hint=hint)
    return number


def _list_analyzers(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted:
        return
    from emulator.analyzers.registry import describe

    for name, text, options in describe():
        click.echo(f"{name:<10}  {text}.\n{'':<12}{options}")
    context.exit()


def _list_system_calls(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted:
        return
    from emulator.linux.abi.numbers import SYSTEM_CALL_NAMES
    from emulator.linux.syscalls.table import ALL_SYSTEM_CALLS, OPTIONAL_GROUPS

    table = ALL_SYSTEM_CALLS
    groups = {number: name for name, rows in OPTIONAL_GROUPS.items() for number in rows}
    for number, name in SYSTEM_CALL_NAMES.items():
        call = table.get(number)
        support = "not supported" if call is None else call.support.value
        group = f"({groups[number]})" if number in groups else ""
        notes = " ".join(filter(None, ("" if call is None else call.note, group)))
        click.echo(f"{number:>4}  {name:<24}{support:<15}{notes}".rstrip())
    click.echo(
        f"{len(table)} of {len(SYSTEM_CALL_NAMES)} system calls are supported; the others fail with ENOSYS, and"
        " emulate names each at the end."
    )
    context.exit()


@click.command(
    cls=AnyTextCommand,
    context_settings={"allow_interspersed_args": False},
    epilog="""Examples:

\b
  instrument-cc -O2 -o chess experiments/workloads/chess.c   # or any program
  emulate -- ./chess small
  emulate --stats -- ./chess small
  emulate --machine configs/machines/strongarm.yaml --stats -- ./chess small
  emulate --machine configs/machines/strongarm.yaml \\
    --set l1d.size_bytes=65536 --stats -- ./chess small
  emulate --analyzer mix --analyzer 'bbv interval=1M out=chess.bb' -- \\
    ./chess small
  emulate --analyzer caches --select 'symbol=search class=load' \\
    --from main -- ./chess small
  emulate --map a.txt --limit 2G -- ./program a.txt
  emulate --map /data=./inputs -- ./program /data/a.txt
  emulate --analyzer ./mine.py:MyAnalyzer -- ./program

A selection is KEY=VALUE,VALUE ...: class (load, store, memory, branch, call, control, fp, ...) and mnemonic select
instructions by kind; symbol, source, library and range=LOW-HIGH by place, in libraries as soon as they are mapped.

The exit status is the guest's own; 128 + N when signal N ended it (139: segmentation fault); 1 when the
instruction limit was reached; 2 for bad arguments or a file that is not a program for this machine.""",
)
@click.option("--machine", "machine_path", type=click.Path(path_type=Path), metavar="M.yaml",
              help="Simulate this machine's timing (caches, predictor, pipeline) and count its events.")  # fmt: skip
@settings_option("machine")
@guest_options
@click.option(
    "--seed", default=0, show_default=True, metavar="N", help="Seed of page placement, getrandom and AT_RANDOM."
)
@click.option("--limit", metavar="N", help="Stop after N instructions (k, M, G, T). Default: never.")
@click.option("--stats", is_flag=True, help="Print instruction and event counts to stderr at the end.")
@click.option("--analyzer", "names", multiple=True, metavar="'NAME KEY=VALUE ...'",
              help="Watch the program with a ready analyzer, or your own (FILE.py:CLASS). Repeatable.")  # fmt: skip
@click.option("--select", "selection", metavar="SELECTION", help="Restrict the analyzers to these instructions.")
@click.option("--from", "first", metavar="PLACE",
              help="Let analyzers begin at a function, an address, or after N instructions (k, M, G).")  # fmt: skip
@click.option("--until", "last", metavar="PLACE", help="Let analyzers end there.")
@click.option("--list-analyzers", is_flag=True, is_eager=True, expose_value=False, callback=_list_analyzers,
              help="List the analyzers with their options, and exit.")  # fmt: skip
@click.option("--list-syscalls", is_flag=True, is_eager=True, expose_value=False, callback=_list_system_calls,
              help="List the system calls with how much of each is supported, and exit.")  # fmt: skip
@click.option("--gdb", "gdb_port", type=click.IntRange(0, 65535), metavar="PORT",
              help="Wait for gdb on this port of the loopback before the program starts (0: any).")  # fmt: skip
@click.option("--cache-stats", is_flag=True, is_eager=True, expose_value=False, callback=show_cache,
              help="Show what the cache directory keeps on disk, and exit.")  # fmt: skip
@click.option("--cache-clear", is_flag=True, is_eager=True, expose_value=False, callback=clear_cache,
              help="Remove it, but not what another process uses, and exit.")  # fmt: skip
@click.option("--engine", type=click.Choice(["translated", "oracle"]), default="translated", show_default=True,
              help="oracle: the slow reference interpreter.")  # fmt: skip
@click.argument("program", type=click.Path())
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def main(
    machine_path: Path | None,
    settings: tuple[str, ...],
    guest: Guest,
    seed: int,
    limit: str | None,
    stats: bool,
    names: tuple[str, ...],
    selection: str | None,
    first: str | None,
    last: str | None,
    gdb_port: int | None,
    engine: str,
    program: str,
    arguments: tuple[str, ...],
) -> None:
    """Run PROGRAM, a riscv64 Linux executable, with ARGUMENTS on an emulated machine.

    Dynamically linked programs find their interpreter and libraries below --root. Standard input and output are those
    of this command, but for the program no terminal, even where they are one: there it reads whole lines.
    """
    if gdb_port is not None and names:
        raise click.UsageError("got --gdb and --analyzer, which both control where the program stops: use one of them")
    if settings and machine_path is None:
        raise click.BadParameter("got it without --machine, expected the file that it changes", param_hint="--set")
    if sys.stderr.isatty():  # for people: a script reads there what the program writes
        tell_misplaced_options(program, arguments)
    limit_instructions = _count(limit) if limit else None
    with starting():
        from emulator.errors import EmulatorError
        from emulator.events import TraceSelection
        from emulator.linux.vfs.files import VirtualFiles
        from emulator.machine import Machine

        try:
            core, clock_hz = _timing(machine_path, settings, seed)
            files = VirtualFiles(
                root=guest.root,
                mapped=guest.mapped,
                writable=guest.writable,
                stdin=0,
                stdout=1,
                stderr=2,
                seed=seed,
            )
            machine = Machine(
                program, arguments, environment=guest.environment, files=files, core=core, clock_hz=clock_hz, seed=seed,
                limit_instructions=limit_instructions, engine=engine, keep_translations=True,
            )  # fmt: skip
            if stats and core is None:
                machine.observe(TraceSelection(counts=True))
            session = _session(machine, names, selection, first is not None)
            _bounds(session, first, last)
        except EmulatorError as error:
            raise SystemExit(_complain(error, USAGE_ERROR)) from None
    status = _run(machine, arguments, session, first, last, core, stats, gdb_port)
    machine.save_translations()
    # Exit at once: a region that is still being compiled is of no use any more.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _session(machine: Machine, names: tuple[str, ...], selection: str | None, paused: bool) -> Session | None:
    """A session with the named analyzers on the machine; None without names."""
    if not names:
        if selection:
            raise click.BadParameter(
                "got it without --analyzer, expected both: see --list-analyzers", param_hint="--select"
            )
        return None
    import shlex

    from emulator.analyzers.analysis_session import Session
    from emulator.analyzers.event_selection import Selection
    from emulator.analyzers.registry import make

    made = []
    for text in names:
        name, *options = shlex.split(text)
        made.append(make(name, options, selection or ""))
    session = Session(machine, made, paused)
    if selection:
        session.ranges_of(Selection.parse(selection))  # some analyzers look its names up only at their end
    return session


def _place(text: str, hint: str) -> int | str | None:
    """The place that --from or --until names: function or address; None for a number of instructions."""
    if text[:1].isdigit() and not text.startswith("0x"):
        _count(text, hint)
        return None
    try:
        return int(text, 16) if text.startswith("0x") else text
    except ValueError:
        raise click.BadParameter(
            f"got {text!r}, expected a function, an address such as 0x10400, or instructions such as 10M",
            param_hint=hint,
        ) from None


def _bounds(session: Session | None, first: str | None, last: str | None) -> None:
    """Let the analyzers begin and end at the places of --from and --until; `_run_watched` does so at instructions."""
    places: dict[str, int | str | None] = {}
    for text, hint in ((last, "--until"), (first, "--from")):
        if text is None:
            continue
        if session is None:
            raise click.BadParameter("got it without --analyzer, expected both: see --list-analyzers", param_hint=hint)
        places[hint] = place = _place(text, hint)
        if place is not None:  # the end, too, whose name is looked up now; `_begin` lets it count from the beginning on
            session.at(place, session.pause if hint == "--until" else functools.partial(_begin, session, last))
    if first is not None and last is not None and places["--from"] is places["--until"] is None:
        begin, end = _count(first, "--from"), _count(last, "--until")
        if end <= begin:
            raise click.BadParameter(f"got {last}, expected more than {first} of --from", param_hint="--until")


def _begin(session: Session, last: str | None) -> None:
    """Let the analyzers begin, and end when the program comes to ``last`` after that, if it is a place."""
    session.resume()
    place = _place(last, "--until") if last is not None else None
    if place is not None:
        session.at(place, session.pause)


def _run_watched(session: Session, first: str | None, last: str | None) -> Ending:
    """Run to the end; --from and --until take effect here where they are numbers of instructions."""
    if first is not None and _place(first, "--from") is None and session.run(_count(first, "--from")) is None:
        _begin(session, last)
    if last is not None and _place(last, "--until") is None:
        session.run(_count(last, "--until"))
        session.pause()
    ending = session.run()
    assert ending is not None
    if not session.was_active:
        executed = session.machine.instructions
        click.echo(f"emulate: the program ended after {executed:,} instructions, before --from {first}", err=True)
    return ending


def _run(
    machine: Machine, arguments: tuple[str, ...], session: Session | None, first: str | None, last: str | None,
    core: Any, stats: bool, gdb_port: int | None,
) -> int:  # fmt: skip
    """Run to the end, print messages, counts and analyzers' reports, and return the exit status."""
    from emulator.errors import EmulatorError

    status = WORK_FAILED
    try:
        with terminable():
            if gdb_port is not None and _debugged(machine, gdb_port):
                return KILLED
            ending = machine.run() if session is None else _run_watched(session, first, last)
        status = ending.status
        if ending.message is not None:
            click.echo(f"emulate: {ending.message}", err=True)
    except EmulatorError as error:
        _complain(error, status)
    except KeyboardInterrupt as error:
        status = exit_status(error)
        click.echo(f"emulate: ended by {'SIGTERM' if status == TERMINATED else 'Ctrl-C'}", err=True)
    machine.drain()
    _report(machine, core, stats, arguments)
    if session is not None:
        try:
            session.finish()
        except EmulatorError as error:
            status = _complain(error, WORK_FAILED)
        for analyzer in session.ended:
            click.echo(f"\n{analyzer.report()}", err=True)
    return status


def _debugged(machine: Machine, port: int) -> bool:
    """Let gdb control the machine until it disconnects; returns whether it killed the program."""
    from emulator.gdb.answers import SessionEnd
    from emulator.gdb.server import serve

    def listening(at: int) -> None:
        click.echo(f"emulate: waiting for gdb: target remote 127.0.0.1:{at}", err=True)

    return serve(machine, port, listening) is SessionEnd.KILLED


def _timing(machine_path: Path | None, settings: tuple[str, ...], seed: int) -> tuple[Any, int]:
    """The timing core of the machine file, with changed ``settings``, and its clock [Hz]; no core and the default clock
    without a file."""
    from emulator.machine import DEFAULT_CLOCK_HZ

    if machine_path is None:
        return None, DEFAULT_CLOCK_HZ
    from emulator.timing.inorder import InOrderCore
    from emulator.timing.machine_file import load_machine

    config = load_machine(machine_path, settings)
    return InOrderCore(config, seed), config.clock_hz


def _report(machine: Machine, core: Any, stats: bool, arguments: tuple[str, ...]) -> None:
    """Print unsupported system calls, files that the program does not see, files that are lost, and, with --stats, the
    counts."""
    for name in machine.kernel.unsupported:
        click.echo(f"emulate: the program asked for {name}, which is not supported (ENOSYS)", err=True)
    hidden = about_hidden_files(machine.files.not_found(), arguments)
    if hidden:
        click.echo(f"emulate: {hidden}", err=True)
    left = machine.files.left_in_memory()
    if left:
        click.echo(
            f"emulate: written in memory and gone now: {listed(left, 3)}; to keep files, let the "
            "program write to a directory of the host: --map /out=DIRECTORY --writable /out",
            err=True,
        )
    if not stats:
        return
    from emulator.timing.machine_events import Event, static_events

    if core is not None:
        counts = {event.name: int(core.counters[event]) for event in Event}
    else:
        facts = machine.facts
        totals = machine.block_counts @ static_events(facts, 0, facts.n_blocks).astype("int64")
        counts = {Event(n + Event.INSTRUCTIONS).name: int(total) for n, total in enumerate(totals)}
    click.echo(f"\n{counts['INSTRUCTIONS']:>16,}  instructions", err=True)
    for name, count in counts.items():
        if name != "INSTRUCTIONS" and count:
            click.echo(f"{count:>16,}  {name.lower().replace('_', ' ')}", err=True)


def _complain(error: Exception, status: int) -> int:
    click.echo(f"emulate: {error}", err=True)
    return status
