"""Hardware metrics over several runs, when a machine has fewer counters than there are metrics.

The emulated machine counts everything at once; most real ones have two fixed counters, for cycles and
instructions, and four to eight that can be programmed. What is not counted in one run has to come from another,
and the runs need metrics in common to be aligned on. How many there are is given on the command line
(``--counters C --shared M,M``): it is a property of the machine that the campaign will be repeated on, not of the
emulated one that the search asks.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from measure.errors import CampaignError

FIXED = frozenset({"PAPI_TOT_CYC", "PAPI_TOT_INS"})
"""Have counters of their own on the processors that Linux perf supports, and cost no programmable one."""


def split_hardware(
    metrics: Sequence[str], counters: int, shared: Sequence[str], fixed: Collection[str] = FIXED
) -> tuple[tuple[str, ...], ...]:
    """``metrics`` in the fewest sets that ``counters`` programmable counters can each count at once.

    Every set has all of ``shared`` and of the ``fixed`` metrics asked for, and its metrics in the order of
    ``metrics``. Sets are as even as can be, so that none is aligned on much less than the others.

    Raises `CampaignError` for unknown or too many shared metrics, and for sets with nothing in common.
    """
    if counters < 1:
        raise CampaignError(f"{counters} counters: expected at least 1")
    unknown = [metric for metric in shared if metric not in metrics]
    if unknown:
        raise CampaignError(
            f"shared metric {unknown[0]} is not among the hardware metrics: expected some of {', '.join(metrics)}"
        )
    everywhere = [metric for metric in metrics if metric in shared or metric in fixed]
    rest = [metric for metric in metrics if metric not in everywhere]
    free = counters - sum(metric not in fixed for metric in everywhere)
    if free < 0 or (rest and not free):
        raise CampaignError(
            f"{counters} counters and {len(everywhere)} metrics in every run "
            f"({', '.join(everywhere)}): no counter is left for the others; share fewer"
        )
    n_sets = max(1, -(-len(rest) // free)) if rest else 1
    if n_sets > 1 and not everywhere:
        raise CampaignError(
            f"{n_sets} sets of hardware metrics with nothing in common cannot be aligned: "
            "name at least one shared metric"
        )
    base, more = divmod(len(rest), n_sets)
    sets, at = [], 0
    for index in range(n_sets):
        size = base + (index < more)
        chosen = {*everywhere, *rest[at : at + size]}
        sets.append(tuple(metric for metric in metrics if metric in chosen))
        at += size
    return tuple(sets)
