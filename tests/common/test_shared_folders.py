"""Locks of folders that processes share, removal in one step, and sizes on disk."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from common import shared_folders
from common.atomic_files import move_away
from common.shared_folders import Usage, acquire, disk_usage, hold, left_by_killed_processes, locked


def test_a_lock_is_had_by_one_or_shared(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with locked(path, shared=True) as first, locked(path, shared=True, wait=False) as second:
        assert first is not None
        assert second is not None
        with locked(path, wait=False) as alone:
            assert alone is None
    with locked(path, wait=False) as alone:
        assert alone is not None
        assert acquire(path, shared=True, wait=False) is None


def test_a_process_that_waits_for_a_lock_that_is_removed_locks_the_new_file(tmp_path: Path) -> None:
    path, entered = tmp_path / "lock", threading.Event()

    def wait_for_it() -> None:
        with locked(path):
            entered.set()
            time.sleep(0.3)

    with locked(path):
        waiting = threading.Thread(target=wait_for_it)
        waiting.start()
        time.sleep(0.2)
        assert not entered.is_set()
        path.unlink()
    assert entered.wait(10)
    with locked(path, wait=False) as second:
        assert second is None  # the thread has the lock that others find
    waiting.join()


def test_a_lock_is_held_until_the_process_ends(tmp_path: Path) -> None:
    path = tmp_path / "new folder/lock"
    hold(path)
    hold(path)
    assert acquire(path, wait=False) is None
    os.close(shared_folders._held.pop(path))
    with locked(path, wait=False) as descriptor:
        assert descriptor is not None


def test_a_lock_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    hold(tmp_path / "file/lock")  # goes on without
    with pytest.raises(OSError, match="Not a directory"):
        acquire(tmp_path / "file/lock")


def test_a_lock_may_be_shared_through_a_descriptor_that_only_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, really_open = tmp_path / "lock", os.open
    path.touch()

    def open_read_only(name: Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_RDWR:
            raise PermissionError(13, "Permission denied", str(name))
        return really_open(name, flags, mode)

    monkeypatch.setattr(os, "open", open_read_only)
    with locked(path, shared=True) as descriptor:
        assert descriptor is not None
    with pytest.raises(PermissionError):
        acquire(path)


def test_sizes_are_those_of_du(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "deep/deeper").mkdir(parents=True)
    (folder / "deep/one").write_bytes(bytes(10_000))
    os.link(folder / "deep/one", folder / "again")
    (folder / "deep/deeper/two").write_bytes(b"x")
    with (folder / "hole").open("wb") as file:
        file.truncate(1 << 30)
    (tmp_path / "outside").write_bytes(bytes(1 << 20))
    (folder / "link").symlink_to(tmp_path / "outside")
    (folder / "link to a folder").symlink_to(tmp_path)
    said = subprocess.run(["du", "-s", "--block-size=1", folder], capture_output=True, text=True, check=True).stdout
    assert disk_usage(folder) == Usage(6, int(said.split()[0]))
    assert disk_usage(folder / "deep/one").n_bytes >= 10_000
    assert disk_usage(tmp_path / "nothing") == Usage(0, 0)


def test_hard_links_are_counted_once(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "a/file").write_bytes(bytes(100_000))
    os.link(tmp_path / "a/file", tmp_path / "b/file")
    seen: set[tuple[int, int]] = set()
    first, second = (disk_usage(tmp_path / name, seen).n_bytes for name in ("a", "b"))
    assert first - second == (tmp_path / "a/file").stat().st_blocks * 512
    assert second == (tmp_path / "b").stat().st_blocks * 512


def test_what_killed_processes_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("old", ".making-old", ".making-new"):
        (tmp_path / name).mkdir()
    then = time.time() - 7200
    for name in ("old", ".making-old"):
        os.utime(tmp_path / name, (then, then))
    away = move_away(tmp_path / "old")
    assert away is not None
    assert left_by_killed_processes(tmp_path, 3600) == [tmp_path / ".making-old"]  # the other was moved just now
    assert left_by_killed_processes(tmp_path) == []
    monkeypatch.setattr(shared_folders, "_ABANDONED_SECONDS", 0)
    assert set(left_by_killed_processes(tmp_path, 3600)) == {tmp_path / ".making-old", away}
    assert move_away(tmp_path / "old") is None
