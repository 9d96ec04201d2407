"""What commands show while they work: bars and a line of status in a terminal, elsewhere a line now and then."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from measure.time_left import TimeLeft, clock_text

if TYPE_CHECKING:
    from rich.console import Console

LINE_SECONDS = 30.0  # between lines where there is no terminal
_LEAST_SECONDS = 5.0  # also where much is done
_STEPS = 10  # of the work, after each of which a line is due


class _Lines:
    """Prints what ``describe`` says every `LINE_SECONDS`, by a thread: also while the work gives no sign."""

    def __init__(self, console: Console, describe: Callable[[], str]) -> None:
        self._console, self._describe = console, describe
        self._over = threading.Event()
        self._due = time.monotonic() + LINE_SECONDS
        self._thread = threading.Thread(target=self._print_on, daemon=True)
        self._thread.start()

    @property
    def quiet_seconds(self) -> float:
        """Since the last line."""
        return time.monotonic() - (self._due - LINE_SECONDS)

    def print_now(self) -> None:
        self._due = time.monotonic() + LINE_SECONDS
        self._console.print(self._describe(), markup=False, soft_wrap=True)

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _print_on(self) -> None:
        while not self._over.wait(max(0.0, self._due - time.monotonic())):
            if time.monotonic() >= self._due:
                self.print_now()


class Status:
    """A line about what is going on, until the ``with`` ends. Without a terminal it is printed every `LINE_SECONDS`.

    ``text``: the line, or a function that says it anew whenever it is shown.
    """

    def __init__(self, console: Console, text: str | Callable[[], str]) -> None:
        self._console = console
        self._text = text
        self._lines: _Lines | None = None
        self._live: Any = None

    def __enter__(self) -> Status:
        if self._console.is_terminal:
            self._live = self._console.status(_Spoken(self._describe))
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
        """Show this from now on."""
        self._text = text

    def say(self) -> None:
        """Something changed that a log should have: print it now where there is no terminal."""
        if self._lines is not None:
            self._lines.print_now()

    def _describe(self) -> str:
        return self._text if isinstance(self._text, str) else self._text()


class _Spoken:
    """Text that is made anew each time it is drawn."""

    def __init__(self, describe: Callable[[], str]) -> None:
        self._describe = describe

    def __rich__(self) -> Any:
        from rich.text import Text

        return Text(self._describe())


class WorkBar:
    """A bar with an estimate of the time left (`TimeLeft`).

    ``what``: plural, such as "runs"; ``percent``: units are too small to be counted, such as instructions.
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
        """The work begins: so many units, so many pieces of it at once."""
        self._left = TimeLeft(total, at_once)
        if self._console.is_terminal:
            self._bar = self._made_bar()
            self._bar.__enter__()
            self._task = self._bar.add_task(self._what, total=total)
        else:
            self._lines = _Lines(self._console, self.describe)

    def advance(self, amount: float = 1.0) -> None:
        """A piece of work has ended."""
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
        """What is done, for how long, and the time left."""
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

        class Told(ProgressColumn):
            """Does not wait for the work to advance."""

            def __init__(self, tell: Callable[[], str]) -> None:
                super().__init__()
                self._tell = tell

            def render(self, task: Task) -> Text:
                return Text(self._tell())

        assert bar._left is not None
        return Progress(
            Told(lambda: bar._what), BarColumn(), Told(bar._counted), TimeElapsedColumn(), Told(bar._left.describe),
            console=self._console, transient=True,
        )  # fmt: skip


class RunsBar(WorkBar):
    """The bar of `measure.executor.execute_plan`."""

    def __init__(self, console: Console) -> None:
        super().__init__(console, "runs")

    def __enter__(self) -> RunsBar:
        return self

    def start(self, to_do: int, there: int, at_once: int = 1) -> None:
        """So many runs are to be made, so many at once, and ``there`` are there already."""
        if there:
            self._console.print(f"{there} runs are there already.", style="dim")
        if to_do:
            self._console.print(f"Making {to_do} runs.", style="dim")
            self.begin(to_do, at_once)
