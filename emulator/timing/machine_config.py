"""The machine description: every parameter of the timing models, with type, unit, default and meaning.

A description is a YAML file (see `emulator.timing.machine_file`); these pydantic models validate it and generate its
JSON schema. `emulator.timing.inorder` describes the effect of the parameters on the cycle count.
"""

from __future__ import annotations

import difflib
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from common.yaml_document import problem_among, problem_at
from emulator.timing.machine_events import N_EVENTS, Event

Replacement = Literal["lru", "fifo", "random"]
GUEST_ADDRESS_BITS = 31  # the record's addresses fit in 2 GiB


def _is_power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class CacheConfig(_Section):
    """A set-associative cache."""

    size_bytes: int = Field(ge=64, le=1 << 28, description="Capacity [bytes].")
    associativity: int = Field(ge=1, le=256, description="Ways of a set [lines].")
    line_bytes: int = Field(ge=16, le=1024, description="Line size [bytes], a power of two.")
    replacement: Replacement = Field(
        default="lru",
        description="Which line of a full set makes room: lru, fifo, or random (seeded). Default lru.",
    )
    hit_latency_cycles: int = Field(default=1, ge=1, le=255, description="Access time of a hit [cycles]. Default 1.")

    @property
    def sets(self) -> int:
        """Number of sets."""
        return self.size_bytes // (self.associativity * self.line_bytes)

    @model_validator(mode="after")
    def _geometry(self) -> Self:
        if not _is_power_of_two(self.line_bytes):
            raise problem_at(f"got {self.line_bytes}, expected a power of two", "line_bytes")
        way_bytes = self.associativity * self.line_bytes
        if self.size_bytes % way_bytes or not _is_power_of_two(self.size_bytes // way_bytes):
            raise problem_among(
                f"size_bytes is {self.size_bytes}, expected associativity x line_bytes ({way_bytes}) times a "
                "power of two (the number of sets)",
                "size_bytes", "associativity", "line_bytes",
            )  # fmt: skip
        return self


class DataCacheConfig(CacheConfig):
    """A first-level data cache."""

    write_policy: Literal["write_back", "write_through"] = Field(
        default="write_back",
        description="When a store reaches the next level: at once, or when its line is evicted. Either way through a "
        "write buffer that is never full: that takes no time and is no L2 access, and counts as a memory write where "
        "the L2 does not hold the line. Default write_back.",
    )
    write_allocate: bool = Field(
        default=True,
        description="Whether a store that misses brings the line in; otherwise it goes to the next level, as one that "
        "is written through. Default true.",
    )


class TlbConfig(_Section):
    """A translation look-aside buffer."""

    entries: int = Field(ge=1, le=65536, description="Number of translations [pages].")
    associativity: int = Field(ge=1, le=1024, description="Ways of a set; equal to entries: fully associative.")
    replacement: Replacement = Field(default="lru", description="As for caches: lru, fifo or random. Default lru.")
    miss_penalty_cycles: int = Field(ge=0, le=65535, description="Time of a page-table walk [cycles].")

    @property
    def sets(self) -> int:
        """Number of sets."""
        return self.entries // self.associativity

    @model_validator(mode="after")
    def _geometry(self) -> Self:
        if self.entries % self.associativity or not _is_power_of_two(self.entries // self.associativity):
            raise problem_among(
                f"entries is {self.entries}, expected associativity ({self.associativity}) times a power of "
                "two (the number of sets)",
                "entries", "associativity",
            )  # fmt: skip
        return self


class MemoryConfig(_Section):
    """Main memory and its pages."""

    latency_cycles: int = Field(
        ge=1, le=65535, description="From the miss in the last cache to the arrival of the line [cycles]."
    )
    page_bytes: int = Field(
        default=4096, ge=4096, le=1 << 21, description="Page size [bytes], a power of two. Default 4096."
    )

    @model_validator(mode="after")
    def _geometry(self) -> Self:
        if not _is_power_of_two(self.page_bytes):
            raise problem_at(f"got {self.page_bytes}, expected a power of two", "page_bytes")
        return self


class PredictorConfig(_Section):
    """Branch direction and target prediction."""

    kind: Literal["not_taken", "backward_taken", "bimodal", "gshare"] = Field(
        default="not_taken",
        description="Direction predictor: two static ones, two-bit counters by address (bimodal), or by "
        "address xor global history (gshare). Default not_taken.",
    )
    entries: int = Field(default=2048, ge=2, le=1 << 22, description="Two-bit counters, a power of two. Default 2048.")
    history_bits: int = Field(
        default=0, ge=0, le=22, description="gshare: outcomes in the global history [bits]. Default 0."
    )
    btb_entries: int = Field(
        default=0,
        ge=0,
        le=1 << 20,
        description="Branch target buffer, direct-mapped [entries]; 0: none. Default 0.",
    )
    return_stack_entries: int = Field(
        default=0, ge=0, le=1024, description="Return-address stack [entries]; 0: none. Default 0."
    )

    @model_validator(mode="after")
    def _geometry(self) -> Self:
        if not _is_power_of_two(self.entries):
            raise problem_at(f"got {self.entries}, expected a power of two", "entries")
        if self.btb_entries and not _is_power_of_two(self.btb_entries):
            raise problem_at(f"got {self.btb_entries}, expected 0 or a power of two", "btb_entries")
        if self.kind == "gshare" and not 1 <= self.history_bits <= self.entries.bit_length() - 1:
            raise problem_among(
                f"history_bits is {self.history_bits}, expected 1 to {self.entries.bit_length() - 1}: gshare "
                f"with {self.entries} entries has so many index bits",
                "history_bits", "entries", "kind",
            )  # fmt: skip
        return self


class UnitTiming(_Section):
    """Timing of one class of instructions."""

    latency_cycles: int = Field(
        ge=1, le=1000, description="From issue until a dependent instruction can issue [cycles]."
    )
    interval_cycles: int = Field(
        default=1,
        ge=1,
        le=1000,
        description="From issue until the unit takes the next one [cycles]. Default 1.",
    )


def _unit(latency_cycles: int, interval_cycles: int, what: str) -> UnitTiming:
    timing = UnitTiming(latency_cycles=latency_cycles, interval_cycles=interval_cycles)
    return Field(
        default=timing,
        description=f"{what}. Default latency {latency_cycles}, interval {interval_cycles} [cycles].",
    )


class FunctionalUnits(_Section):
    """Latency and initiation interval of each instruction class; classes that share a unit wait for one another.

    Units: integer ALUs (as many as the issue width), integer multiplier-divider, memory port, branch unit,
    floating-point adder (additions, conversions, moves), floating-point multiplier (products, fused
    multiply-adds, quotients, roots), system unit (control and status registers, fences, calls to the kernel).
    """

    int_alu: UnitTiming = _unit(1, 1, "Integer addition, logic, shift, comparison; the interval is always 1")
    int_mul: UnitTiming = _unit(3, 1, "Integer multiplication")
    int_div: UnitTiming = _unit(20, 19, "Integer division and remainder, independent of the operands")
    fp_add: UnitTiming = _unit(2, 1, "Floating-point addition, comparison, minimum, sign injection")
    fp_mul: UnitTiming = _unit(4, 1, "Floating-point multiplication")
    fp_fma: UnitTiming = _unit(6, 1, "Fused multiply-add")
    fp_div: UnitTiming = _unit(12, 12, "Floating-point division")
    fp_sqrt: UnitTiming = _unit(24, 24, "Floating-point square root")
    fp_cvt: UnitTiming = _unit(2, 1, "Conversion between formats")
    fp_move: UnitTiming = _unit(1, 1, "Move between register files")
    csr: UnitTiming = _unit(3, 1, "Access to a control and status register")
    fence: UnitTiming = _unit(1, 1, "Memory ordering")
    system: UnitTiming = _unit(1, 1, "Call to the kernel, whose own work takes no time")

    @model_validator(mode="after")
    def _alus(self) -> Self:
        if self.int_alu.interval_cycles != 1:
            raise problem_at(
                f"got {self.int_alu.interval_cycles}, expected 1: each integer ALU takes an instruction in each cycle; "
                "pipeline.issue_width says how many there are",
                "int_alu", "interval_cycles",
            )  # fmt: skip
        return self


class PipelineConfig(_Section):
    """The in-order pipeline."""

    issue_width: int = Field(default=1, ge=1, le=4, description="Instructions issued in one cycle, at most. Default 1.")
    mispredict_penalty_cycles: int = Field(
        ge=0, le=255, description="Empty cycles after a mispredicted control transfer [cycles]."
    )
    redirect_penalty_cycles: int = Field(
        default=0,
        ge=0,
        le=255,
        description="Empty cycles after a taken direct transfer, rightly predicted, whose target is known "
        "only at decode: each one without a branch target buffer, else those that miss in it [cycles]. "
        "Default 0.",
    )
    load_use_cycles: int = Field(
        default=1,
        ge=0,
        le=255,
        description="Latency of a load beyond the hit latency of the L1 data cache [cycles]. Default 1.",
    )
    outstanding_misses: int = Field(
        default=1,
        ge=0,
        le=8,
        description="Data misses under way at once; the pipeline stops at the first use of a missing value. "
        "0: it stops at the miss itself. Default 1.",
    )


class PmuConfig(_Section):
    """The performance-monitoring unit."""

    programmable_counters: int = Field(
        default=4,
        ge=0,
        le=29,
        description="Events counted at once besides cycles and instructions [counters]. Default 4.",
    )


class EnergyConfig(_Section):
    """Activity-based energy: each event adds its energy, and each cycle adds the static energy.

    The energies of overlapping events add up (a floating-point addition is an instruction, too).
    """

    static_pj_per_cycle: float = Field(
        default=0.0, ge=0, description="Leakage and clock of the whole core [pJ a cycle]. Default 0."
    )
    events_pj: dict[str, float] = Field(
        default_factory=dict,
        description="Energy of one event [pJ], by the event's name in lower case, such as l1d_accesses. Default none.",
    )

    @field_validator("events_pj")
    @classmethod
    def _known(cls, value: dict[str, float]) -> dict[str, float]:
        names = [event.name.lower() for event in Event]
        for name, energy in value.items():
            if name == "cycles":
                raise problem_at("not an event with an energy: static_pj_per_cycle is what each cycle adds", name)
            if name not in names:
                close = difflib.get_close_matches(name, names[1:], 1)
                hint = f"; did you mean '{close[0]}'?" if close else f"; known: {', '.join(names[1:])}"
                raise problem_at(f"not an event with an energy{hint}", name)
            if not 0 <= energy < 1e9:
                raise problem_at(f"got {energy}, expected 0 or more [pJ]", name)
        return value

    def picojoules(self) -> NDArray[np.float64]:
        """Energy of one event of each kind [pJ], ``(N_EVENTS,)`` indexed by `Event`."""
        table = np.zeros(N_EVENTS)
        for name, energy in self.events_pj.items():
            table[Event[name.upper()]] = energy
        table[Event.CYCLES] = self.static_pj_per_cycle
        return table


class MachineConfig(_Section):
    """An in-order machine: pipeline, caches, translation, branch prediction, memory, counters."""

    name: str = Field(min_length=1, description="Name of the machine, as reports show it.")
    description: str = Field(default="", description="What it models. Default empty.")
    clock_hz: int = Field(ge=1_000, le=100_000_000_000, description="Clock [Hz], from which virtual time is derived.")
    pipeline: PipelineConfig = Field(description="The in-order pipeline.")
    functional_units: FunctionalUnits = Field(
        default_factory=FunctionalUnits, description="Latency and interval of each instruction class."
    )
    l1i: CacheConfig = Field(description="First-level instruction cache.")
    l1d: DataCacheConfig = Field(description="First-level data cache.")
    l2: CacheConfig | None = Field(
        default=None, description="Second-level cache, unified, physically indexed. Default none."
    )
    itlb: TlbConfig | None = Field(default=None, description="Instruction TLB. Default none: translation is free.")
    dtlb: TlbConfig | None = Field(default=None, description="Data TLB. Default none: translation is free.")
    memory: MemoryConfig = Field(description="Main memory.")
    branch_predictor: PredictorConfig = Field(
        default_factory=lambda: PredictorConfig(),
        description="Branch prediction. Default: static, not taken.",
    )
    energy: EnergyConfig | None = Field(
        default=None, description="Energy of each event. Default none: energy is not traced."
    )
    pmu: PmuConfig = Field(default_factory=lambda: PmuConfig(), description="Performance-monitoring unit.")

    @model_validator(mode="after")
    def _lines(self) -> Self:
        for name in ("l1i", "l1d"):
            line_bytes = getattr(self, name).line_bytes
            if self.l2 is not None and self.l2.line_bytes < line_bytes:
                raise problem_among(
                    f"l2.line_bytes is {self.l2.line_bytes}, expected at least {name}.line_bytes ({line_bytes})",
                    "l2.line_bytes", f"{name}.line_bytes",
                )  # fmt: skip
        return self
