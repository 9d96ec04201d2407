"""A guest to be debugged, and machines that serve it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from instrumenter.building.program_build import build_program
from tests.emulator.gdb.served import Served


@pytest.fixture(scope="module")
def program() -> Path:
    return build_program([Path(__file__).parent / "guest.c"], ["-O1", "-g"]).elf_path


@pytest.fixture(params=["translated", "oracle"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def serving(program: Path) -> Iterator[Any]:
    served: list[Served] = []

    def start(*arguments: str, **options: Any) -> Served:
        served.append(Served(program, arguments, **options))
        return served[-1]

    yield start
    for one in served:
        one.client.channel.close()
        one._thread.join(60)
        one.machine.close()
