"""The copy of a project in which it is built, and the hash of what is copied.

The user's directory is only read. A link that leads out of it is copied as what it leads to, since the program is made
from that, too; a link that stays inside leads to the same place in the copy. What an earlier configuration of cmake or
meson has left names the directory in which that was, and is left out.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from instrumenter.errors import SourceError

_NOT_COPIED = frozenset((".git", ".hg", ".svn"))
_CMAKE_CACHE, _CMAKE_LISTS, _CMAKE_FILES = "CMakeCache.txt", "CMakeLists.txt", "CMakeFiles"
_MESON_PRIVATE, _MESON_BUILD = "meson-private", "meson.build"


class _Entry(NamedTuple):
    """A file, a link or an empty directory to copy. ``name``: where, in the copy; ``path``: what is read; ``link``:
    where a link leads that stays one."""

    name: Path
    path: Path
    link: str | None = None


def _walk(directory: Path) -> Iterator[_Entry]:
    """Files, links and empty directories below ``directory``, sorted by folder."""
    yield from _walk_in(directory, Path(), ())


def _walk_in(directory: Path, name: Path, outer: tuple[Path, ...]) -> Iterator[_Entry]:
    """The entries of ``directory``, which is ``name`` in the copy; ``outer``: the directories whose links led to it,
    without links in their paths."""
    root = directory.resolve()
    for folder, folders, files in os.walk(directory):
        here = name / Path(folder).relative_to(directory)
        if here != Path() and _is_build_folder(folders, files):
            folders.clear()
            files = []
        elif _CMAKE_CACHE in files:  # built among its sources
            files = [each for each in files if each != _CMAKE_CACHE]
            folders[:] = [each for each in folders if each != _CMAKE_FILES]
        folders[:] = sorted(each for each in folders if each not in _NOT_COPIED)
        if not files and not folders and here != Path():  # for what a build writes into it
            yield _Entry(here, Path(folder))
        links = [each for each in folders if (Path(folder) / each).is_symlink()]
        for each in sorted([*files, *links]):
            path = Path(folder) / each
            if path.is_symlink():
                yield from _link(path, here / each, root, outer)
            elif path.is_file():
                yield _Entry(here / each, path)


def _is_build_folder(folders: list[str], files: list[str]) -> bool:
    """Whether cmake or meson was told to build in a folder with these entries, and it has no sources of its own."""
    return (_CMAKE_CACHE in files and _CMAKE_LISTS not in files) or (
        _MESON_PRIVATE in folders and _MESON_BUILD not in files
    )


def _link(path: Path, name: Path, root: Path, outer: tuple[Path, ...]) -> Iterator[_Entry]:
    """The entries of the link ``path`` in the directory ``root``."""
    text, target = os.readlink(path), Path(os.path.realpath(path))
    if target.is_relative_to(root):
        inside = Path(os.path.normpath(path.parent.resolve() / text)).is_relative_to(root)
        whole = os.path.relpath(target, path.parent.resolve())
        yield _Entry(name, path, text if inside and not os.path.isabs(text) else whole)
    elif target.is_file():
        yield _Entry(name, target)
    elif target.is_dir() and not any(each.is_relative_to(target) for each in (root, *outer)):
        yield from _walk_in(target, name, (*outer, root))
    else:  # to a missing file, to a device, or to a directory around this one
        yield _Entry(name, path, str(target) if target.exists() else text)


def tree_digest(directory: Path) -> str:
    """Hash of names, contents and executable bits of all files that are copied, and of empty directories. Raises
    `SourceError`."""
    if not directory.is_dir():
        raise SourceError(f"{directory}: no such directory")
    digest = hashlib.sha256()
    for name, path, link in _walk(directory):
        digest.update(os.fsencode(name) + b"\0")
        if link is not None:
            digest.update(b"link " + os.fsencode(link) + b"\0")
            continue
        if path.is_dir():
            digest.update(b"directory\0")
            continue
        try:
            with path.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").digest()
        except OSError as error:
            raise SourceError(f"{path}: cannot be read: {error.strerror}") from None
        digest.update(b"file " + str(os.access(path, os.X_OK)).encode() + content)
    return digest.hexdigest()


def copy_tree(directory: Path, to: Path) -> None:
    """Copy a project with its file times, which make needs; the copies are writable. Raises `SourceError`."""
    to.mkdir()
    for name, path, link in _walk(directory):
        target = to / name
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            if link is not None:
                target.symlink_to(link)
            elif path.is_dir():
                target.mkdir()
            else:
                shutil.copy2(path, target)
                target.chmod(target.stat().st_mode | 0o200)
        except OSError as error:
            raise SourceError(f"{path}: cannot be copied: {error.strerror}") from None
