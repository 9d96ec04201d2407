"""What disturbed the runs on a host, or was not counted there, as sentences for the report."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from measure.run_types import FORKS, LEFT, MIGRATED, MULTIPLEXED, OTHER_THREADS, SWITCHES, UNCOUNTED, Run

MOST_UNCOUNTED = 0.05
"""Of a run's processor time; a busy virtual machine stops single records for long between their end and the sampler."""


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


def other_threads(runs: Sequence[Run]) -> list[str]:
    """A sentence on programs whose records mix the software counts of several threads with the hardware counts of one;
    none if other threads than the main one ran in no record."""
    shares = [share for run in runs if (share := _share(run, OTHER_THREADS))]
    if not shares:
        return []
    return [
        f"Other threads than the main one ran in {len(shares):,} of {len(runs):,} runs (for up to {max(shares):.2%} of "
        f"the main thread's time in a run; column {OTHER_THREADS} of the traces): software metrics count in all "
        "threads, hardware metrics in the main thread only, so that correlations between them are of different work. "
        "Measure on an emulated machine (`machine: FILE`, `sampling: {mode: ideal}`), which counts in all threads, or "
        "let the program use one."
    ]


def uncounted(runs: Sequence[Run]) -> list[str]:
    """A sentence on runs in which the program went on for long after records had ended; none without such runs."""
    shares = [share for run in runs if (share := _share(run, UNCOUNTED)) > MOST_UNCOUNTED]
    if not shares:
        return []
    return [
        f"In {len(shares):,} of {len(runs):,} runs the program went on after the counters had stopped at the end of an "
        f"interval, for up to {max(shares):.0%} of a run's time (column {UNCOUNTED} of the traces, ns): it blocks "
        "SIGPROF, the sampler's signal, or handles it itself. Software metrics counted in that time, hardware metrics "
        "did not: let the program leave SIGPROF alone."
    ]


def _share(run: Run, time: str) -> float:
    """Sum of the column ``time`` [ns] over the processor time of the run's records."""
    of_records = int(run.trace.boundaries_cycles[-1] - run.trace.boundaries_cycles[0])
    return float(run.trace.counts((time,)).sum() / max(1, of_records))


def forks(runs: Sequence[Run]) -> list[str]:
    """A sentence on programs that started processes, of which the sampler counts the first only, and one on those that
    left processes; none if none did."""
    forked = [int(most) for run in runs if (most := run.trace.counts((FORKS,)).max(initial=0))]
    left = [int(most) for run in runs if (most := run.trace.counts((LEFT,)).max(initial=0))]
    found = []
    if forked:
        found.append(
            f"The program started processes in {len(forked):,} of {len(runs):,} runs (at most {max(forked):,} in a "
            f"run; column {FORKS} of the traces): hardware and software metrics are those of its first process, and "
            "what its other processes did is in no record. The verdicts hold for the first process only: measure on "
            "an emulated machine (`machine: FILE`, `sampling: {mode: ideal}`), which counts in all processes, or let "
            "the program work in one."
        )
    if left:
        found.append(
            f"The program left processes that still ran when its first one had ended in {len(left):,} of {len(runs):,} "
            f"runs (at most {max(left):,} in a run; column {LEFT} of the traces): they were ended, so that they do not "
            "disturb later runs, and what they did is in no record."
        )
    return found
