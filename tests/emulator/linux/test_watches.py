"""inotify: what a program is told is what QEMU, on the host's kernel, tells it (Linux 5.17 or newer)."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emulator.execution.snapshot import ObjectsState
from emulator.linux.syscalls.optional import inotify as watch_files
from emulator.linux.vfs.files import VirtualFiles
from emulator.machine import Machine
from tests.emulator.linux.conftest import Guest

SOURCE = "guest_watches.c"
IN_OPEN, IN_MODIFY, IN_ALL = 0x20, 2, 0xFFF


def run(program: Path, part: str, files: VirtualFiles, **options: Any) -> str:
    with Machine(program, [part, "/w"], files=files, limit_instructions=200_000_000, **options) as machine:
        machine.run()
        assert machine.kernel.unsupported == []
        return machine.files.output(1).decode()


def of_host(directory: Path) -> VirtualFiles:
    (directory / "w").mkdir(parents=True)
    return VirtualFiles(root=directory, writable=["/"])


@pytest.mark.parametrize("part", ["arguments", "changes", "moves", "directories", "more"])
def test_programs_are_told_what_they_are_told_on_linux(
    compile_guest: Callable[[str], Path], by_qemu: Callable[..., str], tmp_path: Path, part: str
) -> None:
    if tuple(int(number) for number in os.uname().release.split(".")[:2]) < (5, 17):
        pytest.skip("older kernels tell of removed files in another order")
    if int(Path("/proc/sys/fs/inotify/max_queued_events").read_text()) != watch_files.MAX_QUEUED:
        pytest.skip("the host keeps another number of events")
    program = compile_guest(SOURCE)
    (tmp_path / "qemu").mkdir()
    expected = by_qemu(program, part, str(tmp_path / "qemu"))
    assert len(expected.splitlines()) > 10
    assert run(program, part, of_host(tmp_path / "ours")) == expected


@pytest.mark.parametrize("part", ["arguments", "moves"])
def test_files_in_memory_tell_the_same(compile_guest: Callable[[str], Path], tmp_path: Path, part: str) -> None:
    program = compile_guest(SOURCE)
    assert run(program, part, VirtualFiles(capture=["/w/"])) == run(program, part, of_host(tmp_path / "host"))


def test_emptied_files(compile_guest: Callable[[str], Path]) -> None:
    assert run(compile_guest(SOURCE), "emptied", VirtualFiles(capture=["/w/"])).splitlines() == [
        "flags 1 1", "emptied:", "  1 create file [16]", "  1 open file [16]", "  1 close-write file [16]",
        "  1 modify file [16]", "  1 open file [16]", "  1 close-write file [16]",
    ]  # fmt: skip


@pytest.fixture
def watching(make_guest: Callable[..., Guest]) -> tuple[Guest, int]:
    """A guest that watches a directory, and the descriptor of that."""
    guest = make_guest(files=VirtualFiles(capture=["/w/"]))
    fd = guest.call("inotify_init1", os.O_NONBLOCK)
    assert guest.call("inotify_add_watch", fd, "/w", IN_ALL) == 1
    return guest, fd


def events(guest: Guest, fd: int) -> list[tuple[int, int, str]]:
    """Watch, mask and name of what is to be read."""
    address = guest.space(1 << 16)
    n_bytes = guest.call("read", fd, address, 1 << 16)
    if n_bytes == -errno.EAGAIN:
        return []
    data, found = guest.memory.read(address, n_bytes), []
    while data:
        watch, mask, _, length = struct.unpack_from("<iIII", data)
        found.append((watch, mask, data[16 : 16 + length].rstrip(b"\0").decode()))
        data = data[16 + length :]
    return found


def make(guest: Guest, path: str) -> int:
    return guest.call("openat", -100, path, os.O_CREAT | os.O_RDWR, 0o600)


def test_no_more_events_are_kept_than_there_is_room_for(
    watching: tuple[Guest, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    guest, fd = watching
    monkeypatch.setattr(watch_files, "MAX_QUEUED_IN_ALL", 5)
    other = guest.call("inotify_init1", os.O_NONBLOCK)
    assert guest.call("inotify_add_watch", other, "/w", IN_OPEN) == 1
    for number in range(6):
        make(guest, f"/w/{number}")
    assert [mask for _, mask, _ in events(guest, fd)] == [0x100, 0x20, 0x100, 0x20, 0x4000]
    assert [(watch, mask) for watch, mask, _ in events(guest, other)] == [(1, 0x20), (-1, 0x4000)]
    assert events(guest, fd) == []
    make(guest, "/w/7")
    assert events(guest, fd) == [(1, 0x100, "7"), (1, 0x20, "7")]


def test_limits_of_instances_and_watches(watching: tuple[Guest, int], monkeypatch: pytest.MonkeyPatch) -> None:
    guest, fd = watching
    monkeypatch.setattr(watch_files, "MAX_WATCHES", 2)
    assert guest.call("inotify_add_watch", fd, "/", IN_ALL) == 2
    assert guest.call("inotify_add_watch", fd, "/dev", IN_ALL) == -errno.ENOSPC
    assert guest.call("inotify_rm_watch", fd, 2) == 0
    assert guest.call("inotify_add_watch", fd, "/dev", IN_ALL) == 3
    monkeypatch.setattr(watch_files, "MAX_INSTANCES", 1)
    assert guest.call("inotify_init1", 0) == -errno.EMFILE
    assert guest.call("close", fd) == 0
    assert not guest.files.listener(watch_files.InotifyRegistry).active
    assert guest.call("inotify_init1", 0) == fd


def test_a_file_that_is_renamed_while_nobody_watches_keeps_its_place(make_guest: Callable[..., Guest]) -> None:
    guest = make_guest(files=VirtualFiles(capture=["/w/"]))
    file = make(guest, "/w/a")
    assert guest.call("renameat2", -100, "/w/a", -100, "/w/b", 0) == 0
    fd = guest.call("inotify_init1", os.O_NONBLOCK)
    guest.call("inotify_add_watch", fd, "/w", IN_ALL)
    assert guest.call("write", file, b"x", 1) == 1
    assert events(guest, fd) == [(1, IN_MODIFY, "b")]
    assert guest.call("unlinkat", -100, "/w/b", 0) == 0
    assert guest.call("close", file) == 0
    assert events(guest, fd) == [(1, 0x200, "b"), (1, 8, "b")]


def test_a_machine_that_watches_files_goes_back(watching: tuple[Guest, int]) -> None:
    guest, fd = watching
    make(guest, "/w/before")
    saved = ObjectsState([guest.kernel, guest.files], [guest.memory, guest.image, guest.process])
    for _ in range(2):
        make(guest, "/w/after")
        assert [name for _, _, name in events(guest, fd)] == ["before", "before", "after", "after"]
        assert guest.call("close", fd) == 0
        saved.restore()
