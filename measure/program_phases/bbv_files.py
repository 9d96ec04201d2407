"""Files of basic block vectors and simulation points, as SimPoint, Valgrind's exp-bbv, QEMU and gem5 write them.

``.bb``: a line ``T:block:count :block:count ...`` an interval, plain or gzip'd; simpoints ``interval phase``; weights
``weight phase``; labels ``phase distance``. Anything else is refused. So is a ``.bb`` whose last line has no newline:
every tool that writes such files ends each line with one, so the file was cut off, perhaps inside a number (SimPoint
3.2 drops such a line silently). A file cut off exactly behind a newline looks complete. Files are written whole or
not at all; `measure.errors.StoreError` reports a failure.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from measure.errors import MeasureError
from measure.program_phases.bbv import BasicBlockVectors
from measure.program_phases.points import SimulationPoints
from measure.result_files import write_atomically

_INTERVAL = re.compile(rb"T(?:[ \t]*+:[ \t]*+\d{1,18}+[ \t]*+:[ \t]*+\d{1,18}+)++[ \t\r]*+")
_PAIR = re.compile(rb"[ \t]*+:[ \t]*+\d{1,18}+[ \t]*+:[ \t]*+\d{1,18}+(?![^ \t\r:])")
_BATCH = 256  # intervals whose text is parsed together
_CUT_OFF = (
    ", and no newline behind: the file was cut off, so that its last interval may be wrong. Write it again; if it is "
    "whole, end its last line with a newline"
)


class PhaseFileError(MeasureError):
    """A file of vectors, points, weights or labels is not valid; the message names file and line."""

    exit_status = 2


def read_bb(path: Path | str) -> BasicBlockVectors:
    """Read basic block vectors; blank lines and ``#`` comments are skipped.

    Dimensions are the blocks in ascending order of their numbers, whatever the smallest number is.
    Raises `PhaseFileError`.
    """
    path = Path(path)
    return _read_plain(path) or read_lines(path)


def _read_plain(path: Path) -> BasicBlockVectors | None:
    """As `read_lines`, but fast; None for unusual or invalid text, which `read_lines` must read or report."""
    from measure.program_phases.text_kernel import has_twice, read_rows

    try:
        with path.open("rb") as plain:
            packed = plain.read(2) == b"\x1f\x8b"
        text = gzip.decompress(path.read_bytes()) if packed else path.read_bytes()
    except (OSError, EOFError, zlib.error):
        return None
    most = text.count(b":") // 2 + 1
    numbers, counts, ends = (np.empty(size, np.int64) for size in (most, most, text.count(b"\n")))
    rows = read_rows(np.frombuffer(text, np.uint8), numbers, counts, ends)
    if rows < 1:
        return None
    del text
    ends = ends[:rows]
    numbers, counts = numbers[: ends[-1]], counts[: ends[-1]]
    ids, indices = _dimensions(numbers)
    if has_twice(indices, ends, np.full(len(ids), -1)):
        return None
    return BasicBlockVectors(counts, indices, np.concatenate(([0], ends)), len(ids), ids)


def _dimensions(numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The different block numbers, ascending, and the index into them of each of ``numbers``."""
    largest = int(numbers.max())
    if largest > 4 * len(numbers) + 1000:
        ids, indices = np.unique(numbers, return_inverse=True)
        return ids, indices.astype(np.int32)
    present = np.zeros(largest + 1, np.bool_)
    present[numbers] = True
    places = np.cumsum(present, dtype=np.int32) - np.int32(1)
    return np.flatnonzero(present), places[numbers]


