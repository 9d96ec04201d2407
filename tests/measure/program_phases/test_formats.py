"""Files of vectors and points: what is written is read back, and what is no such file is refused by line."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from measure.errors import StoreError
from measure.program_phases import bbv_files as formats
from measure.program_phases.bbv import BasicBlockVectors, from_dense
from measure.program_phases.bbv_files import PhaseFileError, read_bb, write_bb

ROWS = st.lists(
    st.dictionaries(st.integers(0, 10**12), st.integers(1, 10**9), min_size=1, max_size=8),
    min_size=1,
    max_size=600,
)


def rows_of(vectors: BasicBlockVectors) -> list[dict[int, int]]:
    spans = zip(vectors.indptr[:-1], vectors.indptr[1:], strict=True)
    ids = vectors.block_ids[vectors.indices]
    return [dict(zip(ids[a:b].tolist(), vectors.data[a:b].tolist(), strict=True)) for a, b in spans]


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows=ROWS, suffix=st.sampled_from([".bb", ".bb.gz"]))
def test_vectors_are_read_back(
    rows: list[dict[int, int]], suffix: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("bb")
    text = "".join("T" + "".join(f":{block}:{count} " for block, count in row.items()) + "\n" for row in rows)
    (folder / "plain.bb").write_text(text)
    vectors = read_bb(folder / "plain.bb")
    assert rows_of(vectors) == rows
    write_bb(folder / f"again{suffix}", vectors)
    again = read_bb(folder / f"again{suffix}")
    assert rows_of(again) == rows
    assert np.array_equal(again.indices, vectors.indices)
    assert vectors.instructions.tolist() == [sum(row.values()) for row in rows]


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    pairs=st.lists(
        st.tuples(st.floats(0, 1e300, allow_subnormal=False), st.integers(0, 10**9)), min_size=1, max_size=20
    )
)
def test_weights_labels_and_points_are_read_back(
    pairs: list[tuple[float, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("pairs")
    real = np.array([pair[0] for pair in pairs])
    whole = np.array([pair[1] for pair in pairs])
    formats.write_weights(folder / "w", real, whole)
    formats.write_labels(folder / "l", whole, real)
    formats.write_simpoints(folder / "s", whole, whole)
    for read, first, second in (
        (formats.read_weights(folder / "w"), real, whole),
        (np.loadtxt(folder / "l", ndmin=2).T, whole, real),
        (formats.read_simpoints(folder / "s"), whole, whole),
    ):
        assert np.array_equal(read[0], first)
        assert np.array_equal(read[1], second)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("T:0:4 :1:8 \nT:1:12 \n", [{0: 4, 1: 8}, {1: 12}]),  # QEMU numbers from 0
        (
            "T:45:1024   :189:99634   \n\n# Thread 1\n#   Total intervals: 1\n",
            [{45: 1024, 189: 99634}],
        ),  # Valgrind
        ("T: 1 :4  : 2: 8\r\nT:7:1\r\n", [{1: 4, 2: 8}, {7: 1}]),
        ("T:9:1 :3:2 :5:3 \n", [{9: 1, 3: 2, 5: 3}]),  # the order stays
    ],
)
def test_accepts_what_tools_write(text: str, rows: list[dict[int, int]], tmp_path: Path) -> None:
    path = tmp_path / "run.bb"
    path.write_bytes(text.encode())
    read = rows_of(read_bb(path))
    assert read == rows
    assert [list(row) for row in read] == [list(row) for row in rows]


GOOD = "T:1:4 :2:8 \n" * 300


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "got no interval, expected lines such as 'T:1:48 :3:24'"),
        ("# only a comment\n", 1, "got no interval"),
        (GOOD + "T\n" + GOOD, 301, "got an interval without blocks"),
        (
            "T:1:4 :2:8 \nT:2:12",
            2,
            "got 'T:2:12' as the last words, and no newline behind: the file was cut off",
        ),
        (GOOD + "T:1:4 :2", 301, "got ':2' at column 7"),
        (GOOD + "T:1:4 :2:", 301, "got ':2:' at column 7"),
        (GOOD + "T:1:4 :2:8x :3:1\n", 301, "got ':2:8x :3:1' at column 7"),
        ("T:1:4 :-2:8\n", 1, "got ':-2:8' at column 7"),
        ("T:1:4 :2:-8\n", 1, "got ':2:-8' at column 7"),
        ("T:1:4.5\n", 1, "got ':1:4.5' at column 2"),
        ("T:1:4 2:8\n", 1, "got '2:8' at column 7"),
        ("T:1:99999999999999999999999999\n", 1, "got ':1:999999999999999999999...' at column 2"),
        (":1:4\n", 1, "got ':1:4', expected 'T'"),
        ("T:1:4\n\x00\x00\x00\n", 2, r"got '\x00\x00\x00', expected 'T'"),
        (GOOD + "T:1:4 :2:8 :1:1\n", 301, "got block 1 twice"),
        (GOOD + GOOD + "T:1:0 :2:0\n", 601, "got counts that are all 0"),
    ],
)
def test_refuses_by_line(text: str, line: int, message: str, tmp_path: Path) -> None:
    path = tmp_path / "run.bb"
    path.write_text(text)
    with pytest.raises(PhaseFileError, match=re.escape(f"{path}:{line}: {message}")):
        read_bb(path)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows=ROWS, share=st.floats(0, 1))
def test_a_file_that_was_cut_off_is_refused_by_line(
    rows: list[dict[int, int]], share: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    write_bb(folder / "whole.bb", from_rows(rows))
    whole = (folder / "whole.bb").read_bytes()
    kept = whole[: int(share * (len(whole) - 1))]
    (folder / "cut.bb").write_bytes(kept)
    if kept.endswith(b"\n"):
        assert rows_of(read_bb(folder / "cut.bb")) == rows[: kept.count(b"\n")]
    else:
        line = kept.count(b"\n") + 1
        with pytest.raises(PhaseFileError, match=rf"cut\.bb:{line}: ") as refused:
            read_bb(folder / "cut.bb")
        assert not kept or "no newline behind: the file was cut off" in str(refused.value)


def from_rows(rows: list[dict[int, int]]) -> BasicBlockVectors:
    ids = sorted({block for row in rows for block in row})
    counts = [count for row in rows for count in row.values()]
    indices = [ids.index(block) for row in rows for block in row]
    indptr = np.cumsum([0, *(len(row) for row in rows)])
    return BasicBlockVectors(np.array(counts), np.array(indices, np.int32), indptr, len(ids), np.array(ids))


PIECES = [
    "T",
    ":",
    "1",
    "23",
    "0",
    " ",
    "\t",
    "\n",
    "\r",
    "#",
    "x",
    "T:1:4 ",
    "\nT:3:2 ",
    "T:7:1 :7:1 ",
    "9" * 19,
]


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(text=st.lists(st.sampled_from(PIECES), max_size=14).map("".join), newline=st.booleans())
def test_the_fast_reader_is_the_careful_one_or_leaves_it_to_it(
    text: str, newline: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("any") / "run.bb"
    path.write_bytes((text + "\n" * newline).encode())
    fast = formats._read_plain(path)
    if fast is not None:
        careful = formats.read_lines(path)
        for name in ("data", "indices", "indptr", "block_ids"):
            assert np.array_equal(getattr(fast, name), getattr(careful, name))
            assert getattr(fast, name).dtype == getattr(careful, name).dtype
        assert fast.n_dims == careful.n_dims


def test_refuses_compressed_data_cut_off_or_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "run.bb.gz"
    lines = "".join(f"T:{i + 1}:{i * 7919 % 1000 + 1} \n" for i in range(20000)).encode()
    whole = gzip.compress(lines)
    path.write_bytes(whole)
    assert read_bb(path).n_intervals == 20000
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(PhaseFileError, match=rf"{re.escape(str(path))}:\d+: got compressed data that are cut off"):
        read_bb(path)
    path.write_bytes(whole[:-8] + b"\x00" * 8)
    with pytest.raises(PhaseFileError, match="corrupt"):
        read_bb(path)


def test_refuses_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(PhaseFileError, match=r"none\.bb: cannot be read: No such file"):
        read_bb(tmp_path / "none.bb")


@pytest.mark.parametrize(
    ("reader", "text", "line", "message"),
    [
        ("read_simpoints", "3 0\n4\n", 2, "got '4', expected an interval and a phase, such as '12 0'"),
        ("read_simpoints", "3 0\n-1 1\n", 2, "got '-1 1', expected an interval and a phase"),
        ("read_weights", "0.5 0\nnan 1\n", 2, "got 'nan 1', expected a weight and a phase"),
        ("read_weights", "0.5 0 7\n", 1, "got '0.5 0 7', expected a weight and a phase"),
        ("read_weights", "", 1, "got no lines, expected a weight and a phase"),
    ],
)
def test_refuses_other_files_by_line(reader: str, text: str, line: int, message: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    with pytest.raises(PhaseFileError, match=re.escape(f"{path}:{line}: {message}")):
        getattr(formats, reader)(path)


def test_a_table_and_its_vectors() -> None:
    vectors = from_dense([[0, 3, 1], [2, 0, 0], [0, 0, 5]])
    assert rows_of(vectors) == [{2: 3, 3: 1}, {1: 2}, {3: 5}]
    with pytest.raises(ValueError, match=r"got a dimension outside 0 to 0"):
        BasicBlockVectors(np.ones(1, np.int64), np.ones(1, np.int32), np.array([0, 1]), 1, np.array([1]))


def test_points_and_weights_are_joined_by_phase(tmp_path: Path) -> None:
    points, weights = tmp_path / "x.simpoints", tmp_path / "x.weights"
    points.write_text("12 1\n7 0\n40 5\n")
    weights.write_text("0.5 5\n0.25 0\n0.26 1\n")  # rounded by the tool that wrote them
    found = formats.read_points(points, weights)
    assert found.intervals.tolist() == [7, 12, 40]
    assert found.phases.tolist() == [0, 1, 5]
    np.testing.assert_allclose(found.weights, np.array([0.25, 0.26, 0.5]) / 1.01)
    for text, message in (
        ("0.5 5\n0.5 0\n", "phases unlike those of .* (phase 1 is in one alone)"),
        ("0.5 5\n0.5 0\n0.1 0\n0.1 1\n", "got phase 0 more than once"),
        ("0 5\n0 0\n0 1\n", "got weights that are all 0"),
    ):
        weights.write_text(text)
        pattern = message.replace("(", r"\(").replace(")", r"\)")
        with pytest.raises(PhaseFileError, match=rf"x\.weights: .*{pattern}"):
            formats.read_points(points, weights)


def test_nothing_is_left_of_what_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "x.bb").mkdir()
    with pytest.raises(StoreError, match=r"x\.bb cannot be written"):
        write_bb(tmp_path / "x.bb", from_dense([[1]]))
    assert [path.name for path in tmp_path.iterdir()] == ["x.bb"]
