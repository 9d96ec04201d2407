"""The user's cache of builds and of built projects: bounded, shared by processes, emptied by a command.

A build is a folder of `BUILDS`, with its program and ``build.json``, whose time of modification is that of the build's
last use. Builds take at most `common.file_cache.limit_bytes` of disk, but what was used within a day stays: campaigns
and searches open their programs by path for hours. A built project in `PROJECTS` is removed a day after its last use.
`instrumenter.building` makes both.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from common.atomic_files import move_away, move_directory, remove_tree
from common.file_cache import LEFT, add_to_ledger, cache_directory
from common.shared_folders import (
    Usage,
    disk_usage,
    entries,
    hold,
    is_key,
    left_by_killed_processes,
    locked,
)

BUILDS, PROJECTS = "builds", "projects"
FACTS_NAME = "build.json"  # of a build
PROJECT_MARKER = "built.json"  # of a project whose build has ended well
DAY_SECONDS = 24 * 3600

_LEDGER = "builds.size"
_LOCK = "builds.lock"  # shared by processes that may open builds


class KeptBuild(NamedTuple):
    """A build: ``n_bytes`` on disk without what builds used later have in common with it; ``used``: seconds of the
    epoch."""

    path: Path
    n_bytes: int
    used: float


class Cleared(NamedTuple):
    """Numbers of folders that were removed and their bytes; ``in_use``: none was, for another process may use them."""

    builds: Usage
    projects: Usage
    in_use: bool


def use_builds() -> None:
    """Let no other process clear the builds before this one ends."""
    hold(cache_directory() / _LOCK)


def mark_used(program: Path) -> None:
    """Count a use of the build that has ``program``; a program that is no build is left alone."""
    if program.parent.parent.name == BUILDS:
        with contextlib.suppress(OSError):  # a cache that this process may only read
            os.utime(program.parent / FACTS_NAME)


def kept_builds(base: Path) -> list[KeptBuild]:
    """The builds of the cache ``base``, the most recently used first."""
    used: list[tuple[float, str]] = []
    for entry in entries(base / BUILDS):
        if is_key(entry.name) and entry.is_dir(follow_symlinks=False):
            with contextlib.suppress(OSError):
                used.append((_last_use(Path(entry.path)), entry.path))
    seen: set[tuple[int, int]] = set()
    return [KeptBuild(Path(path), disk_usage(path, seen).n_bytes, when) for when, path in sorted(used, reverse=True)]


def note_build(place: Path) -> None:
    """Count the new build ``place``; removes what is over the limit, and projects that were not used for a day."""
    base = place.parent.parent
    away = _left(base)

    def bound(limit: int) -> int:
        total = sum(build.n_bytes for build in kept_builds(base))
        if total > limit:
            total, moved = trim_builds(int(limit * LEFT), base)
            away.extend(moved)
        return total

    with contextlib.suppress(OSError):
        add_to_ledger(base / _LEDGER, disk_usage(place).n_bytes, bound)
    away += trim_projects(base)
    _remove(away)  # not under the ledger's lock, since it may take seconds


def trim_builds(to_bytes: int, base: Path, spared_seconds: float = DAY_SECONDS) -> tuple[int, list[Path]]:
    """Move the least recently used builds away until the others take at most ``to_bytes``. Builds that were used within
    ``spared_seconds`` stay in any case. Returns the size of the builds that stay, and the folders to remove."""
    total, moved, is_full = 0, [], False
    for build in kept_builds(base):
        is_full = is_full or total + build.n_bytes > to_bytes
        away = _move_unused(build) if is_full and time.time() - build.used >= spared_seconds else None
        if away is None:
            total += build.n_bytes
        else:
            moved.append(away)
    return total, moved


def trim_projects(base: Path, spared_seconds: float = DAY_SECONDS) -> list[Path]:
    """Move away the projects that were not used for ``spared_seconds``, and remove their logs and locks; returns the
    folders to remove.

    What another process is building or linking stays, and is not waited for.
    """
    moved = []
    for key in sorted({name for entry in entries(base / PROJECTS) if is_key(name := entry.name.partition(".")[0])}):
        folder = base / PROJECTS / key
        if time.time() - _last_use_of_project(folder) < spared_seconds:
            continue
        with contextlib.suppress(OSError), locked(folder.with_suffix(".lock"), wait=False) as descriptor:
            if descriptor is None or time.time() - _last_use_of_project(folder) < spared_seconds:
                continue
            away = move_away(folder)
            if away is not None:
                moved.append(away)
            folder.with_suffix(".log").unlink(missing_ok=True)
            # The lock goes last. That is safe: this process holds it, and a process that waits for it finds the file
            # gone and begins anew (`common.shared_folders.acquire`).
            folder.with_suffix(".lock").unlink(missing_ok=True)
    return moved


def clear_builds(base: Path) -> Cleared:
    """Remove all builds and projects, and nothing else; none when another process may use them."""
    builds: list[Path] = []
    projects: list[Path] = []
    abandoned: list[Path] = []
    if not any((base / folder).exists() for folder in (BUILDS, PROJECTS)):
        return Cleared(Usage(0, 0), Usage(0, 0), in_use=False)
    is_locked = False
    with contextlib.suppress(OSError), locked(base / _LOCK, wait=False) as descriptor:
        if descriptor is not None:
            is_locked = True
            builds, projects = trim_builds(-1, base, -math.inf)[1], trim_projects(base, -math.inf)
            abandoned = _left(base)
            (base / _LEDGER).unlink(missing_ok=True)
    _remove(abandoned)
    return Cleared(_remove(builds), _remove(projects), in_use=not is_locked)


def unfinished_builds(base: Path) -> Usage:
    """Number and size of the folders in which builds are being made, or were when their process was killed."""
    found = [disk_usage(entry.path) for entry in entries(base / BUILDS) if entry.name.startswith(".")]
    return Usage(len(found), sum(usage.n_bytes for usage in found))


def project_trees(base: Path) -> list[Path]:
    """The built projects of the cache ``base``."""
    found = entries(base / PROJECTS)
    return [Path(entry.path) for entry in found if is_key(entry.name) and entry.is_dir(follow_symlinks=False)]


def _last_use(build: Path) -> float:
    """Time of the build's last use, in seconds of the epoch. Raises `OSError` when it is gone."""
    try:
        return (build / FACTS_NAME).stat().st_mtime
    except FileNotFoundError:  # of a damaged build
        return build.stat().st_mtime


