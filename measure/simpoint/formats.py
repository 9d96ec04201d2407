"""SimPoint's text files: basic block vectors (.bb), simulation points, weights and labels.

A line of a .bb file is ``T:id:count :id:count ``; Valgrind, gem5 and QEMU's plugin write them. Blocks may be
numbered from 1 (SimPoint's rule) or from 0 (QEMU's plugin). The other files have two columns.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from measure.errors import CampaignError
from measure.store import write_atomically


class PhaseFileError(CampaignError):
    """A file of phases is damaged; the message names file and line."""


@dataclass(frozen=True)
class BlockVectors:
    """Basic block vectors, one row an interval, as a sparse matrix by rows.

    ``counts``: instructions (executions times block length), ``blocks``: block numbers from 0, both of the
    non-zero entries row after row; ``starts``: (n + 1,) where each row begins.
    """

    counts: NDArray[np.int64]
    blocks: NDArray[np.int64]
    starts: NDArray[np.int64]

    @property
    def n_intervals(self) -> int:
        return len(self.starts) - 1

    @property
    def n_blocks(self) -> int:
        return int(self.blocks.max()) + 1 if len(self.blocks) else 0

    @property
    def instructions(self) -> NDArray[np.int64]:
        """Instructions of each interval, ``(n,)``."""
        return np.add.reduceat(np.append(self.counts, 0), self.starts[:-1]) * (np.diff(self.starts) > 0)


_ENTRY = re.compile(r":(\d+):(\d+)")


def read_bb(path: Path) -> BlockVectors:
    """Read a .bb file, gzipped or not; lines that begin with # and empty lines are skipped.

    Raises `PhaseFileError` for anything else that is not as SimPoint's format says, with its line.
    """
    counts: list[int] = []
    blocks: list[int] = []
    starts = [0]
    try:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open(encoding="ascii") as file:
            for number, line in enumerate(file, 1):
                text = line.strip()
                if not text or text.startswith("#"):
                    continue
                if text[0] != "T":
                    raise PhaseFileError(
                        f"{path}:{number}: got {text[:30]!r}, expected a vector, T:block:count :block:count ..."
                    )
                seen = len(blocks)
                position = 1
                while position < len(text):
                    match = _ENTRY.match(text, position)
                    if match is None:
                        raise PhaseFileError(
                            f"{path}:{number}: got {text[position : position + 30]!r} at column {position + 1}, "
                            "expected :block:count"
                        )
                    blocks.append(int(match[1]))
                    counts.append(int(match[2]))
                    position = match.end()
                    while position < len(text) and text[position] == " ":
                        position += 1
                if len(blocks) == seen:
                    raise PhaseFileError(
                        f"{path}:{number}: the vector is empty: an interval executes something"
                    )
                starts.append(len(blocks))
    except (OSError, EOFError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise PhaseFileError(f"{path}: cannot be read: {reason}") from None
    if len(starts) == 1:
        raise PhaseFileError(f"{path}: holds no vector: was the program shorter than an interval?")
    numbers = np.array(blocks, np.int64)
    return BlockVectors(
        np.array(counts, np.int64), numbers - min(1, int(numbers.min())), np.array(starts, np.int64)
    )


def write_bb(path: Path, vectors: BlockVectors) -> None:
    """Write a .bb file, blocks numbered from 1."""

    def write(part: Path) -> None:
        with part.open("w", encoding="ascii") as file:
            for row in range(vectors.n_intervals):
                mine = slice(vectors.starts[row], vectors.starts[row + 1])
                pairs = zip(vectors.blocks[mine].tolist(), vectors.counts[mine].tolist(), strict=True)
                file.write("T" + "".join(f":{block + 1}:{count} " for block, count in pairs) + "\n")

    write_atomically(path, write)


def write_columns(path: Path, rows: Sequence[tuple[object, object]]) -> None:
    """Write simulation points (interval, cluster), weights (weight, cluster) or labels (cluster, distance)."""
    text = "".join(f"{first} {second}\n" for first, second in rows)

    def write(part: Path) -> None:
        part.write_text(text, encoding="ascii")

    write_atomically(path, write)


def read_columns(path: Path) -> list[tuple[float, float]]:
    """Read a file of two columns. Raises `PhaseFileError`."""
    rows = []
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise PhaseFileError(f"{path}: cannot be read: {error}") from None
    for number, line in enumerate(lines, 1):
        fields = line.split()
        if not fields:
            continue
        try:
            first, second = map(float, fields)
        except ValueError:
            raise PhaseFileError(f"{path}:{number}: got {line[:40]!r}, expected two numbers") from None
        rows.append((first, second))
    return rows
