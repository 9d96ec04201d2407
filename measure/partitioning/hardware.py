"""Splits hardware metrics over several runs, when a machine has fewer counters than there are metrics.

Most processors have two fixed counters, for cycles and instructions, and four to eight programmable ones. Metrics that
do not fit into one run are counted in another, and the runs need metrics in common to be aligned on. The emulated
machine can count everything at once without perturbation, so the search runs with all counters (`counting_everything`);
the campaign files that it writes keep the limit of the machine, or of the one given by ``--counters``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from measure.errors import CampaignError

if TYPE_CHECKING:
    from emulator.timing.machine_config import MachineConfig

FIXED = frozenset({"PAPI_TOT_CYC", "PAPI_TOT_INS"})
"""Metrics with counters of their own on the processors that Linux perf supports; they take no programmable counter."""


def split_hardware(
    metrics: Sequence[str],
    counters: int,
    shared: Sequence[str],
    events: Mapping[str, Collection[str]] | None = None,
) -> tuple[tuple[str, ...], ...]:
    """``metrics`` in few sets, each of which ``counters`` programmable counters can count at once.

    Every set has all of ``shared`` and the metrics that need no programmable counter; metrics keep their order.
    ``events``: the events that each metric needs counted (default: itself, unless it is `FIXED`); an event that two
    metrics of a set need is counted once. The number of sets is that of a first-fit of the most demanding metric
    first, which is minimal where each metric is one event; sets are as even as possible, so that none is aligned on
    much less than the others.

    Raises `CampaignError` for unknown or too many shared metrics, and for sets without a common metric.
    """
    if counters < 1:
        raise CampaignError(f"{counters} counters: expected at least 1")
    unknown = [metric for metric in shared if metric not in metrics]
    if unknown:
        raise CampaignError(
            f"shared metric {unknown[0]} is not among the hardware metrics: expected some of {', '.join(metrics)}"
        )
    needs = {m: frozenset(events[m]) if events is not None else frozenset({m}) - FIXED for m in metrics}
    everywhere = [metric for metric in metrics if metric in shared or not needs[metric]]
    common = frozenset[str]().union(*(needs[metric] for metric in everywhere))
    rest = sorted((metric for metric in metrics if metric not in everywhere), key=lambda m: -len(needs[m]))
    too_much = [metric for metric in rest if len(common | needs[metric]) > counters]
    if len(common) > counters or too_much:
        raise CampaignError(
            f"{counters} counters and {len(everywhere)} metrics in every run ({', '.join(everywhere)}): no counter is "
            f"left for {too_much[0] if too_much else 'the others'}; share fewer"
        )
    sets: list[list[str]] | None = [[]]
    for n_sets in range(1, len(rest) + 1):
        sets = _placed(rest, needs, common, counters, n_sets)
        if sets is not None:
            break
    assert sets is not None  # one set per metric always fits
    if len(sets) > 1 and not everywhere:
        raise CampaignError(
            f"{len(sets)} sets of hardware metrics with nothing in common cannot be aligned: "
            "name at least one shared metric"
        )
    return tuple(tuple(m for m in metrics if m in everywhere or m in chosen) for chosen in sets)


def _placed(
    rest: Sequence[str],
    needs: Mapping[str, frozenset[str]],
    common: frozenset[str],
    counters: int,
    n_sets: int,
) -> list[list[str]] | None:
    """Put each of ``rest`` into the emptiest of ``n_sets`` sets that can take it; None when one fits into no set."""
    chosen: list[list[str]] = [[] for _ in range(n_sets)]
    used = [common] * n_sets
    for metric in rest:
        fitting = [k for k in range(n_sets) if len(used[k] | needs[metric]) <= counters]
        if not fitting:
            return None
        place = min(fitting, key=lambda k: len(used[k] | needs[metric]))
        chosen[place].append(metric)
        used[place] |= needs[metric]
    return chosen


def events_of(metrics: Sequence[str], machine: MachineConfig) -> dict[str, frozenset[str]]:
    """The events of each metric that take a programmable counter. Raises `PmuError` for an unknown metric."""
    from emulator.pmu import programmable_events

    return {metric: programmable_events(metric, machine) for metric in metrics}


def counting_everything(machine: Path, directory: Path) -> Path:
    """Write a machine file like ``machine``, with the largest number of counters, into ``directory``; its path."""
    import yaml

    from emulator.timing.machine_config import PmuConfig
    from emulator.timing.machine_file import machine_text
    from measure.result_files import write_text_atomically

    most = next(one.le for one in PmuConfig.model_fields["programmable_counters"].metadata if hasattr(one, "le"))
    data = yaml.safe_load(machine_text(machine))
    data["pmu"] = (data.get("pmu") or {}) | {"programmable_counters": most}
    about = f"# {machine.name} with counters for all events at once, for the search.\n"
    text = about + yaml.safe_dump(data, sort_keys=False)
    path = directory / f"{machine.stem}-all-counters.yaml"
    write_text_atomically(path, text)
    return path.resolve()
