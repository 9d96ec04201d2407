"""SimPoint's files: what other tools write is read, and what is damaged is refused with its line."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from measure.simpoint.formats import (
    BlockVectors,
    PhaseFileError,
    read_bb,
    read_columns,
    write_bb,
    write_columns,
)


def vectors_of(rows: list[dict[int, int]]) -> BlockVectors:
    return BlockVectors(
        np.array([count for row in rows for count in row.values()], np.int64),
        np.array([block for row in rows for block in row], np.int64),
        np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64),
    )


rows = st.lists(
    st.dictionaries(st.integers(1, 50), st.integers(1, 10**12), min_size=1, max_size=8),
    min_size=1,
    max_size=12,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows)
def test_round_trip(tmp_path: Path, given_rows: list[dict[int, int]]) -> None:
    given_rows[0][0] = 7  # block 0 is there, so that numbers are what they were
    vectors = vectors_of(given_rows)
    write_bb(tmp_path / "x.bb", vectors)
    again = read_bb(tmp_path / "x.bb")
    assert np.array_equal(again.counts, vectors.counts)
    assert np.array_equal(again.blocks, vectors.blocks)
    assert np.array_equal(again.starts, vectors.starts)
    assert again.instructions.tolist() == [sum(row.values()) for row in given_rows]


def test_what_other_tools_write(tmp_path: Path) -> None:
    path = tmp_path / "x.bb"
    path.write_text("# a comment\nT:1:5 :3:10 \n\nT:2:7")  # no newline at the end: not lost
    assert read_bb(path).blocks.tolist() == [0, 2, 1]
    path.write_text("T:0:5 :2:10\nT:1:7\n")  # numbered from 0
    assert read_bb(path).blocks.tolist() == [0, 2, 1]
    packed = tmp_path / "x.bb.gz"
    packed.write_bytes(gzip.compress(b"T:1:5 \n"))
    assert read_bb(packed).n_intervals == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("T:1:5 \nT:1:x \n", "x.bb:2: got ':1:x' at column 2, expected :block:count"),
        ("T:1:5 :2\n", "x.bb:1: got ':2' at column 7, expected :block:count"),
        ("T:1:5 \n:2:3\n", "x.bb:2: got ':2:3', expected a vector"),
        ("T:1:5\nT\n", "x.bb:2: the vector is empty"),
        ("T:1:-5\n", "x.bb:1: got ':1:-5'"),
        ("# nothing\n", "x.bb: holds no vector"),
        ("T:1:\xff\n", "x.bb: cannot be read"),
    ],
)
def test_damaged_files(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "x.bb"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(PhaseFileError, match=message.replace(".", r"\.")):
        read_bb(path)


def test_missing_and_truncated_files(tmp_path: Path) -> None:
    with pytest.raises(PhaseFileError, match=r"none\.bb: cannot be read: No such file"):
        read_bb(tmp_path / "none.bb")
    packed = tmp_path / "x.bb.gz"
    packed.write_bytes(gzip.compress(b"T:1:5 \n" * 100)[:20])
    with pytest.raises(PhaseFileError, match="cannot be read"):
        read_bb(packed)


def test_columns(tmp_path: Path) -> None:
    path = tmp_path / "x.simpoints"
    write_columns(path, [(12, 0), (7, 1)])
    assert path.read_text() == "12 0\n7 1\n"
    assert read_columns(path) == [(12.0, 0.0), (7.0, 1.0)]
    path.write_text("12 0\n7\n")
    with pytest.raises(PhaseFileError, match=r"x\.simpoints:2: got '7', expected two numbers"):
        read_columns(path)
