"""Virtual time: clocks, sleeping, and when timers fire."""

from __future__ import annotations

import pytest

from emulator.linux.kernel.clock import TimeBase, Timer, Timers, VirtualClock


class World:
    def __init__(self, phase: float = 0.0) -> None:
        self.now = 0
        self.clock = VirtualClock(lambda: self.now)
        self.timers = Timers(self.clock, phase)
        self.fired: list[tuple[str, int, int]] = []

    def timer(self, name: str, base: TimeBase = TimeBase.ELAPSED) -> Timer:
        return self.timers.add(Timer(base, lambda overrun: self.fired.append((name, self.clock.elapsed(), overrun))))


def test_sleeping_moves_elapsed_time_and_not_processor_time() -> None:
    world = World()
    world.now = 100
    world.clock.sleep_until(1000)
    assert (world.clock.elapsed(), world.clock.processor()) == (1000, 100)
    world.now = 150
    assert (world.clock.elapsed(), world.clock.processor()) == (1050, 150)
    assert world.clock.wall() == 1_700_000_000 * 10**9 + 1050
    world.clock.sleep_until(5)
    assert world.clock.elapsed() == 1050


def test_a_one_shot_timer_fires_once() -> None:
    world = World()
    timer = world.timer("a")
    world.timers.arm(timer, 50, 0)
    assert (world.timers.next_deadline(), world.timers.remaining(timer)) == (50, 50)
    world.now = 49
    world.timers.fire()
    assert world.fired == []
    world.now = 60
    assert world.timers.remaining(timer) == 1
    world.timers.fire()
    world.timers.fire()
    assert world.fired == [("a", 60, 0)]
    assert (world.timers.next_deadline(), world.timers.remaining(timer)) == (None, 0)


def test_a_periodic_timer_keeps_its_rhythm_and_counts_what_it_missed() -> None:
    world = World()
    timer = world.timer("a")
    world.timers.arm(timer, 10, 20)
    for now in (10, 35, 120):
        world.now = now
        world.timers.fire()
    # due at 10, 30, 50, 70, 90, 110: the fire at 120 is for 50 and three more
    assert world.fired == [("a", 10, 0), ("a", 35, 0), ("a", 120, 3)]
    assert world.timers.next_deadline() == 130
    world.timers.arm(timer, 0, 0)
    assert world.timers.next_deadline() is None


def test_deadlines_are_told_in_the_time_of_the_source() -> None:
    world = World()
    world.clock.sleep_until(1000)
    elapsed, processor = world.timer("e"), world.timer("p", TimeBase.PROCESSOR)
    world.timers.arm(processor, 500, 0)
    assert world.timers.next_deadline() == 500
    world.timers.arm(elapsed, 300, 0)
    assert world.timers.next_deadline() == 300
    world.timers.arm(elapsed, 1200, 0, absolute=True)
    assert world.timers.next_deadline() == 200


def test_the_phase_shortens_only_the_first_period() -> None:
    world = World(phase=0.25)
    periodic, once = world.timer("a"), world.timer("b")
    world.timers.arm(periodic, 100, 100)
    world.timers.arm(once, 100, 0)
    assert (world.timers.remaining(periodic), world.timers.remaining(once)) == (75, 100)
    world.now = 75
    world.timers.fire()
    assert world.timers.remaining(periodic) == 100


@pytest.mark.parametrize("phase", [-0.1, 1.0])
def test_a_phase_is_a_fraction(phase: float) -> None:
    with pytest.raises(ValueError, match="expected a fraction from 0 up to, not including, 1"):
        World(phase=phase)
