"""What disturbed the runs on a host, or was not counted there, as sentences for the report."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from measure.run_types import FORKS, MIGRATED, MULTIPLEXED, SWITCHES, Run


def disturbances(runs: Sequence[Run]) -> list[str]:
    """Sentences on records in which the program lost the processor or came to another one."""
    records, switched, migrated = _records(runs), _flagged(runs, SWITCHES), _flagged(runs, MIGRATED)
    found = []
    if switched:
        share = 100 * switched / records
        found.append(
            f"Other programs or waiting took the processor away in {switched:,} of {records:,} records ({share:.1f}%; "
            f"column {SWITCHES} of the traces)."
        )
    if migrated:
        found.append(f"{migrated:,} of {records:,} records ended on another processor (column {MIGRATED}).")
    return found


def multiplexed(runs: Sequence[Run]) -> list[str]:
    """A sentence on records in which events were counted for a part of the time only; none without such records."""
    partial = _flagged(runs, MULTIPLEXED)
    if not partial:
        return []
    return [
        f"In {partial:,} of {_records(runs):,} records the events were counted for a part of the time (column "
        f"{MULTIPLEXED}): something else uses the processor's counters, such as the kernel's watchdog "
        "(kernel.nmi_watchdog) or another perf; their counts are too low there."
    ]


def _records(runs: Sequence[Run]) -> int:
    return sum(run.trace.n_records for run in runs)


def _flagged(runs: Sequence[Run], flag: str) -> int:
    """Number of records of ``runs`` in whose column ``flag`` is not 0."""
    return sum(int(np.count_nonzero(run.trace.counts((flag,)))) for run in runs)


def forks(runs: Sequence[Run]) -> list[str]:
    """A sentence on programs that started processes, of which the sampler counts the first only; none if none did."""
    forked = [int(most) for run in runs if (most := run.trace.counts((FORKS,)).max(initial=0))]
    if not forked:
        return []
    return [
        f"The program started processes in {len(forked):,} of {len(runs):,} runs (at most {max(forked):,} in a run; "
        f"column {FORKS} of the traces): hardware and software metrics are those of its first process, and what its "
        "other processes did is in no record. The verdicts hold for the first process only: measure on an emulated "
        "machine (`machine: FILE`, `sampling: {mode: ideal}`), which counts in all processes, or let the program work "
        "in one."
    ]
