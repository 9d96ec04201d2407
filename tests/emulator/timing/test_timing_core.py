"""The core as its users see it: seeds, noise, growth, the shipped machines against the twin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emulator.events import FULL_RECORD, BlockFacts, OpClass
from emulator.probes import BlockCounter
from emulator.timing.inorder import InOrderCore
from emulator.timing.machine_events import FIRST_DYNAMIC, FIRST_STATIC, Event, static_events
from emulator.timing.machine_file import load_machine
from tests.emulator.timing.test_timing_twin import events_of, expected_events, seeded_by
from tests.emulator.timing.timing_naive import NaiveCore
from tests.emulator.timing.timing_programs import (
    BODY,
    WITH_TARGET,
    Execution,
    instruction,
    machine,
    machines,
    programs,
    records,
    stream_of,
)

MACHINES = Path(__file__).parents[3] / "configs" / "machines"


def made_up_run(n_blocks: int, n_executions: int, seed: int) -> tuple[BlockFacts, list[Execution]]:
    """A program with loops and calls over many pages, and a run of it."""
    rng = np.random.default_rng(seed)
    facts = BlockFacts()
    ends = [OpClass.BRANCH] * 6 + [OpClass.JUMP, OpClass.CALL, OpClass.RETURN, OpClass.INDIRECT_JUMP]
    pc, blocks = 0x10000, []
    for _ in range(n_blocks):
        rows = []
        for op_class in [*rng.choice(BODY, rng.integers(0, 10)), ends[rng.integers(len(ends))]]:
            rd, rs1, rs2 = (int(r) for r in rng.integers(5, 15, 3))
            floating = 32 * (OpClass.FP_ADD <= op_class <= OpClass.FP_CVT)
            length = int(rng.choice([2, 4]))
            rows.append(instruction(pc, OpClass(int(op_class)), rd + floating, rs1 + floating, rs2, 0, length))
            pc += length
        blocks.append(rows)
        pc += int(rng.choice([0, 0, 0, 100, 4096]))
    targets = [min(n_blocks - 1, max(0, index + int(rng.normal(0, 4)))) for index in range(n_blocks)]
    for rows, target in zip(blocks, targets, strict=True):
        facts.append(rows, blocks[target][0][0] if rows[-1][2] in WITH_TARGET else None)
    executions, index = [], 0
    for _ in range(n_executions):
        n_accesses = int(facts.blocks[index]["n_accesses"])
        near = 0x100000 + index // 8 * 512 + 8 * rng.integers(0, 64, n_accesses)
        far = 0x400000 + 8 * rng.integers(0, 1 << 17, n_accesses)
        executions.append((index, np.where(rng.random(n_accesses) < 0.9, near, far).tolist()))
        if rng.random() < 0.03:
            index = int(rng.integers(n_blocks))
        else:
            index = targets[index] if rng.random() < 0.6 else (index + 1) % n_blocks
    return facts, executions


@pytest.mark.parametrize("name", ["strongarm", "desktop"])
def test_shipped_machines_equal_the_twin_on_a_longer_run(name: str) -> None:
    facts, executions = made_up_run(n_blocks=1500, n_executions=12_000, seed=3)
    core = InOrderCore(load_machine(MACHINES / f"{name}.yaml"), seed=7)
    naive = NaiveCore(core.config, facts, seeded_by(core))
    core.consume(facts, stream_of(executions))
    for block, addresses in executions:
        naive.execute(block, addresses)
    assert events_of(core) == expected_events(naive, executions)


@settings(max_examples=100, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_transfer_is_counted_with_its_block_where_the_next_one_is_known(data: st.DataObject) -> None:
    """Misprediction and penalty of an interval's last branch were the next interval's."""
    config, facts = data.draw(machines()), data.draw(programs())
    executions = data.draw(records(facts))
    at_once, step_by_step, without = InOrderCore(config), InOrderCore(config), InOrderCore(config)
    at_once.consume(facts, stream_of(executions))
    events = Event.BRANCHES_CONDITIONAL, Event.BRANCHES_TAKEN, Event.BRANCHES_MISPREDICTED
    for place, one in enumerate(executions):
        before = step_by_step.snapshot()
        step_by_step.consume(facts, stream_of([one]))
        without.consume(facts, stream_of([one]))
        if place + 1 < len(executions):
            step_by_step.follow(int(facts.blocks["pc"][executions[place + 1][0]]))
        conditional, taken, mispredicted = (step_by_step.snapshot() - before)[[*events]].tolist()
        assert max(taken, mispredicted) <= conditional
    assert step_by_step.snapshot().tolist() == at_once.snapshot().tolist() == without.snapshot().tolist()


def test_blocks_that_are_found_while_the_program_runs() -> None:
    """The tables grow in the middle of a run, and the counters do not notice."""
    facts, executions = made_up_run(n_blocks=2500, n_executions=12_000, seed=4)
    at_once = InOrderCore(machine())
    at_once.consume(facts, stream_of(executions))
    growing, known = InOrderCore(machine()), BlockFacts()
    renumbered: dict[int, int] = {}
    for start in range(0, len(executions), 50):
        part = []
        for block, addresses in executions[start : start + 50]:
            if block not in renumbered:
                fact = facts.blocks[block]
                first = int(fact["first_instruction"])
                table = facts.instructions[first : first + int(fact["n_instructions"])].tolist()
                rows = [row[:-1] for row in table]  # the last field is the word
                renumbered[block] = known.append(rows, int(fact["target_pc"]) if fact["target_known"] else None)
            part.append((renumbered[block], addresses))
        growing.consume(known, stream_of(part))
    assert known.n_blocks > 1024
    assert events_of(growing) == events_of(at_once)


def cycles_of(seed: int, **options: Any) -> int:
    facts, executions = made_up_run(n_blocks=300, n_executions=4000, seed=5)
    core = InOrderCore(load_machine(MACHINES / "desktop.yaml"), seed, **options)
    core.consume(facts, stream_of(executions))
    return core.cycles


def test_same_seed_same_cycles_and_other_seeds_other_cycles() -> None:
    assert len({cycles_of(1), cycles_of(1)}) == 1
    assert len({cycles_of(seed) for seed in range(4)}) > 1
    assert len({cycles_of(seed, initial_state="random") for seed in (1, 1, 2, 3)}) == 3


def test_page_placement_changes_the_l2_and_nothing_above_it() -> None:
    facts, executions = made_up_run(n_blocks=300, n_executions=4000, seed=5)
    config = machine(l2={"size_bytes": 16384, "associativity": 1, "line_bytes": 64, "hit_latency_cycles": 10})
    counts = []
    for seed in range(4):
        core = InOrderCore(config, seed)
        core.consume(facts, stream_of(executions))
        counts.append(core.counters)
    assert len({int(count[Event.L2_MISSES]) for count in counts}) > 1
    assert len({int(count[Event.L1D_MISSES]) for count in counts}) == 1
    in_place = [InOrderCore(config, seed, place_pages=False) for seed in range(2)]
    for core in in_place:
        core.consume(facts, stream_of(executions))
    assert events_of(in_place[0]) == events_of(in_place[1])


def test_an_interrupt_evicts_lines_and_is_repeatable() -> None:
    facts, executions = made_up_run(n_blocks=60, n_executions=4000, seed=6)
    stream = stream_of(executions)
    tlb = {"entries": 4, "associativity": 4, "miss_penalty_cycles": 30}
    config = machine(
        l1i={"size_bytes": 8192},
        l1d={"size_bytes": 8192},
        l2={"size_bytes": 1 << 15, "associativity": 4, "line_bytes": 64, "hit_latency_cycles": 10},
        itlb=tlb,
        dtlb=tlb,
    )
    misses = {}
    for name, seed, lines in (("none", 0, 0), ("a", 1, 400), ("a again", 1, 400), ("b", 2, 400)):
        core = InOrderCore(config, seed=1)
        core.consume(facts, stream)
        before = core.snapshot()
        core.disturb(seed, lines)
        core.consume(facts, stream)
        misses[name] = core.snapshot() - before
    for event in (Event.L1I_MISSES, Event.L1D_MISSES, Event.L2_MISSES, Event.DTLB_MISSES):
        assert misses["a"][event] > misses["none"][event]
    assert np.array_equal(misses["a"], misses["a again"])
    assert not np.array_equal(misses["a"], misses["b"])
    with pytest.raises(ValueError, match="expected 0 or more"):
        core.disturb(1, -1)


def test_an_interrupt_writes_dirty_lines_back() -> None:
    facts = BlockFacts()
    facts.append([instruction(0x1000, OpClass.STORE)], None)
    core = InOrderCore(machine())
    core.consume(facts, stream_of([(0, [0x8000 + 32 * line]) for line in range(32)]))
    core.disturb(1, 10_000)
    assert core.counters[Event.L1D_WRITEBACKS] == core.counters[Event.MEMORY_WRITES] == 32


def test_it_takes_the_full_record() -> None:
    assert InOrderCore(machine()).selection == FULL_RECORD


def test_a_read_only_record_is_taken_as_it_is() -> None:
    facts, executions = made_up_run(n_blocks=20, n_executions=200, seed=7)
    stream = stream_of(executions)
    writable, read_only = InOrderCore(machine()), InOrderCore(machine())
    writable.consume(facts, stream)
    stream.flags.writeable = False
    read_only.consume(facts, stream)
    assert events_of(writable) == events_of(read_only)


def test_block_counter_counts_what_the_machine_counts() -> None:
    facts, executions = made_up_run(n_blocks=200, n_executions=3000, seed=8)
    core = InOrderCore(machine())
    core.consume(facts, stream_of(executions))
    with_addresses, without = BlockCounter(with_addresses=True), BlockCounter()
    assert with_addresses.executions.sum() == without.executions.sum() == 0
    for start in range(0, 3000, 700):
        part = executions[start : start + 700]
        with_addresses.consume(facts, stream_of(part))
        without.consume(facts, np.array([block for block, _ in part], np.uint32))
    per_block = static_events(facts, 0, facts.n_blocks).astype(np.int64)
    for counter in (with_addresses, without):
        counts = counter.executions[: facts.n_blocks] @ per_block
        assert np.array_equal(counts, core.counters[FIRST_STATIC:FIRST_DYNAMIC])
        assert counter.executions.sum() == 3000
