"""Computed jumps inside regions: told right where they are told, and nothing depends on what is told."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.engine.emit.emitter import Emitter
from emulator.engine.emit.indirect_targets import branch_to, cases_among
from emulator.engine.tiering.region_states import Region
from emulator.events import BLOCK_DTYPE, OpClass
from emulator.machine import Machine
from emulator.native_code.compiler import Compiler
from instrumenter.building.program_build import build_program
from tests.emulator.execution.test_machine import Digest, record_of

GUEST = Path(__file__).parents[1] / "guest"


@pytest.fixture(scope="module")
def ways() -> Path:
    return build_program([GUEST / "ways.c"], ["-O2"]).elf_path


def regions_of(machine: Machine) -> list[Region]:
    assert machine.translator is not None
    return list(machine.translator.tier.regions)


def test_computed_jumps_inside_regions_lead_where_the_oracle_goes(ways: Path) -> None:
    reference = record_of(ways, ["2000"], engine="oracle")
    digest = Digest()
    with Machine(ways, ["2000"], consumers=[digest], background=False, optimise_executions=500) as machine:
        machine.run()
        regions = regions_of(machine)
    told = digest.hash.hexdigest(), machine.instructions, machine.files.output(1)
    assert told == reference
    kinds = {kind for region in regions for kind in kinds_of(region)}
    assert kinds == {OpClass.CALL, OpClass.RETURN, OpClass.INDIRECT_JUMP}
    assert any(len(targets) > 4 for region in regions for targets in region.indirect_targets.values())


def kinds_of(region: Region) -> set[OpClass]:
    assert region.callees <= set(region.pcs)
    assert all(target in region.blocks for targets in region.indirect_targets.values() for target in targets)
    return {
        OpClass.CALL if region.blocks[pc].call_target is not None else region.blocks[pc].last.op_class
        for pc in region.indirect_targets
    }


def test_what_a_saved_region_tells_is_what_it_told(ways: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from emulator.engine.persist import translation_store as archive

    monkeypatch.setattr(archive, "cache_directory", lambda: tmp_path)
    told = []
    for _ in range(2):
        with Machine(ways, ["2000"], keep_translations=True, background=False, optimise_executions=500) as machine:
            machine.run()
            machine.save_translations()
            told.append(
                {
                    region.name + str(region.pcs): (region.indirect_targets, region.callees)
                    for region in regions_of(machine)
                }
            )
            assert machine.translator is not None
            copies = machine.translator.tier.states.copies
            assert sum(copies.values()) == sum(len(region.own_pcs) for region in regions_of(machine))
    kept = told[1].keys() & told[0].keys()
    assert kept
    assert all(told[1][name] == told[0][name] for name in kept)


@settings(max_examples=25, deadline=None)
@given(st.sets(st.integers(0, 400).map(lambda n: 0x10000 + 2 * n), min_size=1, max_size=40), st.data())
def test_branching_to_one_of_many(targets: set[int], data: st.DataObject) -> None:
    ways = sorted(targets)
    emitter = Emitter()
    emitter.start("entry")
    labels = [f"b{pc:x}" for pc in ways]
    constant = branch_to(emitter, "%x", ways, labels, "other")
    for label, value in zip(["other", *labels], [0, *ways], strict=True):
        emitter.start(label)
        emitter.say(f"ret i64 {value}")
    text = f"{constant}define i64 @choose(i64 %x) {{\n" + "\n".join(emitter.lines) + "\n}\n"
    compiler = Compiler()
    address = compiler.load([compiler.image(text, keep=False)], ["choose"])["choose"]
    choose = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64)(address)
    near = st.integers(ways[0] // 2 - 3, ways[-1] // 2 + 3).map(lambda half: 2 * half)
    for value in data.draw(st.lists(near | st.sampled_from(ways) | st.sampled_from([0, 1 << 63, (1 << 64) - 2]))):
        assert choose(value) == (value if value in targets else 0)
    compiler.unload([address])


terminators = st.sampled_from(
    [
        OpClass.INT_ALU, OpClass.BRANCH, OpClass.JUMP, OpClass.CALL, OpClass.RETURN, OpClass.INDIRECT_JUMP,
        OpClass.INDIRECT_CALL, OpClass.SYSTEM,
    ]
)  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 4), terminators, st.integers(0, 20)), max_size=12))
def test_cases_are_what_nothing_leads_to_directly(drawn: list[tuple[int, int, OpClass, int]]) -> None:
    blocks = np.zeros(len(drawn), BLOCK_DTYPE)
    led_to = set()
    for row, (place, length, kind, target) in zip(blocks, drawn, strict=True):
        row["pc"], row["end_pc"] = 2 * place, 2 * (place + length)
        row["terminator"] = kind
        if kind in (OpClass.BRANCH, OpClass.JUMP, OpClass.CALL):
            row["target_pc"], row["target_known"] = 2 * target, 1
        if kind in (OpClass.BRANCH, OpClass.JUMP):
            led_to.add(2 * target)
        if kind not in (OpClass.JUMP, OpClass.RETURN, OpClass.INDIRECT_JUMP):
            led_to.add(2 * (place + length))
    pcs, n_jumps = cases_among(blocks)
    assert pcs.tolist() == sorted({2 * place for place, *_ in drawn} - led_to)
    assert n_jumps == sum(kind == OpClass.INDIRECT_JUMP for _, _, kind, _ in drawn)
