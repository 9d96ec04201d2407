"""Real C programs on our kernel, with unicorn as the processor: the C library's view of it all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from emulator.linux.loader.process_image import Layout
from tests.emulator.linux.conftest import STATIC_AND_PIE, Ended


def test_memory(run_guest: Callable[..., Ended], guest_program: Callable[..., Path]) -> None:
    ended = run_guest(guest_program(), ["memory"])
    assert (ended.status, ended.stdout, ended.stderr) == (0, "allocated 2097328 wrong 0\n", "")
    assert ended.unsupported == []


def test_files(run_guest: Callable[..., Ended], guest_program: Callable[..., Path]) -> None:
    ended = run_guest(
        guest_program(),
        ["files"],
        mapped={"/data/in/hello.txt": b"hello input\nmore\n", "/data/in/other": b""},
        capture={"/out/"},
        stdin=b"abc\nsecond line\n",
    )
    assert ended.status == 0
    assert ended.stderr == "to stderr\n"
    assert ended.stdout.splitlines() == [
        "size 8890 regular 1",
        "input hello input",
        "entry . 4",
        "entry .. 4",
        "entry hello.txt 8",
        "entry other 8",
        "absent -1 No such file or directory",
        "refused -1 Read-only file system",
        "access 0 -1",
        "mapped hello",
        "cwd /data",
        "relative 1",
        "pipe piped",
        "moved 0 gone -1",
        "stdin a|bc",
        "|second line",
        "duplicated",
    ]
    (moved,) = ended.captured.items()
    assert moved[0] == "/out/sub/moved.txt"
    assert moved[1].startswith(b"line X\nline 1\n")
    assert ended.unsupported == []


def test_time_passes_virtually(run_guest: Callable[..., Ended], guest_program: Callable[..., Path]) -> None:
    ended = run_guest(guest_program(), ["times"])
    assert ended.stdout.splitlines() == [
        "slept 15 used_little 1",
        "year 2023",
        "select 0",
        "poll 0",
        "poll 1 1",
        "rusage 0",
        "clock 1",
    ]
    assert ended.unsupported == []


def test_signals(run_guest: Callable[..., Ended], guest_program: Callable[..., Path]) -> None:
    ended = run_guest(guest_program(), ["signals"])
    assert ended.stdout.splitlines() == [
        "raised 10",
        "blocked 0 then 1",
        "info 12 code 0 value 0",
        "on alternate stack 1 kept 2.50",
        "alarm 14 left 8",
        "profiled 27",
        "info 12 code -2 value 77",
        "suspend -1",
        "waited 10",
        "broken -1 Broken pipe",
    ]
    assert ended.status == 128 + 6
    assert ended.unsupported == []


@pytest.mark.parametrize("pie", STATIC_AND_PIE)
def test_identity(run_guest: Callable[..., Ended], guest_program: Callable[..., Path], pie: bool) -> None:
    ended = run_guest(guest_program(pie), ["one", "two"], {"VARIABLE": "value"}, Layout(stack_bytes=1 << 20))
    lines = ended.stdout.splitlines()
    assert lines[:4] == [
        "Linux riscv64 3 two",
        "VARIABLE=value",
        "page 4096 secure 0 hwcap 112d execfn /bin/guest",
        "processors 1",
    ]
    assert lines[4].startswith("random ")
    assert lines[5] == "stack 1048576"
    assert ended.status == 7


def test_offsets_change_where_things_lie_and_nothing_else(
    run_guest: Callable[..., Ended], guest_program: Callable[..., Path]
) -> None:
    layouts = [
        Layout(),
        Layout(stack_offset_bytes=4080, heap_offset_bytes=1 << 16, environment_padding_bytes=999),
    ]
    plain, moved = (run_guest(guest_program(), ["memory"], layout=layout) for layout in layouts)
    assert plain == moved
