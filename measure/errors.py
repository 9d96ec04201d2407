"""Errors of the measure package; the message is meant for the user."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class MeasureError(Exception):
    """Base of what this package raises on purpose."""

    exit_status = 1


class CampaignError(MeasureError):
    """A campaign file is not valid; the message names file and line."""

    exit_status = 2


class StoreError(MeasureError):
    """Results cannot be written, read, or belong to something else."""


class RunError(MeasureError):
    """One run failed: the program ended badly, or its trace is of no use."""


def nearest(name: str, known: Iterable[str]) -> str:
    """``"; did you mean 'x'?"`` with the closest known name, or an empty string."""
    found = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.5)
    return f"; did you mean '{found[0]}'?" if found else ""
