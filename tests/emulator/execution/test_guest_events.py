"""Reports about a guest: who gets them, and in which order."""

from __future__ import annotations

from typing import Any

import pytest

from emulator.events import TraceSelection
from emulator.execution.guest_events import GuestEvents
from emulator.execution.oracle_runner import OracleRunner
from emulator.execution.translated_runner import TranslatedRunner
from emulator.isa.decode import assemble
from emulator.machine import Machine
from tests.fuzz.programs import elf

REPORTS = ("memory_forked", "task_switched", "space_entered", "process_changed", "selection_changed")
_CLONE, _WAIT4, _EXIT, _SIGCHLD = 220, 260, 94, 17


def forking_program() -> bytes:
    """Forks a child, waits for it, and exits with 5; the child exits with 0."""
    words = [
        assemble("addi", 10, 0, imm=_SIGCHLD), assemble("addi", 11, 0, imm=0), assemble("addi", 17, 0, imm=_CLONE),
        assemble("ecall"), assemble("beq", rs1=10, rs2=0, imm=28),
        assemble("addi", 10, 0, imm=-1), assemble("addi", 17, 0, imm=_WAIT4), assemble("ecall"),
        assemble("addi", 10, 0, imm=5), assemble("addi", 17, 0, imm=_EXIT), assemble("ecall"),
        assemble("addi", 10, 0, imm=0), assemble("addi", 17, 0, imm=_EXIT), assemble("ecall"),
    ]  # fmt: skip
    return elf(b"".join(word.to_bytes(4, "little") for word in words), bytes(16))


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[Any, ...]]]:
    """The reports and the calls of runners, in order."""
    found: list[tuple[str, tuple[Any, ...]]] = []

    def note(owner: type, name: str, shown: str) -> None:
        method = getattr(owner, name)

        def noted(self: object, *arguments: Any, **named: Any) -> Any:
            found.append((shown, arguments))
            return method(self, *arguments, **named)

        monkeypatch.setattr(owner, name, noted)

    for name in REPORTS:
        note(GuestEvents, name, name)
    for runner in (OracleRunner, TranslatedRunner):
        note(runner, "enter", f"{runner.__name__}.enter")
    return found


def test_a_fork_and_its_switches(reports: list[tuple[str, tuple[Any, ...]]]) -> None:
    with Machine(forking_program()) as machine:
        reports.clear()
        parent = machine.memory
        assert machine.run().status == 5
    names = [name for name, _ in reports]
    assert names[0] == "memory_forked"
    assert reports[0][1][0] is parent
    assert names[1:] == ["task_switched", "process_changed", "space_entered", "TranslatedRunner.enter",
                         "OracleRunner.enter"] * 2  # fmt: skip
    entered = [arguments for name, arguments in reports if name == "space_entered"]
    assert [begins for _, begins in entered] == [False, False]
    assert [space.memory is parent for space, _ in entered] == [False, True]
    assert entered[0][0].memory is reports[0][1][1]


def test_the_oracle_alone_follows_too(reports: list[tuple[str, tuple[Any, ...]]]) -> None:
    with Machine(forking_program(), engine="oracle") as machine:
        assert machine.run().status == 5
    assert [name for name, _ in reports if "enter" in name] == ["space_entered", "OracleRunner.enter"] * 2


def test_observers_report_a_selection(reports: list[tuple[str, tuple[Any, ...]]]) -> None:
    with Machine(forking_program()) as machine:
        assert machine.translator is not None
        machine.advance(1)
        reports.clear()
        machine.observe(TraceSelection(counts=True))
        machine.call_hooks(None)
        assert [name for name, _ in reports] == ["selection_changed", "selection_changed"]
        assert machine.run().status == 5
        assert machine.block_counts.sum() > 0
