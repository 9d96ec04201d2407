"""The file systems: each implements the whole protocol, and has the proper error for what it cannot do."""

from __future__ import annotations

import errno
import inspect
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emulator.linux.vfs.devfs import DevFs
from emulator.linux.vfs.files import VirtualFiles
from emulator.linux.vfs.filesystem import BaseFilesystem, Filesystem
from emulator.linux.vfs.hostfs import HostFs
from emulator.linux.vfs.pipes import NamedPipe
from emulator.linux.vfs.procfs_tree import ProcFsTree
from emulator.linux.vfs.tmpfs import Tmpfs
from tests.emulator.linux.fake_procfs import FakeProcFs

FILESYSTEMS = (ProcFsTree, DevFs, Tmpfs, HostFs)
METHODS = [name for name, value in vars(Filesystem).items() if inspect.isfunction(value) and not name.startswith("_")]


@pytest.mark.parametrize("kind", FILESYSTEMS)
def test_each_file_system_implements_the_protocol(kind: type) -> None:
    assert len(METHODS) == 15
    for name in METHODS:
        declared, implemented = getattr(Filesystem, name), getattr(kind, name, None)
        assert implemented is not None, f"{kind.__name__} has no {name}"
        assert list(inspect.signature(implemented).parameters) == list(inspect.signature(declared).parameters), name


def test_the_base_class_has_an_answer_to_all_but_the_files_themselves() -> None:
    missing = [name for name in METHODS if not hasattr(BaseFilesystem, name)]
    assert missing == ["covers", "open", "status"]


@pytest.fixture
def files(tmp_path: Path) -> VirtualFiles:
    (tmp_path / "root" / "srv").mkdir(parents=True)
    (tmp_path / "root" / "srv" / "file").write_text("host")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file").write_text("data")
    found = VirtualFiles(
        root=tmp_path / "root", writable=["/"], mapped={"/data": tmp_path / "data", "/etc/hosts": b"localhost"},
        capture=["/out/"],
    )  # fmt: skip
    found.mount_procfs(FakeProcFs(found))
    found.open("/out/file", os.O_WRONLY | os.O_CREAT, 0o644).close()
    return found


OPERATIONS: dict[str, Callable[[VirtualFiles, str], Any]] = {
    "remove": lambda files, path: files.remove(path, directory=False),
    "remove_directory": lambda files, path: files.remove(path, directory=True),
    "make_directory": lambda files, path: files.make_directory(path, 0o755),
    "make_symbolic_link": lambda files, path: files.make_symbolic_link("/target", path),
    "make_special": lambda files, path: files.make_special(path, NamedPipe(0o644)),
    "change_mode": lambda files, path: files.change_mode(path, 0o600),
    "read_link": lambda files, path: files.read_link(path),
    "link_to_host": lambda files, path: files.make_hard_link(path, "/srv/new"),
    "rename_to_host": lambda files, path: files.rename(path, "/srv/new"),
    "link_to_memory": lambda files, path: files.make_hard_link(path, "/out/new"),
    "rename_to_memory": lambda files, path: files.rename(path, "/out/new"),
    "rename_host_to_it": lambda files, path: files.rename("/srv/file", path),
    "open_to_write": lambda files, path: files.open(path, os.O_WRONLY, 0),
}
EXPECTED = """
                    /proc/version  /dev/null  /etc/hosts  /out/file  /out/missing  /data
remove              EPERM          EPERM      EROFS       done       ENOENT        EBUSY
remove_directory    EPERM          EPERM      ENOTDIR     ENOTDIR    ENOENT        EBUSY
make_directory      EEXIST         EEXIST     EEXIST      EEXIST     done          EEXIST
make_symbolic_link  EEXIST         EEXIST     EEXIST      EEXIST     EPERM         EEXIST
make_special        EEXIST         EEXIST     EEXIST      EEXIST     done          EEXIST
change_mode         EPERM          EPERM      EROFS       done       ENOENT        EROFS
read_link           EINVAL         EINVAL     EINVAL      EINVAL     ENOENT        EINVAL
link_to_host        EXDEV          EXDEV      EXDEV       EXDEV      ENOENT        EPERM
rename_to_host      EXDEV          EXDEV      EROFS       EXDEV      ENOENT        EXDEV
link_to_memory      EXDEV          EXDEV      EXDEV       done       ENOENT        EPERM
rename_to_memory    EXDEV          EXDEV      EROFS       done       ENOENT        EXDEV
rename_host_to_it   EXDEV          EXDEV      EXDEV       EXDEV      EXDEV         EXDEV
open_to_write       EACCES         done       EROFS       done       ENOENT        EISDIR
"""
PATHS, *ROWS = [line.split() for line in EXPECTED.strip().splitlines()]


