"""What the guest sees of files, what it may change, and that it never gets out."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.errors import EmulatorError
from emulator.linux.vfs.files import VirtualFiles
from emulator.linux.vfs.host_directory import HostDirectory
from emulator.linux.vfs.regular_files import MemoryFile

READ, WRITE, CREATE = os.O_RDONLY, os.O_WRONLY, os.O_WRONLY | os.O_CREAT


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A root with files, links that stay inside and links that try to leave."""
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    (tmp_path / "outside").mkdir()
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (root / "work").mkdir()
    (root / "etc" / "passwd").write_text("guest's own")
    (root / "work" / "input").write_text("data")
    links = {
        "to_file": "etc/passwd",
        "absolute": "/etc/passwd",
        "directory": "etc",
        "out_relative": "../secret.txt",
        "out_absolute": str(secret),
        "out_directory": "../outside",
        "far_out": "../../../../../../../../" + str(secret).lstrip("/"),
        "loop": "loop",
        "work/up": "../../outside",
    }
    for name, target in links.items():
        (root / name).symlink_to(target)
    os.mkfifo(root / "fifo")
    return root


def read(files: VirtualFiles, path: str, flags: int = READ) -> bytes:
    file = files.open(path, flags, 0o644)
    data = file.read(1000)
    file.close()
    return data


def error_of(action: Callable[..., Any], *arguments: Any) -> str:
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the number is checked by the caller
        action(*arguments)
    return errno.errorcode[caught.value.errno or 0]


def test_by_default_there_are_streams_devices_and_an_empty_tree_in_memory() -> None:
    files = VirtualFiles(stdin=b"input")
    assert files.descriptors.file(0).read(100) == b"input"
    assert files.descriptors.file(1).write(b"out") == 3
    assert files.descriptors.file(2).write(b"err") == 3
    assert (files.output(1), files.output(2)) == (b"out", b"err")
    assert [name for name, _ in files.open("/", READ, 0).names()] == [".", "..", "dev", "tmp"]
    for path in ("/etc/passwd", "/proc/self/exe", "/home", "/../etc/passwd"):
        assert error_of(files.open, path, READ, 0) == "ENOENT"
    for path in ("/missing/new", "/tmp/missing/new", "/dev/new"):
        assert error_of(files.open, path, CREATE, 0o644) == "ENOENT"


def test_the_tree_in_memory_is_writable(tree: Path) -> None:
    files = VirtualFiles(mapped={"/tree": tree, "/input": b"mapped"})
    assert files.status("/tmp").mode == stat.S_IFDIR | 0o1777
    files.make_directory("/made", 0o755)
    for path in ("/new", "/tmp/new", "/made/new"):
        assert files.is_writable(path)
        files.open(path, CREATE, 0o644).write(b"text")
        assert read(files, path) == b"text"
    files.rename("/made/new", "/tmp/other")
    assert set(files.captured()) == {"/new", "/tmp/new", "/tmp/other"}
    files.remove("/made", True)
    # What the host shows stays as it is.
    for path in ("/input", "/tree/etc/passwd", "/tree/new"):
        assert not files.is_writable(path)
        assert error_of(files.open, path, CREATE, 0o644) == "EROFS"
    assert error_of(files.remove, "/input", False) == "EROFS"
    assert not (tree / "new").exists()
    files.close()


def test_links_are_followed_within_the_root_only(tree: Path) -> None:
    files = VirtualFiles(root=tree)
    for path in ("/etc/passwd", "/to_file", "/absolute", "/directory/passwd", "/work/../etc/passwd"):
        assert read(files, path) == b"guest's own"
    assert read(files, "/../../etc/./passwd") == b"guest's own"
    for path in ("/out_relative", "/out_absolute", "/far_out", "/out_directory/x", "/work/up/x"):
        assert error_of(files.open, path, READ, 0) == "ENOENT"
        assert error_of(files.open, path, CREATE, 0o644) in ("ENOENT", "EROFS")
    assert error_of(files.open, "/loop", READ, 0) == "ELOOP"
    assert error_of(files.open, "/to_file", READ | os.O_NOFOLLOW, 0) == "ELOOP"
    assert files.read_link("/out_relative") == "../secret.txt"
    assert error_of(files.open, "/fifo", READ, 0) == "EACCES"
    assert error_of(files.open, "/etc/passwd/x", READ, 0) == "ENOTDIR"
    assert error_of(files.open, "/etc/passwd/", READ, 0) == "ENOTDIR"


