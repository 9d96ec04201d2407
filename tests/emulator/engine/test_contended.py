"""Threads that contend: who runs when is the same on all engines, and the guest is not looked after for nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.execution.deadlines import Deadlines
from emulator.machine import Machine
from instrumenter.building.program_build import build_program

GUEST = Path(__file__).parents[1] / "guest"
OPTIONS: dict[str, dict[str, object]] = {
    "interpreter": {"templates": False, "optimise_executions": 1 << 30, "background": False},
    "optimised": {"optimise_executions": 20, "background": False},
}


@pytest.fixture(scope="module")
def contended() -> Path:
    return build_program([GUEST / "contended.c"], ["-O2"]).elf_path


def outcome(program: Path, arguments: list[str], step: int, **options: object) -> tuple[object, ...]:
    """What the guest has told, when, and where it was at some steps."""
    places = []
    with Machine(program, arguments, **options) as machine:  # type: ignore[arg-type]
        for n in range(1, 20):
            if machine.advance_to_instructions(n * step):
                places.append((machine.instructions, machine.hart.pc, machine.kernel.scheduler.current.tid))
        assert machine.run().status == 0
        return machine.files.output(1), machine.instructions, places


@pytest.mark.parametrize("arguments", [["40"], ["40", "signals"]])
@pytest.mark.parametrize("step", [1, 1009])
def test_threads_get_the_hart_in_the_same_order_everywhere(contended: Path, arguments: list[str], step: int) -> None:
    expected = outcome(contended, arguments, step, engine="oracle")
    output = expected[0]
    assert isinstance(output, bytes)
    assert (output.split()[1] == b"0") == (len(arguments) == 1)
    for name, options in OPTIONS.items():
        assert outcome(contended, arguments, step, **options) == expected, name


def test_nobody_looks_after_a_guest_whose_threads_only_take_turns(
    contended: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []
    look_after = Deadlines.service_guest

    def noted(self: Deadlines) -> None:
        looks.append(self)
        look_after(self)

    monkeypatch.setattr(Deadlines, "service_guest", noted)
    with Machine(contended, ["2000"], background=False) as machine:
        assert machine.run().status == 0
    assert len(looks) < 1000  # there are 20,000 system calls
