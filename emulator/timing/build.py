"""From a machine description and a seed to the arrays that the kernels work on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.events import OpClass
from emulator.timing import layout as lay
from emulator.timing.config import (
    GUEST_ADDRESS_BITS,
    FunctionalUnits,
    MachineConfig,
    UnitTiming,
)

_POLICIES = {"lru": lay.POLICY_LRU, "fifo": lay.POLICY_FIFO, "random": lay.POLICY_RANDOM}
_PREDICTORS = {
    "not_taken": lay.PREDICT_NOT_TAKEN,
    "backward_taken": lay.PREDICT_BACKWARD_TAKEN,
    "bimodal": lay.PREDICT_BIMODAL,
    "gshare": lay.PREDICT_GSHARE,
}
_UNITS = {
    OpClass.INT_ALU: (lay.UNIT_ALU, "int_alu"),
    OpClass.INT_MUL: (lay.UNIT_INT_MULTIPLIER, "int_mul"),
    OpClass.INT_DIV: (lay.UNIT_INT_MULTIPLIER, "int_div"),
    OpClass.FP_ADD: (lay.UNIT_FP_ADDER, "fp_add"),
    OpClass.FP_CVT: (lay.UNIT_FP_ADDER, "fp_cvt"),
    OpClass.FP_MOVE: (lay.UNIT_FP_ADDER, "fp_move"),
    OpClass.FP_MUL: (lay.UNIT_FP_MULTIPLIER, "fp_mul"),
    OpClass.FP_FMA: (lay.UNIT_FP_MULTIPLIER, "fp_fma"),
    OpClass.FP_DIV: (lay.UNIT_FP_MULTIPLIER, "fp_div"),
    OpClass.FP_SQRT: (lay.UNIT_FP_MULTIPLIER, "fp_sqrt"),
    OpClass.CSR: (lay.UNIT_SYSTEM, "csr"),
    OpClass.FENCE: (lay.UNIT_SYSTEM, "fence"),
    OpClass.SYSTEM: (lay.UNIT_SYSTEM, "system"),
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
            table[op_class, 0] = lay.UNIT_MEMORY if op_class in _MEMORY_CLASSES else lay.UNIT_BRANCH
    return table


def _parameters(config: MachineConfig) -> dict[int, int]:
    pipeline, predictor = config.pipeline, config.branch_predictor
    return {
        lay.P_WIDTH: pipeline.issue_width,
        lay.P_MISPREDICT: pipeline.mispredict_penalty_cycles,
        lay.P_REDIRECT: pipeline.redirect_penalty_cycles,
        lay.P_TAKEN_BUBBLE: config.l1i.hit_latency_cycles - 1,
        lay.P_LOAD_LATENCY: config.l1d.hit_latency_cycles + pipeline.load_use_cycles,
        lay.P_OUTSTANDING: pipeline.outstanding_misses,
        lay.P_L2_LATENCY: config.l2.hit_latency_cycles if config.l2 else 0,
        lay.P_MEMORY_LATENCY: config.memory.latency_cycles,
        lay.P_PAGE_SHIFT: shift_of(config.memory.page_bytes),
        lay.P_L1I_SHIFT: shift_of(config.l1i.line_bytes),
        lay.P_L1D_SHIFT: shift_of(config.l1d.line_bytes),
        lay.P_L2_SHIFT: shift_of(config.l2.line_bytes) if config.l2 else 0,
        lay.P_WRITE_BACK: int(config.l1d.write_policy == "write_back"),
        lay.P_WRITE_ALLOCATE: int(config.l1d.write_allocate),
        lay.P_ITLB: int(config.itlb is not None),
        lay.P_ITLB_PENALTY: config.itlb.miss_penalty_cycles if config.itlb else 0,
        lay.P_DTLB: int(config.dtlb is not None),
        lay.P_DTLB_PENALTY: config.dtlb.miss_penalty_cycles if config.dtlb else 0,
        lay.P_PREDICTOR: _PREDICTORS[predictor.kind],
        lay.P_PREDICTOR_MASK: predictor.entries - 1,
        lay.P_HISTORY_MASK: (1 << predictor.history_bits) - 1,
        lay.P_BTB_MASK: predictor.btb_entries - 1,
        lay.P_STACK_ENTRIES: predictor.return_stack_entries,
    }


def _caches(config: MachineConfig) -> dict[int, tuple[int, int, str]]:
    """Sets, ways and replacement policy of each cache and TLB; an absent one has a line that nobody uses."""
    shapes: dict[int, tuple[int, int, str]] = {}
    for cache, of_cache in ((lay.L1I, config.l1i), (lay.L1D, config.l1d), (lay.L2, config.l2)):
        shapes[cache] = (
            (of_cache.sets, of_cache.associativity, of_cache.replacement) if of_cache else (1, 1, "lru")
        )
    for cache, of_tlb in ((lay.ITLB, config.itlb), (lay.DTLB, config.dtlb)):
        shapes[cache] = (of_tlb.sets, of_tlb.associativity, of_tlb.replacement) if of_tlb else (1, 1, "lru")
    return shapes


def build_core(
    config: MachineConfig, seed: int, place_pages: bool
) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    """``longs`` and ``words`` of a core before the first block; tables of blocks and instructions are empty.

    Caches and TLBs are empty, two-bit counters weakly not taken. ``place_pages``: whether virtual pages are
    placed at random in physical memory, or at their own numbers.
    """
    generator = np.random.default_rng([seed, 0])
    caches = _caches(config)
    n_lines = sum(sets * ways for sets, ways, _ in caches.values())
    longs = np.zeros(lay.STAMPS + n_lines, np.int64)
    for index, value in _parameters(config).items():
        longs[index] = value
    for index in (lay.S_PREVIOUS, lay.S_FETCH_LINE, lay.S_FETCH_PAGE, lay.S_DATA_PAGE, lay.S_SAMPLE_BY):
        longs[index] = -1
    longs[lay.S_STATES] = 1
    longs[lay.MISS_LINE : lay.MISS_LINE + lay.MAX_OUTSTANDING] = -1
    longs[lay.STATES : lay.STATES + lay.STATE_SLOTS] = -1
    longs[lay.TRANSITION_KEYS : lay.TRANSITION_KEYS + lay.TRANSITION_SLOTS] = -1

    parts = [np.full(n_lines, lay.INVALID_TAG, np.uint32)]
    base = 0
    for cache, (sets, ways, replacement) in caches.items():
        hints = min(_MAX_HINTS, 1 << (4 * sets * ways - 1).bit_length())
        longs[cache + lay.M_BASE] = base
        longs[cache + lay.M_WAYS] = ways
        longs[cache + lay.M_SET_MASK] = sets - 1
        longs[cache + lay.M_POLICY] = _POLICIES[replacement]
        longs[cache + lay.M_RANDOM] = generator.integers(1, 1 << 62)
        longs[cache + lay.M_HINTS] = sum(map(len, parts))
        longs[cache + lay.M_HINT_MASK] = hints - 1
        parts.append(np.full(hints, base, np.uint32))
        # The empty ways of a set are older than any line, the first of them oldest.
        longs[lay.STAMPS + base : lay.STAMPS + base + sets * ways] = np.tile(np.arange(-ways, 0), sets)
        base += sets * ways
    pages = 1 << GUEST_ADDRESS_BITS - shift_of(config.memory.page_bytes)
    predictor = config.branch_predictor
    for index, part in (
        (lay.P_FRAMES, generator.permutation(pages) if place_pages else np.arange(pages)),
        (lay.P_DIRECTIONS, np.ones(predictor.entries)),
        (lay.P_BTB, np.full(2 * predictor.btb_entries, lay.NO_TARGET)),
        (lay.P_STACK, np.full(predictor.return_stack_entries, lay.NO_TARGET)),
    ):
        longs[index] = sum(map(len, parts))
        parts.append(part.astype(np.uint32))
    parts.append(np.zeros(-sum(map(len, parts)) % _HOST_LINE_WORDS, np.uint32))
    longs[lay.P_BLOCKS] = longs[lay.P_OPS] = sum(map(len, parts))
    return longs, np.concatenate(parts)


def with_room(
    longs: NDArray[np.int64], words: NDArray[np.uint32], blocks: int, instructions: int
) -> NDArray[np.uint32]:
    """``words`` with room for so many blocks and instructions; ``longs`` is changed to say where they are."""
    old_ops = int(longs[lay.P_OPS])
    ops = int(longs[lay.P_BLOCKS]) + blocks * lay.BLOCK_COLUMNS
    length = ops + instructions * lay.OP_COLUMNS
    raw = np.zeros(length + _HOST_LINE_WORDS, np.uint32)
    skip = -raw.ctypes.data // raw.itemsize % _HOST_LINE_WORDS
    grown = raw[skip : skip + length]  # block rows lie each in one line of the host's cache
    grown[:old_ops] = words[:old_ops]
    grown[ops : ops + len(words) - old_ops] = words[old_ops:]
    longs[lay.P_OPS] = ops
    return grown
