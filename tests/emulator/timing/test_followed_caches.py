"""Caches that follow fast execution, against the same caches in full simulation, in every tier."""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path
from signal import SIGSEGV
from typing import Any

import numpy as np
import pytest

from emulator.events import FULL_RECORD, TraceSelection
from emulator.machine import Machine
from emulator.timing import layout
from emulator.timing.followed_caches import FollowedCaches, follows_stores, line_bits
from emulator.timing.inorder import InOrderCore
from emulator.timing.machine_config import MachineConfig
from emulator.timing.machine_events import Event
from emulator.timing.machine_file import load_machine
from instrumenter.building.program_build import build_program
from measure.cycle_close.live_counts import Following
from tests.emulator.timing.tiers import TIERS

GUEST = Path(__file__).parents[1] / "guest"
MACHINES = Path(__file__).parents[3] / "configs" / "machines"
SMALL = {"l1d": {"size_bytes": 2048}, "l1i": {"size_bytes": 1024}, "l2": {"size_bytes": 8192}}
EVENTS = [
    Event.L1D_LOAD_MISSES, Event.L1D_STORE_MISSES, Event.L1D_WRITEBACKS, Event.L1I_MISSES, Event.L2_ACCESSES,
    Event.L2_MISSES, Event.L2_DATA_MISSES, Event.L2_WRITEBACKS, Event.MEMORY_READS, Event.MEMORY_WRITES,
    Event.ITLB_MISSES, Event.DTLB_MISSES,
]  # fmt: skip
CACHES = (layout.L1D, layout.L1I, layout.L2, layout.ITLB, layout.DTLB)


def desktop(policy: str, **changes: dict[str, Any]) -> MachineConfig:
    """The desktop machine with small caches of one policy, which a small program misses often, and ``changes``."""
    config = load_machine(MACHINES / "desktop.yaml")
    caches = {
        level: getattr(config, level).model_copy(update={"replacement": policy} | SMALL[level] | changes.pop(level, {}))
        for level in SMALL
    }
    small = {"entries": 8, "associativity": 4, "replacement": policy}
    tlbs = {tlb: getattr(config, tlb).model_copy(update=small | changes.pop(tlb, {})) for tlb in ("itlb", "dtlb")}
    others = {part: getattr(config, part).model_copy(update=changed) for part, changed in changes.items()}
    return config.model_copy(update=caches | tlbs | others)


CONFIGS = {
    "by use": desktop("lru"),
    "in turn": desktop("fifo"),
    "at random": desktop("random"),
    "mixed": desktop("lru", l1i={"replacement": "random"}, l2={"replacement": "fifo"}, dtlb={"replacement": "random"}),
    "short lines": desktop("lru", l1d={"line_bytes": 16, "associativity": 2}, l1i={"line_bytes": 16}),
    "one way": desktop("lru", l1d={"associativity": 1}, l1i={"associativity": 1}, dtlb={"associativity": 1}),
    "no allocation": desktop("lru", l1d={"write_allocate": False}),
    "large pages": desktop("lru", memory={"page_bytes": 1 << 16}),
    "pages of two megabytes": desktop(
        "lru",
        memory={"page_bytes": 1 << 21},
        dtlb={"entries": 2, "associativity": 2},
        itlb={"entries": 1, "associativity": 1},
    ),
    "written through": desktop("lru", l1d={"write_policy": "write_through", "write_allocate": False}),
    "written through in turn": desktop("fifo", l1d={"write_policy": "write_through"}),
    "without second level": desktop("lru").model_copy(update={"l2": None}),
    "without TLBs": desktop("fifo").model_copy(update={"itlb": None, "dtlb": None}),
}


@pytest.fixture(scope="module")
def program() -> Path:
    return build_program([GUEST / "mixture.c"], ["-O1"], libraries=["-lm"]).elf_path


def contents(core: InOrderCore, cache: int, dirty: bool = True) -> list[list[int]]:
    """The tags of each set, the one filled or used first first; without ``dirty`` the lines."""
    longs, words = core._longs, core._words
    ways, sets = int(longs[cache + layout.M_WAYS]), int(longs[cache + layout.M_SET_MASK]) + 1
    places = int(longs[cache + layout.M_BASE]) + np.arange(sets * ways).reshape(sets, ways)
    order = np.argsort(longs[layout.STAMPS + places], axis=1)
    return [[tag if dirty else tag >> 1 for tag in tags] for tags in np.take_along_axis(words[places], order, 1)]