def result_of(operation: Callable[[VirtualFiles, str], Any], files: VirtualFiles, path: str) -> str:
    try:
        operation(files, path)
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "done"


@pytest.mark.parametrize(
    ("operation", "path", "expected"),
    [(row[0], path, expected) for row in ROWS for path, expected in zip(PATHS, row[1:], strict=True)],
)
def test_errors_of_operations(files: VirtualFiles, operation: str, path: str, expected: str) -> None:
    assert result_of(OPERATIONS[operation], files, path) == expected
    assert files.contents("/srv/file") == b"host"


def test_a_name_in_proc_or_dev_leaves_what_lies_below_it_alone(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "null").write_text("the host's")
    files = VirtualFiles(root=tmp_path, writable=["/"])
    with pytest.raises(PermissionError):
        files.remove("/dev/null", directory=False)
    assert (tmp_path / "dev" / "null").read_text() == "the host's"


def test_a_captured_path_covers_the_host_file_of_that_name(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("elsewhere")
    files = VirtualFiles(root=tmp_path, writable=["/"], capture=["/link"])
    for look in (files.read_link, files.status, files.key, lambda path: files.remove(path, directory=False)):
        with pytest.raises(FileNotFoundError):
            look("/link")
    files.open("/link", os.O_WRONLY | os.O_CREAT, 0o644).close()
    files.remove("/link", directory=False)
    assert os.readlink(tmp_path / "link") == "elsewhere"


def test_a_named_pipe_without_a_name_is_still_one() -> None:
    files = VirtualFiles()
    files.make_special("/dev/shm/pipe", NamedPipe(0o644))
    end = files.open("/dev/shm/pipe", os.O_RDONLY | os.O_NONBLOCK, 0)
    before = end.status()
    files.remove("/dev/shm/pipe", directory=False)
    assert end.status() == before
    assert stat.S_ISFIFO(before.mode)


def test_a_directory_with_named_pipes_is_not_empty(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    files = VirtualFiles(root=tmp_path, writable=["/"])
    files.make_special("/directory/pipe", NamedPipe(0o644))
    with pytest.raises(OSError, match="contains named pipes") as caught:
        files.remove("/directory", directory=True)
    assert caught.value.errno == errno.ENOTEMPTY
    files.rename("/directory/pipe", "/moved")
    files.remove("/directory", directory=True)
    assert not (tmp_path / "directory").exists()
    assert isinstance(files.special("/moved"), NamedPipe)


def test_an_onlooker_leaves_no_trace_in_any_file_system(tmp_path: Path) -> None:
    def numbers(files: VirtualFiles, watched: bool) -> list[int]:
        files.mount_procfs(FakeProcFs(files))
        paths = ["/proc/version", "/dev/zero", "/out", "/out/file", "/host"]
        if watched:
            for path in reversed(paths):
                files.for_observer().inode_of(path)
                files.for_observer().inode_of("/missing")
        return [files.inode_of(path) for path in paths]

    (tmp_path / "host").write_text("")
    alone, watched = (VirtualFiles(root=tmp_path, capture=["/out/"]) for _ in range(2))
    for files in (alone, watched):
        files.open("/out/file", os.O_WRONLY | os.O_CREAT, 0o644).close()
    assert numbers(alone, watched=False) == numbers(watched, watched=True)


def test_a_removal_that_fails_leaves_the_inode_number(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    (tmp_path / "empty").mkdir()
    files = VirtualFiles(root=tmp_path, writable=["/"])
    before = files.status("/full")
    with pytest.raises(OSError, match="not empty"):
        files.remove("/full", directory=True)
    with pytest.raises(OSError, match="not empty"):
        files.rename("/empty", "/full")
    assert files.status("/full").inode == before.inode
