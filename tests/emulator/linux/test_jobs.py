"""Job control: what processes see of groups, sessions, stopping and continuing is what they see by QEMU."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emulator.linux.kernel.clock import Deadlock
from emulator.linux.vfs.files import VirtualFiles
from emulator.machine import Machine

SOURCE = "guest_jobs.c"


def run(program: Path, *arguments: str, files: VirtualFiles | None = None, **options: Any) -> str:
    with Machine(program, arguments, files=files, limit_instructions=200_000_000, **options) as machine:
        machine.run()
        assert machine.kernel.unsupported == []
        return machine.files.output(1).decode()


@pytest.mark.parametrize("part", ["groups", "stops", "threads", "orphans"])
def test_programs_see_what_they_see_on_linux(
    compile_guest: Callable[[str], Path], by_qemu: Callable[..., str], part: str
) -> None:
    program = compile_guest(SOURCE)
    expected = by_qemu(program, part)
    assert expected.endswith("exited 3\n")
    assert run(program, part) == expected


def test_the_same_on_the_oracle(compile_guest: Callable[[str], Path]) -> None:
    program = compile_guest(SOURCE)
    for part in ("stops", "orphans"):
        assert run(program, part, engine="oracle") == run(program, part)


def test_all_stop_signals_and_what_is_ignored(compile_guest: Callable[[str], Path]) -> None:
    assert run(compile_guest(SOURCE), "more").splitlines() == [
        *(line for signal in (20, 21, 22) for line in (f"stopped {signal}", "continued")),
        "not told 0 0", "pending 0 1", "pending 1 0", "goes on",
        "waitid -1 errno 11", "waitid 0 errno 0 pid 0 code 0 status 0", "waitid -1 errno 9", "exited 7",
        "executed -1 errno 13", "stopped 19",
        "state T", "killed 9", "exited 3",
    ]  # fmt: skip


def test_a_terminal_stops_who_uses_it_in_the_background(compile_guest: Callable[[str], Path]) -> None:
    files = VirtualFiles(stdin=b"xyz", terminal=True)
    assert run(compile_guest(SOURCE), "terminal", files=files).splitlines() == [
        "foreground 1 session 1", "stopped 21", "read 1 x", "gave back 0", "stopped 22", "took 0",
        "ignored -1 errno 5", "nobody -1 errno 3", "not its own -1 errno 25", "not its own -1 errno 25", "read 1 y",
        "exited 0",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (
            "for ever",
            "the guest waits for ever: SIGSTOP has stopped process 1000, and no running process can continue it",
        ),
        (
            "child for ever",
            "the guest waits for ever for a child that does not end; SIGSTOP has stopped process 1001",
        ),
    ],
)
def test_a_guest_that_is_stopped_for_ever(compile_guest: Callable[[str], Path], what: str, message: str) -> None:
    with (
        Machine(compile_guest(SOURCE), [what]) as machine,
        pytest.raises(Deadlock, match=f"^{re.escape(message)}$"),
    ):
        machine.run()
