"""Ctrl-C of a whole command: the first interrupts, a repetition of it does not, a later one ends the process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPT = """
import time
from measure.console.interrupts import interruptible
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
