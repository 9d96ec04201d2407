"""Writes files and directories whole or not at all: every other process sees the old content or the new one.

A result is made beside its place, under a hidden name, and renamed into it. Two kinds of results differ:

- *Results of work* are durable: a file is flushed to the disk before it is renamed, so that after a power failure its
  place has the old content or the new one, never a part. The directory is not flushed: a rename may be lost, and the
  old content is there then.
- *Caches* are not flushed: after a power failure a file may be damaged. Their readers check what they read, or it is
  made again.

A process that is killed leaves hidden files; `remove_leftovers` removes them.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

WORKSPACE, AWAY = ".making-", ".removing-"
"""Prefixes of the directories that `workspace` and `move_away` make."""

_PART = ".part"
_numbers = itertools.count()  # tells threads of one process apart


@contextlib.contextmanager
def filling(path: Path, *, durable: bool = True) -> Iterator[Path]:
    """Context that yields the path of a file to write, beside ``path``, and moves the file to ``path`` at its end.

    ``durable``: flush it to the disk. After an exception, nothing is left and ``path`` is as before. The directory of
    ``path`` must exist. A pipe or a device at ``path`` is written directly, and stays. Raises `OSError` when the file
    cannot be written.
    """
    if not is_replaced(path):
        yield path
        return
    part = path.with_name(f".{path.name}.{os.getpid()}-{next(_numbers)}{_PART}")
    try:
        yield part
        move_file(part, path, durable=durable)
    except BaseException:
        with contextlib.suppress(OSError):  # a file system that is read-only refuses this, too
            part.unlink(missing_ok=True)
        raise


def write_bytes(path: Path, *parts: bytes, durable: bool = True) -> None:
    """Write ``parts``, one after the other, to ``path``; see `filling`."""
    with filling(path, durable=durable) as part, part.open("wb") as file:
        file.writelines(parts)


def write_text(path: Path, text: str, *, durable: bool = True) -> None:
    """Write ``text`` in UTF-8 to ``path``; see `filling`."""
    write_bytes(path, text.encode(), durable=durable)


@contextlib.contextmanager
def workspace(folder: Path | None, prefix: str = WORKSPACE) -> Iterator[Path]:
    """Context that yields an empty directory in ``folder``, to make results in that `move_file` or `move_directory`
    then puts into their places. It is removed at the end, with what is left in it.

    ``folder``: on the file system of the places; None: the system's directory of temporary files, for results that are
    not moved. Raises `OSError` when it cannot be made.
    """
    if folder is None:
        import tempfile  # not at the top: few commands need it, and it takes 5 ms of each start

        folder = Path(tempfile.gettempdir())
    # The name comes first, so that a directory is removed also if a signal ends the process while it is made. Of 64
    # random bits it is no other process's.
    made = folder.absolute() / f"{prefix}{os.urandom(8).hex()}"
    try:
        os.mkdir(made, 0o700)
        yield made
    finally:
        remove_tree(made)


def is_replaced(place: Path) -> bool:
    """Whether a new file takes the place of what is at ``place``; a pipe or a device stays, and is written. Builds link
    to /dev/null, which root could replace."""
    return not place.exists() or place.is_file()


def move_file(made: Path, place: Path, *, durable: bool = False) -> None:
    """Move a file that is complete to ``place``, over what is there; into it, if that is a pipe or a device.

    ``durable``: flush it to the disk before.
    """
    if not is_replaced(place):
        place.write_bytes(made.read_bytes())
        made.unlink()
        return
    if durable:
        with made.open("rb") as file:
            os.fsync(file.fileno())
    os.replace(made, place)


def move_directory(made: Path, place: Path, is_whole: Callable[[Path], bool] = Path.is_dir) -> None:
    """Move a directory that is complete to ``place``, readable by other users.

    What is there already stays if it ``is_whole``, for then another process was faster, and is replaced otherwise.
    Raises `OSError` when it cannot be moved.
    """
    made.chmod(0o755)
    try:
        os.rename(made, place)
    except OSError:
        if is_whole(place):
            return
        remove_tree(place)
        os.rename(made, place)


def is_leftover(name: str) -> bool:
    """Whether a file of this name was being written by `filling`."""
    return name.startswith(".") and name.endswith(_PART)


def remove_leftovers(directory: Path) -> None:
    """Remove the files that killed processes were writing in ``directory``; only for a directory of this process."""
    for leftover in directory.glob(f".*{_PART}"):
        leftover.unlink(missing_ok=True)


def move_away(place: Path) -> Path | None:
    """Rename a directory to a hidden name, for `remove_tree` or `move_directory` back: every other process sees the
    whole directory or none.

    Returns None when it is missing or cannot be renamed.
    """
    away = place.with_name(f"{AWAY}{place.name[:16]}-{os.getpid()}-{next(_numbers)}")
    try:
        os.rename(place, away)
    except OSError:
        return None
    return away


def remove_tree(folder: Path) -> None:
    """Remove a directory and all in it, as far as possible."""
    import shutil

    shutil.rmtree(folder, ignore_errors=True)