_simulated: dict[tuple[str, int], InOrderCore] = {}


def in_full(program: Path, config: MachineConfig, instructions: int) -> InOrderCore:
    """The core after ``instructions`` in full simulation, which is done once for each machine."""
    key = config.model_dump_json(), instructions
    if key not in _simulated:
        _simulated[key] = core = InOrderCore(config, 1)
        with Machine(program, ["2"], name="program", consumers=[core]) as machine:
            machine.advance_to_instructions(instructions)
            machine.drain()
    return _simulated[key]


def follow(machine: Machine, core: InOrderCore) -> FollowedCaches:
    """Caches like those of ``core`` that follow ``machine`` from now on."""
    caches = core.followed_caches(machine.follow_lines(line_bits(core.config)))
    machine.observe(replace(following(core.config), exact_stop=True))
    return caches


def following(config: MachineConfig) -> TraceSelection:
    return TraceSelection(followed_lines=line_bits(config), follows_stores=follows_stores(config))


def followed(program: Path, config: MachineConfig, instructions: int, tier: dict[str, Any]) -> InOrderCore:
    """A core with the contents, and as its counters the events, of caches that followed so many instructions."""
    core = InOrderCore(config, 1)
    with Machine(program, ["2"], name="program", **tier) as machine:
        caches = follow(machine, core)
        machine.advance_to_instructions(instructions)
        core.adopt(caches.contents(machine.instructions))
        core.counters[:] = caches.events
    return core


def assert_alike(found: InOrderCore, expected: InOrderCore) -> None:
    """The same lines in the same order, and the same events."""
    for cache in CACHES:
        assert contents(found, cache) == contents(expected, cache), cache
    assert found.counters[EVENTS].tolist() == expected.counters[EVENTS].tolist()
    assert any(tag != layout.INVALID_TAG for tags in contents(found, layout.L1D) for tag in tags)


@pytest.mark.parametrize("name", list(CONFIGS))
@pytest.mark.parametrize("tier", ["interpreted", "templates", "optimised", "background"])
def test_they_are_those_of_full_simulation(program: Path, tier: str, name: str) -> None:
    config = CONFIGS[name]
    assert_alike(followed(program, config, 400_000, TIERS[tier]), in_full(program, config, 400_000))


LINES_IN_TURN = """
static char bytes[1 << 16] __attribute__((aligned(4096)));

int main(void)
{
    volatile char *p = bytes;
    long sum = 0;
    for (int n = 0; n < 3000; n++) {
        sum += p[0] + p[1024] + p[0];  /* within a basic block, and in a set of two lines */
        if (n & 1) sum++;
        sum += p[2048];
        if (n & 2) sum += 3;
        sum += p[0];
        sum += p[64] + p[80] + p[96];  /* through one register, so that the first and the last are near the other */
    }
    return sum & 1;
}
"""


def test_the_last_of_several_uses_in_a_block_counts(tmp_path: Path) -> None:
    """The first did, and half of all counted misses were none; of short lines, those between others were not noted."""
    (tmp_path / "turns.c").write_text(LINES_IN_TURN)
    elf = build_program([tmp_path / "turns.c"], ["-O1"]).elf_path
    short = CONFIGS["short lines"]
    assert short.l1d.size_bytes == 2 * 1024  # two ways
    expected = InOrderCore(short, 1)
    with Machine(elf, ["2"], name="program", consumers=[expected]) as machine:
        machine.run()
        instructions = machine.instructions
    for tier in TIERS.values():
        assert_alike(followed(elf, short, instructions, tier), expected)


@pytest.mark.parametrize("name", ["by use", "at random", "written through"])
def test_the_oracle_leaves_them_too(program: Path, name: str) -> None:
    config = CONFIGS[name]
    assert_alike(followed(program, config, 60_000, TIERS["oracle"]), in_full(program, config, 60_000))


