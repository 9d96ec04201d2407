"""Caches that fast execution keeps up to date against the same caches in full simulation, in every tier."""

from __future__ import annotations

from pathlib import Path
from signal import SIGSEGV
from typing import Any

import numpy as np
import pytest

from emulator.events import FULL_RECORD, TraceSelection
from emulator.machine import Machine
from emulator.timing import layout
from emulator.timing.inorder import InOrderCore
from emulator.timing.machine_config import MachineConfig
from emulator.timing.machine_file import load_machine
from emulator.timing.online_caches import online_line_bits
from emulator.timing.warm import Touched
from instrumenter.building.program_build import build_program
from tests.emulator.timing.tiers import TIERS

GUEST = Path(__file__).parents[1] / "guest"
MACHINES = Path(__file__).parents[3] / "configs" / "machines"
SMALL = {"l1d": {"size_bytes": 2048}, "l1i": {"size_bytes": 1024}, "l2": {"size_bytes": 8192}}


def desktop(**changes: dict[str, Any]) -> MachineConfig:
    """The desktop machine with small FIFO caches, which a small program misses often, and ``changes`` by cache."""
    config = load_machine(MACHINES / "desktop.yaml")
    caches = {
        level: getattr(config, level).model_copy(update={"replacement": "fifo"} | SMALL[level] | changes.get(level, {}))
        for level in SMALL
    }
    return config.model_copy(update=caches)


CONFIGS = {
    "all": desktop(),
    "second level by use": desktop(l2={"replacement": "lru"}),
    "second level at random": desktop(l2={"replacement": "random"}),
    "first level at random": desktop(l1d={"replacement": "random"}, l1i={"replacement": "random"}),
    "short lines": desktop(l1d={"line_bytes": 32}, l1i={"line_bytes": 16}),
    "no allocation": desktop(l1d={"write_allocate": False}),
    "no allocation, at random": desktop(
        l1d={"write_allocate": False, "replacement": "random"},
        l1i={"replacement": "random"},
        l2={"replacement": "random"},
    ),
    "without second level": desktop().model_copy(update={"l2": None}),
}


@pytest.fixture(scope="module")
def program() -> Path:
    return build_program([GUEST / "mixture.c"], ["-O1"], libraries=["-lm"]).elf_path


def contents(core: InOrderCore, cache: int) -> list[list[int]]:
    """The tags of each set, the one filled first first."""
    longs, words = core._longs, core._words
    ways, sets = int(longs[cache + layout.M_WAYS]), int(longs[cache + layout.M_SET_MASK]) + 1
    places = int(longs[cache + layout.M_BASE]) + np.arange(sets * ways).reshape(sets, ways)
    order = np.argsort(longs[layout.STAMPS + places], axis=1)
    return [tags.tolist() for tags in np.take_along_axis(words[places], order, axis=1)]


_simulated: dict[tuple[str, int], InOrderCore] = {}


def in_full(program: Path, config: MachineConfig, instructions: int) -> InOrderCore:
    """The core after ``instructions`` in full simulation, which is done once for each machine."""
    key = config.model_dump_json(), instructions
    if key not in _simulated:
        _simulated[key] = simulate(program, config, instructions)
    return _simulated[key]


def simulate(program: Path, config: MachineConfig, instructions: int) -> InOrderCore:
    core = InOrderCore(config, 1)
    with Machine(program, ["2"], consumers=[core]) as machine:
        machine.advance_to_instructions(instructions)
        machine.drain()
    return core


def online(
    program: Path, config: MachineConfig, stops: list[int], tier: dict[str, Any], simulated: int = 0
) -> InOrderCore:  # fmt: skip
    """The core after the last of ``stops``, with caches kept up to date; ``simulated`` instructions after each of the
    other stops are simulated."""
    core = InOrderCore(config, 1)
    fills = online_line_bits(config)
    with Machine(program, ["2"], **tier) as machine:
        core.go_online(machine.hold_lines(fills))
        for stop in stops:
            core.follow()
            machine.observe(TraceSelection(fills=fills, exact_stop=True))
            machine.advance_to_instructions(stop)
            if simulated and stop != stops[-1]:
                machine.observe(FULL_RECORD, [core])
                machine.advance_to_instructions(stop + simulated)
                machine.drain()
        core._leave()
    return core


