"""The wait queue: against a naive twin, and in a guest whose threads all want one lock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.linux.kernel.scheduler import Scheduler
from emulator.linux.kernel.signals import ThreadSignals
from emulator.linux.kernel.tasks import Process, Thread
from emulator.linux.kernel.wait_queue import WaitQueue
from emulator.linux.kernel.waits import Wait, never
from emulator.machine import Machine
from instrumenter.building.program_build import build_program

CONTENTION = Path(__file__).parents[3] / "experiments" / "benchmarks" / "corners" / "contention.c"
N_THREADS, TURNS = 64, 10

THREADS = st.integers(0, 5)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), THREADS, st.booleans(), st.none() | st.integers(0, 20)),
        st.tuples(st.just("remove"), THREADS), st.tuples(st.just("tell"), THREADS),
        st.tuples(st.just("ask"), st.integers(0, 20)), st.tuples(st.just("everybody")),
    ), max_size=40,
)  # fmt: skip


class Naive:
    """A list, and for each thread its wait and whether it is to be asked."""

    def __init__(self) -> None:
        self.waits: dict[int, tuple[bool, int | None]] = {}
        self.fresh: set[int] = set()

    def do(self, step: tuple[Any, ...]) -> list[int]:
        what, *rest = step
        if what == "add":
            self.waits[rest[0]] = rest[1], rest[2]
            self.fresh.add(rest[0])
        elif what == "remove":
            self.waits.pop(rest[0], None)
            self.fresh.discard(rest[0])
        elif what == "tell":
            self.fresh |= {rest[0]} & self.waits.keys()
        elif what == "everybody":
            self.fresh |= self.waits.keys()
        else:
            asked = [
                n
                for n, (is_notified, until) in self.waits.items()
                if not is_notified or n in self.fresh or (until is not None and until <= rest[0])
            ]
            self.fresh.clear()
            return asked
        return []


@given(STEPS)
def test_those_are_asked_whose_wait_may_be_over(steps: list[tuple[Any, ...]]) -> None:
    process = Process(1, None, 1, 1)
    threads = [Thread(n, process, ThreadSignals()) for n in range(6)]
    queue, naive = WaitQueue(), Naive()
    for step in steps:
        asked: list[Thread] = []
        what, *rest = step
        if what == "add":
            queue.add(threads[rest[0]], Wait(never, until=rest[2], is_notified=rest[1]))
        elif what == "remove":
            queue.remove(threads[rest[0]])
        elif what == "tell":
            queue.notify(threads[rest[0]])
        elif what == "everybody":
            queue.check_all()
        else:
            asked = queue.to_check(lambda now=rest[0]: now)  # type: ignore[misc]
        assert [thread.tid for thread in asked] == naive.do(step)
        assert [thread.tid for thread in queue] == list(naive.waits)
        ends = [until for _, until in naive.waits.values() if until is not None]
        assert sorted(queue.ends()) == sorted(ends)


def test_threads_that_wait_for_a_lock_are_not_asked_at_every_system_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    n_asked = 0
    is_over = Scheduler._is_over

    def counting(self: Scheduler, thread: Thread, wait: Wait) -> bool:
        nonlocal n_asked
        n_asked += 1
        return is_over(self, thread, wait)

    monkeypatch.setattr(Scheduler, "_is_over", counting)
    program = build_program([CONTENTION], ["-O2"]).elf_path
    outcomes = []
    for _ in range(2):
        with Machine(program, ["yield", str(TURNS)]) as machine:
            assert machine.run().status == 0
            outcomes.append((machine.files.output(1), machine.instructions))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][0] == f"{N_THREADS * TURNS}\n".encode()
    # Twice each time that a thread waits, and it does once a turn or so; it was 40 times as much.
    assert n_asked < 2 * 4 * N_THREADS * TURNS