def _last_use_of_project(folder: Path) -> float:
    """As `_last_use` for a project, one that failed, or whose process was killed; 0 if only its lock is left."""
    found = [folder / PROJECT_MARKER, folder, folder.with_suffix(".log")]
    times = []
    for path in found:
        with contextlib.suppress(OSError):
            times.append(path.stat().st_mtime)
    return max(times, default=0)


def _move_unused(build: KeptBuild) -> Path | None:
    """Move a build away, unless another process uses it after it was listed."""
    away = move_away(build.path)
    if away is None:
        return None
    # A process that loads a build marks it before it looks whether the program is there. So it sees no program, or
    # this process sees the mark.
    with contextlib.suppress(OSError):
        if _last_use(away) != build.used:
            move_directory(away, build.path)  # does nothing if the build was made again
            return None if not away.exists() else away
    return away


def _remove(folders: Sequence[Path]) -> Usage:
    """Remove folders that were moved away; returns their number and size."""
    seen: set[tuple[int, int]] = set()
    n_bytes = sum(disk_usage(folder, seen).n_bytes for folder in folders)  # before hard links are removed
    for folder in folders:
        remove_tree(folder)
    return Usage(len(folders), n_bytes)


def _left(base: Path) -> list[Path]:
    """What processes that were killed left in the folders of builds and of projects."""
    return [path for name in (BUILDS, PROJECTS) for path in left_by_killed_processes(base / name, DAY_SECONDS)]
