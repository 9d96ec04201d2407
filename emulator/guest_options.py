"""Command-line options for a guest's files and environment, common to ``emulate`` and other commands."""

from __future__ import annotations

import functools
from collections.abc import Callable
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


def guest_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --root, --map, --writable and --env to a command, which gets them as the argument ``guest``, a `Guest`."""

    @click.option("--root", type=click.Path(path_type=Path, exists=True, file_okay=False),
                  help="Directory that the guest sees as /, read-only; /tmp is in memory when it is missing "
                       "or empty there. Default: an empty one in memory.")  # fmt: skip
    @click.option("--map", "maps", multiple=True, metavar="GUEST=HOST",
                  help="Show the host file or directory HOST to the guest as GUEST. Repeatable.")  # fmt: skip
    @click.option("--writable", multiple=True, metavar="GUEST",
                  help="Let the guest write below this mapped path. Repeatable.")  # fmt: skip
    @click.option("--env", multiple=True, metavar="NAME=VALUE", help="Environment of the guest. Repeatable.")
    @functools.wraps(command)
    def with_guest(
        *args: Any, root: Path | None, maps: tuple[str, ...], writable: tuple[str, ...], env: tuple[str, ...],
        **others: Any,
    ) -> Any:  # fmt: skip
        mapped = dict(_mapping(value) for value in maps)
        environment = dict(item.partition("=")[::2] for item in env)
        return command(*args, guest=Guest(root, mapped, writable, environment), **others)

    return with_guest


def _mapping(value: str) -> tuple[str, Path]:
    guest, separator, host = value.partition("=")
    if not separator or not guest.startswith("/"):
        raise click.BadParameter(f"got {value!r}, expected GUEST=HOST with an absolute guest path", param_hint="--map")
    return guest, Path(host)
