"""Paths and campaigns as words of a command line, for messages that name the command to run next."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path


def words_of_campaign(path: str, settings: Sequence[str] = ()) -> str:
    """The campaign file, empty if unknown, and the ``settings`` that it is run with, as a command line has them."""
    return shown_path(path) + "".join(f" --set {shlex.quote(one)}" for one in settings)


def shown_path(path: str) -> str:
    """A path for a command line: relative to the current directory if that is shorter, else the whole path."""
    if not path:
        return "CAMPAIGN.yaml"
    near = os.path.relpath(path)
    return shlex.quote(near if len(near) < len(path) and Path(near).exists() else path)
