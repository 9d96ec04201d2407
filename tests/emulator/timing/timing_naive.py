"""The in-order core again, slowly and obviously: objects, lists and dictionaries, one instruction at a time.

The twin of the kernels in `emulator.timing`. It shares their configuration and their event names; the two
things that a seed decides (where pages are placed, where a cache's random generator starts) are passed in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.events import ACCESS_HIDDEN, ACCESS_STORE, BlockFacts, OpClass
from emulator.timing.machine_config import CacheConfig, MachineConfig, TlbConfig
from emulator.timing.machine_events import Event


class NaiveCache:
    """Sets of lines; ``lookup`` says what happened as (hit, number of the dirty line thrown out or None)."""

    def __init__(self, sets: int, ways: int, policy: str, generator: int) -> None:
        self.sets: list[list[list[int] | None]] = [[None] * ways for _ in range(sets)]  # [line, dirty]
        self.policy = policy
        self.age: dict[int, int] = {}  # line -> time of last use (LRU) or of arrival (FIFO)
        self.time = 0
        self.generator = generator

    def random(self) -> int:
        x = self.generator
        x ^= (x << 13) % 2**64
        x ^= x >> 7
        x ^= (x << 17) % 2**64
        self.generator = x
        return x >> 1

    def lookup(self, line: int, dirty: bool = False, allocate: bool = True) -> tuple[bool, int | None]:
        self.time += 1
        ways = self.sets[line % len(self.sets)]
        for entry in ways:
            if entry is not None and entry[0] == line:
                entry[1] |= dirty
                if self.policy == "lru":
                    self.age[line] = self.time
                return True, None
        if not allocate:
            return False, None
        if None in ways:
            way = ways.index(None)
        elif self.policy == "random":
            way = self.random() % len(ways)
        else:
            way = min(range(len(ways)), key=lambda way: self.age[ways[way][0]])  # type: ignore[index]  # no way is free
        victim = ways[way]
        if victim is not None:
            del self.age[victim[0]]
        ways[way] = [line, int(dirty)]
        self.age[line] = self.time
        return False, victim[0] if victim is not None and victim[1] else None


class NaivePredictor:
    """Direction and target prediction; ``after`` gives the empty cycles after a control transfer."""

    def __init__(self, config: MachineConfig, counts: dict[Event, int]) -> None:
        self.config, self.counts = config, counts
        self.counters: dict[int, int] = {}
        self.history: list[int] = [0] * config.branch_predictor.history_bits  # newest last
        self.btb: dict[int, tuple[int, int]] = {}
        self.stack: list[int | None] = [None] * config.branch_predictor.return_stack_entries
        self.top = 0

    def direction(self, pc: int, target: int, taken: bool) -> bool:
        predictor = self.config.branch_predictor
        if predictor.kind == "not_taken":
            return False
        if predictor.kind == "backward_taken":
            return target <= pc
        index = pc // 2
        if predictor.kind == "gshare":
            index ^= int("".join(map(str, self.history)), 2)
            self.history = [*self.history[1:], int(taken)]
        index %= predictor.entries
        counter = self.counters.get(index, 1)
        self.counters[index] = min(3, counter + 1) if taken else max(0, counter - 1)
        return counter >= 2

    def knows(self, pc: int, target: int) -> bool:
        entries = self.config.branch_predictor.btb_entries
        if not entries:
            return False
        known = self.btb.get(pc // 2 % entries) == (pc, target)
        self.btb[pc // 2 % entries] = (pc, target)
        return known

    def after(self, op_class: int, pc: int, end_pc: int, target: int | None, next_pc: int) -> int:
        pipeline, counts = self.config.pipeline, self.counts
        bubble = self.config.l1i.hit_latency_cycles - 1
        if op_class == OpClass.BRANCH:
            taken = next_pc == target and target != end_pc
            predicted = self.direction(pc, target or 0, taken)
            counts[Event.BRANCHES_TAKEN] += taken
            known = self.knows(pc, next_pc) if taken else False
            if predicted != taken:
                counts[Event.BRANCHES_MISPREDICTED] += 1
                return pipeline.mispredict_penalty_cycles
            if not taken:
                return 0
        elif op_class in (OpClass.RETURN, OpClass.INDIRECT_JUMP, OpClass.INDIRECT_CALL):
            if op_class == OpClass.RETURN and self.stack:
                right = self.stack[self.top] == next_pc
                self.top = (self.top - 1) % len(self.stack)
            else:
                right = self.knows(pc, next_pc)
            if op_class == OpClass.INDIRECT_CALL:
                self.push(end_pc)
            if not right:
                counts[Event.TARGETS_MISPREDICTED] += 1
                return pipeline.mispredict_penalty_cycles
            return bubble
        elif op_class in (OpClass.JUMP, OpClass.CALL):
            known = self.knows(pc, next_pc)
            if op_class == OpClass.CALL:
                self.push(end_pc)
        else:
            return 0
        if known:
            return bubble
        if self.config.branch_predictor.btb_entries:
            counts[Event.BTB_MISSES] += 1
        return bubble + pipeline.redirect_penalty_cycles

    def push(self, address: int) -> None:
        if self.stack:
            self.top = (self.top + 1) % len(self.stack)
            self.stack[self.top] = address


UNIT_OF_CLASS = {
    OpClass.INT_ALU: ("alu", "int_alu"),
    OpClass.INT_MUL: ("integer multiplier", "int_mul"),
    OpClass.INT_DIV: ("integer multiplier", "int_div"),
    OpClass.FP_ADD: ("adder", "fp_add"),
    OpClass.FP_CVT: ("adder", "fp_cvt"),
    OpClass.FP_MOVE: ("adder", "fp_move"),
    OpClass.FP_MUL: ("multiplier", "fp_mul"),
    OpClass.FP_FMA: ("multiplier", "fp_fma"),
    OpClass.FP_DIV: ("multiplier", "fp_div"),
    OpClass.FP_SQRT: ("multiplier", "fp_sqrt"),
    OpClass.CSR: ("system", "csr"),
    OpClass.FENCE: ("system", "fence"),
    OpClass.SYSTEM: ("system", "system"),
}
MEMORY = (OpClass.LOAD, OpClass.STORE, OpClass.FP_LOAD, OpClass.FP_STORE, OpClass.ATOMIC)
TRANSFERS = tuple(op for op in OpClass if OpClass.BRANCH <= op <= OpClass.INDIRECT_CALL)


@dataclass
class Seeded:
    """What a seed decides: page placement, and the generator of each cache by its field in MachineConfig."""

    frames: Sequence[int] | NDArray[np.uint32]
    generators: dict[str, int]


@dataclass
class NaiveCore:
    """Consumes one block after another; ``counts`` by event."""

    config: MachineConfig
    facts: BlockFacts
    seeded: Seeded
    counts: dict[Event, int] = field(default_factory=lambda: dict.fromkeys(Event, 0))
    cycle: int = 0

    def __post_init__(self) -> None:
        config = self.config
        self.l1i = self.cache("l1i", config.l1i)
        self.l1d = self.cache("l1d", config.l1d)
        self.l2 = self.cache("l2", config.l2) if config.l2 else None
        self.itlb = self.cache("itlb", config.itlb) if config.itlb else None
        self.dtlb = self.cache("dtlb", config.dtlb) if config.dtlb else None
        self.predictor = NaivePredictor(config, self.counts)
        self.ready: dict[int | str, int] = {}  # registers and units
        self.under_way: list[tuple[int, int]] = [(-1, 0)] * config.pipeline.outstanding_misses  # line, until
        self.previous: int | None = None
        self.fetched_line: int | None = None

    def cache(self, name: str, config: CacheConfig | TlbConfig) -> NaiveCache:
        return NaiveCache(config.sets, config.associativity, config.replacement, self.seeded.generators[name])

    # The memory hierarchy.

    def l2_line(self, address: int) -> int:
        page_bytes = self.config.memory.page_bytes
        physical = self.seeded.frames[address // page_bytes] * page_bytes + address % page_bytes
        assert self.config.l2 is not None
        return physical // self.config.l2.line_bytes

    def read_below(self, address: int, is_data: bool) -> int:
        delay = 0
        if self.l2 is not None:
            self.counts[Event.L2_ACCESSES] += 1
            self.counts[Event.L2_DATA_ACCESSES] += is_data
            assert self.config.l2 is not None
            delay = self.config.l2.hit_latency_cycles
            hit, thrown_out = self.l2.lookup(self.l2_line(address))
            if hit:
                return delay
            self.counts[Event.L2_MISSES] += 1
            self.counts[Event.L2_DATA_MISSES] += is_data
            if thrown_out is not None:
                self.counts[Event.L2_WRITEBACKS] += 1
                self.counts[Event.MEMORY_WRITES] += 1
        self.counts[Event.MEMORY_READS] += 1
        return delay + self.config.memory.latency_cycles

    def write_below(self, address: int) -> None:
        if self.l2 is not None and self.l2.lookup(self.l2_line(address), dirty=True, allocate=False)[0]:
            return
        self.counts[Event.MEMORY_WRITES] += 1

    def fetch(self, line: int) -> int:
        self.counts[Event.L1I_ACCESSES] += 1
        address = line * self.config.l1i.line_bytes
        delay = 0
        if not self.l1i.lookup(line)[0]:
            self.counts[Event.L1I_MISSES] += 1
            delay += self.read_below(address, is_data=False)
        if self.itlb is not None and not self.itlb.lookup(address // self.config.memory.page_bytes)[0]:
            self.counts[Event.ITLB_MISSES] += 1
            assert self.config.itlb is not None
            delay += self.config.itlb.miss_penalty_cycles
        return delay

    def walk_pages(self, address: int) -> int:
        if self.dtlb is None or self.dtlb.lookup(address // self.config.memory.page_bytes)[0]:
            return 0
        self.counts[Event.DTLB_MISSES] += 1
        assert self.config.dtlb is not None
        return self.config.dtlb.miss_penalty_cycles

    def access(self, address: int, is_store: bool) -> int:
        cache = self.config.l1d
        back = cache.write_policy == "write_back"
        allocate = not is_store or cache.write_allocate
        line = address // cache.line_bytes
        hit, thrown_out = self.l1d.lookup(line, dirty=is_store and back, allocate=allocate)
        delay = 0
        self.counts[Event.L1D_ACCESSES] += 1
        if not hit:
            self.counts[Event.L1D_MISSES] += 1
            self.counts[Event.L1D_STORE_MISSES if is_store else Event.L1D_LOAD_MISSES] += 1
            if allocate:
                delay = self.read_below(address, is_data=True)
            elif back:
                self.write_below(address)
            if thrown_out is not None:
                self.counts[Event.L1D_WRITEBACKS] += 1
                self.write_below(thrown_out * cache.line_bytes)
        if is_store and not back:
            self.write_below(address)
        return delay

    # The pipeline.

    def idle(self, cycles: int) -> None:
        """Front-end delay."""
        self.cycle += cycles
        self.counts[Event.STALL_CYCLES] += cycles
        self.counts[Event.FRONTEND_STALL_CYCLES] += cycles

    def execute(self, block: int, addresses: list[int]) -> None:
        """Take one block of the record."""
        fact = self.facts.blocks[block]
        first = int(fact["first_instruction"])
        instructions = self.facts.instructions[first : first + int(fact["n_instructions"])]
        if self.previous is not None:
            before = self.facts.blocks[self.previous]
            last = self.facts.instructions[int(before["first_instruction"]) + int(before["n_instructions"]) - 1]
            self.idle(
                self.predictor.after(
                    int(before["terminator"]),
                    int(last["pc"]),
                    int(before["end_pc"]),
                    int(before["target_pc"]) if before["target_known"] else None,
                    int(fact["pc"]),
                )
            )
        self.previous = block

        line_bytes = self.config.l1i.line_bytes
        first_line = int(fact["pc"]) // line_bytes
        late_lines: dict[int, int] = {}
        for line in range(first_line, (int(fact["end_pc"]) - 1) // line_bytes + 1):
            if line != self.fetched_line:
                late_lines[line] = self.fetch(line)
            self.fetched_line = line
        delays: list[tuple[int, int, int]] = []
        for instruction in instructions:
            if 0 < instruction["access"] < ACCESS_HIDDEN:
                address = addresses[len(delays)]
                is_store = bool(instruction["access"] & ACCESS_STORE)
                delays.append((self.walk_pages(address), self.access(address, is_store), address))
        self.idle(late_lines.pop(first_line, 0))

        slots = 0
        for instruction in instructions:
            last_line = (int(instruction["pc"]) + int(instruction["length_bytes"]) - 1) // line_bytes
            late = sum(late_lines.pop(line) for line in sorted(late_lines) if line <= last_line)
            if late:
                self.cycle += slots > 0
                slots = 0
                self.idle(late)
            slots = self.issue(instruction, slots, delays)
        self.cycle += slots > 0

    def issue(self, instruction: Any, slots: int, delays: list[tuple[int, int, int]]) -> int:
        """Issue one instruction; returns the slots of the current cycle that are taken."""
        pipeline, counts = self.config.pipeline, self.counts
        op_class = OpClass(int(instruction["op_class"]))
        names = {int(instruction[name]) for name in ("rs1", "rs2", "rs3", "rd")} - {0}
        load_latency = self.config.l1d.hit_latency_cycles + pipeline.load_use_cycles
        if op_class in UNIT_OF_CLASS:
            unit, timing_name = UNIT_OF_CLASS[op_class]
            timing = getattr(self.config.functional_units, timing_name)
            latency, interval = timing.latency_cycles, timing.interval_cycles
        else:
            unit, latency, interval = ("memory" if op_class in MEMORY else "branch"), 1, 1
        start = max([self.cycle + (slots == pipeline.issue_width), *(self.ready.get(name, 0) for name in names)])
        if unit != "alu":
            start = max(start, self.ready.get(unit, 0))
        stop = 0
        if instruction["access"] & ACCESS_HIDDEN:
            latency = load_latency
        elif instruction["access"]:
            walked, missed, address = delays.pop(0)
            start += walked
            line = address // self.config.l1d.line_bytes
            latency = load_latency + missed
            if not pipeline.outstanding_misses:
                stop = missed
            elif missed:
                port = min(range(len(self.under_way)), key=lambda port: self.under_way[port][1])
                start = max(start, self.under_way[port][1])
                self.under_way[port] = (line, start + missed)
            else:
                for under_way, until in self.under_way:
                    if under_way == line and until > start:
                        latency = until - start + load_latency
        if start > self.cycle:
            counts[Event.STALL_CYCLES] += start - self.cycle - (slots > 0)
            self.cycle, slots = start, 0
        self.ready[unit] = start + interval
        if instruction["rd"]:
            self.ready[int(instruction["rd"])] = start + latency
        if stop:
            counts[Event.STALL_CYCLES] += stop
            self.cycle += 1 + stop
            return 0
        return slots + 1
