"""Which registers may differ from the state buffer inside a region, against random walks through it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from emulator.engine.emit.dataflow import MAX_LOOP_INSTRUCTIONS, Dataflow, registers_of
from emulator.engine.entry.calling_convention import PINNED
from emulator.engine.tiering.region_states import Region
from emulator.events import NOTHING
from emulator.machine import Machine
from instrumenter.building.program_build import build_program

GUEST = Path(__file__).parents[1] / "guest"


@pytest.fixture(scope="module")
def regions() -> list[Region]:
    elf = build_program([GUEST / "ways.c"], ["-O2"]).elf_path
    with Machine(elf, ["2000"], background=False, optimise_executions=500) as machine:
        machine.run()
        assert machine.translator is not None
        return list(machine.translator.tier.regions)


def flow_of(region: Region) -> Dataflow:
    targets = region.indirect_targets
    return Dataflow(region.blocks, region.entries, targets, NOTHING, resident=False, registers_change=False)


def test_what_differs_on_any_way_is_told(regions: list[Region]) -> None:
    random_ = random.Random(1)
    n_steps = 0
    for region in regions:
        flow = flow_of(region)
        for _ in range(200):
            pc = random_.choice(region.entries)
            differs: set[int] = set()
            for _ in range(50):
                assert differs <= flow.dirty_in[pc]
                for instruction in region.blocks[pc].instructions:
                    written = registers_of(instruction)[1]
                    if written is not None:
                        differs.add(written)
                differs -= flow.stored[pc]
                assert differs <= flow.dirty_out[pc]
                n_steps += 1
                if not flow.successors[pc]:
                    break
                pc = random_.choice(flow.successors[pc])
    assert n_steps > 2000


def test_only_short_loops_keep_registers_out_of_the_state_buffer(regions: list[Region]) -> None:
    kept = 0
    for region in regions:
        flow = flow_of(region)
        inside = {pc for pc in region.blocks if not flow.dirty_out[pc] <= set(PINNED)}
        assert not any(flow.stored[pc] for pc in inside)
        assert sum(len(region.blocks[pc].instructions) for pc in inside) <= MAX_LOOP_INSTRUCTIONS * max(
            1, len(flow.loop_heads)
        )
        kept += len(inside)
    assert kept
