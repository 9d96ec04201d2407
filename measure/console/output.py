"""The console that a command prints its results to."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_LOG_COLUMNS = 160


def command_console() -> Console:
    """A console on standard output.

    In a pipe or a file each sentence is one line, so that commands in it can be searched for and copied; tables take up
    to 160 columns there, or $COLUMNS.
    """
    from rich.console import Console

    console = Console(highlight=False)
    if console.is_terminal:
        return console
    return Console(highlight=False, soft_wrap=True, width=None if "COLUMNS" in os.environ else _LOG_COLUMNS)