@pytest.mark.parametrize("name", ["by use", "in turn", "at random"])
def test_a_core_goes_on_from_them(program: Path, name: str) -> None:
    """What it counts from there on is what full simulation counts, and the caches follow meanwhile."""
    config = CONFIGS[name]
    core, expected = InOrderCore(config, 1), in_full(program, config, 230_000).counters
    before = in_full(program, config, 200_000).counters
    with Machine(program, ["2"], name="program") as machine:
        caches = follow(machine, core)
        machine.advance_to_instructions(200_000)
        core.adopt(caches.contents(machine.instructions))
        machine.observe(following(config) | FULL_RECORD, [core])
        machine.advance_to_instructions(230_000)
        machine.drain()
        assert core.counters[EVENTS].tolist() == (expected - before)[EVENTS].tolist()
        assert caches.events[EVENTS].tolist() == expected[EVENTS].tolist()


@pytest.mark.parametrize("name", ["by use", "mixed"])
def test_they_go_back(program: Path, name: str) -> None:
    """To what they were before another part of the program ran, whatever that did."""
    core = InOrderCore(CONFIGS[name], 1)
    found = []
    with Machine(program, ["2"], name="program") as machine:
        caches = follow(machine, core)
        machine.advance_to_instructions(150_000)
        saved, state = machine.snapshot(), caches.state(machine.instructions)
        for _ in range(3):
            caches.clear_events()
            machine.advance_to_instructions(400_000)
            core.adopt(caches.contents(machine.instructions))
            found.append((caches.events[EVENTS].tolist(), [contents(core, cache) for cache in CACHES]))
            machine.restore(saved)
            caches.restore(state)
    assert found[0] == found[1] == found[2]
    assert sum(found[0][0]) > 500


def test_a_fault_touches_no_table_of_the_host(tmp_path: Path) -> None:
    """An access outside of the address space has no line and no page."""
    (tmp_path / "wild.c").write_text(
        "int main(void) { return *(volatile int *)(-64L) + *(volatile int *)0x7ffffffcL; }"
    )
    elf = build_program([tmp_path / "wild.c"], ["-O1"]).elf_path
    for tier in TIERS.values():
        core = InOrderCore(CONFIGS["by use"], 1)
        with Machine(elf, **tier) as machine:
            caches = follow(machine, core)
            assert machine.run().signal == SIGSEGV
            core.adopt(caches.contents(machine.instructions))
        assert any(tag != layout.INVALID_TAG for tags in contents(core, layout.L1D) for tag in tags)


def test_faults_that_the_guest_catches() -> None:
    """The accesses before one that faults are made, and that one is not: in the record as in fast execution."""
    elf = build_program([GUEST.parent / "analyzers" / "guest" / "caught.c"], ["-O1"]).elf_path
    config = CONFIGS["by use"]
    full = InOrderCore(config, 1)
    with Machine(elf, consumers=[full]) as machine:
        machine.run()
    for name, tier in TIERS.items():
        with Machine(elf, **tier) as machine:
            caches = follow(machine, InOrderCore(config, 1))
            machine.run()
            assert caches.events[EVENTS].tolist() == full.counters[EVENTS].tolist(), name


def test_nobody_else_has_to_keep_what_translations_write(program: Path) -> None:
    """They have addresses alone: of caches, targets and directions that nothing else refers to."""
    config = CONFIGS["mixed"]
    with Machine(program, ["2"], name="program") as machine:
        following = Following(machine, InOrderCore(config, 1))
        inline = *following.selection.inline, machine.hold_directions(512, 4).call
        machine.observe(replace(following.selection, inline=inline))
        del following, inline
        gc.collect()
        blocks = [np.ones(n, np.int64) for n in (6, 72, 520) for _ in range(200)]  # memory that was freed is in use
        machine.advance_to_instructions(400_000)
    assert all((block == 1).all() for block in blocks)


def test_a_selection_needs_tables_of_its_lines(program: Path) -> None:
    with Machine(program) as machine:
        with pytest.raises(ValueError, match=r"lines of \(6, 6\) bits are to be followed, but follow_lines has"):
            machine.observe(TraceSelection(followed_lines=(6, 6)))
        machine.follow_lines((6, 6))
        machine.observe(TraceSelection(followed_lines=(6, 6)))
        with pytest.raises(ValueError, match="got lines of 8192 bytes, expected a power of two from 16 to 4096"):
            machine.follow_lines((6, 13))
    with pytest.raises(ValueError, match=r"lines of \(6, 6\) and \(5, 0\) bits, expected one core's"):
        TraceSelection(followed_lines=(6, 6)) | TraceSelection(followed_lines=(5, 0))
    assert (TraceSelection(counts=True) | TraceSelection(followed_lines=(5, 0))).followed_lines == (5, 0)