@pytest.fixture
def data(tree: Path, tmp_path: Path) -> Path:
    """A directory that is mapped beside the root, with links as the guest means them."""
    data = tmp_path / "data"
    (data / "sub").mkdir(parents=True)
    (data / "file").write_text("of data")
    links = {
        "absolute": "/data/file",
        "below": "/data/sub/../file",
        "to_root": "/etc/passwd",
        "up": "../etc/passwd",
        "sub/up": "../../etc",
        "in_memory": "/etc/hosts",
        "device": "/dev/null",
        "of_host": str(data / "file"),
        "far_out": "../../../../.." + str(tmp_path / "secret.txt"),
        "first": "/data/second",
        "second": "/data/first",
    }
    for name, target in links.items():
        (data / name).symlink_to(target)
    for name, target in {"mounted": "/data", "etc/relative": "../data", "hosts": "etc/hosts"}.items():
        (tree / name).symlink_to(target)
    return data


def test_links_lead_from_one_tree_to_another_and_never_out(tree: Path, data: Path) -> None:
    files = VirtualFiles(root=tree, mapped={"/data": data, "/etc/hosts": b"localhost"})
    for path in (
        "/data/absolute",
        "/data/below",
        "/mounted/file",
        "/etc/relative/absolute",
        "/data/sub/../absolute",
    ):
        assert read(files, path) == b"of data", path
        assert files.status(path).size_bytes == 7
    for path in ("/data/to_root", "/data/up", "/data/sub/up/passwd", "/mounted/to_root"):
        assert read(files, path) == b"guest's own", path
    assert read(files, "/data/in_memory") == read(files, "/hosts") == b"localhost"
    assert read(files, "/data/device") == b""
    assert files.open("/mounted", READ, 0).path == files.resolve("/etc/relative", follow=True) == "/data"
    for path in ("/data/of_host", "/data/far_out"):
        assert error_of(files.open, path, READ, 0) == "ENOENT"
    assert error_of(files.open, "/data/first", READ, 0) == "ELOOP"
    assert files.read_link("/data/absolute") == "/data/file"


def test_links_between_trees_open_nothing_for_writing(tree: Path, data: Path) -> None:
    files = VirtualFiles(root=tree, mapped={"/data": data}, writable=["/data"])
    for path in ("/data/to_root", "/data/up", "/data/sub/up/passwd"):
        assert error_of(files.open, path, WRITE, 0) == "EROFS", path
        assert not files.is_writable(path)
    assert error_of(files.open, "/data/sub/up/new", CREATE, 0o644) == "EROFS"
    assert error_of(files.remove, "/data/sub/up/passwd", False) == "EROFS"
    assert error_of(files.rename, "/data/file", "/data/sub/up/file") == "EXDEV"
    files.rename("/mounted/file", "/etc/relative/sub/file")
    assert (data / "sub" / "file").read_text() == "of data"
    files.open("/mounted/made", CREATE, 0o644).close()
    files.remove("/mounted/made", False)
    files.make_directory("/mounted/made", 0o755)
    assert (data / "made").is_dir()
    assert files.open("/etc/passwd", READ, 0).read(99) == b"guest's own"


def test_a_mapped_directory_alone_has_the_guests_root_above_it(data: Path) -> None:
    files = VirtualFiles(mapped={"/data": data})
    assert read(files, "/data/absolute") == b"of data"
    for path in ("/data/to_root", "/data/up", "/data/far_out", "/data/of_host"):
        assert error_of(files.open, path, READ, 0) == "ENOENT", path


def test_a_directory_behind_a_link_has_its_real_path(tree: Path) -> None:
    files = VirtualFiles(root=tree)
    directory = files.open("/directory/../directory", READ, 0)
    assert directory.path == "/etc"
    assert [name for name, _ in directory.names()] == [".", "..", "passwd"]


