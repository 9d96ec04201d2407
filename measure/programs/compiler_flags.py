"""Paths in compiler flags: the compiler sees them from the directory of each source, people write them elsewhere."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

_PATH_FLAGS = ("-I", "-isystem", "-iquote", "-idirafter", "-include")


def with_paths(flags: Sequence[str], source_folder: Path, written_in: Path, shown: Callable[[Path], str]) -> list[str]:
    """``flags`` with each relative path that is not there seen from ``source_folder``, but seen from the directory
    ``written_in``, as ``shown`` has it, a function of the whole path."""
    found: list[str] = []
    for flag in flags:
        option = next((one for one in _PATH_FLAGS if flag.startswith(one)), "")
        path = flag[len(option) :]
        if not option and found and found[-1] in _PATH_FLAGS:
            path = flag
        meant = written_in / path
        elsewhere = path and not os.path.isabs(path) and not (source_folder / path).exists() and meant.exists()
        found.append(option + shown(meant) if elsewhere else flag)
    return found
