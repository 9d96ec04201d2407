"""Virtual time by hand: what is to be run until a moment, with a timing core and without."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.events import NOTHING, BlockFacts
from emulator.execution.virtual_time import VirtualTime


class Core:
    """Has seen ``seen`` cycles, and ``cycles`` of them once it has caught up."""

    selection = NOTHING

    def __init__(self) -> None:
        self.cycles = 0
        self.seen = 0

    def consume(self, facts: BlockFacts, stream: NDArray[np.uint32]) -> None:
        raise AssertionError("nobody passes it a record here")

    def catch_up(self) -> None:
        self.cycles = self.seen


def nothing() -> None:
    raise AssertionError("there is no core to catch up")


def test_without_a_core_an_instruction_is_a_cycle() -> None:
    time = VirtualTime(None, 3_000_000_000, nothing)
    time.instructions = 10
    assert time.cycles == 10
    assert time.nanoseconds() == 3
    assert time.instructions_until(3) == 1  # that moment has passed
    assert time.instructions_until(4) == 2
    assert time.instructions_until(5) == 5
    time.instructions += time.instructions_until(1001)
    assert time.nanoseconds() == 1001


def test_a_core_catches_up_before_it_is_asked() -> None:
    core = Core()
    time = VirtualTime(core, 1_000_000_000, core.catch_up)
    core.seen, time.instructions = 200, 100
    assert time.nanoseconds() == 200
    assert core.cycles == 200


def test_steps_aim_short_of_a_moment_that_is_known_only_about() -> None:
    core = Core()
    time = VirtualTime(core, 1_000_000_000, core.catch_up)
    assert time.instructions_until(1000) == 15  # nothing is known yet: twenty cycles each, as with empty caches
    core.seen, time.instructions = 2000, 1000
    assert time.instructions_until(2000 + 1400) == 210  # 2 cycles each
    assert time.instructions_until(2000) == 1
    time = VirtualTime(core, 1_000_000_000, core.catch_up)
    core.seen, time.instructions = 200, 200_000  # cheaper than one believes of any that follow
    assert time.instructions_until(200 + 250) == 300


def test_steps_become_larger_parts_of_what_is_left() -> None:
    core = Core()
    time = VirtualTime(core, 1_000_000_000, core.catch_up)
    core.seen = time.instructions = 10_000
    parts = []
    for _ in range(5):
        left = 20_000 - core.seen
        step = time.instructions_until(20_000)
        parts.append(step / left)
        time.instructions += step
        core.seen += step
    assert parts[0] == 0.3
    assert parts == sorted(parts)
    assert 0.75 < parts[-1] <= 0.8


def test_steps_follow_the_recent_cycles_of_an_instruction() -> None:
    # With the mean of the whole run a phase of slow instructions went beyond each of its moments.
    core = Core()
    time = VirtualTime(core, 1_000_000_000, core.catch_up)
    core.seen = time.instructions = 1_000_000
    time.instructions_until(1_000_001)
    core.seen, time.instructions = core.seen + 10_000, time.instructions + 1000
    assert time.instructions_until(core.seen + 10_000) == 300
    core.seen, time.instructions = core.seen + 1000, time.instructions + 10  # too few to tell
    assert time.instructions_until(core.seen + 20_000) == 600
    time.instructions -= 100_000  # the machine went back
    core.seen -= 100_000
    assert time.instructions_until(core.seen + 30_000) == 900


def test_no_step_leads_far_beyond_the_moment_where_slow_instructions_come_back() -> None:
    """Records of a program that alternates instructions of 1 and of 20 cycles: half of them were off by a tenth."""
    core = Core()
    time = VirtualTime(core, 1_000_000_000, core.catch_up)
    every, slow, fast = 50_000, 5_000, 45_000  # cycles; instructions of each kind in turn
    ends, target = [], 0
    while time.instructions < 5_000_000:
        target = max(target + every, core.seen + 1)
        while time.nanoseconds() < target:
            for _ in range(time.instructions_until(target)):
                core.seen += 20 if time.instructions % (slow + fast) < slow else 1
                time.instructions += 1
        ends.append(core.seen)
    assert np.abs(np.diff(ends[5:]) / every - 1).max() < 0.1


def test_a_machine_that_went_back_may_be_ahead_with_fewer_cycles() -> None:
    core = Core()
    time = VirtualTime(core, 1_000_000_000, core.catch_up)
    core.seen = time.instructions = 10_000_000
    time.instructions_until(core.seen + 1)
    core.seen, time.instructions = 1_000_000, 11_000_000  # restored, and emulated without timing since
    assert time.instructions_until(core.seen + 1000) > 500


def test_steps_come_to_the_moment() -> None:
    core = Core()
    time = VirtualTime(core, 1_000_000_000, core.catch_up)
    core.seen, time.instructions = 300, 100
    target, steps = 1_000_000, 0
    while time.nanoseconds() < target:
        time.instructions += time.instructions_until(target)
        core.seen = 3 * time.instructions
        steps += 1
    assert target <= core.cycles < target + 3
    assert steps < 20
