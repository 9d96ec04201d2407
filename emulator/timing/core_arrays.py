"""Builds the arrays of a core (see `emulator.timing.layout`) from a machine description and a seed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.events import OpClass
from emulator.timing import layout
from emulator.timing.machine_config import (
    GUEST_ADDRESS_BITS,
    FunctionalUnits,
    MachineConfig,
    UnitTiming,
)

_POLICIES = {"lru": layout.POLICY_LRU, "fifo": layout.POLICY_FIFO, "random": layout.POLICY_RANDOM}
_PREDICTORS = {
    "not_taken": layout.PREDICT_NOT_TAKEN,
    "backward_taken": layout.PREDICT_BACKWARD_TAKEN,
    "bimodal": layout.PREDICT_BIMODAL,
    "gshare": layout.PREDICT_GSHARE,
}
_UNITS = {
    OpClass.INT_ALU: (layout.UNIT_ALU, "int_alu"),
    OpClass.INT_MUL: (layout.UNIT_INT_MULTIPLIER, "int_mul"),
    OpClass.INT_DIV: (layout.UNIT_INT_MULTIPLIER, "int_div"),
    OpClass.FP_ADD: (layout.UNIT_FP_ADDER, "fp_add"),
    OpClass.FP_CVT: (layout.UNIT_FP_ADDER, "fp_cvt"),
    OpClass.FP_MOVE: (layout.UNIT_FP_ADDER, "fp_move"),
    OpClass.FP_MUL: (layout.UNIT_FP_MULTIPLIER, "fp_mul"),
    OpClass.FP_FMA: (layout.UNIT_FP_MULTIPLIER, "fp_fma"),
    OpClass.FP_DIV: (layout.UNIT_FP_MULTIPLIER, "fp_div"),
    OpClass.FP_SQRT: (layout.UNIT_FP_MULTIPLIER, "fp_sqrt"),
    OpClass.CSR: (layout.UNIT_SYSTEM, "csr"),
    OpClass.FENCE: (layout.UNIT_SYSTEM, "fence"),
    OpClass.SYSTEM: (layout.UNIT_SYSTEM, "system"),
}
_MEMORY_CLASSES = {OpClass.LOAD, OpClass.STORE, OpClass.FP_LOAD, OpClass.FP_STORE, OpClass.ATOMIC}
_HOST_LINE_WORDS = 16
_MAX_HINTS = 8192  # 32 KiB: more would push the simulator's own tables out of the host's caches


def shift_of(power_of_two: int) -> int:
    """Binary logarithm of a power of two."""
    return power_of_two.bit_length() - 1


def class_timing(units: FunctionalUnits) -> NDArray[np.int64]:
    """Unit, latency and interval [cycles] of each instruction class, ``(classes, 3)``.

    Memory instructions use the memory port for one cycle and control transfers the branch unit; the latency
    of a load is that of the data cache, which the pipeline adds.
    """
    table = np.ones((len(OpClass), 3), np.int64)
    for op_class in OpClass:
        if op_class in _UNITS:
            unit, field = _UNITS[op_class]
            timing: UnitTiming = getattr(units, field)
            table[op_class] = unit, timing.latency_cycles, timing.interval_cycles
        else:
            table[op_class, 0] = layout.UNIT_MEMORY if op_class in _MEMORY_CLASSES else layout.UNIT_BRANCH
    return table


def _parameters(config: MachineConfig) -> dict[int, int]:
    pipeline, predictor = config.pipeline, config.branch_predictor
    return {
        layout.P_WIDTH: pipeline.issue_width,
        layout.P_MISPREDICT: pipeline.mispredict_penalty_cycles,
        layout.P_REDIRECT: pipeline.redirect_penalty_cycles,
        layout.P_TAKEN_BUBBLE: config.l1i.hit_latency_cycles - 1,
        layout.P_LOAD_LATENCY: config.l1d.hit_latency_cycles + pipeline.load_use_cycles,
        layout.P_OUTSTANDING: pipeline.outstanding_misses,
        layout.P_L2_LATENCY: config.l2.hit_latency_cycles if config.l2 else 0,
        layout.P_MEMORY_LATENCY: config.memory.latency_cycles,
        layout.P_PAGE_SHIFT: shift_of(config.memory.page_bytes),
        layout.P_L1I_SHIFT: shift_of(config.l1i.line_bytes),
        layout.P_L1D_SHIFT: shift_of(config.l1d.line_bytes),
        layout.P_L2_SHIFT: shift_of(config.l2.line_bytes) if config.l2 else 0,
        layout.P_WRITE_BACK: int(config.l1d.write_policy == "write_back"),
        layout.P_WRITE_ALLOCATE: int(config.l1d.write_allocate),
        layout.P_ITLB: int(config.itlb is not None),
        layout.P_ITLB_PENALTY: config.itlb.miss_penalty_cycles if config.itlb else 0,
        layout.P_DTLB: int(config.dtlb is not None),
        layout.P_DTLB_PENALTY: config.dtlb.miss_penalty_cycles if config.dtlb else 0,
        layout.P_PREDICTOR: _PREDICTORS[predictor.kind],
        layout.P_PREDICTOR_MASK: predictor.entries - 1,
        layout.P_HISTORY_MASK: (1 << predictor.history_bits) - 1,
        layout.P_BTB_MASK: predictor.btb_entries - 1,
        layout.P_STACK_ENTRIES: predictor.return_stack_entries,
    }


def _caches(config: MachineConfig) -> dict[int, tuple[int, int, str]]:
    """Sets, ways and replacement policy of each cache and TLB; an absent one has one unused line."""
    shapes: dict[int, tuple[int, int, str]] = {}
    for cache, of_cache in ((layout.L1I, config.l1i), (layout.L1D, config.l1d), (layout.L2, config.l2)):
        shapes[cache] = (of_cache.sets, of_cache.associativity, of_cache.replacement) if of_cache else (1, 1, "lru")
    for cache, of_tlb in ((layout.ITLB, config.itlb), (layout.DTLB, config.dtlb)):
        shapes[cache] = (of_tlb.sets, of_tlb.associativity, of_tlb.replacement) if of_tlb else (1, 1, "lru")
    return shapes


def build_core(config: MachineConfig, seed: int, place_pages: bool) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    """``longs`` and ``words`` of a core before the first block; tables of blocks and instructions are empty.

    Caches and TLBs are empty, two-bit counters weakly not taken. ``place_pages``: whether virtual pages are
    placed at random in physical memory, or at their own numbers.
    """
    generator = np.random.default_rng([seed, 0])
    caches = _caches(config)
    n_lines = sum(sets * ways for sets, ways, _ in caches.values())
    longs = np.zeros(layout.STAMPS + n_lines, np.int64)
    for index, value in _parameters(config).items():
        longs[index] = value
    unset = (layout.S_PREVIOUS, layout.S_FETCH_LINE, layout.S_FETCH_PAGE, layout.S_DATA_PAGE)
    longs[[*unset]] = -1
    longs[layout.S_STATES] = 1
    longs[layout.MISS_LINE : layout.MISS_LINE + layout.MAX_OUTSTANDING] = -1
    longs[layout.STATES : layout.STATES + layout.STATE_SLOTS] = -1
    longs[layout.TRANSITION_KEYS : layout.TRANSITION_KEYS + layout.TRANSITION_SLOTS] = -1

    parts = [np.full(n_lines, layout.INVALID_TAG, np.uint32)]
    base = 0
    for cache, (sets, ways, replacement) in caches.items():
        hints = min(_MAX_HINTS, 1 << (4 * sets * ways - 1).bit_length())
        longs[cache + layout.M_BASE] = base
        longs[cache + layout.M_WAYS] = ways
        longs[cache + layout.M_SET_MASK] = sets - 1
        longs[cache + layout.M_POLICY] = _POLICIES[replacement]
        longs[cache + layout.M_RANDOM] = generator.integers(1, 1 << 62)
        longs[cache + layout.M_HINTS] = sum(map(len, parts))
        longs[cache + layout.M_HINT_MASK] = hints - 1
        parts.append(np.full(hints, base, np.uint32))
        # The empty ways of a set are older than any line, the first of them oldest.
        longs[layout.STAMPS + base : layout.STAMPS + base + sets * ways] = np.tile(np.arange(-ways, 0), sets)
        base += sets * ways
    pages = 1 << GUEST_ADDRESS_BITS - shift_of(config.memory.page_bytes)
    predictor = config.branch_predictor
    for index, part in (
        (layout.P_FRAMES, generator.permutation(pages) if place_pages else np.arange(pages)),
        (layout.P_DIRECTIONS, np.ones(predictor.entries)),
        (layout.P_BTB, np.full(2 * predictor.btb_entries, layout.NO_TARGET)),
        (layout.P_STACK, np.full(predictor.return_stack_entries, layout.NO_TARGET)),
    ):
        longs[index] = sum(map(len, parts))
        parts.append(part.astype(np.uint32))
    parts.append(np.zeros(-sum(map(len, parts)) % _HOST_LINE_WORDS, np.uint32))
    longs[layout.P_BLOCKS] = longs[layout.P_OPS] = sum(map(len, parts))
    return longs, np.concatenate(parts)


def grow_tables(
    longs: NDArray[np.int64], words: NDArray[np.uint32], blocks: int, instructions: int
) -> NDArray[np.uint32]:
    """A copy of ``words`` with room for ``blocks`` block rows and ``instructions`` instruction rows; updates P_OPS in
    ``longs``."""
    old_ops = int(longs[layout.P_OPS])
    ops = int(longs[layout.P_BLOCKS]) + blocks * layout.BLOCK_COLUMNS
    length = ops + instructions * layout.OP_COLUMNS
    raw = np.zeros(length + _HOST_LINE_WORDS, np.uint32)
    skip = -raw.ctypes.data // raw.itemsize % _HOST_LINE_WORDS
    grown = raw[skip : skip + length]  # block rows lie each in one line of the host's cache
    grown[:old_ops] = words[:old_ops]
    grown[ops : ops + len(words) - old_ops] = words[old_ops:]
    longs[layout.P_OPS] = ops
    return grown
