"""Reads the trace that the in-guest sampler writes (format: ``runtime/sampler.h``)."""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

from instrumenter.errors import InstrumenterError

MAGIC = b"MSRTRC1\n"
TRACE_PATH = "/measure/trace.bin"
_HEADER_BYTES = len(MAGIC) + 8


def read_sampler_trace(data: bytes) -> tuple[tuple[str, ...], NDArray[np.uint64]]:
    """Columns and records ``(n, c)`` of a sampler trace.

    Hardware columns have the events of each interval; software columns (``software0``...) are running
    totals. Raises `InstrumenterError` for data that is not such a trace or was cut inside a record.
    """
    if data[: len(MAGIC)] != MAGIC or len(data) < _HEADER_BYTES:
        raise InstrumenterError(
            f"not a sampler trace: got {len(data)} bytes beginning {data[:8]!r}, expected {MAGIC!r} and a header"
        )
    n_columns, n_hardware = struct.unpack_from("<II", data, len(MAGIC))
    if not 2 + n_hardware <= n_columns <= 4096:
        raise InstrumenterError(f"corrupt sampler trace: {n_columns} columns, of which {n_hardware} hardware")
    body = len(data) - _HEADER_BYTES
    if body % (8 * n_columns):
        raise InstrumenterError(
            f"the sampler trace is cut: {body} bytes of records, expected a multiple of {8 * n_columns}; "
            "the program was ended before it wrote the rest"
        )
    columns = ["cycle", "instret", *(f"hpmcounter{n + 3}" for n in range(n_hardware))]
    columns += [f"software{n}" for n in range(n_columns - len(columns))]
    values = np.frombuffer(data, "<u8", offset=_HEADER_BYTES).reshape(-1, n_columns).astype(np.uint64)
    return tuple(columns), values
