"""Long paths in directories of the host: directories that are passed at once are those that a walk finds."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from emulator.linux.vfs import host_directory
from emulator.linux.vfs.host_directory import HostDirectory, LeavesTree
from emulator.linux.vfs.plain_directories import open_below

NAMES = ("a", "b", "file", "in", "up", "out", "whole", "none", "..", ".", "")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Directories a and b in one another, with a file and links inside, up and out."""
    for name in ("a/b/a/b", "b/a/b/a", "outside"):
        (tmp_path / "tree" / name if name != "outside" else tmp_path / name).mkdir(parents=True)
    for folder in [tmp_path / "tree", *(tmp_path / "tree").rglob("[ab]")]:
        (folder / "file").touch()
        for link, target in (("in", "a/b"), ("up", ".."), ("out", str(tmp_path / "outside")), ("whole", "/b/a")):
            (folder / link).symlink_to(target)
    return tmp_path / "tree"


def outcome(directory: HostDirectory, path: str, follow: bool) -> object:
    """What a path resolves to, or why it does not."""
    try:
        status = directory.status(path, follow)
        return directory.resolve(path, follow), status.st_ino
    except LeavesTree as leaves:
        return "leaves", leaves.path
    except OSError as error:
        return error.errno


@pytest.mark.parametrize("mount", ["/", "/mnt/tree"])
def test_directories_that_are_passed_are_those_of_a_walk(
    tree: Path, mount: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = HostDirectory(tree, mount, writable=["/"])
    rng = np.random.default_rng(5)
    weights = np.array([8, 8, 1, 1, 1, 0.5, 0.5, 0.5, 4, 1, 1])
    paths = ["/" + "/".join(rng.choice(NAMES, rng.integers(1, 9), p=weights / weights.sum())) for _ in range(1500)]
    seen = {}
    for most in (0, 99):
        monkeypatch.setattr(host_directory, "_MANY_COMPONENTS", most)
        seen[most] = [outcome(directory, path, follow) for path in paths for follow in (False, True)]
    assert seen[0] == seen[99]
    assert len({str(each) for each in seen[0]}) > 15
    directory.close()


def test_links_and_files_are_not_passed(tree: Path) -> None:
    root = os.open(tree, os.O_PATH)
    open_before = len(os.listdir("/proc/self/fd"))
    for names in (["in"], ["a", "up", "b"], ["a", "file"], ["none"], ["a\0"], [], ["a", "x" * 5000]):
        assert open_below(root, names) is None
    passed = open_below(root, ["a", "b"])
    assert passed is not None
    assert os.readlink(f"/proc/self/fd/{passed}") == str(tree / "a/b")
    os.close(passed)
    assert len(os.listdir("/proc/self/fd")) == open_before
    os.close(root)


def test_paths_may_be_longer_than_those_of_one_call(tree: Path) -> None:
    directory = HostDirectory(tree, writable=["/"])
    path = ""
    for _ in range(30):
        path += "/" + 200 * "d"
        directory.make_directory(path, 0o755)
    assert directory.resolve(path + "/..", follow=True) == path.rpartition("/")[0]
    while path:
        directory.remove(path, directory=True)
        path = path.rpartition("/")[0]
    directory.close()
