"""The mount table against a naive model of it, on random mounts and paths."""

from __future__ import annotations

import os
import posixpath
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.linux.vfs.devfs import DevFs
from emulator.linux.vfs.files import VirtualFiles
from emulator.linux.vfs.hostfs import HostFs
from emulator.linux.vfs.procfs_tree import ProcFsTree
from emulator.linux.vfs.tmpfs import Tmpfs
from tests.emulator.linux.fake_procfs import CONTENTS, DIRECTORIES, FakeProcFs

DEVICES = {"null", "zero", "full", "random", "urandom", "stdin", "stdout", "stderr", "tty"}


def components(path: str) -> list[str]:
    """The components of a path, without ``.`` and ``..``; /dev/fd is /proc/self/fd."""
    found: list[str] = []
    for name in path.split("/"):
        if name == "..":
            del found[-1:]
        elif name not in ("", "."):
            found.append(name)
    return ["proc", "self", "fd", *found[2:]] if found[:2] == ["dev", "fd"] else found


def configured(path: str) -> list[str]:
    """The components of a path that the files were made with; it has no ``..``, and /dev/fd is like any other."""
    return [name for name in path.split("/") if name]


def directories_above(path: list[str]) -> list[list[str]]:
    return [path[:length] for length in range(len(path))]


def expected_place(
    path: str, has_root: bool, mounts: list[str], mapped: list[str], captured: list[str], below: list[str]
) -> tuple[object, ...]:
    """The kind of the file system of ``path`` (of hostfs, its mount point, too), and the guest path."""
    parts = components(path)
    guest_path = "/" + "/".join(parts)
    if guest_path in DIRECTORIES or guest_path in CONTENTS or guest_path in ("/proc/self/cwd", "/proc/self/fd"):
        return ProcFsTree, guest_path
    if parts[:3] == ["proc", "self", "fd"] and parts[3:] in (["0"], ["1"], ["2"]):
        return ProcFsTree, guest_path
    if parts[:1] == ["dev"] and len(parts) == 2 and parts[1] in DEVICES:
        return DevFs, guest_path
    covering = [configured(one) for one in (*mounts, *mapped, *captured, *below)]
    in_memory = [[], ["dev"], ["dev", "shm"], *([] if has_root else [["tmp"]]), *covering]
    for one in covering:
        in_memory += directories_above(one)
    if parts in in_memory:
        return Tmpfs, guest_path
    for one in (["dev", "shm"], *map(configured, below)):
        if parts[: len(one)] == one:
            return Tmpfs, guest_path
    hosts = [one for one in map(configured, mounts) if parts[: len(one)] == one]
    if not hosts:
        return (Tmpfs, guest_path) if not has_root and parts[:1] != ["dev"] else (None,)
    longest = max(range(len(hosts)), key=lambda n: len(hosts[n]))
    return HostFs, "/" + "/".join(hosts[longest]), guest_path


names = st.sampled_from(["a", "b", "ab", "proc", "self", "fd", "version", "sys", "dev", "shm", "null", "0", "tty"])
plain = st.lists(names, min_size=1, max_size=3).map(lambda parts: "/" + "/".join(parts))
few = st.sets(plain, max_size=2)
any_path = st.lists(names | st.sampled_from(["..", ".", "", "a", "ab"]), max_size=6).map(
    lambda parts: "/" + "/".join(parts)
)


def check(
    host: Path, has_root: bool, mounts: set[str], mapped: set[str], captured: set[str], below: set[str],
    paths: list[str],
) -> None:  # fmt: skip
    mapped = mapped - mounts
    files = VirtualFiles(
        root=host if has_root else None,
        mapped={**dict.fromkeys(sorted(mounts), host), **dict.fromkeys(sorted(mapped), b"")},
        capture=[*sorted(captured), *(path + "/" for path in sorted(below))],
    )
    files.mount_procfs(FakeProcFs(files))
    all_mounts = [*mounts, "/"] if has_root else [*mounts]
    try:
        for path in [*paths, *mounts, *mapped, *captured, *below]:
            expected = expected_place(path, has_root, all_mounts, [*mapped], [*captured], [*below])
            try:
                place = files._mounts.find(path)
            except FileNotFoundError:
                assert expected == (None,), path
                continue
            found = [type(place.filesystem), place.guest_path]
            if isinstance(place.filesystem, HostFs):
                found.insert(1, place.filesystem.mount)
                inner = posixpath.join(place.filesystem.mount, place.path.lstrip("/"))
                assert components(inner) == components(path), path
            else:
                assert place.path == place.guest_path
            assert tuple(found) == expected, path
    finally:
        files.close()


def test_the_mount_table_is_as_the_naive_model(tmp_path: Path) -> None:
    @settings(max_examples=400, deadline=None, derandomize=True)
    @given(st.booleans(), st.sets(plain, max_size=3), *[few] * 3, st.lists(any_path, min_size=1, max_size=8))
    def check_on_host(
        has_root: bool, mounts: set[str], mapped: set[str], captured: set[str], below: set[str], paths: list[str]
    ) -> None:
        check(tmp_path, has_root, mounts, mapped, captured, below, paths)

    check_on_host()


def test_the_longest_mount_point_wins_and_hides_another_mount_at_the_same_path(tmp_path: Path) -> None:
    for name in ("root", "outer", "inner", "hidden"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "name").write_text(name)
    files = VirtualFiles(
        root=tmp_path / "hidden",
        mapped={"/": tmp_path / "root", "/a/b": tmp_path / "inner", "/a": tmp_path / "outer"},
    )
    shown = {path: files.contents(path + "/name").decode() for path in ("", "/a", "/a/b")}
    assert shown == {"": "root", "/a": "outer", "/a/b": "inner"}
    assert files.contents("/ab/../a/name") == b"outer"
    assert [name for name, _ in files.open("/a", os.O_RDONLY, 0).names()] == [".", "..", "b", "name"]


def test_each_process_has_its_own_devices_and_proc(tmp_path: Path) -> None:
    parent = VirtualFiles(root=tmp_path, stdin=b"parent's")
    parent.mount_procfs(FakeProcFs(parent))
    child = parent.fork()
    child.mount_procfs(FakeProcFs(child))
    child.descriptors.close(0)
    child.working_directory = "/dev"
    assert parent.open("/dev/stdin", os.O_RDONLY, 0).read(99) == b"parent's"
    with pytest.raises(OSError, match="descriptor"):
        child.open("/dev/stdin", os.O_RDONLY, 0)
    assert (parent.read_link("/proc/self/cwd"), child.read_link("/proc/self/cwd")) == ("/", "/dev")
    assert [name for name, _ in child.open("/dev/fd", os.O_RDONLY, 0).names()] == [".", "..", "1", "2"]
