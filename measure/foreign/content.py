"""Bytes and text of trace files, plain or compressed, as their first bytes tell."""

from __future__ import annotations

import bz2
import codecs
import gzip
import lzma
import zlib
from collections.abc import Callable
from pathlib import Path
from shlex import quote
from typing import IO, Any

from measure.foreign.errors import TraceFileError


def _open_zstandard(file: IO[bytes]) -> Any:
    import pyarrow as pa

    return pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd")


_COMPRESSED: dict[bytes, tuple[str, Callable[[IO[bytes]], Any]]] = {
    b"\x1f\x8b": ("gzip -dc", gzip.open),
    b"BZh": ("bzip2 -dc", bz2.open),
    b"\xfd7zXZ\0": ("xz -dc", lzma.open),
    b"\x28\xb5\x2f\xfd": ("zstd -dc", _open_zstandard),
}
"""First bytes of compressed files to the command that decompresses such a file, and what opens it."""

_ARCHIVES = {
    b"PK\x03\x04": ("a ZIP archive or a spreadsheet", "unpack it, or export the spreadsheet as CSV"),
    b"\x04\x22\x4d\x18": ("a file that lz4 has compressed", "decompress it: `lz4 -d`"),
    b"7z\xbc\xaf\x27\x1c": ("a 7z archive", "unpack it: `7z x`"),
    b"\x1f\x9d": ("a file that compress has compressed", "decompress it: `gzip -d`"),
    b"PERFILE2": ("the samples of `perf record`", "count with `perf stat -I 10 -x\\;` instead"),
    b"\x89HDF\r\n": ("an HDF5 file", "export its table as CSV or Parquet"),
}
"""First bytes of other files to what they are, and what to do about them."""


_MAGIC_BYTES = 8


def read_content(path: Path, size: int = -1) -> bytes:
    """The first ``size`` bytes of a file, all by default, decompressed. Raises `TraceFileError` when it cannot be read,
    is damaged, or is compressed in an unknown way."""
    try:
        with path.open("rb") as file:
            start = file.read(_MAGIC_BYTES)
            file.seek(0)
            for magic, (what, advice) in _ARCHIVES.items():
                if start.startswith(magic):
                    raise TraceFileError(f"{path} is {what}, expected a trace of a known format: {advice}")
            opened = next((opened for magic, (_, opened) in _COMPRESSED.items() if start.startswith(magic)), None)
            if opened is None:
                return file.read(size)
            try:
                with opened(file) as plain:
                    content: bytes = plain.read() if size < 0 else plain.read(size)
                    return content
            except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
                raise TraceFileError(
                    f"{path}: got compressed data that are cut off or corrupt ({error}), expected a whole file"
                ) from None
    except OSError as error:
        raise TraceFileError(f"{path} cannot be read: {error.strerror or error}") from None


def is_compressed(path: Path) -> bool:
    """Whether the file is compressed in a known way. Raises `TraceFileError` when it cannot be read."""
    return _decompressor(path) is not None


def _decompressor(path: Path) -> str | None:
    """The command that decompresses the file to its standard output; None for one that is not compressed."""
    try:
        with path.open("rb") as file:
            start = file.read(_MAGIC_BYTES)
    except OSError as error:
        raise TraceFileError(f"{path} cannot be read: {error.strerror or error}") from None
    return next((command for magic, (command, _) in _COMPRESSED.items() if start.startswith(magic)), None)


def command_on(path: Path, command: str) -> str:
    """A shell command that applies ``command`` to the text of the file, and writes its output to ``converted``."""
    file = quote(str(path))
    decompress = _decompressor(path)
    return f"{decompress} {file} | {command} > converted" if decompress else f"{command} < {file} > converted"


def encoding_of(head: bytes) -> str:
    """The encoding of a text by its first bytes: UTF-16 or UTF-32 with a byte order mark, otherwise UTF-8."""
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "utf-32"
    return "utf-16" if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"


def read_text(path: Path) -> str:
    """The file as text, which may be compressed, or UTF-16 as Windows writes it. Raises `TraceFileError` when it cannot
    be read or is not text."""
    content = read_content(path)
    try:
        text = content.decode(encoding_of(content))
    except UnicodeDecodeError as error:
        raise TraceFileError(
            f"{path} is neither text (byte {error.start} is no {error.encoding.upper()}) nor Parquet: expected a trace "
            "of a known format; if it is text in another encoding, convert it: "
            f"`{command_on(path, 'iconv -f WINDOWS-1252 -t UTF-8')}`"
        ) from None
    if "\0" in text:
        raise TraceFileError(
            f"{path}:{text.count(chr(10), 0, text.index(chr(0))) + 1}: got a NUL byte, expected text: if it is UTF-16 "
            f"without a byte order mark, convert it: `{command_on(path, 'iconv -f UTF-16LE -t UTF-8')}`"
        )
    return text
