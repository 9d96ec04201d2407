"""Finds runs that have other numbers of records than the others: cut short, or of another length of the program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from common.listed_names import listed
from measure.foreign.trace import ForeignTrace, names_of_files
from measure.perturbation.wording import counted
from measure.run_types import BASELINE

_FEWER, _MORE = 1.1, 1.25
"""Fewer or more records by up to these factors are alike: of one length, instrumented runs take more."""
_DEVIATIONS = 5.0
"""Median absolute deviations of a group beyond which the records of one run are unlike the others'."""
_SHOWN = 5


@dataclass(frozen=True)
class RecordCounts:
    """The runs of a group: ``(r,)`` names, and how many records each has."""

    names: Sequence[str]
    records: NDArray[np.int64]


def record_counts(traces: Sequence[ForeignTrace]) -> RecordCounts:
    """The numbers of records of ``traces``, of one group."""
    names = names_of_files(traces)
    return RecordCounts([names[trace.path] for trace in traces], np.array([trace.n_records for trace in traces]))


def uneven_counts(groups: Mapping[str, RecordCounts]) -> tuple[str, ...]:
    """Sentences on groups whose median differs from the baselines', and on runs unlike the others of their group.

    ``groups``: the baselines, by the name `BASELINE`, and the variants.
    """
    sentences = []
    usual = float(np.median(groups[BASELINE].records))
    low, high = int(groups[BASELINE].records.min()), int(groups[BASELINE].records.max())
    for name, group in groups.items():
        middle = float(np.median(group.records))
        if _are_unlike(middle, usual).any() and not low <= middle <= high:
            sentences.append(
                f"Runs of {name} have {middle:,.0f} records where baselines have {usual:,.0f} (medians). "
                + _advice(middle < usual)
            )
        unlike = _unlike(group.records, groups[BASELINE].records)
        for is_fewer in (True, False):
            rows = np.flatnonzero(unlike & ((group.records < middle) == is_fewer))
            if not len(rows):
                continue
            rest = np.delete(group.records, np.flatnonzero(unlike))
            others = f"{rest.min():,}" + (f" to {rest.max():,}" if rest.max() > rest.min() else "")
            shown = listed([f"{group.names[row]} has {group.records[row]:,}" for row in rows.tolist()], _SHOWN)
            sentences.append(
                f"{len(rows)} of {counted(len(group.records), 'trace')} of {name} "
                f"{'has' if len(rows) == 1 else 'have'} {'fewer' if is_fewer else 'more'} records than the others' "
                f"{others}: {shown}. {_advice(is_fewer)}"
            )
    return tuple(sentences)


def _are_unlike(records: ArrayLike, usual: float) -> NDArray[np.bool_]:
    """Whether numbers of records are fewer or more than the ``usual`` by more than a factor."""
    return (np.asarray(records) * _FEWER < usual) | (np.asarray(records) > _MORE * usual)


def _unlike(records: NDArray[np.int64], baseline: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which numbers of ``records`` ``(r,)`` are far from their median, if runs scatter as baselines do at least."""
    middle = float(np.median(records))
    deviation = max(float(np.median(np.abs(group - np.median(group)))) for group in (records, baseline))
    return _are_unlike(records, middle) & (np.abs(records - middle) > _DEVIATIONS * deviation)


def _advice(is_fewer: bool) -> str:
    if is_fewer:
        return (
            "Where a run was cut short, its relations are those of a part of the program: make such runs again to "
            "their end, or cut all runs at the same place of the program."
        )
    return (
        "Unless a run only takes longer for the same work, its relations are those of other work: give all runs the "
        "same work."
    )
