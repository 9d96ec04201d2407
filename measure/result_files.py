"""Writes files of results whole or not at all, and checks before the work that there is a place for them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from common.atomic_files import filling
from measure.errors import CampaignError, StoreError


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a file that becomes ``path`` when it is whole and on the disk.

    Raises `StoreError` when the disk is full or not writable; nothing is left behind then.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with filling(path) as part:
            write(part)
    except OSError as error:
        raise StoreError(
            f"{path} cannot be written: {error.strerror or error}; finished runs are kept. "
            "Make room or choose another directory with --out, then start again"
        ) from error


def write_text_atomically(path: Path, text: str) -> None:
    """`write_atomically` for a text in UTF-8."""
    write_atomically(path, lambda to: to.write_text(text, encoding="utf-8"))


def check_file_place(path: Path) -> None:
    """Check before the work that a file can be written to ``path``; leaves nothing there.

    Raises `CampaignError` when its directory is missing or it is a directory itself, and `StoreError` when it cannot
    be written.
    """
    if path.is_dir():
        raise CampaignError(f"{path}: is a directory, expected the name of a file")
    if not path.parent.is_dir():
        raise CampaignError(
            f"{path}: no such directory: {path.parent}; make it first, or choose another place with --out"
        )
    _try_to_write(path.parent, path)


def check_results_place(directory: Path) -> None:
    """Check before the work that ``directory`` can hold results; it may be missing, and is not made.

    Raises `CampaignError` when it is a file, and `StoreError` when it cannot be written.
    """
    existing = next(parent for parent in (directory, *directory.absolute().parents) if parent.exists())
    if not existing.is_dir():
        raise CampaignError(f"{directory}: {existing} is a file, expected a directory for results")
    _try_to_write(existing, directory)


def _try_to_write(directory: Path, wanted: Path) -> None:
    try:
        os.rmdir(tempfile.mkdtemp(dir=directory, prefix=".perturbation-"))
    except OSError as error:
        raise StoreError(
            f"{wanted} cannot be written: {error.strerror or error}; choose another place with --out"
        ) from None
