"""The host as a campaign's machine: the text that identifies it in plans and results."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import yaml

from measure.host.metrics import without_kernel
from measure.host.processor import default_processor, identity

NANOSECONDS_HZ = 1_000_000_000
"""The clock of a host's traces: the time of records is processor time in nanoseconds."""


@dataclass(frozen=True)
class HostDescription:
    """What a run on the host needs. ``processor``: its number; ``without_kernel``: count the program itself only."""

    processor: int
    without_kernel: bool


def host_text(processor: int | None) -> str:
    """The description of this machine as YAML; ``processor``: None for the default one.

    Raises ValueError for a processor that this process may not use.
    """
    allowed = sorted(os.sched_getaffinity(0))
    if processor is not None and processor not in allowed:
        raise ValueError(f"got processor {processor}, expected one that may be used: {', '.join(map(str, allowed))}")
    fields: dict[str, Any] = {
        "host": "perf", "processor": default_processor() if processor is None else processor,
        "without_kernel": without_kernel(), "identity": identity(),
    }  # fmt: skip
    return yaml.safe_dump(fields, sort_keys=False)


def parse_host(text: str) -> HostDescription:
    """What `host_text` wrote."""
    fields = yaml.safe_load(text)
    return HostDescription(fields["processor"], fields["without_kernel"])


def identity_of(text: str) -> dict[str, str]:
    """The identity of the machine in what `host_text` wrote."""
    return dict(yaml.safe_load(text)["identity"])
