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
    assert time.instructions_until(1300) == 1000  # nothing is known yet: a cycle each
    core.seen, time.instructions = 200, 100
    assert time.instructions_until(200 + 2600) == 1000
    assert time.instructions_until(200) == 1
    core.seen, time.instructions = 200, 200_000  # cheaper than one believes of any that follow
    assert time.instructions_until(200 + 325) == 1000


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
