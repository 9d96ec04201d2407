"""A directory of the host that the guest sees, with no way out of it.

Paths are walked one component at a time from a descriptor of the root; of long paths, directories that are no links are
passed at once. The host never follows a symbolic link: the link is read and its target is walked in this tree. A path
that leads out of this tree raises `LeavesTree` with the guest path to continue at: for example an absolute link in a
tree that is mounted below the guest's root. At the guest's root itself, ``..`` stays there. So no path, no link and no
concurrent change of the tree gives access to a host file outside of it.
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
from emulator.linux.vfs.plain_directories import open_below

MAX_LINKS = 40
_MANY_COMPONENTS = 8  # of a path, from which on a few calls for all of them are faster than one for each
_CHANGING = os.O_CREAT | os.O_TRUNC
_GUEST_FLAGS = os.O_ACCMODE | os.O_CREAT | os.O_EXCL | os.O_TRUNC | os.O_DIRECTORY


class LeavesTree(OSError):
    """A link or ``..`` leads out of the tree. ``path``: the guest path to continue at, with the components that were
    not walked yet."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.ELOOP, "symbolic links between directories of the host")
        self.path = path


class Opened(NamedTuple):
    """A host descriptor of a regular file or directory, its guest path, and whether the open created it."""

    descriptor: int
    path: str
    is_new: bool


class _Resolved(NamedTuple):
    """A resolved path: descriptor of the parent directory, name in it, path in the tree, and mode (0: no file)."""

    parent: int
    name: str
    path: str
    kind: int


class _Passed(NamedTuple):
    """A directory that was opened without a walk: its path descriptor, the components of its path, and those left."""

    descriptor: int
    names: list[str]
    rest: list[str]


