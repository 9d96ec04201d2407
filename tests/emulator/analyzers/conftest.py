"""The guest that analyzers are tried on, and what it does."""

from __future__ import annotations

from pathlib import Path

import pytest

from instrumenter.building.program_build import build_program
from tests.emulator.analyzers.oracle_steps import Step, steps_of

GUEST = Path(__file__).parent / "guest"


@pytest.fixture(scope="session")
def small() -> Path:
    return build_program([GUEST / "small.c"], ["-O1", "-g"], libraries=["-lm"]).elf_path


@pytest.fixture(scope="session")
def steps(small: Path) -> list[Step]:
    return steps_of(small, "3")
