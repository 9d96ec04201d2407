"""Events of programs with threads, processes, signals and code that they make: exact, whatever engine runs."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emulator.analyzers.base import Analyzer
from emulator.analyzers.batch import Batch
from emulator.analyzers.session import Session
from emulator.machine import Machine
from instrumenter.build import build_program

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