def test_a_root_is_read_only_but_for_what_is_writable(tree: Path) -> None:
    files = VirtualFiles(root=tree, writable=["/work"])
    assert error_of(files.open, "/etc/passwd", WRITE, 0) == "EROFS"
    assert error_of(files.open, "/etc/passwd", READ | os.O_TRUNC, 0) == "EROFS"
    assert error_of(files.open, "/etc/new", CREATE, 0o644) == "EROFS"
    assert error_of(files.open, "/etc/new", WRITE, 0) == "ENOENT"
    assert error_of(files.open, "/workshop", CREATE, 0o644) == "EROFS"
    assert error_of(files.remove, "/etc/passwd", False) == "EROFS"
    assert error_of(files.make_directory, "/etc/d", 0o755) == "EROFS"
    assert error_of(files.rename, "/etc/passwd", "/work/p") == "EROFS"
    assert error_of(files.rename, "/work/input", "/etc/p") == "EROFS"
    assert read(files, "/etc/passwd", READ | os.O_CREAT) == b"guest's own"
    assert not files.is_writable("/etc/passwd")

    file = files.open("/work/new", CREATE, 0o644)
    assert file.write(b"text") == 4
    file.close()
    assert (tree / "work" / "new").read_bytes() == b"text"
    files.make_directory("/work/sub", 0o755)
    files.rename("/work/new", "/work/sub/newer")
    assert (tree / "work" / "sub" / "newer").read_bytes() == b"text"
    files.remove("/work/sub/newer", False)
    files.remove("/work/sub", True)
    assert files.is_writable("/work/input")
    assert sorted(os.listdir(tree / "work")) == ["input", "up"]


@pytest.mark.parametrize("kind", ["missing", "empty"])
def test_a_read_only_root_without_files_in_tmp_has_one_in_memory(kind: str, tree: Path) -> None:
    """Without it a circuit simulator from a distribution ended with "tmpfile(): Read-only file system"."""
    if kind == "empty":
        (tree / "tmp").mkdir()
    files = VirtualFiles(root=tree)
    file = files.open("/tmp/new", CREATE, 0o600)
    assert file.write(b"text") == 4
    file.close()
    assert read(files, "/tmp/new") == b"text"
    assert files.status("/tmp", True).mode == 0o41777
    assert "tmp" in [name for name, _ in files.open("/", READ, 0).names()]
    files.remove("/tmp/new", False)
    assert not (tree / "tmp").exists() or os.listdir(tree / "tmp") == []


def test_what_the_user_says_of_tmp_holds(tree: Path, data: Path) -> None:
    other = VirtualFiles(root=tree, mapped={"/tmp": data}, writable=["/tmp"])
    assert read(other, "/tmp/file") == b"of data"
    (tree / "tmp").mkdir()
    VirtualFiles(root=tree, writable=["/tmp"]).open("/tmp/kept", CREATE, 0o600).close()
    assert os.listdir(tree / "tmp") == ["kept"]
    with_files = VirtualFiles(root=tree)
    assert read(with_files, "/tmp/kept") == b""
    assert error_of(with_files.open, "/tmp/new", CREATE, 0o600) == "EROFS"


def test_a_link_in_the_place_of_tmp_is_not_followed_on_the_host(tree: Path) -> None:
    (tree / "tmp").symlink_to("/nowhere")
    assert error_of(VirtualFiles(root=tree).open, "/tmp/new", CREATE, 0o600) == "ENOENT"


def test_a_writable_link_does_not_open_the_rest(tree: Path) -> None:
    (tree / "work" / "link").symlink_to("/etc/passwd")
    files = VirtualFiles(root=tree, writable=["/work"])
    assert error_of(files.open, "/work/link", WRITE, 0) == "EROFS"
    assert error_of(files.open, "/work/up/new", CREATE, 0o644) == "ENOENT"
    files.remove("/work/link", False)
    assert (tree / "etc" / "passwd").exists()


steps = st.lists(
    st.sampled_from(["..", ".", "", "etc", "work", "up", "directory", "out_directory", "far_out", "absolute", "loop"]),
    min_size=1,
    max_size=8,
)


def test_no_path_leads_out(tree: Path) -> None:
    outside = set(os.listdir(tree.parent)), (tree.parent / "secret.txt").read_bytes()
    host_directory = HostDirectory(tree, writable=["/"])

    @settings(max_examples=300, deadline=None, derandomize=True)
    @given(steps, st.sampled_from([READ, CREATE, READ | os.O_DIRECTORY]))
    def check(parts: list[str], flags: int) -> None:
        try:
            descriptor = host_directory.open("/" + "/".join(parts), flags, 0o600).descriptor
        except OSError:
            return
        inode = os.fstat(descriptor).st_ino
        os.close(descriptor)
        assert inode in {path.lstat().st_ino for path in [tree, *tree.rglob("*")]}

    check()
    assert (set(os.listdir(tree.parent)), (tree.parent / "secret.txt").read_bytes()) == outside
    assert os.listdir(tree.parent / "outside") == []


