"""The ``emulate`` command: run a RISC-V Linux program, and say what it counted."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from emulator.machine import Machine

USAGE_ERROR, WORK_FAILED = 2, 1


def _mapping(value: str) -> tuple[str, Path]:
    guest, separator, host = value.partition("=")
    if not separator or not guest.startswith("/"):
        raise click.BadParameter(
            f"got {value!r}, expected GUEST=HOST with an absolute guest path", param_hint="--map"
        )
    return guest, Path(host)


def _count(value: str) -> int:
    factors = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
    digits, factor = (value[:-1], factors[value[-1]]) if value[-1:] in factors else (value, 1)
    try:
        number = round(float(digits) * factor)
    except ValueError:
        number = 0
    if number < 1:
        raise click.BadParameter(
            f"got {value!r}, expected a positive count such as 500M or 2G", param_hint="--limit"
        )
    return number


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="""Examples:

\b
  emulate -- ./program input.txt
  emulate --stats -- ./program
  emulate --machine configs/machines/strongarm.yaml --stats -- ./program
  emulate --map /data=./inputs --limit 2G -- ./program /data/a.txt

The exit status is the guest's own; 128 + N when signal N ended it (139: segmentation fault); 1 when the
instruction limit was reached; 2 for bad arguments or a file that is not a program for this machine.""",
)
@click.option("--machine", "machine_path", type=click.Path(path_type=Path), metavar="M.yaml",
              help="Simulate this machine's timing (caches, predictor, pipeline) and count its events.")  # fmt: skip
@click.option("--root", type=click.Path(path_type=Path, exists=True, file_okay=False),
              help="Directory that the guest sees as /. Default: it sees no files at all.")  # fmt: skip
@click.option("--map", "maps", multiple=True, metavar="GUEST=HOST",
              help="Show the host file or directory HOST to the guest as GUEST. Repeatable.")  # fmt: skip
@click.option("--writable", multiple=True, metavar="GUEST",
              help="Let the guest write below this mapped path. Repeatable.")  # fmt: skip
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="Environment of the guest. Repeatable.")
@click.option("--seed", default=0, show_default=True, help="Seed of page placement, getrandom and AT_RANDOM.")
@click.option("--limit", metavar="N", help="Stop after N instructions (k, M, G, T). Default: never.")
@click.option("--stats", is_flag=True, help="Print instruction and event counts to stderr at the end.")
@click.option("--engine", type=click.Choice(["translated", "oracle"]), default="translated", show_default=True,
              help="oracle: the slow reference interpreter.")  # fmt: skip
@click.argument("program", type=click.Path())
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def main(
    machine_path: Path | None,
    root: Path | None,
    maps: tuple[str, ...],
    writable: tuple[str, ...],
    env: tuple[str, ...],
    seed: int,
    limit: str | None,
    stats: bool,
    engine: str,
    program: str,
    arguments: tuple[str, ...],
) -> None:
    """Run PROGRAM, a static riscv64 Linux executable, with ARGUMENTS on an emulated machine."""
    from emulator.errors import EmulatorError
    from emulator.linux.files import VirtualFiles
    from emulator.machine import Machine

    mapped = dict(_mapping(value) for value in maps)
    environment = dict(item.partition("=")[::2] for item in env)
    limit_instructions = _count(limit) if limit else None
    try:
        core, clock_hz, counting = _observers(machine_path, seed, stats)
        files = VirtualFiles(
            root=root, mapped=mapped, writable=writable, stdin=0, stdout=1, stderr=2, seed=seed
        )
        machine = Machine(
            program, arguments, environment=environment, files=files, core=core, consumers=counting,
            clock_hz=clock_hz, seed=seed, limit_instructions=limit_instructions, engine=engine,
            keep_translations=True,
        )  # fmt: skip
    except EmulatorError as error:
        raise SystemExit(_complain(error, USAGE_ERROR)) from None
    status = _run(machine, core or next(iter(counting), None), stats)
    machine.save_translations()
    # Leave at once: a translation that is still being compiled is of no use to anyone.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _run(machine: Machine, observer: Any, stats: bool) -> int:
    """Run to the end, say what there is to say, and return the exit status."""
    from emulator.errors import EmulatorError

    status = WORK_FAILED
    try:
        ending = machine.run()
        status = ending.status
        if ending.message is not None:
            click.echo(f"emulate: {ending.message}", err=True)
    except EmulatorError as error:
        _complain(error, status)
    except KeyboardInterrupt:
        status = 130
    machine.drain()
    _report(machine, observer, stats)
    return status


def _observers(machine_path: Path | None, seed: int, stats: bool) -> tuple[Any, int, list[Any]]:
    """The timing core, its clock, and what else has to see the record for ``--stats``."""
    from emulator.machine import DEFAULT_CLOCK_HZ

    if machine_path is None:
        from emulator.probes import BlockCounter

        return None, DEFAULT_CLOCK_HZ, [BlockCounter()] if stats else []
    from emulator.timing.inorder import InOrderCore
    from emulator.timing.load import load_machine

    config = load_machine(machine_path)
    return InOrderCore(config, seed), config.clock_hz, []


def _report(machine: Machine, observer: Any, stats: bool) -> None:
    for name in machine.kernel.unsupported:
        click.echo(f"emulate: the program asked for {name}, which is not supported (ENOSYS)", err=True)
    if not stats:
        return
    from emulator.timing.counters import Event, static_events

    if machine.core is not None:
        counts = {event.name: int(observer.counters[event]) for event in Event}
    else:
        facts = machine.facts
        executions = observer.executions[: facts.n_blocks]
        totals = executions @ static_events(facts, 0, facts.n_blocks).astype("int64")
        counts = {Event(n + Event.INSTRUCTIONS).name: int(total) for n, total in enumerate(totals)}
    click.echo(f"\n{machine.instructions:>16,}  instructions", err=True)
    for name, count in counts.items():
        if name != "INSTRUCTIONS" and count:
            click.echo(f"{count:>16,}  {name.lower().replace('_', ' ')}", err=True)


def _complain(error: Exception, status: int) -> int:
    click.echo(f"emulate: {error}", err=True)
    return status
