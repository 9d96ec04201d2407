"""Text as other systems and languages write it: it is read, or the message says how to convert it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from measure.foreign.formats import read_trace
from measure.foreign.trace import TraceFileError

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
        "`iconv -f UTF-16LE -t UTF-8 bad > converted`"
    )
    assert refused(tmp_path, "a,power [µW]\n1,2\n".encode("cp1252")) == (
        "bad is neither text (byte 9 is no UTF-8) nor Parquet: expected a trace of a known format; if it is text in "
        "another encoding, convert it: `iconv -f WINDOWS-1252 -t UTF-8 bad > converted`"
    )
    assert "is no UTF-16-LE) nor Parquet" in refused(tmp_path, CSV.encode("utf-16")[:-1])