def test_mapped_files_and_directories(tree: Path, tmp_path: Path) -> None:
    files = VirtualFiles(mapped={"/data/bytes": b"abc", "/data/file": tmp_path / "secret.txt", "/tree": tree})
    assert read(files, "/data/bytes") == b"abc"
    assert read(files, "/data/file") == b"secret"
    assert read(files, "/tree/to_file") == b"guest's own"
    assert error_of(files.open, "/tree/out_relative", READ, 0) == "ENOENT"
    assert error_of(files.open, "/data/bytes", WRITE, 0) == "EROFS"
    assert error_of(files.open, "/data/bytes", READ | os.O_DIRECTORY, 0) == "ENOTDIR"
    assert error_of(files.remove, "/data/bytes", False) == "EROFS"
    assert error_of(files.open, "/tree/etc/passwd", WRITE, 0) == "EROFS"
    assert [name for name, _ in files.open("/data", READ, 0).names()] == [".", "..", "bytes", "file"]
    assert [name for name, _ in files.open("/", READ, 0).names()] == [".", "..", "data", "dev", "tmp", "tree"]
    assert files.status("/data").mode == stat.S_IFDIR | 0o755
    assert files.status("/data/bytes").size_bytes == 3
    files.close()


def test_a_mapped_directory_can_be_writable(tree: Path) -> None:
    files = VirtualFiles(mapped={"/tree": tree}, writable=["/tree/work"])
    files.open("/tree/work/x", CREATE, 0o644).close()
    assert (tree / "work" / "x").exists()
    assert error_of(files.open, "/tree/x", CREATE, 0o644) == "EROFS"
    whole = VirtualFiles(mapped={"/tree": tree}, writable=["/"])
    whole.open("/tree/x", CREATE, 0o644).close()
    assert (tree / "x").exists()


def test_a_listing_says_of_each_entry_what_its_path_does(tree: Path, tmp_path: Path) -> None:
    files = VirtualFiles(root=tree, mapped={"/etc/passwd": b"mapped", "/srv/below": tmp_path}, capture=("/srv/made",))
    files.open("/srv/made", CREATE, 0o600)
    seen = {}
    for directory in ("/", "/etc", "/srv", "/srv/below", "/dev"):
        for name, status in files.open(directory, READ, 0).names():
            path = os.path.join(directory, name)
            seen[path] = status
            assert status == files.status(path, follow=False), path
    assert seen["/etc/passwd"].size_bytes == len(b"mapped")
    assert seen["/srv/below/secret.txt"].size_bytes == len(b"secret")
    assert seen["/srv/made"].mode == stat.S_IFREG | 0o600
    assert stat.S_ISLNK(seen["/out_directory"].mode)
    assert stat.S_ISFIFO(seen["/fifo"].mode)
    assert stat.S_ISCHR(seen["/dev/null"].mode)
    files.close()


def test_a_file_shown_to_the_guest_shares_its_bytes_until_it_changes() -> None:
    contents = bytes(1000)
    files = VirtualFiles(capture=("/mine/",))
    files.add_if_missing("/mine/program", contents)
    file = files.open("/mine/program", READ, 0)
    assert file.read_at(1000, 0) == contents
    files.remove("/mine/program", False)
    assert file.read_at(1000, 0) == contents  # open, though it has no name any more
    file.close()
    assert contents == bytes(1000)
    files.close()


def test_captured_files_stay_in_memory(tree: Path) -> None:
    files = VirtualFiles(root=tree, capture=["/work/trace.bin", "/out/"])
    assert error_of(files.open, "/work/trace.bin", READ, 0) == "ENOENT"
    assert files.captured() == {}
    file = files.open("/work/trace.bin", CREATE, 0o644)
    file.write(b"12345")
    assert file.seek(8, os.SEEK_SET) == 8
    file.write(b"9")
    assert files.captured() == {"/work/trace.bin": b"12345\0\0\x009"}
    assert files.open("/work/trace.bin", READ | os.O_TRUNC, 0).status().size_bytes == 0
    assert error_of(files.open, "/work/trace.bin", CREATE | os.O_EXCL, 0) == "EEXIST"

    files.make_directory("/out/sub", 0o755)
    files.open("/out/sub/a", CREATE, 0o644).write(b"a")
    assert error_of(files.open, "/out/none/a", CREATE, 0o644) == "ENOENT"
    assert error_of(files.remove, "/out/sub", True) == "ENOTEMPTY"
    assert error_of(files.remove, "/out/sub", False) == "EISDIR"
    assert error_of(files.rename, "/out/sub/a", "/etc/a") == "EXDEV"
    files.rename("/out/sub/a", "/out/b")
    files.remove("/out/sub", True)
    assert files.captured() == {"/work/trace.bin": b"", "/out/b": b"a"}
    assert files.is_writable("/out/b")
    assert sorted(os.listdir(tree / "work")) == ["input", "up"]


