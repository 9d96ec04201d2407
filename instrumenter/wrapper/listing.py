"""The listing of a build: what each call of the compiler wrapper compiled, counted and linked, a JSON object a line.

``INSTRUMENT_LOG`` names its file; without it there is one beside each output.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LOG_VARIABLE = "INSTRUMENT_LOG"
LOG_NAME = "instrument-cc.jsonl"


def write_entry(output: Path, entry: Mapping[str, Any]) -> None:
    """Add a line to the listing: that of ``INSTRUMENT_LOG``, or one beside ``output``. Safe under ``make -j``."""
    path = Path(os.environ.get(LOG_VARIABLE) or output.parent / LOG_NAME)
    line = json.dumps(entry, sort_keys=True) + "\n"
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(line.encode())


def read_listing(path: Path) -> list[dict[str, Any]]:
    """The entries of a listing in their order; none if there is no file."""
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
