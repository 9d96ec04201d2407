"""A directory of the host shown to the guest, and nothing outside of it.

Paths are walked one component at a time from a descriptor of the root, never following a symbolic link in the
host's way: a link is read and its target is walked in this tree. A target that the guest finds elsewhere, such as an
absolute one where the tree is not the guest's root, raises `LeavesTree` with the guest's path, and ``..`` stops at the
guest's root. So no path, no link and no change of the tree meanwhile leads out of what the guest is shown.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from emulator.errors import EmulatorError

MAX_LINKS = 40
_CHANGING = os.O_CREAT | os.O_TRUNC
_GUEST_FLAGS = os.O_ACCMODE | os.O_CREAT | os.O_EXCL | os.O_TRUNC | os.O_DIRECTORY


class LeavesTree(OSError):
    """A link leads to ``path`` of the guest, which is not in the tree; the rest of the way is part of it."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.ELOOP, "symbolic links between directories of the host")
        self.path = path


class Opened(NamedTuple):
    """A host descriptor of a regular file or directory, its guest path, and whether it was made just now."""

    descriptor: int
    path: str
    is_new: bool


class _Place(NamedTuple):
    """A resolved path: an open parent directory, a name in it, where that is, and what (0: nothing yet)."""

    parent: int
    name: str
    path: str
    kind: int


