"""How busy the machine is, and how long a process has been running."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from measure.console import machine_load
from measure.console.machine_load import (
    command_age_seconds,
    command_processor_seconds,
    load_per_processor,
    process_age_seconds,
)

ASK = "import time; time.sleep(0.5)\nfrom measure.console.machine_load import process_age_seconds as age; print(age())"


def test_the_age_of_a_process_includes_what_it_did_before_it_asks() -> None:
    first = float(subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True).stdout)
    assert first >= 0.49
    assert process_age_seconds() > first - 0.49  # this process started another one meanwhile


def test_load_is_that_of_a_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (9.0, 1.0, 1.0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 3})
    assert load_per_processor() == 4.5

    def unknown() -> None:
        raise OSError

    monkeypatch.setattr(os, "getloadavg", unknown)
    assert load_per_processor() == 0.0


def test_an_unknown_age_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_load.os, "sysconf", lambda name: int("no number"))
    assert process_age_seconds() == 0.0


def test_only_a_command_is_as_old_as_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test or a notebook that calls a command may have been running for hours."""
    assert command_age_seconds("measure") == 0.0
    monkeypatch.setattr(sys, "argv", ["/somewhere/bin/measure", "partition"])
    assert command_age_seconds("measure") > 0.0
    assert command_age_seconds("emulate") == 0.0
    assert command_processor_seconds("measure") > 0.0
    assert command_processor_seconds("emulate") == 0.0
