"""The live view: what it says of an interval, and the keys that pause and end it."""

from __future__ import annotations

import os
import pty
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from emulator.machine import Machine
from emulator.timing.machine_events import Event
from emulator.timing.machine_file import load_machine
from instrumenter.building.program_build import build_program
from measure.cycle_close.tracer import Category, Interval
from measure.cycle_close.watch import Keys, Watch

MACHINE = load_machine(Path(__file__).parents[3] / "configs" / "machines" / "strongarm.yaml")


class Pressed(Keys):
    """Keys that were pressed beforehand."""

    def __init__(self, keys: list[str]) -> None:
        super().__init__()
        self.keys = keys
        self.waited = 0

    def pressed(self, wait: bool = False) -> str:
        self.waited += wait
        return self.keys.pop(0) if self.keys else ""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    source = tmp_path_factory.mktemp("watch") / "loop.c"
    source.write_text(
        "int main(void) {\n  volatile long s = 0;\n  for (long i = 0; i < 100000; i++) s += i;\n  return 0;\n}\n"
    )
    with Machine(build_program([source], ["-O1", "-g"]).elf_path, background=False) as machine:
        machine.advance_to_instructions(50_000)
        return machine


def interval() -> Interval:
    events = np.zeros(len(Event))
    events[Event.INSTRUCTIONS], events[Event.CYCLES] = 1000, 1500
    return Interval(4, 4000, 5000, 2, Category.MATCHED, 1, 0.1, events)


def test_it_says_where_the_program_is_and_what_is_estimated_there(machine: Machine) -> None:
    text = Watch(Console()).describe(machine, interval(), MACHINE)
    assert "interval 4" in text
    assert "phase 2 (matched)" in text
    assert "main" in text
    assert "loop.c:3" in text
    assert "cpi 1.500" in text


@pytest.mark.parametrize(
    ("keys", "goes_on", "waited"),
    [([""], True, 0), (["q"], False, 0), (["p", "x"], True, 1), ([" ", "q"], False, 1)],
)
def test_keys_pause_and_end(machine: Machine, keys: list[str], goes_on: bool, waited: int) -> None:
    pressed = Pressed(keys)
    with Watch(Console(quiet=True), pressed) as watch:
        assert watch.show(machine, interval(), MACHINE) is goes_on
    assert pressed.waited == waited


def test_keys_come_from_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        with Keys() as keys:
            assert keys.pressed() == ""
            os.write(ours, b"p")
            assert keys.pressed(wait=True) == "p"
    os.close(ours)


def test_without_a_terminal_there_are_no_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("qqq")
    with (tmp_path / "in").open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        with Keys() as keys:
            assert keys.pressed() == ""
