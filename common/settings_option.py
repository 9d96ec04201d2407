"""The option ``--set KEY=VALUE``: changes values of a YAML file for one command (`common.layered_yaml`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def settings_option(of: str) -> Callable[[Command], Command]:
    """A decorator that gives a command the option, as ``settings``: a tuple of texts. ``of``: the file's kind."""
    return click.option(
        "--set", "settings", multiple=True, metavar="KEY=VALUE",
        help=f"Change a value of the {of}, such as --set delta=0.1; may be repeated. Keys of keys have dots between "
        "them, items of lists are numbers from 0, values are YAML."
        if of == "campaign"
        else f"Change a value of the {of}; may be repeated. Keys of keys have dots between them, items of lists are "
        "numbers from 0, values are YAML.",
    )  # fmt: skip
