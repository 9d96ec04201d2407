"""Finds runs of two campaigns that are the same runs: results compared with a copy, or a program that did not change.

An emulated run has the same numbers whenever program, input, machine and seed are the same, so such a campaign tells
nothing new.
"""

from __future__ import annotations

from collections.abc import Sequence

from measure.foreign.copies import content_of, varies
from measure.judging.comparison import runs_of
from measure.run_types import BASELINE, Run


def repeated_variants(
    before: Sequence[Run], after: Sequence[Run], names: Sequence[str], metrics: Sequence[str], paired: bool
) -> tuple[str, ...]:
    """Those of the variants ``names`` of which one campaign has no run, and no baseline, that the other does not have.

    Runs are the same when they have the same numbers of all ``metrics``, and these vary. ``paired``: only runs that
    both campaigns have by number are compared.
    """
    same = {name: _is_repeated(before, after, name, metrics, paired) for name in (BASELINE, *names)}
    return tuple(name for name in names if same[BASELINE] and same[name])


def _is_repeated(before: Sequence[Run], after: Sequence[Run], name: str, metrics: Sequence[str], paired: bool) -> bool:
    sides = [{run.spec.replicate: run.trace.counts(tuple(metrics)) for run in runs_of(runs, name)}
             for runs in (before, after)]  # fmt: skip
    if paired:
        both = sides[0].keys() & sides[1].keys()
        sides = [{number: side[number] for number in both} for side in sides]
    contents = [{content_of(table) for table in side.values()} for side in sides]
    if not all(contents) or not all(varies(table) for side in sides for table in side.values()):
        return False
    return contents[0] <= contents[1] or contents[1] <= contents[0]