def assert_equal(found: InOrderCore, expected: InOrderCore, caches: list[int]) -> None:
    for cache in caches:
        assert contents(found, cache) == contents(expected, cache)
        assert any(tag != layout.INVALID_TAG for tags in contents(found, cache) for tag in tags)


@pytest.mark.parametrize("name", list(CONFIGS))
@pytest.mark.parametrize("tier", ["interpreted", "templates", "optimised", "background"])
def test_fast_execution_leaves_the_caches_of_full_simulation(program: Path, tier: str, name: str) -> None:
    config = CONFIGS[name]
    caches = [layout.L1D, layout.L1I, *([layout.L2] if config.l2 else [])]
    assert_equal(online(program, config, [400_000], TIERS[tier]), in_full(program, config, 400_000), caches)


def test_a_cache_by_use_into_which_stores_bring_no_lines(tmp_path: Path) -> None:
    """Last accesses alone would fill it with lines that were only written."""
    source = tmp_path / "writes.c"
    source.write_text("""
static volatile int table[256], out[1 << 14];
int main(void) { for (int i = 0; i < 200000; i++) out[i & 0x3fff] = table[i * 7 & 255]; return 0; }
""")
    program = build_program([source], ["-O1"]).elf_path
    by_use = {level: {"replacement": "lru"} for level in SMALL}
    config = desktop(**by_use | {"l1d": {"replacement": "lru", "write_allocate": False}})
    expected = {tag >> 1 for tags in contents(in_full(program, config, 400_000), layout.L1D) for tag in tags}
    core = InOrderCore(config, 1)
    fills, bits = online_line_bits(config), config.l1d.line_bytes.bit_length() - 1
    with Machine(program, ["2"]) as machine:
        core.go_online(machine.hold_lines(fills))
        core.follow()
        machine.observe(TraceSelection(fills=fills, line_bits=bits, exact_stop=True))
        machine.advance_to_instructions(400_000)
        touched = Touched(*machine.touched_lines(core.lines_to_warm))
        core.warm_caches(touched, Touched(*(np.zeros(0, np.uint32) for _ in range(3))), 400_000)
    found = {tag >> 1 for tags in contents(core, layout.L1D) for tag in tags}
    youngest = touched.addresses[np.argsort(touched.ages)][: len(found)].astype(np.int64) >> bits
    assert len(found & expected) > 0.8 * len(expected)
    assert len(expected & set(youngest.tolist())) < 0.6 * len(expected)


def test_the_oracle_leaves_them_too(program: Path) -> None:
    config, caches = CONFIGS["all"], [layout.L1D, layout.L1I, layout.L2]
    assert_equal(online(program, config, [60_000], TIERS["oracle"]), in_full(program, config, 60_000), caches)


@pytest.mark.parametrize("tier", list(TIERS))
def test_the_core_simulates_in_between(program: Path, tier: str) -> None:
    """What was written before and while the core simulates is dirty after it."""
    config, caches = CONFIGS["all"], [layout.L1D, layout.L1I, layout.L2]
    stops = [20_000 * n for n in range(1, 4 if tier == "oracle" else 20)]
    found = online(program, config, stops, TIERS[tier], simulated=7_000)
    assert_equal(found, in_full(program, config, stops[-1]), caches)


@pytest.mark.parametrize("followed", ["l1d", "l1i"])
def test_one_cache_alone_is_kept_up_to_date(program: Path, followed: str) -> None:
    """The other one replaces by use and is warmed up; the L2 cache, which sees the misses of both, too."""
    other = {"l1d": "l1i", "l1i": "l1d"}[followed]
    config = desktop(**{other: {"replacement": "lru"}, "l2": {"replacement": "lru"}})
    found, expected = online(program, config, [400_000], TIERS["optimised"]), in_full(program, config, 400_000)
    cache, idle = (layout.L1D, layout.L1I) if followed == "l1d" else (layout.L1I, layout.L1D)
    tags, truth = (contents(core, cache) for core in (found, expected))
    assert [[tag >> 1 for tag in line] for line in tags] == [[tag >> 1 for tag in line] for line in truth]
    assert tags == truth
    for untouched in (idle, layout.L2):
        assert all(tag == layout.INVALID_TAG for one in contents(found, untouched) for tag in one)


