"""Ctrl-C of a whole command: the first interrupts, a repetition of it does not, a later one ends the process.

What comes while a destructor runs, whose exceptions Python drops, interrupts after it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from common.interrupts import OutOfTime, Terminated, interruptible, terminable, time_limit
from measure.cli import main

ROOT = Path(__file__).parents[2]
SCRIPT = """
import time
from common.interrupts import interruptible
with interruptible():
    try:
        print("working", flush=True)
        time.sleep(100)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        time.sleep({cleanup})
        print("cleaned up", flush=True)
"""


@pytest.mark.parametrize(
    ("pause", "cleanup", "status", "last"),
    [(0.0, 0.5, 0, "cleaned up"), (1.1, 100.0, 130, "interrupted")],
    ids=["twice at once", "a second later"],
)
def test_ctrl_c_interrupts_once(pause: float, cleanup: float, status: int, last: str) -> None:
    command = [sys.executable, "-c", SCRIPT.format(cleanup=cleanup)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    assert process.stdout.readline() == "working\n"
    os.kill(process.pid, signal.SIGINT)
    assert process.stdout.readline() == "interrupted\n"
    time.sleep(pause)
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (status, "")
    assert ("interrupted\n" + out).splitlines()[-1] == last


class Slow:
    """Does something, and goes on a while, in its destructor."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.act = act

    def __del__(self) -> None:
        self.act()
        end = time.monotonic() + 0.1
        while time.monotonic() < end:
            pass


def send(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


@contextmanager
def soon() -> Iterator[None]:
    with time_limit(time.monotonic() + 0.05):
        yield


KINDS = pytest.mark.parametrize(
    ("kind", "within", "act"),
    [
        (OutOfTime, soon, lambda: None),
        (Terminated, terminable, send(signal.SIGTERM)),
        (KeyboardInterrupt, interruptible, send(signal.SIGINT)),
    ],
)


@KINDS
def test_what_comes_amid_an_import_interrupts(
    kind: type[BaseException], within: Callable[[], object], act: Callable[[], object]
) -> None:
    """An extension module makes an `ImportError` of it: a search out of time ended with that, and without a result."""

    def initialise() -> None:
        try:
            act()
            time.sleep(30)
        except KeyboardInterrupt as error:
            raise ImportError("initialization failed") from error

    with pytest.raises(kind), within():  # type: ignore[attr-defined]
        initialise()
    with pytest.raises(ImportError, match="other"), within():  # type: ignore[attr-defined]
        raise ImportError("other")


@KINDS
def test_what_comes_amid_a_destructor_interrupts_after_it(
    kind: type[BaseException], within: Callable[[], object], act: Callable[[], object]
) -> None:
    def work(seconds: float) -> None:
        with within():  # type: ignore[attr-defined]
            Slow(act)
            time.sleep(seconds)

    hook = sys.unraisablehook
    for seconds in (0, 30):  # the signal comes again at the end at the latest
        with pytest.raises(kind):
            work(seconds)
    assert sys.unraisablehook is hook


@pytest.mark.parametrize(("option", "keeps"), [((), True), (("--counts",), False), (("--dry-run",), False)])
def test_what_is_kept_is_said_where_runs_are_made(
    option: tuple[str, ...], keeps: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(main.commands["run"], "callback", interrupted)
    (tmp_path / "c.yaml").touch()
    result = CliRunner().invoke(main, ["run", *option, str(tmp_path / "c.yaml")])
    assert result.exit_code == 130
    told = "; finished runs are kept, the same command goes on" if keeps else ""
    assert result.output == f"measure: interrupted{told}\n"
