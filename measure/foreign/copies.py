"""Finds traces with the same numbers, in all metrics or in some: copies of one file, or runs of a simulator without
noise."""

from __future__ import annotations

from collections import Counter
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
_FEWEST_COLUMNS = 2


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


def same_columns(
    groups: Mapping[str, Sequence[ForeignTrace]], tables: Mapping[int, NDArray[np.float64]], metrics: Sequence[str]
) -> tuple[str, ...]:
    """Sentences on traces of one group that hold the same numbers in several of the compared ``metrics``, not in all.

    ``groups`` and ``tables`` as in `copies`. So are those of a simulator without noise whose host's seconds or memory
    are among the metrics: how the others relate does not vary from run to run. Tied columns may be the same by chance,
    one column alone relates to nothing, and different runs of an emulated machine are known to be runs.
    """
    sentences = []
    for group, traces in groups.items():
        found: dict[tuple[int, ...], list[str]] = {}
        earlier: dict[tuple[int, bytes], list[int]] = {}  # number and content of a column, to the traces with it
        contents = [_contents(tables[id(trace)]) for trace in traces]
        for number, (trace, columns) in enumerate(zip(traces, contents, strict=True)):
            of = [(n, content) for n, content in enumerate(columns) if content is not None]
            alike = Counter(other for column in of for other in earlier.get(column, ()))
            alike = Counter({n: k for n, k in alike.items() if not _are_different_runs(trace, traces[n])})
            other = max(alike, key=lambda n: alike[n], default=-1)
            if alike[other] >= _FEWEST_COLUMNS and tables[id(trace)].tobytes() != tables[id(traces[other])].tobytes():
                same = tuple(n for n, content in of if contents[other][n] == content)
                found.setdefault(same, []).append(f"{trace.path} as {traces[other].path}")
            for column in of:
                earlier.setdefault(column, []).append(number)
        for same, texts in found.items():
            shared = listed([metrics[n] for n in same], _SHOWN)
            others = listed([metric for n, metric in enumerate(metrics) if n not in same], _SHOWN)
            sentences.append(
                f"{_have(texts, group)} the same numbers as another of them in {shared}, but not in {others} "
                f"({listed(texts, _SHOWN)}): how the former relate does not vary from run to run, so that these are no "
                "runs of their own. If they are copies, leave them out. If a simulator without noise made them, vary "
                f"its set-up from run to run, and leave {others} out if that is of the host and not of the program."
            )
    return tuple(sentences)


def _contents(table: NDArray[np.float64]) -> list[bytes | None]:
    """The content of each column of a table; None for a tied column."""
    return [None if _is_tied(column) else content_of(column + 0.0) for column in table.T]  # -0.0 is 0.0


def _is_tied(column: NDArray[Any]) -> bool:
    return bool(average_ranks(column)[1] > TIED * len(column))


def _have(texts: Sequence[str], group: str) -> str:
    return f"{counted(len(texts), 'trace')} of {group} {'has' if len(texts) == 1 else 'have'}"


def content_of(table: NDArray[Any]) -> bytes:
    """What tables of the same numbers and shape share, and no others."""
    return table.tobytes() + str(table.shape).encode()


def varies(table: NDArray[Any]) -> bool:
    """Whether some metric is not tied."""
    return not all(_is_tied(column) for column in table.T)


def are_different_emulated_runs(traces: Sequence[ForeignTrace]) -> bool:
    """Whether all of ``traces`` are known to be different runs of an emulated machine."""
    return all(trace.emulated_run for trace in traces) and len({trace.emulated_run for trace in traces}) == len(traces)


def _are_different_runs(trace: ForeignTrace, other: ForeignTrace) -> bool:
    """Whether both are known to be different runs of an emulated machine."""
    return bool(trace.emulated_run and other.emulated_run) and trace.emulated_run != other.emulated_run
