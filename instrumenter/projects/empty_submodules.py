"""Finds a project's submodules of git that were not fetched, so that what a build misses may be in them."""

from __future__ import annotations

import re
from pathlib import Path

from common.listed_names import listed

_PATH = re.compile(r"^\s*path\s*=\s*(.+?)\s*$", re.M)
_MISSING = re.compile(
    r"not found|No such file|[Cc]annot find|[Cc]ould not find|No rule to make target|does not contain|not an existing"
)
_MOST_NAMES = 4


def explain_empty_submodules(tree: Path, output: str) -> str | None:
    """What to do when a build in ``tree`` missed something, by what it printed, and submodules are empty; else None."""
    empty = empty_submodules(tree) if _MISSING.search(output) else []
    if not empty:
        return None
    what = "a submodule of git, which is" if len(empty) == 1 else f"{len(empty)} submodules of git, which are"
    return (
        f"A part of the project is missing: it has {what} empty ({listed(empty, _MOST_NAMES)}). "
        "`git submodule update --init --recursive` in the project fetches that"
    )


def empty_submodules(tree: Path) -> list[str]:
    """The folders below ``tree`` that its .gitmodules names and that have no file, relative to it."""
    try:
        text = (tree / ".gitmodules").read_text("utf-8", "replace")
    except OSError:
        return []
    folders = [path for path in _PATH.findall(text) if (tree / path).resolve().is_relative_to(tree.resolve())]
    return [path for path in folders if not any(_entries(tree / path))]


def _entries(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name != ".git"] if folder.is_dir() else []
