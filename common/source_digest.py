"""A hash of source files: files on disk are not reused after the code that made them has changed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

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


def _sources_in(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: expected a source file or a folder of source files")
    return sorted(path for path in folder.rglob("*") if path.suffix in SUFFIXES)
