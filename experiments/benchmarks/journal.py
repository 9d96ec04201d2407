"""Measurements kept as they are made, so that a benchmark which stops goes on where it was.

A journal is a file of JSON lines under the user's cache directory, a line a measurement: its key, and what was
measured. Another version of our sources or other options have a journal of their own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common.file_cache import cache_directory
from common.source_digest import source_digest

ROOT = Path(__file__).parents[2]
PACKAGES = ("common", "emulator", "instrumenter", "measure")


class Journal:
    """The measurements of one benchmark; ``options``: all that they depend on besides their keys.

    ``anew``: forget what earlier calls with the same options have measured. ``folder``: where the file is.
    """

    def __init__(
        self, benchmark: str, options: dict[str, Any], *, anew: bool = False, folder: Path | None = None
    ) -> None:
        digest = hashlib.sha256(json.dumps(options, sort_keys=True, default=str).encode())
        digest.update(source_digest(ROOT / package for package in PACKAGES).encode())
        name = f"{benchmark}-{digest.hexdigest()[:12]}.jsonl"
        self.path = (folder or cache_directory() / "benchmarks") / name
        if anew:
            self.path.unlink(missing_ok=True)
        self._known = _read(self.path)

    def __len__(self) -> int:
        return len(self._known)

    def measured(self, key: tuple[str | int, ...], measure: Callable[[], Any]) -> Any:
        """What ``measure()`` returns, plain JSON values; what an earlier call returned, if there was one."""
        name = json.dumps(key)
        if name not in self._known:
            value = measure()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                # The line before may be a part of one, if its process was killed.
                file.write("\n" + json.dumps({"key": key, "value": value}))
            self._known[name] = json.loads(json.dumps(value))
        return self._known[name]


def _read(path: Path) -> dict[str, Any]:
    """By key; a line that was being written when the process ended is left out."""
    known = {}
    for line in path.read_text("utf-8").splitlines() if path.exists() else ():
        try:
            entry = json.loads(line)
            known[json.dumps(entry["key"])] = entry["value"]
        except (ValueError, KeyError, TypeError):
            continue
    return known