@pytest.mark.parametrize("by_use", [["l1d"], ["l1i"], ["l1d", "l1i"]])
def test_a_fifo_cache_behind_caches_that_replace_by_use_has_nearly_the_right_lines(
    program: Path, by_use: list[str]
) -> None:
    """These have stand-ins, which begin with their lines; they themselves are left to be warmed up."""
    config = desktop(**{level: {"replacement": "lru"} for level in by_use})
    stops = [20_000 * n for n in range(1, 20)]
    found, expected = online(program, config, stops, TIERS["optimised"], 7_000), in_full(program, config, stops[-1])
    lines, truth = ({tag >> 1 for tags in contents(core, layout.L2) for tag in tags} for core in (found, expected))
    assert len(lines & truth) > 0.9 * len(truth)
    for level, cache in (("l1d", layout.L1D), ("l1i", layout.L1I)):
        assert (contents(found, cache) == contents(expected, cache)) == (level not in by_use)


def test_a_written_through_store_is_counted_dirty_below_when_its_line_leaves(program: Path) -> None:
    """The first level has what full simulation has; the second has the same lines."""
    config = desktop(l1d={"write_policy": "write_through"})
    found, expected = online(program, config, [400_000], TIERS["optimised"]), in_full(program, config, 400_000)
    assert_equal(found, expected, [layout.L1D, layout.L1I])
    lines, truth = (
        [[tag >> 1 for tag in line] for line in contents(core, layout.L2)] for core in (found, expected)
    )  # fmt: skip
    assert lines == truth


def test_a_fault_touches_no_table_of_the_host(tmp_path: Path) -> None:
    """An access outside of the address space has no line and no page."""
    (tmp_path / "wild.c").write_text(
        "int main(void) { return *(volatile int *)(-64L) + *(volatile int *)0x7ffffffcL; }"
    )
    elf = build_program([tmp_path / "wild.c"], ["-O1"]).elf_path
    config = CONFIGS["all"]
    for tier in TIERS.values():
        core = InOrderCore(config, 1)
        with Machine(elf, **tier) as machine:
            core.go_online(machine.hold_lines(online_line_bits(config)))
            core.follow()
            machine.observe(TraceSelection(fills=online_line_bits(config)))
            assert machine.run().signal == SIGSEGV
        core._leave()
        assert any(tag != layout.INVALID_TAG for tags in contents(core, layout.L1D) for tag in tags)


def test_fills_need_tables_of_their_lines(program: Path) -> None:
    with Machine(program) as machine:
        with pytest.raises(ValueError, match=r"fills of lines \(6, 6\) are selected, but nothing was prepared"):
            machine.observe(TraceSelection(fills=(6, 6)))
        machine.hold_lines((6, 6))
        machine.observe(TraceSelection(fills=(6, 6)))
    with pytest.raises(ValueError, match=r"want fills of lines \(6, 6\) and \(5, 0\), expected one core's"):
        TraceSelection(fills=(6, 6)) | TraceSelection(fills=(5, 0))
    assert (TraceSelection(counts=True) | TraceSelection(fills=(5, 0))).fills == (5, 0)


def test_replacement_by_use_is_not_followed() -> None:
    assert online_line_bits(load_machine(MACHINES / "strongarm.yaml")) == (0, 0)
    assert online_line_bits(load_machine(MACHINES / "desktop.yaml")) == (0, 0)  # without FIFO caches not necessary
    behind = {"l1d": {"replacement": "lru"}, "l1i": {"replacement": "random"}}
    assert online_line_bits(desktop(**behind)) == (6, 6)
    assert online_line_bits(desktop(**behind, l2={"replacement": "lru"})) == (0, 0)
    assert online_line_bits(CONFIGS["short lines"]) == (5, 4)
