"""What commands show while runs are made."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


class RunsBar:
    """A progress bar whose estimate comes from the runs made so far."""

    def __init__(self, console: Console) -> None:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self._progress = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            TextColumn("left:"), TimeRemainingColumn(), console=console, disable=not sys.stdout.isatty(),
        )  # fmt: skip
        self._console = console
        self._task: Any = None

    def __enter__(self) -> RunsBar:
        self._progress.__enter__()
        return self

    def __exit__(self, *details: Any) -> None:
        self._progress.__exit__(*details)

    def start(self, to_do: int, there: int) -> None:
        if there:
            self._console.print(f"{there} runs are there already.", style="dim")
        if to_do:
            self._console.print(f"Making {to_do} runs.", style="dim")
        self._task = self._progress.add_task("runs", total=to_do)

    def advance(self) -> None:
        self._progress.advance(self._task)
