"""The programs whose cycle-close traces are far off: each case runs, and ends well."""

from __future__ import annotations

import pytest

from emulator.machine import Machine
from experiments.cycle_close import limits
from instrumenter.building.program_build import build_program


@pytest.mark.parametrize("case", sorted({case for case, *_ in limits.CASES}))
def test_every_case_runs(case: str) -> None:
    elf = build_program([limits.SOURCE], ["-O2"]).elf_path
    with Machine(elf, [case, "1"]) as machine:
        machine.run()
        assert machine.ending is not None
        assert machine.ending.status == 0
        assert machine.files.output(1).strip().isdigit()


def test_machines_are_ours_or_the_experiments() -> None:
    assert all(limits.machine_path(machine).is_file() for _, _, machine, _ in limits.CASES)
