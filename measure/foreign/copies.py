"""Finds traces with the same numbers: copies of one file, or runs of a simulator without noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.listed_names import listed
from measure.foreign.trace import ForeignTrace
from measure.perturbation.uninformative_metrics import TIED
from measure.perturbation.wording import counted
from measure.stats.correlation import average_ranks

_SHOWN = 3


def copies(groups: Mapping[str, Sequence[ForeignTrace]], tables: Mapping[int, NDArray[np.float64]]) -> tuple[str, ...]:
    """Sentences on traces that hold the same numbers in all compared metrics.

    ``groups``: name to its traces; ``tables``: what is compared of a trace ``(n, m)``, by its `id`. Tables that hardly
    vary, such as counts of rare events, may be the same by chance, and an emulated run of a campaign has the numbers of
    its baseline where its counters change nothing: no sentence is on either.
    """
    seen: dict[bytes, list[tuple[str, ForeignTrace]]] = {}
    found: dict[tuple[str, str], list[str]] = {}  # by the groups of the earlier trace and of its copy
    for group, trace in ((group, trace) for group, traces in groups.items() for trace in traces):
        table = tables[id(trace)] + 0.0  # -0.0 is 0.0
        earlier = seen.setdefault(content_of(table), [])
        copied = [one for one in earlier if one[0] == group or not _are_different_runs(trace, one[1])]
        if copied and varies(table):
            found.setdefault((copied[0][0], group), []).append(f"{trace.path} as {copied[0][1].path}")
        earlier.append((group, trace))
    sentences = [
        f"{_have(texts, group)} the same numbers as another of them ({listed(texts, _SHOWN)}): copies are no runs of "
        "their own, and make the spread between runs look smaller than it is. Leave them out. If a simulator without "
        "noise made them, vary its set-up from run to run."
        for (other, group), texts in found.items()
        if other == group
    ]
    sentences += [
        f"{_have(texts, group)} the same numbers as one of {other} ({listed(texts, _SHOWN)}): a copy shows no change. "
        "Give the trace that each run has made. Only a deterministic simulator makes such traces in different runs."
        for (other, group), texts in found.items()
        if other != group
    ]
    return tuple(sentences)


def _have(texts: Sequence[str], group: str) -> str:
    return f"{counted(len(texts), 'trace')} of {group} {'has' if len(texts) == 1 else 'have'}"


def content_of(table: NDArray[Any]) -> bytes:
    """What tables of the same numbers and shape share, and no others."""
    return table.tobytes() + str(table.shape).encode()


def varies(table: NDArray[Any]) -> bool:
    """Whether some metric is not tied."""
    return any(average_ranks(column)[1] <= TIED * len(column) for column in table.T)


def _are_different_runs(trace: ForeignTrace, other: ForeignTrace) -> bool:
    """Whether both are known to be different runs of an emulated machine."""
    return bool(trace.emulated_run and other.emulated_run) and trace.emulated_run != other.emulated_run
