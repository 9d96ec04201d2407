"""Branch predictors that fast execution keeps up to date against the same ones in full simulation, in every tier."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emulator.events import FULL_RECORD, BlockFacts, OpClass, TraceSelection
from emulator.machine import Machine
from emulator.timing import layout
from emulator.timing.inorder import InOrderCore
from emulator.timing.machine_config import MachineConfig
from emulator.timing.machine_events import Event
from emulator.timing.machine_file import load_machine
from emulator.timing.online_predictor import online_predictor
from instrumenter.building.program_build import build_program
from tests.emulator.timing.tiers import TIERS

ROOT = Path(__file__).parents[3]
GUEST = Path(__file__).parents[1] / "guest"
DESKTOP = load_machine(ROOT / "configs" / "machines" / "desktop.yaml")


def machine(penalty_cycles: int = 12, **predictor: Any) -> MachineConfig:
    """The desktop machine with another branch predictor."""
    changed = DESKTOP.branch_predictor.model_copy(update=predictor)
    pipeline = DESKTOP.pipeline.model_copy(update={"mispredict_penalty_cycles": penalty_cycles})
    return DESKTOP.model_copy(update={"branch_predictor": changed, "pipeline": pipeline})


CONFIGS = {
    "by history": machine(entries=65536, history_bits=16),
    "by a short history": machine(entries=4096, history_bits=3),
    "by address": machine(kind="bimodal", entries=4096),
}


@pytest.fixture(scope="module")
def program() -> Path:
    return build_program([GUEST / "mixture.c"], ["-O1"], libraries=["-lm"]).elf_path


def learnt(core: InOrderCore) -> tuple[list[int], int]:
    """The counters of directions and the history."""
    return core._predictor_tables()[0].tolist(), int(core._longs[layout.S_HISTORY])


def online(
    program: Path, config: MachineConfig, stops: list[int], tier: dict[str, Any], simulated: int = 0
) -> tuple[InOrderCore, int]:  # fmt: skip
    """The core after the last of ``stops``, with its predictor kept up to date, and mispredictions; ``simulated``
    instructions after each of the other stops are simulated."""
    core, shape = InOrderCore(config, 1), online_predictor(config)
    assert shape is not None
    with Machine(program, ["2"], **tier) as machine:
        held = machine.hold_directions(*shape)
        core.predict_online(held)
        for stop in stops:
            core.follow()
            machine.observe(TraceSelection(inline=(held.call,), exact_stop=True))
            machine.advance_to_instructions(stop)
            if simulated and stop != stops[-1]:
                machine.observe(FULL_RECORD, [core])
                machine.advance_to_instructions(stop + simulated)
                machine.drain()
                core.follow(machine.hart.pc)
        core._leave()
    return core, int(held.mispredicted[0])


class NaivePredictor:
    """Two-bit counters by address xor history, which learn from a record."""

    selection = FULL_RECORD

    def __init__(self, entries: int, history_bits: int) -> None:
        self.counters, self.history, self.mispredicted = [0] * entries, 0, 0
        self._history_bits = history_bits
        self._last: Any = None

    def consume(self, facts: BlockFacts, stream: np.ndarray) -> None:
        at = 0
        while at < len(stream):
            block = facts.blocks[stream[at]]
            self.go_to(int(block["pc"]))
            last = int(block["first_instruction"]) + int(block["n_instructions"]) - 1
            self._last = block["terminator"], int(block["target_pc"]), int(facts.instructions["pc"][last])
            at += 1 + int(block["n_accesses"])

    def go_to(self, pc: int) -> None:
        """Learn the outcome of the last block, after which control goes to ``pc``."""
        if self._last is None or self._last[0] != OpClass.BRANCH:
            return
        _, target, branch = self._last
        taken = pc == target
        place = (branch >> 1 ^ self.history) % len(self.counters)
        self.mispredicted += taken != (self.counters[place] >= 2)
        self.counters[place] = min(3, self.counters[place] + 1) if taken else max(0, self.counters[place] - 1)
        self.history = (self.history << 1 | taken) % (1 << self._history_bits)


@pytest.fixture(scope="module")
def twins(program: Path) -> dict[str, NaivePredictor]:
    """What the naive predictor of each configuration learns of the oracle's record."""
    found = {}
    for name, config in CONFIGS.items():
        shape = online_predictor(config)
        assert shape is not None
        found[name] = NaivePredictor(*shape)
        found[name].counters = learnt(InOrderCore(config, 1))[0]
    with Machine(program, ["2"], consumers=list(found.values()), engine="oracle") as machine:
        machine.advance_to_instructions(300_000)
        machine.drain()
        for twin in found.values():
            twin.go_to(machine.hart.pc)
    return found


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("config", CONFIGS)
def test_it_learns_what_full_simulation_does(
    program: Path, twins: dict[str, NaivePredictor], config: str, tier: str
) -> None:  # fmt: skip
    twin = twins[config]
    core, mispredicted = online(program, CONFIGS[config], [100_000, 150_001, 300_000], TIERS[tier])
    counters, history = learnt(core)
    assert counters == twin.counters
    assert history == twin.history
    assert mispredicted == twin.mispredicted > 1000
    assert len(set(counters)) == 4


