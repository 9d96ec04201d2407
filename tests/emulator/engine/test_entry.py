"""The fault handler: a fault of the host goes to the previous handler, a guest fault never does."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from emulator.engine.emit.entry_emitter import EntryEmitter
from instrumenter.building.program_build import build_program

ROOT = Path(__file__).parents[3]
GUEST = ROOT / "tests" / "emulator" / "analyzers" / "guest"
FAULT = """
import ctypes
from emulator.engine.entry.entry import Entry
from emulator.machine import Machine
Entry.get()
ctypes.string_at(16)
"""

GUEST_FAULTS = """
import ctypes, faulthandler, sys
from clang import cindex
from emulator.machine import Machine

def run():
    for optimise_executions in (4, 1 << 30):
        with Machine(sys.argv[1], ["3"], background=False, optimise_executions=optimise_executions) as machine:
            assert machine.run().signal is None

run()
for replace in (faulthandler.enable, cindex.Index.create, faulthandler.disable, faulthandler.enable):
    replace()
    run()
print("survived", flush=True)
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


def test_guest_faults_after_another_library_has_installed_its_handlers() -> None:
    """faulthandler and libclang replace the handler; then a fault of the host still goes to faulthandler, and ends."""
    program = build_program([GUEST / "caught.c"], ["-O1"]).elf_path
    command = [sys.executable, "-c", GUEST_FAULTS, str(program)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.stdout.endswith("survived\n"), done.stderr
    assert done.returncode == -signal.SIGSEGV
    assert "Segmentation fault" in done.stderr


def test_the_module_is_the_same_each_time() -> None:
    assert EntryEmitter().emit() == EntryEmitter().emit()  # it is kept on disk by its text
