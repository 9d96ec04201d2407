"""Counterfactual cores against the naive twin of the core on facts and records that are edited by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from emulator.counterfactual.core import CounterfactualCore, CounterfactualSettings, InterventionError
from emulator.events import ACCESS_HIDDEN, BLOCK_DTYPE, BlockFacts, OpClass
from emulator.timing.inorder import InOrderCore
from emulator.timing.machine_config import MachineConfig
from emulator.timing.machine_events import Event
from tests.emulator.timing.test_timing_twin import events_of, expected_events, seeded_by
from tests.emulator.timing.timing_naive import NaiveCore
from tests.emulator.timing.timing_programs import (
    Execution,
    instruction,
    machine,
    machines,
    programs,
    records,
    stream_of,
)

SLOW = settings(
    max_examples=30, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate]
)


def rows_of(facts: BlockFacts, block: int) -> list[tuple[int, ...]]:
    first = int(facts.blocks["first_instruction"][block])
    count = int(facts.blocks["n_instructions"][block])
    return [tuple(int(value) for value in row) for row in facts.instructions[first : first + count].tolist()]


def edited_by_hand(
    facts: BlockFacts, executions: list[Execution], chosen: set[int], free: bool, offset: int = 0
) -> tuple[BlockFacts, list[Execution]]:
    """Facts and record without free instructions or hidden accesses; code at ``offset`` after its place."""
    found = BlockFacts()
    kept_accesses = []
    for block in range(facts.n_blocks):
        rows, kept = [], []
        n_accesses = 0
        for *row, _ in rows_of(facts, block):
            is_access = row[3] != 0
            if row[0] not in chosen:
                if is_access:
                    kept.append(n_accesses)
                rows.append((row[0] + offset, *row[1:]))
            elif not free:
                rows.append((row[0] + offset, *row[1:3], row[3] | ACCESS_HIDDEN if is_access else 0, *row[4:]))
            n_accesses += is_access
        fact = facts.blocks[block]
        if rows:
            found.append(rows, None)  # type: ignore[arg-type]
        else:
            empty = np.zeros(1, BLOCK_DTYPE)
            empty["first_instruction"] = found.n_instructions
            found.extend(empty, found.instructions[:0])
        about = found.blocks[block]
        about["pc"], about["end_pc"] = int(fact["pc"]) + offset, int(fact["end_pc"]) + offset
        about["n_instructions"], about["n_accesses"] = len(rows), len(kept)
        last_kept = rows and rows[-1][0] == rows_of(facts, block)[-1][0] + offset
        about["terminator"] = fact["terminator"] if last_kept else OpClass.INT_ALU
        about["target_known"], about["target_pc"] = fact["target_known"], int(fact["target_pc"]) + offset
        kept_accesses.append(kept)
    record = [(block, [addresses[n] for n in kept_accesses[block]]) for block, addresses in executions]
    return found, record


def choice(data: st.DataObject, facts: BlockFacts) -> set[int]:
    """Addresses of instructions that transfer no control."""
    bodies = [
        int(row["pc"]) for row in facts.instructions if not OpClass.BRANCH <= row["op_class"] <= OpClass.INDIRECT_CALL
    ]
    return data.draw(st.sets(st.sampled_from(bodies), max_size=12)) if bodies else set()


@SLOW
@given(st.data())
def test_without_an_intervention_nothing_changes(data: st.DataObject) -> None:
    config: MachineConfig = data.draw(machines())
    facts: BlockFacts = data.draw(programs())
    executions: list[Execution] = data.draw(records(facts))
    plain, edited = InOrderCore(config, seed=3), InOrderCore(config, seed=3)
    plain.consume(facts, stream_of(executions))
    behind = CounterfactualCore(edited, CounterfactualSettings(instructions=tuple(choice(data, facts))))
    behind.consume(facts, stream_of(executions))
    assert events_of(edited) == events_of(plain)
    assert behind.cycles == plain.cycles


@SLOW
@given(st.data())
def test_free_instructions_and_hidden_accesses_equal_the_twin_on_an_edited_record(data: st.DataObject) -> None:
    config: MachineConfig = data.draw(machines())
    facts: BlockFacts = data.draw(programs())
    executions: list[Execution] = data.draw(records(facts))
    chosen = choice(data, facts)
    free = data.draw(st.booleans())
    core = InOrderCore(config, seed=1)
    by_hand, record = edited_by_hand(facts, executions, chosen, free)
    naive = NaiveCore(config, by_hand, seeded_by(core))
    behind = CounterfactualCore(
        core, CounterfactualSettings(instructions=tuple(chosen), free=free, uncached=True)
    )  # fmt: skip
    cut = data.draw(st.integers(0, len(executions)))
    for part in (executions[:cut], executions[cut:]):
        behind.consume(facts, stream_of(part))
    for block, addresses in record:
        naive.execute(block, addresses)
    assert events_of(core) == expected_events(naive, record)
    own = sum(row[0] not in chosen for block, _ in executions for row in rows_of(facts, block))
    assert behind.progress == own


@SLOW
@given(st.data())
def test_moved_code_equals_the_twin_on_moved_facts(data: st.DataObject) -> None:
    config: MachineConfig = data.draw(machines())
    facts: BlockFacts = data.draw(programs())
    executions: list[Execution] = data.draw(records(facts))
    offset = data.draw(st.sampled_from([2, 64, 4096, 0x10002]))
    data_offset = data.draw(st.sampled_from([8, 4096, 0x3000]))
    core = InOrderCore(config, seed=1)
    by_hand, record = edited_by_hand(facts, executions, set(), True, offset)
    record = [(block, [at + data_offset if at >= 0x2000 else at for at in addresses]) for block, addresses in record]
    naive = NaiveCore(config, by_hand, seeded_by(core))
    behind = CounterfactualCore(
        core, CounterfactualSettings(code_moves=((0x100, offset),), data_moves=((0x2000, data_offset),))
    )  # fmt: skip
    behind.consume(facts, stream_of(executions))
    for block, addresses in record:
        naive.execute(block, addresses)
    assert events_of(core) == expected_events(naive, record)


def test_bytes_of_free_instructions_take_no_space_in_moved_code() -> None:
    facts = BlockFacts()
    # Three instructions of 4 bytes before a jump to a second block, which begins after them.
    first = [instruction(0x1000 + 4 * n, OpClass.INT_ALU) for n in range(3)]
    facts.append([*first, instruction(0x100C, OpClass.JUMP)], 0x1010)
    facts.append([instruction(0x1010, OpClass.JUMP)], 0x1000)
    core = CounterfactualCore(
        InOrderCore(machine()),
        CounterfactualSettings(
            instructions=(0x1004,), free=True, code_moves=((0x1000, 0x1000), (0x1008, 0x0FFC), (0x1010, 0x0FFC))
        ),
    )
    core.consume(facts, stream_of([(0, []), (1, [])]))
    seen = core._facts
    assert seen.instructions["pc"].tolist() == [0x2000, 0x2004, 0x2008, 0x200C]
    assert seen.blocks["pc"].tolist() == [0x2000, 0x200C]
    assert seen.blocks["end_pc"].tolist() == [0x200C, 0x2010]
    assert seen.blocks["target_pc"].tolist() == [0x200C, 0x2000]


def test_a_hidden_load_counts_as_a_load_that_hits_and_not_as_an_access() -> None:
    facts = BlockFacts()
    facts.append(
        [instruction(0x1000, OpClass.LOAD, rd=5), instruction(0x1004, OpClass.LOAD, rd=6),
         instruction(0x1008, OpClass.JUMP)], 0x1000,
    )  # fmt: skip
    core = CounterfactualCore(InOrderCore(machine()), CounterfactualSettings(instructions=(0x1004,), uncached=True))
    core.consume(facts, stream_of([(0, [0x4000, 0x8000])]))
    counted = core.counters
    assert (counted[Event.LOADS], counted[Event.L1D_ACCESSES], counted[Event.L1D_MISSES]) == (2, 1, 1)
    assert counted[Event.INSTRUCTIONS] == 3


def test_a_free_load_that_is_cached_misses_and_is_waited_for_and_counts_as_nothing() -> None:
    facts = BlockFacts()
    facts.append(
        [instruction(0x1000, OpClass.INT_ALU, rd=5), instruction(0x1004, OpClass.LOAD, rd=6),
         instruction(0x1008, OpClass.STORE, rs1=6), instruction(0x100C, OpClass.JUMP)], 0x1000,
    )  # fmt: skip
    record = stream_of([(0, [0x8000, 0x8000]), (0, [0x8000, 0x8000])])

    def counted(free: bool = False, uncached: bool = False) -> tuple[int, dict[str, int]]:
        settings = CounterfactualSettings((0x1004, 0x1008), free, uncached)
        core = CounterfactualCore(InOrderCore(machine()), settings)
        core.consume(facts, record)
        wanted = (Event.INSTRUCTIONS, Event.LOADS, Event.STORES, Event.L1D_ACCESSES, Event.L1D_MISSES)
        return core.cycles, {event.name: int(core.counters[event]) for event in wanted}

    nothing_cycles, nothing = counted(free=True, uncached=True)
    access_cycles, access = counted(free=True)
    all_cycles, _ = counted()
    assert nothing == {"INSTRUCTIONS": 4, "LOADS": 0, "STORES": 0, "L1D_ACCESSES": 0, "L1D_MISSES": 0}
    assert access == nothing | {"L1D_MISSES": 1}
    assert nothing_cycles + 50 == access_cycles < all_cycles


def test_a_free_control_transfer_is_refused() -> None:
    facts = BlockFacts()
    facts.append([instruction(0x1000, OpClass.JUMP)], 0x1000)
    core = CounterfactualCore(InOrderCore(machine()), CounterfactualSettings(instructions=(0x1000,), free=True))
    with pytest.raises(InterventionError, match="0x1000 transfers control"):
        core.consume(facts, np.array([0], np.uint32))
