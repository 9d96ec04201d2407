"""The performance-monitoring unit: PAPI preset names for events of a core, and the counters that a guest reads as CSRs.

Preset names and meanings: PAPI, ``papi_presets(3)``. A preset is a sum or difference of events of the core;
an event can also be asked for by its own name in `emulator.timing.machine_events.Event`. The unit has cycle and
instruction counters, and as many programmable ones as the machine description says.
The core counts events; samplers decide when the counters are read.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from emulator.errors import EmulatorError
from emulator.timing.machine_config import MachineConfig
from emulator.timing.machine_events import Event

# Control and status registers (RISC-V ISA manual, Volume I, Zicntr and Zihpm; 0x800 is in the custom range).
CSR_CONTROL = 0x800
CSR_CYCLE, CSR_INSTRET, CSR_FIRST_HPM, CSR_LAST_HPM = 0xC00, 0xC02, 0xC03, 0xC1F
CONTROL_ENABLE, CONTROL_RESET = 1, 2

_FIXED = frozenset({Event.CYCLES, Event.INSTRUCTIONS})


class PmuError(EmulatorError):
    """A metric that the machine cannot count. ``metric``: its name, None if the error is about several."""

    def __init__(self, message: str, metric: str | None = None) -> None:
        super().__init__(message)
        self.metric = metric


class TooManyEventsError(PmuError):
    """More events than the machine can count at once."""


@dataclass(frozen=True)
class HardwareMetric:
    """A metric of the unit. ``terms``: events and their factors in the sum."""

    name: str
    unit: str
    description: str
    terms: tuple[tuple[Event, int], ...]

    @property
    def events(self) -> frozenset[Event]:
        """Events that have to be counted for the metric."""
        return frozenset(event for event, _ in self.terms)


def _preset(name: str, unit: str, description: str, *terms: Event | tuple[Event, int]) -> HardwareMetric:
    pairs = tuple(term if isinstance(term, tuple) else (term, 1) for term in terms)
    return HardwareMetric(name, unit, description, pairs)


_E = Event
_PRESETS = (
    _preset("PAPI_TOT_CYC", "cycles", "Total cycles", _E.CYCLES),
    _preset("PAPI_TOT_INS", "instructions", "Instructions completed", _E.INSTRUCTIONS),
    _preset("PAPI_LD_INS", "instructions", "Load instructions, atomics included, but no store-conditionals", _E.LOADS),
    _preset(
        "PAPI_SR_INS",
        "instructions",
        "Store instructions, atomics included, and store-conditionals, also those that fail",
        _E.STORES,
    ),
    _preset("PAPI_LST_INS", "instructions", "Load and store instructions, atomics once", _E.L1D_ACCESSES),
    _preset("PAPI_SYC_INS", "instructions", "Synchronisation: atomics and fences", _E.ATOMICS, _E.FENCES),
    _preset("PAPI_BR_INS", "instructions", "Control transfers of every kind", _E.BRANCHES),
    _preset("PAPI_BR_CN", "instructions", "Conditional branches", _E.BRANCHES_CONDITIONAL),
    _preset("PAPI_BR_UCN", "instructions", "Unconditional transfers", _E.BRANCHES, (_E.BRANCHES_CONDITIONAL, -1)),
    _preset("PAPI_BR_TKN", "instructions", "Conditional branches taken", _E.BRANCHES_TAKEN),
    _preset(
        "PAPI_BR_NTK",
        "instructions",
        "Conditional branches not taken",
        _E.BRANCHES_CONDITIONAL,
        (_E.BRANCHES_TAKEN, -1),
    ),
    _preset("PAPI_BR_MSP", "instructions", "Conditional branches mispredicted", _E.BRANCHES_MISPREDICTED),
    _preset(
        "PAPI_BR_PRC",
        "instructions",
        "Conditional branches correctly predicted",
        _E.BRANCHES_CONDITIONAL,
        (_E.BRANCHES_MISPREDICTED, -1),
    ),
    _preset("PAPI_BTAC_M", "misses", "Branch target buffer misses", _E.BTB_MISSES),
    _preset("PAPI_L1_ICA", "accesses", "L1 instruction cache accesses: lines fetched", _E.L1I_ACCESSES),
    _preset("PAPI_L1_ICM", "misses", "L1 instruction cache misses", _E.L1I_MISSES),
    _preset("PAPI_L1_ICH", "accesses", "L1 instruction cache hits", _E.L1I_ACCESSES, (_E.L1I_MISSES, -1)),
    _preset("PAPI_L1_DCA", "accesses", "L1 data cache accesses", _E.L1D_ACCESSES),
    _preset("PAPI_L1_DCM", "misses", "L1 data cache misses", _E.L1D_MISSES),
    _preset("PAPI_L1_DCH", "accesses", "L1 data cache hits", _E.L1D_ACCESSES, (_E.L1D_MISSES, -1)),
    _preset("PAPI_L1_DCR", "accesses", "L1 data cache reads", _E.L1D_ACCESSES, (_E.STORES, -1)),
    _preset("PAPI_L1_DCW", "accesses", "L1 data cache writes, atomics included", _E.STORES),
    _preset("PAPI_L1_LDM", "misses", "L1 data cache load misses", _E.L1D_LOAD_MISSES),
    _preset("PAPI_L1_STM", "misses", "L1 data cache store misses, atomics included", _E.L1D_STORE_MISSES),
    _preset("PAPI_L1_TCA", "accesses", "L1 cache accesses", _E.L1I_ACCESSES, _E.L1D_ACCESSES),
    _preset("PAPI_L1_TCM", "misses", "L1 cache misses", _E.L1I_MISSES, _E.L1D_MISSES),
    _preset("PAPI_L2_TCA", "accesses", "L2 cache accesses on demand", _E.L2_ACCESSES),
    _preset("PAPI_L2_TCM", "misses", "L2 cache misses", _E.L2_MISSES),
    _preset("PAPI_L2_TCH", "accesses", "L2 cache hits", _E.L2_ACCESSES, (_E.L2_MISSES, -1)),
    _preset("PAPI_L2_DCA", "accesses", "L2 cache accesses for data", _E.L2_DATA_ACCESSES),
    _preset("PAPI_L2_DCM", "misses", "L2 cache misses for data", _E.L2_DATA_MISSES),
    _preset(
        "PAPI_L2_ICA",
        "accesses",
        "L2 cache accesses for instructions",
        _E.L2_ACCESSES,
        (_E.L2_DATA_ACCESSES, -1),
    ),
    _preset("PAPI_L2_ICM", "misses", "L2 cache misses for instructions", _E.L2_MISSES, (_E.L2_DATA_MISSES, -1)),
    _preset("PAPI_TLB_IM", "misses", "Instruction TLB misses", _E.ITLB_MISSES),
    _preset("PAPI_TLB_DM", "misses", "Data TLB misses", _E.DTLB_MISSES),
    _preset("PAPI_TLB_TL", "misses", "TLB misses", _E.ITLB_MISSES, _E.DTLB_MISSES),
    _preset("PAPI_INT_INS", "instructions", "Integer instructions", _E.INT_OPERATIONS),
    _preset("PAPI_FP_INS", "instructions", "Floating-point instructions", _E.FP_INSTRUCTIONS),
    _preset(
        "PAPI_FP_OPS",
        "operations",
        "Floating-point operations; a fused multiply-add is two",
        _E.FP_OPERATIONS,
    ),
    _preset(
        "PAPI_FAD_INS",
        "instructions",
        "Floating-point additions, comparisons, minima, sign operations",
        _E.FP_ADDS,
    ),
    _preset("PAPI_FML_INS", "instructions", "Floating-point multiplications", _E.FP_MULTIPLIES),
    _preset("PAPI_FMA_INS", "instructions", "Floating-point fused multiply-adds", _E.FP_FUSED),
    _preset("PAPI_FDV_INS", "instructions", "Floating-point divisions", _E.FP_DIVIDES),
    _preset("PAPI_FSQ_INS", "instructions", "Floating-point square roots", _E.FP_SQUARE_ROOTS),
    _preset("PAPI_STL_ICY", "cycles", "Cycles with no instruction issue", _E.STALL_CYCLES),
    _preset(
        "PAPI_RES_STL",
        "cycles",
        "Cycles stalled on a resource: a value, a unit, or memory",
        _E.STALL_CYCLES,
        (_E.FRONTEND_STALL_CYCLES, -1),
    ),
)


def _unit_of(event: Event) -> str:
    for ending, unit in (("_CYCLES", "cycles"), ("CYCLES", "cycles"), ("_MISSES", "misses")):
        if event.name.endswith(ending):
            return unit
    if event.name.endswith(("_ACCESSES", "_WRITEBACKS", "_READS", "_WRITES")):
        return "accesses"
    return "operations" if event is Event.FP_OPERATIONS else "instructions"


METRICS: dict[str, HardwareMetric] = {preset.name: preset for preset in _PRESETS} | {
    event.name: _preset(event.name, _unit_of(event), f"Event {event.name} of the core", event) for event in Event
}


def _missing_part(event: Event, machine: MachineConfig) -> str | None:
    """The component that the machine lacks for the event; None if it can count it."""
    if event.name.startswith("L2_") and machine.l2 is None:
        return "L2 cache"
    if event is Event.ITLB_MISSES and machine.itlb is None:
        return "instruction TLB"
    if event is Event.DTLB_MISSES and machine.dtlb is None:
        return "data TLB"
    if event is Event.BTB_MISSES and machine.branch_predictor.btb_entries == 0:
        return "branch target buffer"
    return None


def available_metrics(machine: MachineConfig) -> dict[str, HardwareMetric]:
    """The metrics that the machine can count, by name."""
    return {
        name: metric
        for name, metric in METRICS.items()
        if not any(_missing_part(event, machine) for event in metric.events)
    }


def find_metric(name: str, machine: MachineConfig) -> HardwareMetric:
    """The metric called ``name``; raises `PmuError`, naming the nearest one that the machine has."""
    available = available_metrics(machine)
    if name in available:
        return available[name]
    close = difflib.get_close_matches(name.upper(), available, 1, 0.4)
    hint = f"; the nearest that it can is {close[0]}" if close else ""
    if name in METRICS:
        parts = {part for event in METRICS[name].events if (part := _missing_part(event, machine))}
        raise PmuError(
            f"machine '{machine.name}' cannot count {name}: it has no {' and no '.join(sorted(parts))}{hint}", name
        )
    raise PmuError(f"machine '{machine.name}' cannot count '{name}': there is no such metric{hint}", name)


def programmable_events(name: str, machine: MachineConfig) -> frozenset[str]:
    """Names of the events that take a programmable counter when a metric is counted. Raises `PmuError`."""
    return frozenset(event.name for event in find_metric(name, machine).events if event not in _FIXED)


def select_metrics(
    names: Sequence[str], machine: MachineConfig, *, by_counters: bool = True
) -> tuple[HardwareMetric, ...]:  # fmt: skip
    """Metrics to count at once; raises `PmuError` for one that is unknown, given twice, or one too many.

    ``by_counters``: they are counted by the machine's counters, of which there may be too few; a simulation has all
    events.
    """
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise PmuError(f"metrics given twice: {', '.join(repeated)}; name each once", repeated[0])
    metrics = tuple(find_metric(name, machine) for name in names)
    if len(metrics) > CSR_LAST_HPM - CSR_FIRST_HPM + 1:
        raise PmuError(
            f"got {len(metrics)} metrics, expected at most {CSR_LAST_HPM - CSR_FIRST_HPM + 1}, which a guest can read: "
            "measure them in several runs"
        )
    events = sorted(set().union(*(metric.events for metric in metrics)) - _FIXED)
    counters = machine.pmu.programmable_counters
    if by_counters and len(events) > counters:
        raise TooManyEventsError(
            f"machine '{machine.name}' counts {counters} events at once besides cycles and instructions, but "
            f"these metrics need {len(events)} ({', '.join(event.name for event in events)}): measure them "
            "in several runs, or raise pmu.programmable_counters in the machine description"
        )
    return metrics


class Core(Protocol):
    """The part of a timing core that the unit uses."""

    config: MachineConfig

    @property
    def counters(self) -> NDArray[np.int64]:
        """Events so far, indexed by `Event`."""


class Pmu:
    """Counters over the events of a core, counting while enabled, from the last reset on.

    The guest sees them through CSR 0x800 (bit 0: count, bit 1: write 1 to reset), ``cycle``, ``instret`` and
    ``hpmcounter3`` onwards: the selected metrics in their order; those beyond read 0. It starts enabled.
    The record must have been consumed up to the instruction that reads or writes.
    """

    def __init__(self, core: Core, metrics: Sequence[str]) -> None:
        self.metrics = select_metrics(metrics, core.config)
        self._core = core
        self._weights = np.zeros((len(self.metrics), len(Event)), np.int64)
        for row, metric in zip(self._weights, self.metrics, strict=True):
            for event, factor in metric.terms:
                row[event] = factor
        self._enabled = True
        self._counted = np.zeros(len(Event), np.int64)  # in the periods of counting that are over
        self._since = core.counters.copy()  # counters of the core when this period began

    @property
    def enabled(self) -> bool:
        """Whether the counters count."""
        return self._enabled

    def events(self) -> NDArray[np.int64]:
        """Events counted since the last reset, ``(N_EVENTS,)`` indexed by `Event`."""
        running = self._core.counters - self._since if self._enabled else 0
        return self._counted + running

    def read(self) -> NDArray[np.int64]:
        """Values of the metrics, in the order of ``metrics``, ``(n_metrics,)``."""
        return self._weights @ self.events()

    def enable(self) -> None:
        """Count from now on."""
        if not self._enabled:
            self._enabled = True
            self._since = self._core.counters.copy()

    def disable(self) -> None:
        """Keep the values as they are."""
        self._counted = self.events()
        self._enabled = False

    def reset(self) -> None:
        """Set all counters to 0, counting or not."""
        self._counted = np.zeros(len(Event), np.int64)
        self._since = self._core.counters.copy()

    def read_csr(self, number: int) -> int | None:
        """Value of a control and status register of the unit; None for any other."""
        if number == CSR_CONTROL:
            return CONTROL_ENABLE if self._enabled else 0
        if number == CSR_CYCLE:
            return int(self.events()[Event.CYCLES])
        if number == CSR_INSTRET:
            return int(self.events()[Event.INSTRUCTIONS])
        if CSR_FIRST_HPM <= number <= CSR_LAST_HPM:
            index = number - CSR_FIRST_HPM
            return int(self._weights[index] @ self.events()) if index < len(self.metrics) else 0
        return None

    def write_control(self, value: int) -> None:
        """Write CSR 0x800: bit 0 enables counting, bit 1 resets the counters."""
        if value & CONTROL_RESET:
            self.reset()
        if value & CONTROL_ENABLE:
            self.enable()
        else:
            self.disable()