def read_lines(path: Path) -> BasicBlockVectors:
    """As `read_bb`, line by line."""
    numbers: list[NDArray[np.int64]] = []
    counts: list[NDArray[np.int64]] = []
    lengths: list[NDArray[np.int64]] = []
    batch: list[bytes] = []
    at: list[int] = []

    def take() -> None:
        if not batch:
            return
        entries = np.array([line.count(b":") // 2 for line in batch], np.int64)
        text = b" ".join(line[1:] for line in batch).replace(b":", b" ")
        pairs = np.array(text.split(), dtype=np.int64).reshape(-1, 2)
        _check_batch(path, pairs, entries, at)
        numbers.append(pairs[:, 0].copy())
        counts.append(pairs[:, 1].copy())
        lengths.append(entries)
        batch.clear()
        at.clear()

    for number, line in _lines(path):
        if line.startswith(b"#"):
            continue
        whole = line.endswith(b"\n")
        line = line.rstrip(b"\n")
        if not _INTERVAL.fullmatch(line):
            raise PhaseFileError(f"{path}:{number}: {_complaint(line)}{'' if whole else _CUT_OFF}")
        if not whole:
            raise PhaseFileError(f"{path}:{number}: got '{_shown(line[-20:])}' as the last words{_CUT_OFF}")
        batch.append(line)
        at.append(number)
        if len(batch) == _BATCH:
            take()
    take()
    if not lengths:
        raise PhaseFileError(f"{path}:1: got no interval, expected lines such as 'T:1:48 :3:24'")
    ids, indices = np.unique(np.concatenate(numbers), return_inverse=True)
    indptr = np.concatenate(([0], np.cumsum(np.concatenate(lengths)))).astype(np.int64)
    return BasicBlockVectors(np.concatenate(counts), indices.astype(np.int32), indptr, len(ids), ids)


def write_bb(path: Path | str, vectors: BasicBlockVectors) -> None:
    """Write basic block vectors, gzip'd when the name ends in ``.gz``. Raises `StoreError` on failure."""
    ids = vectors.block_ids[vectors.indices]

    def text() -> Iterator[bytes]:
        for first, last in zip(vectors.indptr[:-1], vectors.indptr[1:], strict=True):
            row = zip(ids[first:last].tolist(), vectors.data[first:last].tolist(), strict=True)
            yield ("T" + "".join(f":{block}:{count} " for block, count in row) + "\n").encode()

    def write(part: Path) -> None:
        with gzip.open(part, "wb") if Path(path).suffix == ".gz" else part.open("wb") as file:
            file.writelines(text())

    write_atomically(Path(path), write)


def read_simpoints(path: Path | str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(p,) intervals and (p,) their phases. Raises `PhaseFileError`."""
    intervals, phases = _read_pairs(Path(path), _whole, _whole, "an interval and a phase, such as '12 0'")
    return np.array(intervals, np.int64), np.array(phases, np.int64)


def write_simpoints(path: Path | str, intervals: NDArray[Any], phases: NDArray[Any]) -> None:
    """Write ``interval phase`` lines. Raises `StoreError` on failure."""
    _write_pairs(Path(path), intervals, phases)


def read_weights(path: Path | str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """(p,) weights and (p,) their phases. Raises `PhaseFileError`."""
    weights, phases = _read_pairs(Path(path), _not_negative, _whole, "a weight and a phase, such as '0.25 0'")
    return np.array(weights, np.float64), np.array(phases, np.int64)


def write_weights(path: Path | str, weights: NDArray[Any], phases: NDArray[Any]) -> None:
    """Write ``weight phase`` lines that read back exactly. Raises `StoreError` on failure."""
    _write_pairs(Path(path), weights, phases)


def read_points(simpoints: Path | str, weights: Path | str) -> SimulationPoints:
    """Simulation points from two files, each point with the weight of its phase; weights are scaled to sum to 1.

    Raises `PhaseFileError`, also when the files have different phases.
    """
    intervals, phases = read_simpoints(simpoints)
    shares, of_phases = read_weights(weights)
    for path, numbers in ((simpoints, phases), (weights, of_phases)):
        repeated, times = np.unique(numbers, return_counts=True)
        if (times > 1).any():
            raise PhaseFileError(f"{path}: got phase {repeated[times > 1][0]} more than once, expected each phase once")
    unmatched = np.setxor1d(phases, of_phases)
    if len(unmatched):
        raise PhaseFileError(
            f"{weights}: got phases unlike those of {simpoints} (phase {unmatched[0]} is in one alone), "
            "expected the weights that were written with these points"
        )
    if shares.sum() <= 0:
        raise PhaseFileError(f"{weights}: got weights that are all 0, expected shares that sum to 1")
    order, other = np.argsort(phases), np.argsort(of_phases)
    return SimulationPoints(intervals[order], phases[order], shares[other] / shares.sum())


def write_labels(path: Path | str, labels: NDArray[Any], distances: NDArray[Any]) -> None:
    """Write ``phase distance`` lines that read back exactly. Raises `StoreError` on failure."""
    _write_pairs(Path(path), labels, distances)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the non-blank lines of a plain or gzip'd file with their numbers, from 1; lines keep their ends."""
    number = 0
    try:
        with path.open("rb") as plain:
            packed = plain.read(2) == b"\x1f\x8b"
        with gzip.open(path, "rb") if packed else path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise PhaseFileError(
            f"{path}:{number + 1}: got compressed data that are cut off or corrupt ({error}), expected a whole file"
        ) from error
    except OSError as error:
        raise PhaseFileError(f"{path}: cannot be read: {error.strerror or error}") from error


def _check_batch(path: Path, pairs: NDArray[np.int64], entries: NDArray[np.int64], at: list[int]) -> None:
    """Raise `PhaseFileError` for an interval without instructions or with a block listed twice."""
    row = np.repeat(np.arange(len(entries)), entries)
    idle = np.flatnonzero(np.bincount(row, weights=pairs[:, 1], minlength=len(entries)) <= 0)
    if len(idle):
        raise PhaseFileError(
            f"{path}:{at[idle[0]]}: got counts that are all 0, expected an interval that ran something"
        )
    order = np.lexsort((pairs[:, 0], row))
    again = (np.diff(row[order]) == 0) & (np.diff(pairs[order, 0]) == 0)
    if again.any():
        entry = order[int(again.argmax())]
        raise PhaseFileError(
            f"{path}:{at[row[entry]]}: got block {pairs[entry, 0]} twice, expected each block once an interval"
        )


def _complaint(line: bytes) -> str:
    """The error in a line that is no interval, in words."""
    expected = "expected 'T' and then ':block:count' for each block that ran, such as 'T:1:48 :3:24'"
    if not line.startswith(b"T"):
        return f"got '{_shown(line)}', {expected}"
    if not line[1:].strip():
        return f"got an interval without blocks, {expected}"
    place = 1
    while found := _PAIR.match(line, place):
        place = found.end()
    place = len(line) - len(line[place:].lstrip())
    return f"got '{_shown(line[place:].rstrip())}' at column {place + 1}, {expected}"


def _shown(text: bytes) -> str:
    shown = text[:24].decode("latin-1").encode("unicode_escape").decode("ascii")
    return shown + "..." if len(text) > 24 else shown


def _whole(text: bytes) -> int:
    if not re.fullmatch(rb"\d{1,18}", text):
        raise ValueError
    return int(text)


def _not_negative(text: bytes) -> float:
    value = float(text)
    if not 0 <= value < np.inf:
        raise ValueError
    return value


def _read_pairs(
    path: Path, left: Callable[[bytes], float], right: Callable[[bytes], float], expected: str
) -> tuple[list[float], list[float]]:
    """Two columns of a file, parsed by ``left`` and ``right``. Raises `PhaseFileError`."""
    firsts, seconds = [], []
    for number, line in _lines(path):
        try:
            first, second = line.split()
            firsts.append(left(first))
            seconds.append(right(second))
        except ValueError:
            got = _shown(line.rstrip(b"\n"))
            raise PhaseFileError(f"{path}:{number}: got '{got}', expected {expected}") from None
    if not firsts:
        raise PhaseFileError(f"{path}:1: got no lines, expected {expected}")
    return firsts, seconds


def _write_pairs(path: Path, left: NDArray[Any], right: NDArray[Any]) -> None:
    rows = zip(np.asarray(left).tolist(), np.asarray(right).tolist(), strict=True)
    text = "".join(f"{first!r} {second!r}\n" for first, second in rows).encode()
    write_atomically(path, lambda part: _write_bytes(part, text))


def _write_bytes(path: Path, text: bytes) -> None:
    path.write_bytes(text)