def test_it_goes_on_after_samples(program: Path) -> None:
    """With the branch that ends a sample, and that before one."""
    config, stops = CONFIGS["by history"], [100_000, 200_000, 300_000]
    without, found = (
        learnt(online(program, config, stops, TIERS["optimised"], simulated)[0]) for simulated in (0, 10_000)
    )
    assert found == without


def test_training_leaves_it_as_it_is(program: Path) -> None:
    config = CONFIGS["by history"]
    with Machine(program, ["2"], engine="oracle") as machine:
        core, record = InOrderCore(config, 1), Kept()
        held = machine.hold_directions(65536, 16)
        core.predict_online(held)
        core.follow()
        held.counters[:], held.history[0] = 2, 5
        machine.observe(FULL_RECORD, [record])
        machine.advance_to_instructions(10_000)
        machine.drain()
        core.train(machine.facts, record.stream, 0)
        targets = core._predictor_tables()[1]
    assert learnt(core) == ([2] * 65536, 5)
    assert (targets != layout.NO_TARGET).any()


class Kept:
    """A record."""

    selection = FULL_RECORD
    stream = np.zeros(0, np.uint32)

    def consume(self, facts: BlockFacts, stream: np.ndarray) -> None:
        self.stream = np.concatenate([self.stream, stream])


def test_what_was_learnt_is_gone_back_to(program: Path) -> None:
    core, _ = online(program, CONFIGS["by history"], [100_000], TIERS["oracle"])
    before, saved = learnt(core), core.directions()
    core._predictor_tables()[0][:] = 1
    core._longs[layout.S_HISTORY] = 3
    core.restore_directions(saved)
    assert learnt(core) == before


@pytest.mark.parametrize(
    ("config", "shape"),
    [
        (DESKTOP, (8192, 12)),
        (machine(penalty_cycles=1, entries=512), (512, 12)),
        (machine(kind="bimodal", entries=4096), (4096, 0)),
        (machine(kind="backward_taken", entries=1 << 20), None),
        (machine(kind="not_taken"), None),
    ],
)
def test_predictors_that_learn_are_kept_up_to_date(config: MachineConfig, shape: tuple[int, int] | None) -> None:
    assert online_predictor(config) == shape


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("kind", ["backward_taken", "not_taken"])
def test_a_static_predictor_mispredicts_what_it_does_in_full_simulation(program: Path, kind: str, tier: str) -> None:
    core = InOrderCore(machine(kind=kind), 1)
    with Machine(program, ["2"], consumers=[core], engine="oracle") as full:
        full.advance_to_instructions(300_000)
        full.drain()
        core.follow(full.hart.pc)
    with Machine(program, ["2"], **TIERS[tier]) as fast:
        held = fast.hold_static_directions(kind == "backward_taken")
        fast.observe(TraceSelection(inline=(held.call,), exact_stop=True))
        for stop in (100_000, 150_001, 300_000):
            fast.advance_to_instructions(stop)
    assert int(held.mispredicted[0]) == core.counters[Event.BRANCHES_MISPREDICTED] > 1000
