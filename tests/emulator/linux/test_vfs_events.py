"""Listeners of the file system: who is told what, and that nothing is looked up without a listener."""

from __future__ import annotations

import os
from collections.abc import Hashable

import pytest

from emulator.linux.vfs.events import (
    ACCESS,
    ATTRIB,
    CLOSE_WRITE,
    CREATE,
    DELETE,
    MODIFY,
    MOVE_SELF,
    MOVED_FROM,
    MOVED_TO,
    OPEN,
)
from emulator.linux.vfs.files import VirtualFiles


class Recorder:
    """A listener that keeps what it is told."""

    def __init__(self) -> None:
        self.active = True
        self.told: list[tuple[object, ...]] = []

    def notify(
        self, key: Hashable, event: int, is_directory: bool, name: str = "", cookie: int = 0, unlinked: bool = False
    ) -> None:  # fmt: skip
        self.told.append((name, event, cookie) if cookie else (name, event))

    def last_name_removed(self, key: Hashable, is_directory: bool, is_open: bool) -> None:
        self.told.append(("removed", is_open))

    def file_closed(self, key: Hashable, is_directory: bool, is_open: bool) -> None:
        self.told.append(("closed", is_open))

    def take(self) -> list[tuple[object, ...]]:
        told, self.told = self.told, []
        return told


class OtherRecorder(Recorder):
    """A listener of another kind."""


@pytest.fixture
def files() -> VirtualFiles:
    return VirtualFiles(capture=["/w/"])


def opened(files: VirtualFiles, path: str) -> int:
    descriptor = files.descriptors.install(files.open(path, os.O_RDWR | os.O_CREAT, 0o644))
    files.notify_open(files.descriptors.file(descriptor))
    return descriptor


def test_there_is_one_listener_of_a_kind_for_all_processes(files: VirtualFiles) -> None:
    child = files.fork()
    other = files.listener(OtherRecorder)
    recorder = child.listener(Recorder)
    assert files.listener(Recorder) is recorder is files.fork().listener(Recorder)
    assert child.listener(OtherRecorder) is other is not recorder
    files.make_directory("/w/made", 0o755)
    assert recorder.take() == other.take() == [("made", CREATE)]


def test_the_life_of_a_file(files: VirtualFiles) -> None:
    recorder = files.listener(Recorder)
    first = opened(files, "/w/a")
    assert recorder.take() == [("a", CREATE), ("a", OPEN), ("", OPEN)]
    second = opened(files.fork(share_descriptors=True), "/w/a")
    assert recorder.take() == [("a", OPEN), ("", OPEN)]
    files.notify(files.descriptors.file(first), MODIFY)
    assert recorder.take() == [("a", MODIFY), ("", MODIFY)]
    files.make_hard_link("/w/a", "/w/b")
    assert recorder.take() == [("", ATTRIB), ("b", CREATE)]
    files.remove("/w/b", directory=False)
    assert recorder.take() == [("", ATTRIB), ("b", DELETE)]
    files.rename("/w/a", "/w/c")
    assert recorder.take() == [("a", MOVED_FROM, 1), ("c", MOVED_TO, 1), ("", MOVE_SELF)]
    files.remove("/w/c", directory=False)
    assert recorder.take() == [("", ATTRIB), ("removed", True), ("c", DELETE)]
    files.descriptors.close(first)
    assert recorder.take() == [("c", CLOSE_WRITE), ("", CLOSE_WRITE), ("closed", True)]
    files.descriptors.close(second)
    assert recorder.take() == [("c", CLOSE_WRITE), ("", CLOSE_WRITE), ("closed", False)]


def test_a_replaced_file_is_removed_and_open_files_know_where_they_are(files: VirtualFiles) -> None:
    moved, replaced = (files.descriptors.file(opened(files, path)) for path in ("/w/moved", "/w/replaced"))
    recorder = files.listener(Recorder)
    files.rename("/w/moved", "/w/replaced")
    assert recorder.take()[2:] == [("", ATTRIB), ("", MOVE_SELF), ("removed", True)]
    assert (moved.resolved_path, moved.is_unlinked) == ("/w/replaced", False)
    assert (replaced.resolved_path, replaced.is_unlinked) == ("/w/replaced", True)


def test_nothing_is_looked_up_while_nobody_listens(files: VirtualFiles) -> None:
    twin = VirtualFiles(capture=["/w/"])
    idle = twin.listener(Recorder)
    idle.active = False
    numbers = []
    for each in (files, twin):
        file = each.open("/w/a", os.O_RDWR | os.O_CREAT, 0o644)
        each.notify(file, ACCESS)
        each.notify_path("/w/a", ATTRIB)
        each.rename("/w/a", "/w/b")
        each.remove("/w/b", directory=False)
        numbers.append(each.new_inode())
    # A lookup gives numbers to the file and its directory.
    assert numbers[0] == numbers[1] == VirtualFiles(capture=["/w/"]).new_inode()
    assert idle.take() == []
