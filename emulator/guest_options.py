"""Command-line options for a guest's files and environment, common to ``emulate`` and other commands."""

from __future__ import annotations

import functools
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click


@dataclass(frozen=True)
class Guest:
    """The guest's view of the host. ``root``: the host directory that it sees as /; ``mapped``: host files and
    directories by guest path; ``writable``: guest paths below which it may write; ``environment``: its variables."""

    root: Path | None = None
    mapped: dict[str, Path] = field(default_factory=dict)
    writable: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)


NOT_MAPPED = (
    "is in no mapped directory. Files that the guest writes elsewhere are its own and are lost, and a file that is "
    "mapped alone is read-only: map its directory"
)
"""What is wrong with a path of `not_mapped`."""


def guest_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --root, --map, --writable and --env to a command, which gets them as the argument ``guest``, a `Guest`."""

    @click.option("--root", type=click.Path(path_type=Path, exists=True, file_okay=False),
                  help="Directory that the guest sees as /, read-only; /tmp is in memory when it is missing "
                       "or empty there. Default: an empty one in memory.")  # fmt: skip
    @click.option("--map", "maps", multiple=True, metavar="[GUEST=]HOST",
                  help="Show the host file or directory HOST to the guest, as GUEST or under its own name. "
                       "Repeatable.")  # fmt: skip
    @click.option("--writable", multiple=True, metavar="GUEST",
                  help="Let the guest write below this path of a mapped directory. Repeatable.")  # fmt: skip
    @click.option("--env", multiple=True, metavar="NAME=VALUE", help="Environment of the guest. Repeatable.")
    @functools.wraps(command)
    def with_guest(
        *args: Any, root: Path | None, maps: tuple[str, ...], writable: tuple[str, ...], env: tuple[str, ...],
        **others: Any,
    ) -> Any:  # fmt: skip
        mapped = dict(_mapping(value) for value in maps)
        if missing := not_mapped(writable, root, mapped):
            raise click.BadParameter(
                f"{missing} {NOT_MAPPED}, such as --map /data=DIRECTORY --writable /data", param_hint="--writable"
            )
        environment = dict(map(_variable, env))
        return command(*args, guest=Guest(root, mapped, writable, environment), **others)

    return with_guest


def not_mapped(writable: Sequence[str], root: Path | None, mapped: Mapping[str, Path]) -> str | None:
    """The first of the guest paths ``writable`` at which the guest sees no directory of the host; None if there is
    none. Relative paths are left to `VirtualFiles`, which refuses them."""
    directories = [os.path.normpath(guest) for guest, host in mapped.items() if host.is_dir()]
    for path in writable:
        own = os.path.normpath(path)
        if not path.startswith("/") or any(os.path.commonpath([one, own]) in (one, own) for one in directories):
            continue
        if root is None or own in map(os.path.normpath, mapped):
            return path
    return None


def tell_misplaced_options(program: Path | str, arguments: Sequence[str]) -> None:
    """Say on standard error which ``arguments`` of the ``program`` are named like options of the current command, since
    options are the command's only before the program."""
    context = click.get_current_context()
    own = {name for parameter in context.command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    words = [argument.partition("=")[0] for argument in arguments]
    if found := [word for word in dict.fromkeys(words) if word.startswith("--") and word in own]:
        goes, options = ("goes", "an option") if len(found) == 1 else ("go", "options")
        click.echo(
            f"Note: {', '.join(found)} {goes} to the program; {options} of `{context.command_path}` must stand before "
            f"{program}.",
            err=True,
        )


def own_guest_path(name: str) -> str:
    """Where a guest finds the file that it calls ``name``: the directory in which it starts is /."""
    return os.path.normpath("/" + name.lstrip("/"))


def about_hidden_files(not_found: Sequence[str], arguments: Sequence[str]) -> str:
    """How to show the guest the files of the host among those that it did not find; empty if there are none.

    ``not_found``: guest paths (`VirtualFiles.not_found`). A file of the host is one that its ``arguments`` name, or
    one below the current directory.
    """
    named = {own_guest_path(argument): argument for argument in arguments}
    hosts = [named.get(path, path.lstrip("/")) for path in not_found]
    hidden = [host for host in hosts if os.path.isfile(host)]
    if not hidden:
        return ""
    maps = " ".join(f"--map {shlex.quote(host)}" for host in hidden)
    return f"the program did not find {', '.join(hidden)}: it sees no file of this machine without `{maps}`"


def guest_and_host(value: str) -> tuple[str, str]:
    """The guest path and the path on this machine of an option's value ``[GUEST=]HOST``."""
    guest, separator, host = value.partition("=")
    if not separator or os.path.exists(value):  # the name of a file may have such a sign
        return own_guest_path(value), value
    return guest, host


def _variable(value: str) -> tuple[str, str]:
    """The name and the value of a value of --env."""
    name, separator, text = value.partition("=")
    if not name or not separator:
        raise click.BadParameter(f"got {value!r}, expected NAME=VALUE: {name or 'NAME'}=", param_hint="--env")
    return name, text


def _mapping(value: str) -> tuple[str, Path]:
    """The guest path and the host path of a value of --map."""
    guest, host = guest_and_host(value)
    if not guest.startswith("/"):
        raise click.BadParameter(
            f"got the guest path {guest!r}, expected an absolute one: --map {own_guest_path(guest)}={host}",
            param_hint="--map",
        )
    return guest, Path(host)
