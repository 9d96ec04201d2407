"""Shows progress: bars and a status line in a terminal; elsewhere a line from time to time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from measure.console.time_left import TimeLeft, clock_text
from measure.perturbation.wording import counted

if TYPE_CHECKING:
    from rich.console import Console

LINE_SECONDS = 30.0  # between lines without a terminal
_NOTED_SECONDS = 150.0  # after a note, which tells of the same work
_LEAST_SECONDS = 5.0  # between lines, also when much is done
_MANY_SECONDS = 10.0  # of the same work, to be told
_SPINNER = 2  # characters before a status line
_STEPS = 10  # number of parts of the work after each of which a line is due


def line_width(console: Console) -> int | None:
    """Characters of a status line; None in a log, which has whole texts."""
    return console.width - _SPINNER if console.is_terminal else None


def fitting(parts: Sequence[str], width: int | None) -> str:
    """The first of ``parts`` that fit into a line of ``width``, and at least one; all of them without a width."""
    line = parts[0]
    for part in parts[1:]:
        if width is not None and len(line) + len(part) + 2 > width:
            break
        line += f"; {part}"
    return line


class _Lines:
    """Prints the text of ``describe`` every `LINE_SECONDS`, from a thread: also while the work does not advance."""

    def __init__(self, console: Console, describe: Callable[[], str]) -> None:
        self._console, self._describe = console, describe
        self._over = threading.Event()
        self._due = time.monotonic() + LINE_SECONDS
        self._thread = threading.Thread(target=self._print_on, daemon=True)
        self._thread.start()

    @property
    def quiet_seconds(self) -> float:
        """Time since the last line."""
        return time.monotonic() - (self._due - LINE_SECONDS)

    def print_now(self) -> None:
        self._due = time.monotonic() + LINE_SECONDS
        self._console.print(self._describe(), markup=False, soft_wrap=True)

    def pause(self) -> None:
        """Print no line for `_NOTED_SECONDS`, or until `end_pause`."""
        self._due = time.monotonic() + _NOTED_SECONDS

    def end_pause(self) -> None:
        """Print the next line in `LINE_SECONDS` at the latest."""
        self._due = min(self._due, time.monotonic() + LINE_SECONDS)

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _print_on(self) -> None:
        while not self._over.wait(min(max(0.0, self._due - time.monotonic()), LINE_SECONDS)):
            if time.monotonic() >= self._due:
                self.print_now()


class Status:
    """A status line until the ``with`` ends. Without a terminal it is printed every `LINE_SECONDS`.

    ``text``: the line, to which the seconds so far are added if they are many, or a function that returns it whenever
    it is shown.
    """

    def __init__(self, console: Console, text: str | Callable[[], str]) -> None:
        self._console = console
        self._text, self._since = text, time.monotonic()
        self._lines: _Lines | None = None
        self._live: Any = None

    def __enter__(self) -> Status:
        if self._console.is_terminal:
            self._live = self._console.status(_DynamicText(self._describe))
            self._live.__enter__()
        else:
            self._lines = _Lines(self._console, self._describe)
        return self

    def __exit__(self, *details: Any) -> None:
        if self._live is not None:
            self._live.__exit__(*details)
        if self._lines is not None:
            self._lines.close()

    def update(self, text: str | Callable[[], str]) -> None:
        """Replace the line."""
        self._text, self._since = text, time.monotonic()
        if self._lines is not None:
            self._lines.end_pause()

    def note(self, text: str) -> None:
        """Print what the work itself tells; without a terminal it takes the place of the status line for a while."""
        self._console.print(text, style="dim", markup=False)
        if self._lines is not None:
            self._lines.pause()

    def say(self) -> None:
        """Print the line now, if there is no terminal: after a change that belongs into a log."""
        if self._lines is not None:
            self._lines.print_now()

    def say_if_quiet(self) -> None:
        """`say`, unless a line was printed a few seconds ago."""
        if self._lines is not None and self._lines.quiet_seconds >= _LEAST_SECONDS:
            self._lines.print_now()

    def _describe(self) -> str:
        if not isinstance(self._text, str):
            return self._text()
        seconds = time.monotonic() - self._since
        return self._text if seconds < _MANY_SECONDS else f"{self._text}, {seconds:.0f} s"


class _DynamicText:
    """Text that is computed each time it is drawn."""

    def __init__(self, describe: Callable[[], str]) -> None:
        self._describe = describe

    def __rich__(self) -> Any:
        from rich.text import Text

        return Text(self._describe())


class WorkBar:
    """A bar with an estimate of the time left (`TimeLeft`).

    ``what``: plural, such as "runs"; ``percent``: show percent instead of counts, for small units like instructions.
    """

    def __init__(self, console: Console, what: str, percent: bool = False) -> None:
        self._console, self._what, self._percent = console, what, percent
        self._left: TimeLeft | None = None
        self._lines: _Lines | None = None
        self._bar: Any = None
        self._task: Any = None
        self._step = 0  # at the last line

    def __enter__(self) -> WorkBar:
        return self

    def __exit__(self, *details: Any) -> None:
        if self._bar is not None:
            self._bar.__exit__(*details)
        if self._lines is not None:
            self._lines.close()
        self._bar = self._lines = None

    def begin(self, total: float, at_once: int = 1) -> None:
        """The work begins: ``total`` units, with ``at_once`` tasks in progress at any time."""
        self._left = TimeLeft(total, at_once)
        if self._console.is_terminal:
            self._bar = self._made_bar()
            self._bar.__enter__()
            self._task = self._bar.add_task(self._what, total=total)
        else:
            self._lines = _Lines(self._console, self.describe)

    def advance(self, amount: float = 1.0) -> None:
        """A task of ``amount`` units has ended."""
        if self._left is None:
            return
        self._left.advance(amount)
        if self._bar is not None:
            self._bar.advance(self._task, amount)
        step = int(_STEPS * self._left.done / self._left.total)
        due = self._step < step < _STEPS
        if self._lines is not None and due and self._lines.quiet_seconds >= _LEAST_SECONDS:
            self._step = step
            self._lines.print_now()

    def describe(self) -> str:
        """The amount done, the elapsed time, and the time left."""
        assert self._left is not None
        return f"{self._what}: {self._counted()}, {clock_text(self._left.elapsed_seconds)}, {self._left.describe()}"

    def _counted(self) -> str:
        assert self._left is not None
        if self._percent:
            return f"{100 * self._left.done / self._left.total:.0f}%"
        return f"{self._left.done:g} of {self._left.total:g}"

    def _made_bar(self) -> Any:
        from rich.progress import BarColumn, Progress, ProgressColumn, Task, TimeElapsedColumn
        from rich.text import Text

        bar = self

        class TextOf(ProgressColumn):
            """Is drawn even while the work does not advance."""

            def __init__(self, describe: Callable[[], str]) -> None:
                super().__init__()
                self._describe = describe

            def render(self, task: Task) -> Text:
                return Text(self._describe())

        assert bar._left is not None
        return Progress(
            TextOf(lambda: bar._what), BarColumn(), TextOf(bar._counted), TimeElapsedColumn(),
            TextOf(bar._left.describe), console=self._console, transient=True,
        )  # fmt: skip


class RunsBar(WorkBar):
    """The bar of `measure.runs.executor.execute_plan`."""

    def __init__(self, console: Console) -> None:
        super().__init__(console, "runs")

    def __enter__(self) -> RunsBar:
        return self

    def start(self, to_do: int, there: int, at_once: int = 1) -> None:
        """Begin with ``to_do`` runs to make, ``at_once`` at a time; ``there`` are stored already."""
        if there:
            self._console.print(f"{counted(there, 'run')} {'is' if there == 1 else 'are'} there already.", style="dim")
        if to_do:
            self._console.print(f"Making {counted(to_do, 'run')}.", style="dim")
            self.begin(to_do, at_once)
