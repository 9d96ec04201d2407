"""Files kept between processes under the user's cache directory; none is trusted, none is necessary."""

from __future__ import annotations

import os
import struct
import tempfile
import zlib
from pathlib import Path

_MAGIC = b"RVKEPT1\n"
_HEAD = struct.Struct("<8sI")


def cache_directory() -> Path:
    """Where everything compiled is kept (``$XDG_CACHE_HOME/perturbation``)."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "perturbation"


def read_checked(path: Path) -> bytes | None:
    """What `write_checked` wrote; None when there is nothing, or it is damaged."""
    try:
        raw = path.read_bytes()
    except OSError:
        return None
    if len(raw) < _HEAD.size:
        return None
    magic, checksum = _HEAD.unpack_from(raw)
    body = raw[_HEAD.size :]
    return body if magic == _MAGIC and checksum == zlib.crc32(body) else None


def write_checked(path: Path, body: bytes) -> None:
    """Write atomically; a cache that cannot be written is no reason to fail."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_HEAD.pack(_MAGIC, zlib.crc32(body)) + body)
            os.replace(temporary, path)
        except OSError:
            os.unlink(temporary)
    except OSError:
        return
