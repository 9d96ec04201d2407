"""Progress for library calls: shown in a terminal or a notebook, silent everywhere else."""

from __future__ import annotations

from rich.console import Console

from measure.arguments import check_flag


def console_for(progress: bool | None) -> Console:
    """The console that progress goes to, on standard error.

    ``progress``: True shows it, False does not, None shows it where the console is a terminal or a notebook.
    Raises `ArgumentError` for other values.
    """
    if progress is not None:
        check_flag("progress", progress)
    console = Console(stderr=True, highlight=False)
    if progress is None:
        progress = console.is_terminal or console.is_jupyter
    return console if progress else Console(stderr=True, quiet=True)
