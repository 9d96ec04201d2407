"""The metrics of the real processor: PAPI's presets and perf's software events, what each is to perf_event_open, and
which of them this machine counts.

Only events that Linux defines for every processor are mapped; an event of one model goes by its number, as in perf
(`rUUEE`).
"""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence
from dataclasses import dataclass

from common.suggestions import nearest
from measure.host.perf_event import CACHE, HARDWARE, RAW, SOFTWARE, Event, EventLayer, LinuxEvents

_L1D, _L1I, _DTLB, _ITLB = 0, 1, 3, 4
_READ, _WRITE = 0, 1
_ACCESS, _MISS = 0, 1
PROCESSOR_TIME, TICKS, SWITCHES, MIGRATIONS = "task-clock", "tsc", "context-switches", "cpu-migrations"
_RAW_EVENT = re.compile(r"r([0-9a-fA-F]{1,16})")


@dataclass(frozen=True)
class HostMetric:
    """A metric of the host. ``event``: None if the sampler records it anyhow."""

    event: Event | None
    unit: str
    description: str


def _cache(cache: int, operation: int, result: int) -> Event:
    return Event(CACHE, cache | operation << 8 | result << 16)


METRICS: dict[str, HostMetric] = {
    PROCESSOR_TIME: HostMetric(None, "ns", "processor time of the record; nearly the same in all"),
    TICKS: HostMetric(None, "ticks", "time-stamp counter (x86) or generic timer (Arm): time that really went by"),
    SWITCHES: HostMetric(None, "events", "times that the thread gave up or lost the processor"),
    MIGRATIONS: HostMetric(None, "events", "changes of the processor between records"),
    "page-faults": HostMetric(Event(SOFTWARE, 2), "events", "page faults"),
    "minor-faults": HostMetric(Event(SOFTWARE, 5), "events", "page faults without reading a disk"),
    "major-faults": HostMetric(Event(SOFTWARE, 6), "events", "page faults that read a disk"),
    "PAPI_TOT_CYC": HostMetric(Event(HARDWARE, 0), "cycles", "cycles of the core, at its current frequency"),
    "PAPI_TOT_INS": HostMetric(Event(HARDWARE, 1), "instructions", "instructions that were retired"),
    "PAPI_REF_CYC": HostMetric(Event(HARDWARE, 9), "cycles", "cycles at the nominal frequency"),
    "PAPI_BR_INS": HostMetric(Event(HARDWARE, 4), "events", "branches"),
    "PAPI_BR_MSP": HostMetric(Event(HARDWARE, 5), "events", "branches that were predicted wrong"),
    "PAPI_RES_STL": HostMetric(Event(HARDWARE, 8), "cycles", "cycles in which the back end waited"),
    "PAPI_L3_TCA": HostMetric(Event(HARDWARE, 2), "events", "accesses to the last level of cache"),
    "PAPI_L3_TCM": HostMetric(Event(HARDWARE, 3), "events", "misses of the last level of cache"),
    "PAPI_LD_INS": HostMetric(_cache(_L1D, _READ, _ACCESS), "events", "loads from the L1 data cache"),
    "PAPI_SR_INS": HostMetric(_cache(_L1D, _WRITE, _ACCESS), "events", "stores to the L1 data cache"),
    "PAPI_L1_LDM": HostMetric(_cache(_L1D, _READ, _MISS), "events", "loads that miss the L1 data cache"),
    "PAPI_L1_STM": HostMetric(_cache(_L1D, _WRITE, _MISS), "events", "stores that miss the L1 data cache"),
    "PAPI_L1_DCM": HostMetric(
        _cache(_L1D, _READ, _MISS), "events", "misses of the L1 data cache; Linux counts those of loads"
    ),
    "PAPI_L1_ICM": HostMetric(_cache(_L1I, _READ, _MISS), "events", "misses of the L1 instruction cache"),
    "PAPI_TLB_DM": HostMetric(_cache(_DTLB, _READ, _MISS), "events", "misses of the data TLB by loads"),
    "PAPI_TLB_IM": HostMetric(_cache(_ITLB, _READ, _MISS), "events", "misses of the instruction TLB"),
}


def metric_named(name: str) -> HostMetric | None:
    """The metric called ``name``, among them raw events such as `r01c2`; None for an unknown one."""
    raw = _RAW_EVENT.fullmatch(name)
    if raw:
        return HostMetric(Event(RAW, int(raw[1], 16)), "events", "an event of this processor's model, by its number")
    return METRICS.get(name)


def without_kernel(layer: EventLayer | None = None) -> bool:
    """Whether only events in the program itself may be counted, and not those in the kernel on its behalf."""
    return (layer or LinuxEvents()).open_group([], False) in (errno.EACCES, errno.EPERM)


def why_not(name: str, layer: EventLayer | None = None) -> str:
    """Why this machine does not count a metric, as the end of a sentence; empty if it does."""
    layer = layer or LinuxEvents()
    metric = metric_named(name)
    if metric is None:
        return f"it is no metric of a host{nearest(name, METRICS)}"
    events = [metric.event] if metric.event else []
    error = layer.open_group(events, without_kernel(layer))
    return "" if error == 0 else _reason(error, metric.event, layer)


def problems(names: Sequence[str], layer: EventLayer | None = None) -> dict[str, str]:
    """What keeps this machine from counting all of ``names`` at once: by metric, or by "" for all of them together."""
    layer = layer or LinuxEvents()
    found = {name: why for name in names if (why := why_not(name, layer))}
    if found:
        return found
    error = layer.open_group(events_of(names), without_kernel(layer))
    if error:
        return {
            "": "each of them can be counted, but not all at once: the processor has fewer counters. Give fewer, "
            "and the others in a second campaign"
        }
    return {}


def events_of(names: Sequence[str]) -> list[Event]:
    """The events to open for metrics that exist."""
    found = (metric_named(name) for name in names)
    return [metric.event for metric in found if metric is not None and metric.event is not None]


def _reason(error: int, event: Event | None, layer: EventLayer) -> str:
    if error in (errno.EACCES, errno.EPERM):
        level = layer.paranoid()
        return (
            f"Linux does not allow it (perf_event_paranoid is {'unknown' if level is None else level}): "
            "`sysctl kernel.perf_event_paranoid=1` as root; a container also needs the capability CAP_PERFMON"
        )
    if error == errno.ENOSYS:
        return "this kernel has no perf_event_open"
    if error in (errno.ENOENT, errno.EOPNOTSUPP, errno.ENODEV, errno.EINVAL):
        if event is not None and event.type != SOFTWARE and layer.open_group([Event(HARDWARE, 1)], True):
            return (
                "no counters of the processor are there: a virtual machine without a performance-monitoring unit, "
                "or a kernel without its driver"
            )
        return "this model of processor does not count it, or Linux does not know how"
    if error == errno.EBUSY:
        return "the processor's counters are in use, by another program or the kernel's watchdog (kernel.nmi_watchdog)"
    return f"perf_event_open failed: {errno.errorcode.get(error, error)}"
