"""Cycle counts worked out by hand, for one mechanism at a time.

The machine of `timing_programs.machine`: single issue; mispredictions cost 5 cycles, memory 50; a load can be
used 2 cycles after its issue (hit latency 1, load-use 1); multiplication 3, division 20 (unit busy for 19).
The first block starts at 0x1000, the start of a line of 32 bytes, so its first fetch misses: 50 cycles that
each test counts as "fetch".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from emulator.events import BlockFacts, OpClass
from emulator.timing.inorder import InOrderCore
from emulator.timing.machine_events import Event
from tests.emulator.timing.timing_programs import Execution, Row, instruction, machine, stream_of

ALU, MUL, DIV = OpClass.INT_ALU, OpClass.INT_MUL, OpClass.INT_DIV
LOAD, STORE, BRANCH = OpClass.LOAD, OpClass.STORE, OpClass.BRANCH


def block(*rows: tuple[Any, ...], pc: int = 0x1000) -> list[Row]:
    """Instructions of 4 bytes one after the other: (class, rd, rs1, rs2)."""
    return [instruction(pc + 4 * index, *row) for index, row in enumerate(rows)]


def run(blocks: Sequence[tuple[list[Row], int | None]], executions: list[Execution], **changes: Any) -> InOrderCore:
    facts = BlockFacts()
    for rows, target in blocks:
        facts.append(rows, target)
    core = InOrderCore(machine(**changes))
    core.consume(facts, stream_of(executions))
    return core


def one_block(*rows: tuple[Any, ...], addresses: list[int] | None = None, **changes: Any) -> InOrderCore:
    return run([(block(*rows), None)], [(0, addresses or [])], **changes)


def test_dependent_additions_issue_one_a_cycle() -> None:
    core = one_block(*[(ALU, 5, 5)] * 6)
    assert core.cycles == 50 + 6  # fetch + 6 additions
    assert core.counters[Event.STALL_CYCLES] == core.counters[Event.FRONTEND_STALL_CYCLES] == 50


def test_two_wide_issue_pairs_what_is_independent() -> None:
    # (x5 x6) (x7 x8) as pairs, then x5 <- x5 and x5 <- x5 one after the other: 4 cycles.
    core = one_block((ALU, 5), (ALU, 6), (ALU, 7), (ALU, 8), (ALU, 5, 5), (ALU, 5, 5), pipeline={"issue_width": 2})
    assert core.cycles == 50 + 4


def test_two_wide_issue_has_one_memory_port() -> None:
    # Both loads hit after the first has brought the line in; with all lines there, one load a cycle: 2
    # cycles.
    facts = BlockFacts()
    facts.append(block((LOAD, 5), (LOAD, 6)), None)
    core = InOrderCore(machine(pipeline={"issue_width": 2}))
    core.consume(facts, stream_of([(0, [0x8000, 0x8008])] * 2))
    before = core.cycles
    core.consume(facts, stream_of([(0, [0x8000, 0x8008])]))
    assert core.cycles - before == 2


def test_a_loaded_value_can_be_used_two_cycles_later() -> None:
    # Second execution, all in the caches: load at 0, use at 2 (1 empty cycle), then 1 more: 4 cycles.
    core = run([(block((LOAD, 5), (ALU, 6, 5), (ALU, 7)), None)], [(0, [0x8000]), (0, [0x8000])])
    # First execution: fetch 50, load issues at 50, its value arrives 50 later than a hit's: 50+50+2 = 102;
    # the use issues at 102 and the last at 103: 104 cycles. Second: 104 + 4.
    assert core.cycles == 104 + 4


def test_multiplications_are_pipelined_and_divisions_are_not() -> None:
    # Three independent products issue at 0, 1, 2; a use of the last waits until 5, and ends at 6.
    assert one_block((MUL, 5), (MUL, 6), (MUL, 7), (ALU, 8, 7)).cycles == 50 + 6
    # Divisions issue at 0 and 19 (the unit is busy); a use of the second waits until 39, and ends at 40.
    assert one_block((DIV, 5), (DIV, 6), (ALU, 7, 6)).cycles == 50 + 40


def test_a_write_waits_for_an_earlier_write_of_the_same_register() -> None:
    # The product is ready at 3; the addition that overwrites it issues then: 4 cycles.
    assert one_block((MUL, 5), (ALU, 5)).cycles == 50 + 4


def test_pending_results_are_carried_into_the_next_block() -> None:
    # The division issues at 50, its value is ready at 70; the next block's use issues then: 71 cycles.
    core = run([(block((DIV, 5)), None), (block((ALU, 6, 5), pc=0x1004), None)], [(0, []), (1, [])])
    assert core.cycles == 71
    assert core.counters[Event.STALL_CYCLES] == 71 - 2


def test_each_new_line_of_code_is_fetched_once() -> None:
    # 20 instructions of 4 bytes: lines 0x1000, 0x1020, 0x1040 arrive 50 cycles after they are needed.
    core = one_block(*[(ALU, 5)] * 20)
    assert core.cycles == 3 * 50 + 20
    assert core.counters[Event.L1I_ACCESSES] == core.counters[Event.L1I_MISSES] == 3


def test_code_that_does_not_fit_misses_again() -> None:
    # Two ways of 16 sets: three blocks 512 bytes apart share a set; LRU throws each out before it is used
    # again.
    blocks = [(block((ALU, 5), pc=0x1000 + 512 * index), None) for index in range(3)]
    core = run(blocks, [(index % 3, []) for index in range(12)])
    assert core.counters[Event.L1I_MISSES] == 12
    assert core.cycles == 12 * (50 + 1)


@pytest.mark.parametrize(("lines", "misses"), [(32, 32), (33, 33 + 3)])
def test_data_that_fits_is_missed_once(lines: int, misses: int) -> None:
    # 1 KiB holds 32 lines. Passing 33 lines twice: line 32 shares a set of two ways with lines 0 and 16.
    # First pass: 33 misses. Second pass: only that set overflows, where LRU misses each of the three: 3 more.
    core = run([(block((LOAD, 5)), None)], [(0, [0x8000 + 32 * line]) for _ in range(2) for line in range(lines)])
    assert core.counters[Event.L1D_MISSES] == misses
    assert core.counters[Event.L1D_ACCESSES] == 2 * lines


def test_replacement_policies_differ_as_they_should() -> None:
    # One set of two ways: A B A C A. LRU keeps A when C comes (B goes): 3 misses. FIFO throws A out: 4
    # misses.
    a, b, c = 0x8000, 0x8200, 0x8400
    for replacement, misses in (("lru", 3), ("fifo", 4)):
        core = run(
            [(block((LOAD, 5)), None)],
            [(0, [address]) for address in (a, b, a, c, a)],
            l1d={"replacement": replacement},
        )
        assert core.counters[Event.L1D_MISSES] == misses


def test_random_replacement_throws_out_every_way_about_equally() -> None:
    # One set of two ways, A B C A B C ...: a random victim lets a line survive its turn with probability 1/2
    # to be thrown out by the next, so misses settle between LRU's 100% and 50%.
    addresses = [0x8000 + 0x200 * (index % 3) for index in range(3000)]
    core = run([(block((LOAD, 5)), None)], [(0, [a]) for a in addresses], l1d={"replacement": "random"})
    assert 0.55 < core.counters[Event.L1D_MISSES] / 3000 < 0.8


def test_a_blocking_cache_stops_the_pipeline_at_the_miss() -> None:
    # Fetch 50, the load issues at 50 and stops issue until 101; two additions: 103.
    core = one_block((LOAD, 5), (ALU, 6), (ALU, 7), addresses=[0x8000], pipeline={"outstanding_misses": 0})
    assert core.cycles == 103


def test_a_miss_register_lets_independent_work_go_on() -> None:
    # The load issues at 50; the additions at 51 and 52: 53.
    core = one_block((LOAD, 5), (ALU, 6), (ALU, 7), addresses=[0x8000])
    assert core.cycles == 53


def test_misses_wait_for_a_free_register() -> None:
    # Loads of four lines and then a use of the last. One register: the misses start at 50, 100, 150, 200, the
    # last value is ready at 200 + 52, its use ends at 253. Two: they start at 50, 51, 100, 101: 101 + 52 + 1.
    rows = [(LOAD, 5), (LOAD, 6), (LOAD, 7), (LOAD, 8), (ALU, 9, 8)]
    addresses = [0x8000, 0x8020, 0x8040, 0x8060]
    assert one_block(*rows, addresses=addresses, pipeline={"outstanding_misses": 1}).cycles == 253
    assert one_block(*rows, addresses=addresses, pipeline={"outstanding_misses": 2}).cycles == 154


def test_a_hit_on_a_line_under_way_waits_for_the_line() -> None:
    # The line is asked for at 50 and arrives at 100; the second load of it is ready at 102, its use ends at
    # 103.
    core = one_block((LOAD, 5), (LOAD, 6), (ALU, 7, 6), addresses=[0x8000, 0x8008])
    assert core.cycles == 103
    assert core.counters[Event.L1D_MISSES] == 1


@pytest.mark.parametrize("between", [0, 46, 47, 48, 49, 50, 60])
def test_a_line_under_way_is_waited_for_to_the_very_cycle(between: int) -> None:
    # The miss issues at 50, its line arrives at 100. The second load issues at 51 + between, and its value is
    # there 2 cycles later, or 2 cycles after the line.
    core = one_block(
        (LOAD, 5),
        *[(ALU, 10)] * between,
        (LOAD, 6),
        (ALU, 7, 6),
        addresses=[0x8000, 0x8008],
        l1i={"size_bytes": 2048, "line_bytes": 1024},
    )
    assert core.cycles == max(100, 51 + between) + 2 + 1


def test_stores_that_miss_do_not_stop_the_pipeline() -> None:
    assert one_block((STORE,), (ALU, 5), addresses=[0x8000]).cycles == 52


L2 = {"size_bytes": 4096, "associativity": 4, "line_bytes": 64, "hit_latency_cycles": 10}


def test_l2_is_found_before_memory() -> None:
    # Fetch: L2 and memory, 60; the same for the load's line; its neighbour is in the same L2 line: 10.
    rows = [(LOAD, 5), (ALU, 6, 5), (LOAD, 7), (ALU, 8, 7)]
    core = one_block(*rows, addresses=[0x8000, 0x8020], l2=L2)
    # fetch 60; load at 60, its use at 60 + 62 = 122; second load at 123, its use at 123 + 12 = 135, ends at
    # 136.
    assert core.cycles == 136
    assert core.counters[Event.L2_ACCESSES] == 3
    assert core.counters[Event.L2_MISSES] == 2
    assert core.counters[Event.L2_DATA_ACCESSES] == 2
    assert core.counters[Event.L2_DATA_MISSES] == 1


def test_dirty_lines_are_written_back_and_clean_ones_are_not() -> None:
    # One set of two ways: store A, load B, load C (throws dirty A out), load D (throws clean B out).
    executions = [(0, [0x8000]), (1, [0x8200]), (1, [0x8400]), (1, [0x8600])]
    blocks = [(block((STORE,)), None), (block((LOAD, 5), pc=0x1004), None)]
    core = run(blocks, executions)
    assert core.counters[Event.L1D_WRITEBACKS] == 1
    assert core.counters[Event.MEMORY_WRITES] == 1
    through = run(blocks, executions, l1d={"write_policy": "write_through"})
    assert through.counters[Event.L1D_WRITEBACKS] == 0
    assert through.counters[Event.MEMORY_WRITES] == 1  # the store itself
    around = run(blocks, [*executions[:1], *executions[:1]], l1d={"write_allocate": False})
    assert around.counters[Event.L1D_STORE_MISSES] == 2


def test_tlb_misses_cost_a_page_walk() -> None:
    tlb = {"entries": 2, "associativity": 2, "miss_penalty_cycles": 30}
    # Three pages in turn through two entries: every access misses; code stays in one page.
    core = run(
        [(block((LOAD, 5)), None)],
        [(0, [0x10000 + 0x1000 * (index % 3)]) for index in range(6)],
        itlb=tlb,
        dtlb=tlb,
    )
    assert core.counters[Event.DTLB_MISSES] == 6
    assert core.counters[Event.ITLB_MISSES] == 1
    # Fetch 50 and its walk 30; the first load walks and issues at 110. The three lines share a set of two
    # ways, so each load misses, its value is ready 52 later, and only then can the next one, into the same
    # register, begin its own walk: 82 from load to load.
    assert core.cycles == 110 + 5 * 82 + 1


def loop(taken: list[bool], **predictor: Any) -> InOrderCore:
    """A loop of one block that branches back to itself, or leaves to the next block, which jumps back."""
    blocks = [
        (block((ALU, 5), (BRANCH, 0, 5)), 0x1000),
        (block((OpClass.JUMP,), pc=0x1008), 0x1000),
    ]
    executions: list[Execution] = []
    for outcome in taken:
        executions.append((0, []))
        if not outcome:
            executions.append((1, []))
    return run(blocks, [*executions, (0, [])], branch_predictor=predictor)


def test_static_predictors() -> None:
    outcomes = [True] * 9 + [False]
    assert loop(outcomes, kind="not_taken").counters[Event.BRANCHES_MISPREDICTED] == 9
    assert loop(outcomes, kind="backward_taken").counters[Event.BRANCHES_MISPREDICTED] == 1


@pytest.mark.parametrize("kind", ["not_taken", "bimodal"])
def test_a_branch_to_the_next_instruction_is_never_taken(kind: str) -> None:
    blocks = [(block((BRANCH, 0, 5)), 0x1004), (block((BRANCH, 0, 6), pc=0x1004), 0x1000)]
    core = run(blocks, [(0, []), (1, [])] * 10, branch_predictor={"kind": kind})
    # Only branches back of the second block are mispredicted: each, or the first one, after which they are expected.
    assert core.counters[Event.BRANCHES_TAKEN] == 9
    assert core.counters[Event.BRANCHES_MISPREDICTED] == (9 if kind == "not_taken" else 1)


def test_bimodal_learns_a_bias_and_not_an_alternation() -> None:
    # Counters start at 1 (weakly not taken). Taken 20 times: mispredicted once (1 -> 2), then right.
    core = loop([True] * 20, kind="bimodal")
    assert core.counters[Event.BRANCHES_MISPREDICTED] == 1
    # cycles: fetch 50, 21 rounds of 2, one misprediction of 5
    assert core.cycles == 50 + 21 * 2 + 5
    # Taken, not, taken, not: the counter goes 1 -> 2 -> 1 -> 2, wrong every time.
    core = loop([True, False] * 10, kind="bimodal")
    assert core.counters[Event.BRANCHES_MISPREDICTED] == 20


def test_gshare_learns_an_alternation() -> None:
    # One bit of history separates the two cases; each counter settles within two steps.
    core = loop([True, False] * 50, kind="gshare", entries=16, history_bits=1)
    assert core.counters[Event.BRANCHES_MISPREDICTED] <= 3


def test_return_stack_predicts_returns_and_forgets_the_oldest() -> None:
    # Six functions, each calling the next; the last one returns, and so on back. Block k calls block k + 1,
    # and block 7 + k, where the call returns to, returns itself.
    depth = 6
    calls = [(block((OpClass.CALL, 1), pc=0x1000 + 256 * k), 0x1000 + 256 * (k + 1)) for k in range(depth)]
    leaf = (block((OpClass.RETURN, 0, 1), pc=0x1000 + 256 * depth), None)
    returns = [(block((OpClass.RETURN, 0, 1), pc=0x1004 + 256 * k), None) for k in range(depth)]
    order = [*range(depth + 1), *(depth + 1 + k for k in reversed(range(depth)))]
    for entries, wrong in ((8, 0), (6, 0), (4, 2), (0, 6)):
        core = run(
            [*calls, leaf, *returns],
            [(index, []) for index in order],
            branch_predictor={"return_stack_entries": entries},
        )
        assert core.counters[Event.TARGETS_MISPREDICTED] == wrong


def test_branch_target_buffer_removes_the_redirect() -> None:
    # A jump to itself: each costs 1 cycle and, when the target is found at decode only, 2 more.
    blocks = [(block((OpClass.JUMP,)), 0x1000)]
    pipeline = {"redirect_penalty_cycles": 2}
    assert run(blocks, [(0, [])] * 10, pipeline=pipeline).cycles == 50 + 10 + 9 * 2
    core = run(blocks, [(0, [])] * 10, pipeline=pipeline, branch_predictor={"btb_entries": 4})
    assert core.cycles == 50 + 10 + 2
    assert core.counters[Event.BTB_MISSES] == 1


def test_slow_instruction_cache_costs_bubbles_after_taken_transfers() -> None:
    # Hit latency 3: two bubbles a jump, even with the target known.
    blocks = [(block((OpClass.JUMP,)), 0x1000)]
    core = run(blocks, [(0, [])] * 10, l1i={"hit_latency_cycles": 3}, branch_predictor={"btb_entries": 4})
    assert core.cycles == 50 + 10 + 9 * 2


def test_static_events_by_class() -> None:
    rows = [(op_class, 0, 0) for op_class in OpClass if op_class < OpClass.BRANCH or op_class > OpClass.INDIRECT_CALL]
    core = one_block(*rows, addresses=[0x8000] * 5)
    counts = core.counters
    assert counts[Event.INSTRUCTIONS] == len(rows) == 18
    assert counts[Event.LOADS] == 3
    assert counts[Event.STORES] == 3
    assert counts[Event.L1D_ACCESSES] == 5
    assert counts[Event.INT_OPERATIONS] == 3
    assert counts[Event.FP_INSTRUCTIONS] == 7
    assert counts[Event.FP_OPERATIONS] == 1 + 1 + 2 + 1 + 1
    assert counts[Event.SYSTEM_INSTRUCTIONS] == 2
    assert counts[Event.FENCES] == 1
    assert np.all(counts[Event.BRANCHES : Event.INDIRECT_TRANSFERS + 1] == 0)
