"""The error of a trace file."""

from __future__ import annotations

from measure.errors import MeasureError


class TraceFileError(MeasureError):
    """A trace file cannot be used; the message names file and line."""

    exit_status = 2