class HostTree:
    """The tree under ``root``, which the guest sees at ``mount``.

    Only what lies at or below one of ``writable`` can be changed; these and all paths here begin at the root
    of the tree. ``is_elsewhere`` tells of a normal path of the guest that it is not in this tree. Raises
    `EmulatorError` when ``root`` is not a directory.
    """

    def __init__(
        self,
        root: Path,
        mount: str = "/",
        writable: Collection[str] = (),
        is_elsewhere: Callable[[HostTree, str], bool] = lambda tree, path: False,
    ) -> None:
        try:
            self._root = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise EmulatorError(
                f"{root}: cannot be shown to the guest: {error.strerror}; give a directory"
            ) from error
        self.directory = root.resolve()
        self._mount = mount
        self._is_elsewhere = is_elsewhere
        self._writable = tuple("/" + path.strip("/") for path in writable)

    def close(self) -> None:
        os.close(self._root)

    def open(self, path: str, flags: int, mode: int) -> Opened:
        """Open a regular file or directory; a new file gets exactly the permissions ``mode``. Raises OSError."""
        with self._walk(path, follow=not flags & os.O_NOFOLLOW) as place:
            if flags & _CHANGING or flags & os.O_ACCMODE != os.O_RDONLY:
                flags = self._allowed_flags(place, flags)
            if place.kind and not stat.S_ISREG(place.kind) and not stat.S_ISDIR(place.kind):
                raise OSError(errno.ELOOP if stat.S_ISLNK(place.kind) else errno.EACCES, "not a regular file")
            # The kind may have changed meanwhile: do not wait for a FIFO, and look again.
            host_flags = flags & _GUEST_FLAGS | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
            descriptor = os.open(place.name, host_flags, mode & 0o777, dir_fd=place.parent)
        kind = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
            os.close(descriptor)
            raise OSError(errno.EACCES, "not a regular file")
        is_new = not place.kind and bool(flags & os.O_CREAT)
        if is_new:
            os.fchmod(descriptor, mode & 0o777)
        return Opened(descriptor, self._guest_path(place), is_new)

    def place(self, path: str, follow: bool) -> str:
        """The guest path without links. Raises OSError."""
        with self._walk(path, follow) as place:
            return self._guest_path(place)

    def _guest_path(self, place: _Place) -> str:
        return posixpath.join(self._mount, place.path.lstrip("/")).rstrip("/") or "/"

    def status(self, path: str, follow: bool) -> os.stat_result:
        with self._walk(path, follow) as place:
            return os.stat(place.name, dir_fd=place.parent, follow_symlinks=False)

    def read_link(self, path: str) -> str:
        with self._walk(path, follow=False) as place:
            return os.readlink(place.name, dir_fd=place.parent)

    def is_writable(self, path: str) -> bool:
        """Whether the guest may change what is at ``path``."""
        with self._walk(path, follow=True) as place:
            return self._may_change(place)

    def remove(self, path: str, directory: bool) -> None:
        with self._changing(path) as place:
            if directory:
                os.rmdir(place.name, dir_fd=place.parent)
            else:
                os.unlink(place.name, dir_fd=place.parent)

    def make_directory(self, path: str, mode: int) -> None:
        with self._changing(path) as place:
            if place.kind:
                raise OSError(errno.EEXIST, "exists")
            os.mkdir(place.name, 0o700, dir_fd=place.parent)
            self._set_mode(place, mode)

    def change_mode(self, path: str, mode: int) -> None:
        with self._walk(path, follow=True) as place:
            if not place.kind:
                raise OSError(errno.ENOENT, "no such file")
            if not self._may_change(place):
                raise OSError(errno.EROFS, "not writable for the guest")
            self._set_mode(place, mode)

    @staticmethod
    def _set_mode(place: _Place, mode: int) -> None:
        """Permissions of what is there, which is no link; the file itself need not be readable for that."""
        descriptor = os.open(place.name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place.parent)
        try:
            os.chmod(f"/proc/self/fd/{descriptor}", mode & 0o777)
        finally:
            os.close(descriptor)

    def make_link(self, target: str, path: str) -> None:
        """A symbolic link; where it leads is decided when it is followed, in this tree."""
        with self._changing(path) as place:
            os.symlink(target, place.name, dir_fd=place.parent)

    def add_name(self, old: str, new: str) -> None:
        """A further name for a file that may be changed itself: else it could be through the new name."""
        with self._changing(old) as source, self._changing(new) as target:
            os.link(
                source.name,
                target.name,
                src_dir_fd=source.parent,
                dst_dir_fd=target.parent,
                follow_symlinks=False,
            )

    def rename(self, old: str, new: str) -> None:
        with self._changing(old) as source, self._changing(new) as target:
            os.rename(source.name, target.name, src_dir_fd=source.parent, dst_dir_fd=target.parent)

    @contextmanager
    def _changing(self, path: str) -> Iterator[_Place]:
        with self._walk(path, follow=False) as place:
            if not self._may_change(place):
                raise OSError(errno.EROFS, "not writable for the guest")
            if place.name == ".":
                raise OSError(errno.EBUSY, "the directory is in use")
            yield place

    def _may_change(self, place: _Place) -> bool:
        return any(
            allowed == "/" or place.path == allowed or place.path.startswith(allowed + "/")
            for allowed in self._writable
        )

    def _allowed_flags(self, place: _Place, flags: int) -> int:
        if self._may_change(place):
            return flags
        if not place.kind and not flags & os.O_CREAT:
            raise OSError(errno.ENOENT, "no such file")
        wants_change = flags & os.O_TRUNC or flags & os.O_ACCMODE != os.O_RDONLY
        if wants_change or not place.kind:
            raise OSError(errno.EROFS, "not writable for the guest")
        if flags & os.O_EXCL:
            raise OSError(errno.EEXIST, "exists")
        return flags & ~os.O_CREAT

    @contextmanager
    def _walk(self, path: str, follow: bool) -> Iterator[_Place]:
        """Resolve all but a missing last component; a link there is followed only when ``follow``.

        Raises OSError, of which `LeavesTree` asks for the walk to go on elsewhere.
        """
        directories = [self._root]  # from the root down to where the walk is
        names: list[str] = []
        opened: list[int] = []
        todo = [part for part in reversed(path.split("/")) if part not in ("", ".")]
        must_be_directory = path.endswith(("/", "/."))
        links = 0
        try:
            while todo:
                part = todo.pop()
                if part == "..":
                    if names:
                        names.pop()
                        directories.pop()
                    elif self._mount != "/":
                        raise LeavesTree(posixpath.join(posixpath.dirname(self._mount), *reversed(todo)))
                    continue
                try:
                    descriptor = os.open(
                        part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directories[-1]
                    )
                except FileNotFoundError:
                    if todo:
                        raise
                    yield _Place(directories[-1], part, "/" + "/".join([*names, part]), 0)
                    return
                opened.append(descriptor)
                kind = os.fstat(descriptor).st_mode
                if stat.S_ISLNK(kind) and (todo or follow or must_be_directory):
                    links += 1
                    if links > MAX_LINKS:
                        raise OSError(errno.ELOOP, "symbolic links")
                    target = os.readlink("", dir_fd=descriptor)
                    self._check_is_here(names, target, todo)
                    if target.startswith("/"):
                        del directories[1:], names[:]
                    todo += [step for step in reversed(target.split("/")) if step not in ("", ".")]
                elif (todo or must_be_directory) and not stat.S_ISDIR(kind):
                    raise OSError(errno.ENOTDIR, "not a directory")
                elif todo:
                    directories.append(descriptor)
                    names.append(part)
                else:
                    yield _Place(directories[-1], part, "/" + "/".join([*names, part]), kind)
                    return
            yield _Place(directories[-1], ".", "/" + "/".join(names), stat.S_IFDIR)
        finally:
            for descriptor in opened:
                os.close(descriptor)

    def _check_is_here(self, names: list[str], target: str, todo: list[str]) -> None:
        """Raises `LeavesTree` when a link in the directory ``names`` leads elsewhere; ``todo``: what follows it."""
        directory, steps = posixpath.join(self._mount, *names), target.split("/")
        while steps[0] == "..":  # up from where the link really is, which may be another tree's directory
            directory = posixpath.dirname(directory)
            steps = steps[1:] or [""]
        path = posixpath.join(directory, "/".join(steps), *reversed(todo))
        outside = target.startswith("/") and self._mount != "/"
        if outside or self._is_elsewhere(self, posixpath.normpath(path)):
            raise LeavesTree(path)
