"""Reads the trace that the sampler in a program for the host writes (format: ``runtime/host_sampler.c``)."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from instrumenter.errors import InstrumenterError

MAGIC = b"MSRHST3\n"
_HEADER_BYTES = len(MAGIC) + 16
_FIXED = 10


@dataclass(frozen=True)
class HostRecords:
    """The records of a run, all int64. Of each record, ``(n,)``: ``ticks`` of the time-stamp counter, processor time
    ``time_ns``, number of the ``processor``; totals at its end, ``(n,)``: context ``switches``, ``enabled_ns`` and
    ``running_ns`` of the counters, processes started ``forks``, processor time of other threads ``other_threads_ns``
    and of processes that this one waited for ``children_ns``; of each record: processor time of the main thread, until
    the sampler came, by its own clock ``main_thread_ns``; ``events`` of each record ``(n, e)``; ``software`` totals
    ``(n, s)``.
    ``complete``: whether the program ended in a way that the sampler saw, so that its last records are there."""

    ticks: NDArray[np.int64]
    time_ns: NDArray[np.int64]
    processor: NDArray[np.int64]
    switches: NDArray[np.int64]
    enabled_ns: NDArray[np.int64]
    running_ns: NDArray[np.int64]
    forks: NDArray[np.int64]
    other_threads_ns: NDArray[np.int64]
    children_ns: NDArray[np.int64]
    main_thread_ns: NDArray[np.int64]
    events: NDArray[np.int64]
    software: NDArray[np.int64]
    complete: bool


def read_host_trace(data: bytes) -> HostRecords:
    """The records in a trace file. Raises `InstrumenterError` for another file, or one that ends inside a record."""
    if data[: len(MAGIC)] != MAGIC or len(data) < _HEADER_BYTES:
        raise InstrumenterError(
            f"not a host's trace: got {len(data)} bytes beginning {data[:8]!r}, expected {MAGIC!r} and a header"
        )
    n_columns, n_events, complete, _ = struct.unpack_from("=IIII", data, len(MAGIC))
    if not _FIXED + n_events <= n_columns <= 4096:
        raise InstrumenterError(f"corrupt host's trace: {n_columns} columns, of which {n_events} events")
    body = len(data) - _HEADER_BYTES
    if body % (8 * n_columns):
        raise InstrumenterError(
            f"the host's trace is cut: {body} bytes of records, expected a multiple of {8 * n_columns}; "
            "the program was ended before it wrote the rest"
        )
    table = np.frombuffer(data, "=u8", offset=_HEADER_BYTES).reshape(-1, n_columns).astype(np.int64)
    ticks, time_ns, switches, enabled, running, processor, forks, threads, children, main_thread = table[:, :_FIXED].T
    last_event = _FIXED + n_events
    return HostRecords(
        ticks, time_ns, processor, switches, enabled, running, forks, threads, children, main_thread,
        table[:, _FIXED:last_event], table[:, last_event:], bool(complete),
    )  # fmt: skip
