"""The state of files is data: a snapshot finds all of it without looking into closures."""

from __future__ import annotations

import os
import types
from functools import partial
from pathlib import Path
from typing import Any

from emulator.execution.snapshot import ObjectsState
from emulator.linux.kernel.clock import Timers, VirtualClock
from emulator.linux.syscalls.optional.inotify import InotifyRegistry
from emulator.linux.vfs.event_files import EventCounter, EventPoll, TimerFile
from emulator.linux.vfs.files import VirtualFiles
from emulator.linux.vfs.open_files import POLLIN
from emulator.linux.vfs.pipes import NamedPipe, PipeEnd
from emulator.linux.vfs.socket_names import AF_UNIX, STREAM
from emulator.linux.vfs.sockets import BoundSocket, Socket, join
from tests.emulator.linux.fake_procfs import FakeProcFs


def no_time() -> int:
    return 0


def open_everything(files: VirtualFiles) -> None:
    """Open a file of each kind, and install it."""
    files.mount_procfs(FakeProcFs(files))
    files.make_special("/out/pipe", NamedPipe(0o644))
    paths = ["/", "/out", "/out/file", "/out/pipe", "/data/file", "/data", "/etc/hosts", "/dev/null", "/dev/random"]
    for path in [*paths, "/proc", "/proc/self/fd", "/proc/version"]:
        flags = os.O_RDWR | os.O_CREAT if path in ("/out/file", "/data/new") else os.O_RDONLY
        files.notify_open(files.descriptors.file(files.descriptors.install(files.open(path, flags, 0o644))))
    one, other = (Socket(AF_UNIX, STREAM, 0, files.new_inode(), files.names) for _ in range(2))
    join(one, other)
    files.make_special("/out/socket", BoundSocket(one, 0o755))
    poll, counter = EventPoll(), EventCounter(0, 0, is_semaphore=False)
    poll.add(0, counter, POLLIN, 0)
    timer = TimerFile(0, Timers(VirtualClock(no_time)), is_wall_clock=False)
    inotify = files.listener(InotifyRegistry).new_instance(0)
    inotify.add_watch(files.key("/out"), 0xFFF)
    for file in (one, other, poll, counter, timer, inotify, *files.make_pipe(0), files.unnamed("memory", os.O_RDWR)):
        files.descriptors.install(file)


def closures(root: Any) -> list[str]:
    """The names of all functions with a closure that are reachable from ``root``."""
    found, seen, work = [], set(), [root]
    while work:
        one = work.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, types.FunctionType):
            found += [one.__qualname__] if one.__closure__ else []
        elif isinstance(one, types.MethodType):
            work.append(one.__self__)
        elif isinstance(one, partial):
            work += [one.func, *one.args, *one.keywords.values()]
        elif isinstance(one, dict):
            work += [*one.keys(), *one.values()]
        elif isinstance(one, (list, tuple, set, frozenset)):
            work += list(one)
        elif type(one).__module__.startswith(("emulator.", "tests.")) and hasattr(one, "__dict__"):
            work += list(one.__dict__.values())
    return found


def test_no_file_keeps_a_closure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    files = VirtualFiles(mapped={"/data": tmp_path, "/etc/hosts": b"localhost"}, capture=["/out/"])
    open_everything(files)
    assert len(files.descriptors.items()) > 20
    assert closures([files, files.fork(), files.for_observer()]) == []
    assert closures([lambda: tmp_path]) != []
    files.close()


def test_a_snapshot_finds_what_partial_calls_refer_to() -> None:
    behind = [1, 2]
    saved = ObjectsState([partial(behind.index, 1), partial(sorted, behind, key=partial(max, behind))], [])
    behind.append(3)
    saved.restore()
    assert behind == [1, 2]


def test_an_open_that_waits_goes_back_to_waiting() -> None:
    files = VirtualFiles()
    files.make_special("/dev/shm/pipe", NamedPipe(0o644))
    reading = files.open("/dev/shm/pipe", os.O_RDONLY, 0)
    assert isinstance(reading, PipeEnd)
    files.descriptors.install(reading)
    saved = ObjectsState([files], [])
    for _ in range(2):
        assert reading.waits_for_other_end()
        writing = files.open("/dev/shm/pipe", os.O_WRONLY, 0)
        assert isinstance(writing, PipeEnd)
        assert not writing.waits_for_other_end()
        assert not reading.waits_for_other_end()
        saved.restore()
