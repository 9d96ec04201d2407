"""When LLVM is loaded: only for who runs long enough, for it takes longer than many programs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from emulator.engine.tiering import background
from emulator.engine.tiering.background import FIRST_GUEST_SHARE, LATER_GUEST_SHARE, FairShare

ROOT = Path(__file__).parents[3]

SCRIPT = """
import sys
from emulator.isa.decode import assemble
from emulator.machine import Machine
from tests.fuzz.programs import elf

rounds = int(sys.argv[1])
words = [
    assemble("lui", 6, imm=rounds << 12), assemble("addi", 6, 6, imm=-1), assemble("bne", rs1=6, rs2=0, imm=-4),
    assemble("addi", 17, 0, imm=94), assemble("ecall"),
]
with Machine(elf(b"".join(word.to_bytes(4, "little") for word in words), b"")) as machine:
    machine.run()
    assert machine.instructions >= rounds << 13
    print(machine.translator._background.has_llvm)
"""


def has_llvm(rounds: int) -> bool:
    """Whether LLVM is there after so many times 4096 rounds of a loop, in a process of its own."""
    command = [sys.executable, "-c", SCRIPT, str(rounds)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout == "True\n"


def test_llvm_is_loaded_for_who_runs_long() -> None:
    has_llvm(10)  # this one may have to compile what is kept of the emulator itself
    assert not has_llvm(5)
    assert has_llvm(1000)


UNCLOSED = """
import sys, time
from emulator.isa.decode import assemble
from emulator.engine.translator import Translator
from emulator.machine import Machine
from tests.fuzz.programs import elf

def compile(self, tier, region):
    busy.append(1)
    time.sleep(0.3)
    print("compiled", flush=True)
    raise KeyboardInterrupt

busy = []
Translator._compile = compile
words = [assemble("lui", 6, imm=1 << 26), assemble("addi", 6, 6, imm=-1), assemble("bne", rs1=6, rs2=0, imm=-4)]
machine = Machine(elf(b"".join(word.to_bytes(4, "little") for word in words), b""))
while not busy:
    machine.advance(1_000_000)
print("the script ends", flush=True)
"""


def test_a_script_may_end_while_a_region_is_compiled() -> None:
    """The thread must not return from LLVM into an interpreter that has ended: that was a segmentation fault."""
    done = subprocess.run([sys.executable, "-c", UNCLOSED], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["the script ends", "compiled"]


class Clocks:
    """For module ``time``: seconds that pass, and those that the thread and the whole process work."""

    def __init__(self) -> None:
        self.elapsed = self.thread = self.process = 0.0

    def perf_counter(self) -> float:
        return self.elapsed

    def thread_time(self) -> float:
        return self.thread

    def process_time(self) -> float:
        return self.process

    def work(self, share: FairShare, seconds: float, elapsed: float) -> None:
        """The thread works for ``seconds``, which takes ``elapsed``; the guest runs all the time."""
        with share.working():
            self.elapsed += elapsed
            self.thread += seconds
            self.process += elapsed if elapsed > seconds else 2 * seconds


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    clocks = Clocks()
    monkeypatch.setattr(background, "time", clocks)
    return clocks


def test_with_a_processor_of_its_own_the_thread_owes_nothing(clocks: Clocks) -> None:
    share = FairShare()
    clocks.work(share, 1.0, elapsed=1.1)
    assert share.owed_seconds() == 0


@pytest.mark.parametrize(("has_stored_translations", "part"), [(False, FIRST_GUEST_SHARE), (True, LATER_GUEST_SHARE)])
def test_where_the_processor_is_shared_the_guest_gets_its_part_first(
    clocks: Clocks, has_stored_translations: bool, part: float
) -> None:
    share = FairShare()
    share.has_stored_translations = has_stored_translations
    clocks.work(share, 1.0, elapsed=2.0)  # the guest has had the other second
    assert share.owed_seconds() == pytest.approx(part - 1)
    clocks.process += part - 1
    assert share.owed_seconds() == pytest.approx(0)
    clocks.work(share, 1.0, elapsed=2.0)
    assert share.owed_seconds() > 0
    share.guest_has_ended = True  # the guest has ended: it needs no processor any more
    assert share.owed_seconds() == 0


@pytest.mark.parametrize("processors", [1, 2])
def test_before_anything_is_measured_the_number_of_processors_decides(
    clocks: Clocks, monkeypatch: pytest.MonkeyPatch, processors: int
) -> None:
    monkeypatch.setattr(background.os, "sched_getaffinity", lambda pid: set(range(processors)))
    share = FairShare()
    clocks.work(share, 0.04, elapsed=0.04)
    assert (share.owed_seconds() > 0) == (processors == 1)
