"""Signals of a process with several threads: one takes each, and the calls of the others go on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emulator.machine import Machine

ENGINES: dict[str, dict[str, Any]] = {
    "default": {}, "oracle": {"engine": "oracle"}, "templates": {"background": False, "optimise_executions": 1 << 30},
}  # fmt: skip


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(3))
def test_one_thread_takes_a_signal_and_calls_of_the_other_go_on(
    compile_guest: Callable[[str], Path], engine: str, seed: int
) -> None:
    program = compile_guest("guest_shared_signals.c")
    options = {"limit_instructions": 100_000_000, "timer_phase": seed / 3, **ENGINES[engine]}
    with Machine(program, [], seed=seed, **options) as machine:
        machine.run()
        assert machine.ending == (0, None, None)
        assert machine.files.output(1).decode().splitlines() == [
            "woken 0, signals of the timer meanwhile 0",
            "computes as before: 1",
            "pause -1 1, handled here 1",
        ]
