"""Host faults that are nobody's guest fault go where they went before."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from emulator.engine.emit.entry_emitter import EntryEmitter

ROOT = Path(__file__).parents[3]
FAULT = """
import ctypes
from emulator.engine.codegen.entry import Entry
from emulator.machine import Machine
Entry.get()
ctypes.string_at(16)
"""


@pytest.mark.parametrize(
    ("before", "message"), [("", ""), ("import faulthandler; faulthandler.enable()", "Segmentation")]
)
def test_a_fault_of_the_host_itself(before: str, message: str) -> None:
    done = subprocess.run([sys.executable, "-c", before + FAULT], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == -signal.SIGSEGV
    assert message in done.stderr
    assert bool(done.stderr) == bool(message)


def test_the_module_is_the_same_each_time() -> None:
    assert EntryEmitter().emit() == EntryEmitter().emit()  # it is kept on disk by its text
