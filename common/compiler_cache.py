"""The compiler's own cache, bounded: zig's folders ``local`` and ``global``, and markers of C libraries that are built.

zig removes nothing from them. ``local`` can be lost as a whole whenever no compiler runs: it saves compiling the same
again. ``global`` has the C and C++ libraries, too, which take long to build, and which builds that are linked anew for
every run name by their paths. So each run of the compiler shares the lock `_RUNS`, and each process that links builds
anew shares `_LIBRARIES` until it ends; a folder is moved away under these locks, which are not waited for.

A folder that is a link is the cache of another directory, which bounds it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from common.atomic_files import move_away, remove_tree, write_text
from common.file_cache import cache_directory, limit_or_default
from common.shared_folders import (
    Usage,
    acquire,
    disk_usage,
    hold,
    left_by_killed_processes,
    locked,
)

LOCAL, GLOBAL, READY = "local", "global", "ready-"

_RUNS, _LIBRARIES = "lock", "libraries.lock"
_SIZES = "sizes"  # of both folders, in bytes; its time of modification says when they were found
_FOUND_AGAIN_SECONDS = 24 * 3600
_ABANDONED_SECONDS = 3600  # a C library takes no process so long
_looked_at: set[Path] = set()


class Freed(NamedTuple):
    """The files that were removed of each folder; None: a process uses it."""

    local: Usage | None
    libraries: Usage | None


def compiler_cache() -> Path:
    """The folder of the compiler's own cache."""
    return cache_directory() / "zig"


@contextlib.contextmanager
def running(folder: Path) -> Iterator[tuple[int, ...]]:
    """Context in which a compiler runs. Yields the descriptor that holds the lock, for the compiler to inherit, so that
    the lock stays until it ends also when this process is killed; none when there can be no lock."""
    descriptors: tuple[int, ...] = ()
    with contextlib.suppress(OSError):  # a cache that this process may only read
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = acquire(folder / _RUNS, shared=True)
        assert descriptor is not None
        descriptors = (descriptor,)
    try:
        yield descriptors
    finally:
        for each in descriptors:
            os.close(each)


def use_libraries(folder: Path) -> None:
    """Let no process remove the compiler's libraries before this one ends."""
    hold(folder / _LIBRARIES)


def bound(folder: Path) -> None:
    """Once in each process: remove what is over the limit, if no process uses it; sizes are found once a day."""
    if folder in _looked_at:
        return
    _looked_at.add(folder)
    with contextlib.suppress(OSError):
        if folder.is_symlink() or not folder.is_dir():
            return
        local_bytes, global_bytes = _sizes(folder)
        limit = limit_or_default()
        if local_bytes + global_bytes > limit:
            free(folder, with_local=local_bytes > 0, with_libraries=global_bytes > limit)


def free(folder: Path, *, with_local: bool = True, with_libraries: bool = True) -> Freed:
    """Remove ``local``, and the libraries, if no process uses them. Raises `OSError` when there can be no lock."""
    moved: dict[str, Path | None] = {}
    with locked(folder / _RUNS, wait=False) as runs:
        if runs is not None and with_local:
            moved[LOCAL] = move_away(folder / LOCAL)
        if runs is not None and with_libraries:
            with locked(folder / _LIBRARIES, wait=False) as libraries:
                if libraries is not None:
                    for marker in folder.glob(f"{READY}*"):  # first: a marker without its library hides a message
                        marker.unlink(missing_ok=True)
                    moved[GLOBAL] = move_away(folder / GLOBAL)
        if moved:
            sizes = dict(zip((LOCAL, GLOBAL), _read_sizes(folder) or (0, 0), strict=True))
            _write_sizes(folder, *(0 if name in moved else n_bytes for name, n_bytes in sizes.items()))
    return Freed(*(_removed(moved[name]) if name in moved else None for name in (LOCAL, GLOBAL)))


def _sizes(folder: Path) -> tuple[int, int]:
    """Bytes on disk of ``local`` and of ``global``, found within the last day."""
    found = _read_sizes(folder)
    with contextlib.suppress(OSError):
        if found is not None and 0 <= time.time() - (folder / _SIZES).stat().st_mtime < _FOUND_AGAIN_SECONDS:
            return found
        os.utime(folder / _SIZES)  # so that other processes do not look at the same time
    for left in left_by_killed_processes(folder, _ABANDONED_SECONDS):
        remove_tree(left)
    local_bytes, global_bytes = (disk_usage(folder / name).n_bytes for name in (LOCAL, GLOBAL))
    _write_sizes(folder, local_bytes, global_bytes)
    return local_bytes, global_bytes


def _read_sizes(folder: Path) -> tuple[int, int] | None:
    try:
        local_bytes, global_bytes = map(int, (folder / _SIZES).read_text("ascii").split())
    except (OSError, ValueError):
        return None
    return local_bytes, global_bytes


def _write_sizes(folder: Path, local_bytes: int, global_bytes: int) -> None:
    write_text(folder / _SIZES, f"{local_bytes} {global_bytes}\n", durable=False)


def _removed(moved: Path | None) -> Usage:
    """Remove a folder that was moved away, and say what it took."""
    if moved is None:
        return Usage(0, 0)
    usage = disk_usage(moved)
    remove_tree(moved)
    return usage