class HostDirectory:
    """The tree under ``root``, which the guest sees at ``mount``.

    Only files at or below one of ``writable`` can be changed; these and all paths here begin at the root
    of the tree. ``is_outside`` returns whether a normalised guest path is not in this tree; None: all paths are. Raises
    `EmulatorError` when ``root`` is not a directory.
    """

    def __init__(
        self,
        root: Path,
        mount: str = "/",
        writable: Collection[str] = (),
        is_outside: Callable[[str], bool] | None = None,
    ) -> None:
        try:
            self._root = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise EmulatorError(
                f"{root}: cannot be mapped for the guest: {error.strerror}; give a directory"
            ) from error
        self.directory = root.resolve()
        self._mount = mount
        self._is_outside = is_outside
        self._writable = tuple("/" + path.strip("/") for path in writable)

    def close(self) -> None:
        os.close(self._root)

    def open(self, path: str, flags: int, mode: int) -> Opened:
        """Open a regular file or directory; a new file gets exactly the permissions ``mode``. Raises OSError."""
        with self._walk(path, follow=not flags & os.O_NOFOLLOW) as resolved:
            if flags & _CHANGING or flags & os.O_ACCMODE != os.O_RDONLY:
                flags = self._allowed_flags(resolved, flags)
            if resolved.kind and not stat.S_ISREG(resolved.kind) and not stat.S_ISDIR(resolved.kind):
                raise OSError(errno.ELOOP if stat.S_ISLNK(resolved.kind) else errno.EACCES, "not a regular file")
            # The host may have replaced the file meanwhile: do not wait for a FIFO, and check the kind again.
            host_flags = flags & _GUEST_FLAGS | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
            descriptor = os.open(resolved.name, host_flags, mode & 0o777, dir_fd=resolved.parent)
        kind = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
            os.close(descriptor)
            raise OSError(errno.EACCES, "not a regular file")
        is_new = not resolved.kind and bool(flags & os.O_CREAT)
        if is_new:
            os.fchmod(descriptor, mode & 0o777)
        return Opened(descriptor, self._guest_path(resolved), is_new)

    def resolve(self, path: str, follow: bool) -> str:
        """The guest path with all links resolved; the last one only with ``follow``. Raises OSError."""
        with self._walk(path, follow) as resolved:
            return self._guest_path(resolved)

    def _guest_path(self, resolved: _Resolved) -> str:
        return posixpath.join(self._mount, resolved.path.lstrip("/")).rstrip("/") or "/"

    def status(self, path: str, follow: bool) -> os.stat_result:
        with self._walk(path, follow) as resolved:
            return os.stat(resolved.name, dir_fd=resolved.parent, follow_symlinks=False)

    def read_link(self, path: str) -> str:
        with self._walk(path, follow=False) as resolved:
            return os.readlink(resolved.name, dir_fd=resolved.parent)

    def is_writable(self, path: str) -> bool:
        """Whether the guest may change the file at ``path``."""
        with self._walk(path, follow=True) as resolved:
            return self._may_change(resolved)

    def remove(self, path: str, directory: bool) -> None:
        with self._resolve_writable(path) as resolved:
            if directory:
                os.rmdir(resolved.name, dir_fd=resolved.parent)
            else:
                os.unlink(resolved.name, dir_fd=resolved.parent)

    def make_directory(self, path: str, mode: int) -> None:
        with self._resolve_writable(path) as resolved:
            if resolved.kind:
                raise OSError(errno.EEXIST, "exists")
            os.mkdir(resolved.name, 0o700, dir_fd=resolved.parent)
            self._set_mode(resolved, mode)

    def change_mode(self, path: str, mode: int) -> None:
        with self._walk(path, follow=True) as resolved:
            if not resolved.kind:
                raise OSError(errno.ENOENT, "no such file")
            if not self._may_change(resolved):
                raise OSError(errno.EROFS, "not writable for the guest")
            self._set_mode(resolved, mode)

    @staticmethod
    def _set_mode(resolved: _Resolved, mode: int) -> None:
        """Set the permissions of a file that is not a link; the file itself need not be readable."""
        descriptor = os.open(resolved.name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=resolved.parent)
        try:
            os.chmod(f"/proc/self/fd/{descriptor}", mode & 0o777)
        finally:
            os.close(descriptor)

    def make_symbolic_link(self, target: str, path: str) -> None:
        """Make a symbolic link; its target is checked when it is followed."""
        with self._resolve_writable(path) as resolved:
            os.symlink(target, resolved.name, dir_fd=resolved.parent)

    def make_hard_link(self, old: str, new: str) -> None:
        """Make a hard link to a writable file; a read-only file could be changed through a new name."""
        with self._resolve_writable(old) as source, self._resolve_writable(new) as target:
            os.link(
                source.name,
                target.name,
                src_dir_fd=source.parent,
                dst_dir_fd=target.parent,
                follow_symlinks=False,
            )

    def rename(self, old: str, new: str) -> None:
        with self._resolve_writable(old) as source, self._resolve_writable(new) as target:
            os.rename(source.name, target.name, src_dir_fd=source.parent, dst_dir_fd=target.parent)

    @contextmanager
    def _resolve_writable(self, path: str) -> Iterator[_Resolved]:
        with self._walk(path, follow=False) as resolved:
            if not self._may_change(resolved):
                raise OSError(errno.EROFS, "not writable for the guest")
            if resolved.name == ".":
                raise OSError(errno.EBUSY, "the directory is in use")
            yield resolved

    def _may_change(self, resolved: _Resolved) -> bool:
        return any(
            allowed == "/" or resolved.path == allowed or resolved.path.startswith(allowed + "/")
            for allowed in self._writable
        )

    def _allowed_flags(self, resolved: _Resolved, flags: int) -> int:
        if self._may_change(resolved):
            return flags
        if not resolved.kind and not flags & os.O_CREAT:
            raise OSError(errno.ENOENT, "no such file")
        wants_change = flags & os.O_TRUNC or flags & os.O_ACCMODE != os.O_RDONLY
        if wants_change or not resolved.kind:
            raise OSError(errno.EROFS, "not writable for the guest")
        if flags & os.O_EXCL:
            raise OSError(errno.EEXIST, "exists")
        return flags & ~os.O_CREAT

    @contextmanager
    def _walk(self, path: str, follow: bool) -> Iterator[_Resolved]:
        """Resolve a path, of which the last component may be missing; a link there is followed only with ``follow``.

        Raises OSError; of these, `LeavesTree` when the walk has to continue in another tree.
        """
        directories = [self._root]  # from the root down to the directory of the next component
        names: list[str] = []
        opened: list[int] = []
        todo = [part for part in reversed(path.split("/")) if part not in ("", ".")]
        must_be_directory = path.endswith(("/", "/."))
        links = 0
        whole: list[str] = []  # the components, where directories were passed
        passed = self._pass_directories(todo[::-1]) if len(todo) > _MANY_COMPONENTS else None
        if passed is not None:
            opened.append(passed.descriptor)
            directories.append(passed.descriptor)
            whole, names, todo = todo, passed.names, passed.rest
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
                    descriptor = os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directories[-1])
                except FileNotFoundError:
                    if todo:
                        raise
                    yield _Resolved(directories[-1], part, "/" + "/".join([*names, part]), 0)
                    return
                opened.append(descriptor)
                kind = os.fstat(descriptor).st_mode
                if stat.S_ISLNK(kind) and (todo or follow or must_be_directory):
                    if whole:  # the link may lead to one of the directories that were passed
                        todo, whole = whole, []
                        del directories[1:], names[:]
                        continue
                    links += 1
                    if links > MAX_LINKS:
                        raise OSError(errno.ELOOP, "symbolic links")
                    target = os.readlink("", dir_fd=descriptor)
                    self._check_inside(names, target, todo)
                    if target.startswith("/"):
                        del directories[1:], names[:]
                    todo += [step for step in reversed(target.split("/")) if step not in ("", ".")]
                elif (todo or must_be_directory) and not stat.S_ISDIR(kind):
                    raise OSError(errno.ENOTDIR, "not a directory")
                elif todo:
                    directories.append(descriptor)
                    names.append(part)
                else:
                    yield _Resolved(directories[-1], part, "/" + "/".join([*names, part]), kind)
                    return
            yield _Resolved(directories[-1], ".", "/" + "/".join(names), stat.S_IFDIR)
        finally:
            for descriptor in opened:
                os.close(descriptor)

    def _pass_directories(self, steps: list[str]) -> _Passed | None:
        """Open the directory of the last of ``steps``, or what these lead to if that is ``..``; None if that takes a
        walk: one of the directories is a link, or is not there."""
        leads_up = steps[-1] == ".."
        while ".." in steps:
            up = steps.index("..")
            below = open_below(self._root, steps[:up])
            if below is None:
                return None
            os.close(below)
            steps = [*steps[: up - 1], *steps[up + 1 :]]
        names, rest = (steps, []) if leads_up else (steps[:-1], steps[-1:])
        descriptor = open_below(self._root, names)
        return None if descriptor is None else _Passed(descriptor, names, rest)

    def _check_inside(self, names: list[str], target: str, todo: list[str]) -> None:
        """Raises `LeavesTree` if a link in the directory ``names`` leads out of the tree; ``todo``: the components
        after the link, in reverse order."""
        directory, steps = posixpath.join(self._mount, *names), target.split("/")
        while steps[0] == "..":  # up from the link's own directory, which may lead into another tree
            directory = posixpath.dirname(directory)
            steps = steps[1:] or [""]
        path = posixpath.join(directory, "/".join(steps), *reversed(todo))
        outside = target.startswith("/") and self._mount != "/"
        if outside or (self._is_outside is not None and self._is_outside(posixpath.normpath(path))):
            raise LeavesTree(path)
