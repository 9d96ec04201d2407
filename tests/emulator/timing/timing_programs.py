"""Made-up programs for the timing tests: block facts, records, and Hypothesis strategies for both."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from emulator.events import ACCESS_LOAD, ACCESS_STORE, BlockFacts, OpClass
from emulator.timing.machine_config import MachineConfig

Row = tuple[int, int, int, int, int, int, int, int, int]
Execution = tuple[int, list[int]]  # block, effective addresses

ACCESS_OF_CLASS = {
    OpClass.LOAD: ACCESS_LOAD,
    OpClass.FP_LOAD: ACCESS_LOAD,
    OpClass.STORE: ACCESS_STORE,
    OpClass.FP_STORE: ACCESS_STORE,
    OpClass.ATOMIC: ACCESS_LOAD | ACCESS_STORE,
}
BODY = [op for op in OpClass if not OpClass.BRANCH <= op <= OpClass.INDIRECT_CALL and op < OpClass.CSR]
ENDS = [op for op in OpClass if op not in BODY] + [OpClass.BRANCH] * 4  # most common in real code too
WITH_TARGET = (OpClass.BRANCH, OpClass.JUMP, OpClass.CALL)


def instruction(
    pc: int, op_class: OpClass, rd: int = 0, rs1: int = 0, rs2: int = 0, rs3: int = 0, length_bytes: int = 4
) -> Row:
    """A row of the instruction table."""
    access = ACCESS_OF_CLASS.get(op_class, 0)
    return (pc, length_bytes, op_class, access, 8 if access else 0, rd, rs1, rs2, rs3)


def stream_of(executions: Iterable[Execution]) -> NDArray[np.uint32]:
    """The record of so many executed blocks."""
    return np.array([word for block, addresses in executions for word in (block, *addresses)], np.uint32)


def machine(**changes: Any) -> MachineConfig:
    """A small machine: 1 KiB caches, no L2, TLBs or predictor; sections change by keyword."""
    sections: dict[str, Any] = {
        "name": "test",
        "clock_hz": 1_000_000_000,
        "pipeline": {"mispredict_penalty_cycles": 5},
        "l1i": {"size_bytes": 1024, "associativity": 2, "line_bytes": 32},
        "l1d": {"size_bytes": 1024, "associativity": 2, "line_bytes": 32},
        "memory": {"latency_cycles": 50},
    }
    for name, change in changes.items():
        old = sections.get(name)
        sections[name] = {**old, **change} if isinstance(old, dict) and isinstance(change, dict) else change
    return MachineConfig.model_validate(sections)


_REPLACEMENTS = st.sampled_from(["lru", "fifo", "random"])


@st.composite
def machines(draw: st.DrawFn) -> MachineConfig:
    """Machines whose caches, TLBs and tables are so small that everything happens."""
    line = draw(st.sampled_from([16, 32, 64]))

    def cache(sets: list[int], ways: list[int], line_bytes: int) -> dict[str, Any]:
        associativity = draw(st.sampled_from(ways))
        return {
            "size_bytes": max(64, draw(st.sampled_from(sets)) * associativity * line_bytes),
            "associativity": associativity,
            "line_bytes": line_bytes,
            "replacement": draw(_REPLACEMENTS),
            "hit_latency_cycles": draw(st.integers(1, 4)),
        }

    def tlb() -> dict[str, Any] | None:
        if draw(st.booleans()):
            return None
        ways = draw(st.sampled_from([1, 2, 3]))
        return {
            "entries": ways * draw(st.sampled_from([1, 2])),
            "associativity": ways,
            "replacement": draw(_REPLACEMENTS),
            "miss_penalty_cycles": draw(st.sampled_from([0, 1, 7, 30])),
        }

    latency = st.sampled_from([1, 1, 2, 3, 7, 20])
    units = ("int_alu", "int_mul", "int_div", "fp_add", "fp_mul", "fp_fma", "fp_div", "fp_sqrt", "fp_cvt",
             "fp_move", "csr", "fence", "system")  # fmt: skip
    kind = draw(st.sampled_from(["not_taken", "backward_taken", "bimodal", "gshare"]))
    timings = {name: {"latency_cycles": draw(latency), "interval_cycles": draw(latency)} for name in units}
    timings["int_alu"]["interval_cycles"] = 1
    return machine(
        pipeline={
            "issue_width": draw(st.integers(1, 4)),
            "mispredict_penalty_cycles": draw(st.integers(0, 6)),
            "redirect_penalty_cycles": draw(st.integers(0, 3)),
            "load_use_cycles": draw(st.integers(0, 3)),
            "outstanding_misses": draw(st.integers(0, 3)),
        },
        functional_units=timings,
        l1i=cache([1, 2, 4], [1, 2, 4], draw(st.sampled_from([16, 32, 64]))),
        l1d=cache([1, 2, 4], [1, 2, 4], line)
        | {
            "write_policy": draw(st.sampled_from(["write_back", "write_through"])),
            "write_allocate": draw(st.booleans()),
        },
        l2=draw(st.none() | st.just(True)) and cache([4, 8], [1, 2, 4], 64),
        itlb=tlb(),
        dtlb=tlb(),
        memory={"latency_cycles": draw(st.sampled_from([1, 10, 64]))},
        branch_predictor={
            "kind": kind,
            "entries": draw(st.sampled_from([8, 16])),
            "history_bits": draw(st.integers(1, 3)) if kind == "gshare" else 0,
            "btb_entries": draw(st.sampled_from([0, 1, 4])),
            "return_stack_entries": draw(st.sampled_from([0, 1, 3])),
        },
    )


@st.composite
def programs(draw: st.DrawFn) -> BlockFacts:
    """Up to 8 blocks of up to 12 instructions, over few registers."""
    facts = BlockFacts()
    registers = st.sampled_from([0, 0, 5, 6, 7, 33, 34])
    blocks = []
    pc = draw(st.sampled_from([0x1000, 0x1FF0, 0x101E]))
    for _ in range(draw(st.integers(1, 8))):
        classes = draw(st.lists(st.sampled_from(BODY), max_size=11))
        if draw(st.integers(0, 7)):
            classes.append(draw(st.sampled_from(ENDS)))
        rows = []
        for op_class in classes or [OpClass.INT_ALU]:
            rd, rs1, rs2, rs3 = (draw(registers) for _ in range(4))
            length = draw(st.sampled_from([2, 4]))
            rd = 0 if ACCESS_OF_CLASS.get(op_class) == ACCESS_STORE or op_class in WITH_TARGET else rd
            rows.append(instruction(pc, op_class, rd, rs1, rs2, rs3, length))
            pc += length
        blocks.append(rows)
        pc += draw(st.sampled_from([0, 0, 0, 64, 4096]))
    for rows in blocks:
        has_target = rows[-1][2] in WITH_TARGET
        facts.append(rows, draw(st.sampled_from(blocks))[0][0] if has_target else None)
    return facts


@st.composite
def records(draw: st.DrawFn, facts: BlockFacts, most: int = 60) -> list[Execution]:
    """Blocks in an order that follows their targets and fall-throughs often, and now and then does not."""
    by_pc = {int(block["pc"]): index for index, block in enumerate(facts.blocks)}
    address = st.builds(
        lambda page, offset: page * 4096 + offset * 8, st.sampled_from([1, 2, 3, 0x5000]), st.integers(0, 24)
    )
    executions = []
    block = 0
    for _ in range(draw(st.integers(1, most) | st.integers(most // 2, most))):
        fact = facts.blocks[block]
        addresses = [draw(address) for _ in range(int(fact["n_accesses"]))]
        executions.append((block, addresses))
        choices = [by_pc.get(int(fact["end_pc"]), 0), draw(st.integers(0, facts.n_blocks - 1))]
        if fact["target_known"]:
            choices.append(by_pc[int(fact["target_pc"])])
        block = draw(st.sampled_from(choices))
    return executions
