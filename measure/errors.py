"""Errors of the measure package; the message is meant for the user."""

from __future__ import annotations


class MeasureError(Exception):
    """Base class of this package's errors. ``exit_status``: of a command that ends with it."""

    exit_status = 1


class CampaignError(MeasureError):
    """A campaign file is not valid; the message names file and line."""

    exit_status = 2


class ArgumentError(CampaignError, ValueError):
    """An argument of a library call, or an option of a command, has a value that is not allowed."""


class StoreError(MeasureError):
    """Results cannot be written, read, or belong to something else."""


class RunError(MeasureError):
    """One run failed: the program failed, or its trace cannot be used.

    ``program_status``: the exit status of a program that ended with another one than the expected; ``at_limit``:
    whether the program executed as many instructions as it may.
    """

    def __init__(self, message: str, *, program_status: int | None = None, at_limit: bool = False) -> None:
        super().__init__(message)
        self.program_status, self.at_limit = program_status, at_limit


class TakesTurnsError(RunError):
    """The program starts threads or processes, so that a second run has no place for what it counts."""


class FewRecordsError(RunError):
    """The program is too short for the sampling interval, so that the trace of a run has too few records."""


def wanted_status(expected: int) -> str:
    """What is added to the words for the end of a program that should have had the exit status ``expected``."""
    signal = f" (signal {expected - 128})" if expected > 128 else ""
    return f", expected {expected}{signal}" if expected else ""


def ended_with(status: int, expected: int) -> str:
    """The end of a program with a wrong exit status, in words."""
    return f"ended with exit status {status}{wanted_status(expected)}"
