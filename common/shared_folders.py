"""What processes need that use the same folders at once: locks, what killed ones left, and sizes on disk.

A lock is a flock on an empty file. It ends with the process that holds it, however that ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from common.atomic_files import AWAY, WORKSPACE

_ABANDONED_SECONDS = 3600  # what was moved away so long ago belongs to a process that was killed
_BLOCK_BYTES = 512  # the unit of st_blocks
_NAME = re.compile(r"[0-9a-f]{64}")
_held: dict[Path, int] = {}


class Usage(NamedTuple):
    """A number of files or folders, and what they take on disk."""

    number: int
    n_bytes: int


def acquire(path: Path, *, shared: bool = False, wait: bool = True) -> int | None:
    """Lock the file ``path``, which is made if necessary; the lock lasts until the returned descriptor is closed.

    None: another process holds the lock, and ``wait`` is False. Raises `OSError` when there can be no lock.
    """
    while True:
        descriptor = _open(path, shared)
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
            # A process that removes the file while it holds the lock lets the next ones lock a file that is gone: they
            # begin anew, with the file that others find. Hence a holder of the lock may remove the file.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                    return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


@contextlib.contextmanager
def locked(path: Path, *, shared: bool = False, wait: bool = True) -> Iterator[int | None]:
    """Context in which this process has the lock `acquire` returns."""
    descriptor = acquire(path, shared=shared, wait=wait)
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def hold(path: Path) -> None:
    """Share the lock ``path`` until this process ends; does nothing when there can be no lock."""
    if path not in _held:
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = acquire(path, shared=True)
            assert descriptor is not None
            _held[path] = descriptor


def left_by_killed_processes(folder: Path, workspace_seconds: float = math.inf) -> list[Path]:
    """Folders in ``folder`` that killed processes were removing, or began to make ``workspace_seconds`` ago
    (`common.atomic_files.workspace`)."""
    now, found = time.time(), []
    for entry in entries(folder):
        with contextlib.suppress(OSError):
            # Renaming a folder sets its ctime, making a file in it its mtime.
            if entry.name.startswith(AWAY):
                is_left = now - entry.stat(follow_symlinks=False).st_ctime >= _ABANDONED_SECONDS
            elif entry.name.startswith(WORKSPACE):
                is_left = now - entry.stat(follow_symlinks=False).st_mtime >= workspace_seconds
            else:
                continue
            if is_left and entry.is_dir(follow_symlinks=False):
                found.append(Path(entry.path))
    return found


def is_key(name: str) -> bool:
    """Whether ``name`` is a SHA-256 hash."""
    return _NAME.fullmatch(name) is not None


def entries(folder: Path | str) -> list[os.DirEntry[str]]:
    """What is in ``folder``; nothing if it cannot be read."""
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []


def disk_usage(path: Path | str, seen: set[tuple[int, int]] | None = None) -> Usage:
    """Number of the files in a folder, and the bytes of their blocks and of the folders'; links are not followed.

    ``seen``: device and inode of files that were counted already, and are not counted again. Files with several names
    (hard links) are added to it.
    """
    seen = set() if seen is None else seen
    try:
        about = os.lstat(path)
    except OSError:
        return Usage(0, 0)
    n_bytes = about.st_blocks * _BLOCK_BYTES
    if not stat.S_ISDIR(about.st_mode):
        return Usage(1, n_bytes)
    n_files, folders = 0, [str(path)]
    while folders:
        for entry in entries(folders.pop()):
            try:
                about = entry.stat(follow_symlinks=False)
            except OSError:  # removed meanwhile
                continue
            if stat.S_ISDIR(about.st_mode):
                folders.append(entry.path)
            else:
                n_files += 1
                if about.st_nlink > 1:
                    if (about.st_dev, about.st_ino) in seen:
                        continue
                    seen.add((about.st_dev, about.st_ino))
            n_bytes += about.st_blocks * _BLOCK_BYTES
    return Usage(n_files, n_bytes)


def _open(path: Path, shared: bool) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError:
        if not shared:
            raise
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # in a cache that this process may only read
