"""Limits of processes, and programs that are executed by other names than their paths."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emulator.linux.kernel.limits import MAX_TASKS
from emulator.linux.vfs.files import VirtualFiles
from emulator.machine import Machine


def ended(program: Path, *arguments: str, instructions: int = 50_000_000, **options: Any) -> str:
    files = VirtualFiles(capture=["/tmp/"])
    with Machine(program, arguments, files=files, limit_instructions=instructions, **options) as machine:
        machine.run()
        assert machine.kernel.unsupported == []
        return machine.files.output(1).decode()


@pytest.fixture(scope="module")
def program(compile_guest: Callable[[str], Path]) -> Path:
    return compile_guest("guest_limits.c")


def test_processor_time_is_limited(program: Path) -> None:
    """A slow machine, so that seconds are few instructions."""
    text = ended(program, "processor", clock_hz=2_000_000)
    assert text.splitlines() == ["killed 24", "warned 2: 1 2", "limit 3 3", "killed 9", "killed 9"]


def test_tasks_are_limited(program: Path) -> None:
    assert ended(program, "limit").splitlines() == [
        "at the limit 9 Resource temporarily unavailable", "not waited for 0", "raised 14",
        "of a child 0 was 15 is 3", "limit 15 20", "killed 9",
    ]  # fmt: skip


def test_priorities_are_told_and_inherited(program: Path) -> None:
    """Also what CPython's tests ask for: errors for processes that are none, and for policies that are none."""
    assert ended(program, "priorities").splitlines() == [
        "at first 0", "lower 0 is 5 of the group 5", "inherited 5 most 0 is 19", "exited 0",
        "whose -1 Invalid argument nobody's -1 No such process -1 No such process",
        "policy 0 is 3 bad -1 Invalid argument priority -1 Invalid argument nobody's -1 No such process "
        "-1 Invalid argument",
        "real time 1 99 others 0 bad -1 Invalid argument",
        "processors -1 No such process of a process -1 Invalid argument -1 No such process",
        "init 0 by the directory 0 came 1 by another -1 Bad file descriptor ignored 1 caught 1",
    ]  # fmt: skip


def test_many_processes(program: Path) -> None:
    assert ended(program, "many", "150").splitlines() == ["allowed 1", "started 150", "ended 150"]
    assert MAX_TASKS >= 4096


EXECUTED = """executed /proc/self/exe
exited 0
executed /proc/1000/exe
exited 0
executed /proc/self/fd/50
exited 0
executed /dev/fd/50
exited 0
executed (descriptor)
exited 0
executed (memory)
exited 0
executed (no name)
exited 0
executed (script)
exited 0
(pipe): Permission denied
exited 9
(none): Bad file descriptor
exited 9
(not executable): Permission denied
exited 9
: No such file or directory
exited 9
"""


def test_programs_are_executed_by_other_names(program: Path) -> None:
    assert ended(program, "executes") == EXECUTED


def test_a_program_whose_own_name_is_relative(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(program.parent)
    assert ended(Path(program.name), "executes") == EXECUTED
