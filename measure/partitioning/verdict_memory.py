"""Stores verdicts on groups permanently: a group that was tested once is not tested again by any campaign.

One SQLite file in the user's cache. The key of a verdict is its context (a hash of everything but the group that it
depends on: see `measure.partitioning.oracle`) and the definitions of the group's metrics, whatever their names.
"""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from common.file_cache import cache_directory
from measure.errors import StoreError
from measure.partitioning.search_types import Group, GroupVerdict, Oracle

_TABLE = """
create table if not exists verdicts (
    context text, metrics text, state text, reason text, worst text, change real, kind text, runs integer,
    tested_at real, primary key (context, metrics)
)"""


def default_path() -> Path:
    """The default file of verdicts, in the user's cache."""
    return cache_directory() / "partition.sqlite"


def digest(value: Any) -> str:
    """Hash of plain JSON data."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class Memory:
    """Verdicts of one ``context``. ``definitions``: the definition of each metric, as plain JSON data.

    Several processes may use the file at once. Raises `StoreError` when it cannot be read or written.
    """

    def __init__(self, path: Path, context: str, definitions: Sequence[Mapping[str, Any]]) -> None:
        self.path = path
        self._context = context
        self._texts = [json.dumps(one, sort_keys=True, separators=(",", ":")) for one in definitions]
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(path, isolation_level=None, timeout=30)
            self._database.execute("pragma journal_mode=wal")
            self._database.execute(_TABLE)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(
                f"{path}: verdicts cannot be kept there ({error}); delete it or make room, then start again"
            ) from None

    def close(self) -> None:
        self._database.close()

    def _key(self, group: Group) -> str:
        """The definitions in the order of the campaign's file: in another order they are another program."""
        return json.dumps([self._texts[metric] for metric in sorted(group)])

    def get(self, group: Group) -> GroupVerdict | None:
        """The stored verdict on a group, None without one."""
        query = "select state, reason, worst, change, kind, runs from verdicts where context = ? and metrics = ?"
        try:
            row = self._database.execute(query, (self._context, self._key(group))).fetchone()
        except sqlite3.Error as error:
            raise StoreError(f"{self.path} cannot be read: {error}") from None
        return None if row is None else _verdict(*row)

    def all(self) -> dict[Group, GroupVerdict]:
        """All stored verdicts on groups of these metrics, oldest first."""
        places = {text: metric for metric, text in enumerate(self._texts)}
        query = (
            "select metrics, state, reason, worst, change, kind, runs from verdicts where context = ? "
            "order by tested_at, metrics"
        )
        verdicts = {}
        try:
            for metrics, *row in self._database.execute(query, (self._context,)):
                texts = json.loads(metrics)
                numbers = [places[text] for text in texts if text in places]
                if len(numbers) == len(texts) and numbers == sorted(numbers):
                    verdicts[frozenset(numbers)] = _verdict(*row)
        except sqlite3.Error as error:
            raise StoreError(f"{self.path} cannot be read: {error}") from None
        return verdicts

    def put(self, group: Group, verdict: GroupVerdict) -> None:
        """Store a verdict, on the disk when this returns; it replaces an earlier one."""
        change = verdict.change if math.isfinite(verdict.change) else None
        row = (
            self._context, self._key(group), verdict.state, verdict.reason, json.dumps(verdict.worst), change,
            verdict.kind, verdict.runs, time.time(),
        )  # fmt: skip
        try:
            self._database.execute("insert or replace into verdicts values (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        except sqlite3.Error as error:
            raise StoreError(f"{self.path} cannot be written: {error}") from None


def _verdict(state: Any, reason: str, worst: str, change: float | None, kind: str, runs: int) -> GroupVerdict:
    pair = json.loads(worst)
    number = float("nan") if change is None else change
    return GroupVerdict(state, reason, None if pair is None else (pair[0], pair[1]), number, kind, runs)


class RememberingOracle:
    """An oracle that asks another one only about groups without a stored verdict.

    ``read``: False asks about every group, and only stores the verdicts.
    """

    def __init__(self, oracle: Oracle, memory: Memory, read: bool = True) -> None:
        self._oracle = oracle
        self._memory = memory
        self._read = read
        self.asked = 0
        self.remembered = 0

    def test(self, groups: Sequence[Group]) -> list[GroupVerdict]:
        """See `measure.partitioning.search_types.Oracle`."""
        stored = {group: self._memory.get(group) if self._read else None for group in groups}
        new = [group for group, verdict in stored.items() if verdict is None]
        fresh = dict(zip(new, self._oracle.test(new), strict=True)) if new else {}
        for group, verdict in fresh.items():
            self._memory.put(group, verdict)
        self.asked += len(new)
        self.remembered += len(groups) - len(new)
        return [stored[group] or fresh[group] for group in groups]
