"""Text as other systems and languages write it: it is read, or the message says how to convert it."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from measure.foreign.errors import TraceFileError
from measure.foreign.formats import read_trace

CSV = '"a","b"\r\n1,2\r\n3,4\r\n'


def refused(folder: Path, content: str | bytes, format: str | None = None) -> str:
    path = folder / "bad"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(TraceFileError) as caught:
        read_trace(path, format)
    return str(caught.value).replace(f"{folder}/", "")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_text_with_a_byte_order_mark_is_read(tmp_path: Path, encoding: str) -> None:
    """PowerShell's redirection and the "Unicode text" of spreadsheets are UTF-16."""
    path = tmp_path / "trace"
    path.write_bytes(CSV.encode(encoding))
    trace = read_trace(path)
    assert trace.metrics == ("a", "b")
    np.testing.assert_array_equal(trace.values, [[1, 2], [3, 4]])
    perf = "     1.000000000;7;;a;9;100.00;;\r\n     2.000000000;8;;a;9;100.00;;\r\n"
    path.write_bytes(perf.encode(encoding))
    assert read_trace(path).format == "perf-csv"


def test_text_in_another_encoding_says_how_to_convert_it(tmp_path: Path) -> None:
    assert refused(tmp_path, CSV.encode("utf-16-le")) == (
        "bad:1: got a NUL byte, expected text: if it is UTF-16 without a byte order mark, convert it: "
        "`iconv -f UTF-16LE -t UTF-8 < bad > converted`"
    )
    assert refused(tmp_path, "a,power [µW]\n1,2\n".encode("cp1252")) == (
        "bad is neither text (byte 9 is no UTF-8) nor Parquet: expected a trace of a known format; if it is text in "
        "another encoding, convert it: `iconv -f WINDOWS-1252 -t UTF-8 < bad > converted`"
    )
    assert "is no UTF-16-LE) nor Parquet" in refused(tmp_path, CSV.encode("utf-16")[:-1])


PERF_LINE = "     0.020407977;5.98;msec;task-clock;5980483;100.00;0.299;CPUs utilized\n"
PERF_OBJECT = (
    '{"interval" : 0.020407977, "counter-value" : "5.980000", "unit" : "msec", "event" : "task-clock", '
    '"event-runtime" : 5980483, "pcnt-running" : 100.00, "metric-value" : 0.29, "metric-unit" : "CPUs utilized"}\n'
)


@pytest.mark.parametrize("separator", [";", ",", "|", "\t"])
@pytest.mark.parametrize("time", ["0.020407977", "0,020407977"])
def test_perf_with_decimal_commas_is_to_be_recorded_in_the_locale_c(tmp_path: Path, separator: str, time: str) -> None:
    """perf writes the time with a point in every locale, and the rest by the locale."""
    line = PERF_LINE.replace(".", ",").replace("0,020407977", time).replace(";", separator)
    for first in ("", "# started on Sat Nov 21 12:23:11 2026\n\n"):
        message = refused(tmp_path, first + line)
        assert message.startswith(f"bad:{1 + first.count(chr(10))}: got ")
        assert message.endswith(
            ", with decimal commas, expected decimal points: perf writes numbers by the locale; record again with "
            "`LC_ALL=C perf stat ...`"
        )


def test_perf_json_with_decimal_commas_is_to_be_recorded_in_the_locale_c(tmp_path: Path) -> None:
    for text in (PERF_OBJECT.replace("100.00", "100,00"), PERF_OBJECT.replace("5.980000", "5,980000")):
        assert "with decimal commas, expected decimal points" in refused(tmp_path, text)
    assert "is the line whole?" in refused(tmp_path, PERF_OBJECT + PERF_OBJECT[:40])
    assert "is the line whole?" in refused(tmp_path, PERF_LINE + PERF_LINE[:40])


def test_a_table_with_decimal_commas_says_how_to_convert_it(tmp_path: Path) -> None:
    advice = (
        ", expected a number with a decimal point, without separators of thousands: export the table so; where fields "
        "are separated by semicolons or tabs and commas are decimal commas, `tr , . < bad > converted` does it"
    )
    assert refused(tmp_path, "time;a;b\n0.1;2;3\n0.2;12,5;3\n") == f"bad:3: column 'a': got '12,5'{advice}"
    assert refused(tmp_path, "time;a;b\n1;2;3\n1,5;12;3\n") == f"bad:3: column 'time': got '1,5'{advice}"
    for number in ("1.234.567", "1.234,5"):
        assert refused(tmp_path, f"a;b\n1;{number}\n") == f"bad:2: column 'b': got '{number}'{advice}"
    packed = refused(tmp_path, gzip.compress(b"a;b\n1;1,5\n"))
    assert "`gzip -dc bad | tr , . > converted` does it" in packed
    assert refused(tmp_path, 'a,b\n1,"1,234,567"\n') == f"bad:2: column 'b': got '1,234,567'{advice}"


@pytest.mark.parametrize("separator", [";", ","])
@pytest.mark.parametrize("point", [".", ","])
def test_perf_without_intervals_is_to_be_recorded_with_them(tmp_path: Path, separator: str, point: str) -> None:
    """The first counts were taken for the names of metrics."""
    for line in (
        "0.93;msec;task-clock;927901;100.00;0.009;CPUs utilized",
        "<not supported>;;cycles;0;100.00;;",
        "64;;page-faults;0.78%;557540;100.00;115.229;K/sec",
    ):
        text = f"# started on Sat Nov 21 12:23:11 2026\n\n{line}\n".replace(".", point).replace(";", separator)
        assert refused(tmp_path, text) == (
            "bad: got perf's counts of a whole run, expected those of each interval: add `-I 10` to `perf stat`, for "
            "intervals of 10 ms"
        )


def zstandard(content: bytes) -> bytes:
    packed: bytes = pa.compress(content, "zstd", asbytes=True)
    return packed


PACKED = [gzip.compress, bz2.compress, lzma.compress, zstandard]


@pytest.mark.parametrize("pack", PACKED)
def test_compressed_files_are_read(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    """A gzip'd CSV was said to be text in another encoding."""
    path = tmp_path / "trace"
    pd.DataFrame({"a": [1, 3], "b": [2, 4]}).to_parquet(path)
    likwid = b"# GID|EventCount|CpuCount|Total runtime [s]|a|b\n1 2 1 0.1 1 2\n1 2 1 0.2 3 4\n"
    for content, format in ((CSV.encode(), "csv"), (path.read_bytes(), "parquet"), (likwid, "likwid")):
        path.write_bytes(pack(content))
        trace = read_trace(path)
        assert (trace.format, trace.metrics) == (format, ("a", "b"))
        np.testing.assert_array_equal(trace.values, [[1, 2], [3, 4]])


@pytest.mark.parametrize("pack", PACKED)
def test_compressed_files_that_are_cut_off_are_refused(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    packed = pack(CSV.encode() * 20)
    for damaged in (packed[:-9], packed[: len(packed) // 2]):
        assert refused(tmp_path, damaged).startswith("bad: got compressed data that are cut off or corrupt (")


def test_archives_are_refused_with_what_they_are(tmp_path: Path) -> None:
    assert refused(tmp_path, b"PK\x03\x04" + bytes(30)) == (
        "bad is a ZIP archive or a spreadsheet, expected a trace of a known format: unpack it, or export the "
        "spreadsheet as CSV"
    )
    assert "bad is the samples of `perf record`, expected a trace" in refused(tmp_path, b"PERFILE2" + bytes(99))
