"""Events of programs with threads, processes, signals and code that they make: exact, whatever engine runs."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emulator.analyzers.analysis_session import Session
from emulator.analyzers.analyzer import Analyzer
from emulator.analyzers.batch import Batch
from emulator.linux.loader.elf import load_image
from emulator.linux.vfs.files import VirtualFiles
from emulator.machine import Machine
from instrumenter.building.program_build import build_program

GUEST = Path(__file__).parent / "guest"
SOURCE = Path(__file__).parent.parent / "linux" / "guest_tasks.c"


class Digest(Analyzer):
    selection = "fields=pc,word,address,value,taken,target,rs1,rs2,rd"

    def begin(self) -> None:
        self.hash = hashlib.sha256()
        self.n = 0

    def consume(self, batch: Batch) -> None:
        self.n += len(batch)
        # Batches end where they end: each event is hashed by itself.
        columns = [column.astype(np.uint64) for column in batch.columns.values()]
        self.hash.update(np.column_stack(columns).tobytes())


@pytest.mark.parametrize("what", ["race", "signals", "code", "forks"])
def test_every_engine_tells_the_same(what: str) -> None:
    program = build_program([SOURCE], ["-O1"]).elf_path
    told = []
    engines: tuple[dict[str, Any], ...] = (
        {"engine": "oracle"},
        {"templates": False},
        {"optimise_executions": 200, "background": False},
    )
    for options in engines[what == "race" :]:  # the oracle takes 5 s for that
        digest = Digest()
        with Machine(program, [what], **options) as machine:
            session = Session(machine, [digest])
            session.run()
            session.finish()
            assert digest.n == machine.instructions
            told.append((digest.n, digest.hash.hexdigest(), machine.files.output(1)))
    assert told[0][0] > 10_000
    assert all(one == told[0] for one in told)


def test_programs_at_the_same_addresses() -> None:
    """A process that begins when others have run begins with what is at its own addresses."""
    shell = build_program([GUEST / "shell.c"], ["-O1"]).elf_path
    same = build_program([GUEST / "shell.c"], ["-O1", "-DOTHER"]).elf_path
    places = [load_image(program).find_symbol("chew") for program in (shell, same)]
    assert all(places)
    assert len({place.address for place in places if place is not None}) == 1
    told = []
    for options in (
        {"engine": "oracle"},
        {"templates": False},
        {"background": False, "optimise_executions": 1 << 30},
        {"background": False, "optimise_executions": 20},
    ):
        digest, files = Digest(), VirtualFiles()
        files.add_if_missing("/other", same.read_bytes())
        with Machine(shell, files=files, **options) as machine:
            session = Session(machine, [digest])
            session.run()
            session.finish()
            told.append((digest.n, digest.hash.hexdigest(), machine.files.output(1)))
            assert digest.n == machine.instructions
    assert told[0][2].count(b"\n") == 4
    assert all(one == told[0] for one in told)
