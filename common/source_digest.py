"""A hash of source files: files on disk are not reused after the code that made them has changed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from common.file_cache import object_path, read_checked, write_checked

SUFFIXES = (".py", ".c", ".h")


def source_digest(paths: Iterable[Path]) -> str:
    """SHA-256, in hexadecimal, over the sources among ``paths`` and in the folders among them, at any depth.

    File names are included, relative to the given folder; the order of ``paths`` is not. Raises `FileNotFoundError`
    for a path that does not exist, so that a moved module is not left out unnoticed.
    """
    digest = hashlib.sha256()
    for path in sorted(set(paths)):
        for file in [path] if path.is_file() else _sources_in(path):
            name = file.name if file == path else file.relative_to(path).as_posix()
            content = file.read_bytes()
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def kept_source_digest(paths: Iterable[Path]) -> str:
    """`source_digest`, from the user's cache directory if no source's size or time of change has changed since.

    For what every start of a command needs: it takes a tenth of the time, because no source is read. Raises as
    `source_digest`.
    """
    given = sorted(set(paths))
    stamps = sorted(stamp for path in given for stamp in _stamps(str(path)))
    kept = object_path("\0".join(["sources", *map(str, given), *stamps]))
    raw = read_checked(kept)
    if raw is not None:
        return raw.decode()
    digest = source_digest(given)
    write_checked(kept, digest.encode())
    return digest


def _stamps(path: str) -> list[str]:
    """Path, size and time of change of the source ``path``, or of each source in the folder ``path``."""
    if not os.path.isdir(path):
        return [_stamp(path, os.stat(path))]
    found = []
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                found += _stamps(entry.path)
            elif entry.name.endswith(SUFFIXES):
                found.append(_stamp(entry.path, entry.stat()))
    return found


def _stamp(path: str, about: os.stat_result) -> str:
    return f"{path} {about.st_size} {about.st_mtime_ns} {about.st_ino}"


def _sources_in(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: expected a source file or a folder of source files")
    return sorted(path for path in folder.rglob("*") if path.suffix in SUFFIXES)