def test_captured_files_have_a_limit() -> None:
    files = VirtualFiles(capture=["/out/"], capture_limit_bytes=10)
    first, second = (files.open(f"/out/{name}", CREATE, 0o644) for name in "ab")
    assert first.write(b"123456") == 6
    assert error_of(second.write, b"12345") == "ENOSPC"
    assert error_of(second.truncate, 1 << 60) == "ENOSPC"
    assert second.write(b"1234") == 4
    first.truncate(0)
    assert second.write(b"123456") == 6
    files.rename("/out/a", "/out/b")
    first.seek(0, os.SEEK_SET)
    assert error_of(first.write, b"12345") == "ENOSPC"  # what has no name takes room while it is open
    second.close()
    assert first.write(b"1234567890") == 10
    assert files.captured() == {"/out/b": b"1234567890"}


def test_kept_output_counts_too() -> None:
    files = VirtualFiles(capture_limit_bytes=5)
    assert files.descriptors.file(1).write(b"1234") == 4
    assert error_of(files.descriptors.file(2).write, b"12") == "ENOSPC"
    assert (files.output(1), files.output(2)) == (b"1234", b"")


def test_append_goes_to_the_end() -> None:
    files = VirtualFiles(capture=["/log"])
    one = files.open("/log", CREATE | os.O_APPEND, 0o644)
    two = files.open("/log", CREATE | os.O_APPEND, 0o644)
    one.write(b"one,")
    two.write(b"two,")
    one.write(b"three")
    assert files.captured() == {"/log": b"one,two,three"}


def test_devices() -> None:
    files = VirtualFiles(seed=3)
    assert read(files, "/dev/null") == b""
    assert read(files, "/dev/zero") == bytes(1000)
    assert files.open("/dev/null", WRITE, 0).write(b"gone") == 4
    assert error_of(files.open("/dev/full", WRITE, 0).write, b"x") == "ENOSPC"
    assert read(files, "/dev/urandom") == read(VirtualFiles(seed=3), "/dev/urandom")
    assert read(files, "/dev/urandom") != read(VirtualFiles(seed=4), "/dev/urandom")
    assert files.open("/dev/stdin", READ, 0) is files.descriptors.file(0)


def test_passed_through_streams(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with open(target, "wb") as out:
        files = VirtualFiles(stdout=out.fileno())
        files.descriptors.file(1).write(b"x" * 100_000)
        files.close()
        os.fstat(out.fileno())  # still open: it is not ours
    assert target.read_bytes() == b"x" * 100_000
    assert files.output(1) == b""


def test_inodes_are_the_guests_own_and_repeat(tree: Path) -> None:
    def inodes() -> list[int]:
        files = VirtualFiles(root=tree, capture=["/x"])
        return [files.status(path).inode for path in ("/etc/passwd", "/to_file", "/work", "/dev/null")]

    assert inodes() == inodes()
    assert inodes()[0] == inodes()[1]
    assert max(inodes()) < 20


def test_an_onlooker_leaves_no_trace(tree: Path) -> None:
    alone, watched = VirtualFiles(root=tree), VirtualFiles(root=tree)
    other = watched.for_observer()
    assert other.contents("/work/input") == b"data"
    read(other, "/dev/urandom")
    read(watched.for_observer(), "/dev/urandom")
    paths = ("/etc/passwd", "/work/input")
    assert [alone.status(path).inode for path in paths] == [watched.status(path).inode for path in paths]
    assert read(alone, "/dev/urandom") == read(watched, "/dev/urandom")


def test_descriptors_are_shared_until_the_last_is_closed() -> None:
    files = VirtualFiles(capture=["/out"])
    table = files.descriptors
    fd = table.install(files.open("/out", CREATE, 0o644))
    assert fd == 3
    copy = table.install(table.file(fd), lowest=10, close_on_exec=True)
    assert (copy, table.close_on_exec(copy), table.close_on_exec(fd)) == (10, True, False)
    table.close(fd)
    assert isinstance(table.file(copy), MemoryFile)
    table.close(copy)
    assert error_of(table.file, copy) == "EBADF"


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(EmulatorError, match="guest path 'data' is relative: expected an absolute one"):
        VirtualFiles(mapped={"data": b""})
    with pytest.raises(EmulatorError, match=r"missing: cannot be mapped for the guest: No such file.*give a directory"):
        VirtualFiles(root=tmp_path / "missing")
    with pytest.raises(EmulatorError, match=r"guest path /x: No such file.*give an existing file or directory"):
        VirtualFiles(mapped={"/x": tmp_path / "missing"})
