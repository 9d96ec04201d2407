"""How busy this machine is, and how long this process has been running."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path


def load_per_processor() -> float:
    """Tasks that want to run, mean of the last minute, for each processor that this process may use; 0 if unknown.

    Work that keeps all processors busy takes longer by this fraction than on an idle machine.
    """
    try:
        return os.getloadavg()[0] / len(os.sched_getaffinity(0))
    except (OSError, AttributeError):
        return 0.0


def command_age_seconds(name: str) -> float:
    """`process_age_seconds` of a process that was started as the command ``name``; 0 in one that does other things,
    too, such as a notebook or a test."""
    return process_age_seconds() if Path(sys.argv[0]).name == name else 0.0


def command_processor_seconds(name: str) -> float:
    """Processor time that this process has taken, loading of its modules included, if it was started as the command
    ``name``; 0 in one that does other things, too."""
    return time.process_time() if Path(sys.argv[0]).name == name else 0.0


def process_age_seconds() -> float:
    """Time since this process was started, loading of its modules included; 0 if unknown."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started)
    except (OSError, AttributeError, ValueError, IndexError):
        return 0.0
