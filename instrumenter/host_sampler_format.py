"""Reads the trace that the sampler in a program for the host writes (format: ``runtime/host_sampler.c``)."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from instrumenter.errors import InstrumenterError

MAGIC = b"MSRHST2\n"
_HEADER_BYTES = len(MAGIC) + 8
_FIXED = 7


@dataclass(frozen=True)
class HostRecords:
    """The records of a run, all int64. Of each record, ``(n,)``: ``ticks`` of the time-stamp counter, processor time
    ``time_ns``, number of the ``processor``; totals at its end, ``(n,)``: context ``switches``, ``enabled_ns`` and
    ``running_ns`` of the counters, processes started ``forks``; ``events`` of each record ``(n, e)``; ``software``
    totals ``(n, s)``."""

    ticks: NDArray[np.int64]
    time_ns: NDArray[np.int64]
    processor: NDArray[np.int64]
    switches: NDArray[np.int64]
    enabled_ns: NDArray[np.int64]
    running_ns: NDArray[np.int64]
    forks: NDArray[np.int64]
    events: NDArray[np.int64]
    software: NDArray[np.int64]


def read_host_trace(data: bytes) -> HostRecords:
    """The records in a trace file. Raises `InstrumenterError` for another file, or one that ends inside a record."""
    if data[: len(MAGIC)] != MAGIC or len(data) < _HEADER_BYTES:
        raise InstrumenterError(
            f"not a host's trace: got {len(data)} bytes beginning {data[:8]!r}, expected {MAGIC!r} and a header"
        )
    n_columns, n_events = struct.unpack_from("=II", data, len(MAGIC))
    if not _FIXED + n_events <= n_columns <= 4096:
        raise InstrumenterError(f"corrupt host's trace: {n_columns} columns, of which {n_events} events")
    body = len(data) - _HEADER_BYTES
    if body % (8 * n_columns):
        raise InstrumenterError(
            f"the host's trace is cut: {body} bytes of records, expected a multiple of {8 * n_columns}; "
            "the program was ended before it wrote the rest"
        )
    table = np.frombuffer(data, "=u8", offset=_HEADER_BYTES).reshape(-1, n_columns).astype(np.int64)
    ticks, time_ns, switches, enabled, running, processor, forks = table[:, :_FIXED].T
    last_event = _FIXED + n_events
    return HostRecords(
        ticks, time_ns, processor, switches, enabled, running, forks,
        table[:, _FIXED:last_event], table[:, last_event:],
    )  # fmt: skip
