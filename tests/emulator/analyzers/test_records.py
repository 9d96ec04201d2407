"""The record beside what the oracle makes of it, in every tier."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from emulator.events import BlockFacts, TraceSelection, merged
from emulator.machine import Machine
from instrumenter.building.program_build import build_program

TIERS: tuple[dict[str, Any], ...] = (
    {"templates": False},  # interpreted only
    {"background": False, "optimise_executions": 1 << 30},
    {"background": False, "optimise_executions": 4},
    {"optimise_executions": 50},
)


class Digest:
    def __init__(self, selection: TraceSelection) -> None:
        self.selection = selection
        self.hash = hashlib.sha256()
        self.n_words = 0

    def consume(self, facts: BlockFacts, stream: Any) -> None:
        self.hash.update(stream.tobytes())
        self.n_words += len(stream)


def run(program: Path, selection: TraceSelection, **options: Any) -> tuple[Any, ...]:
    digest = Digest(selection)
    with Machine(program, ["3"], consumers=[digest], **options) as machine:
        machine.run()
        return machine.instructions, digest.n_words, digest.hash.hexdigest(), machine.files.output(1)


def test_unions() -> None:
    here = TraceSelection(hooks=("lw",), hook_ranges=((4, 8),))
    there = TraceSelection(hooks=("sw",), hook_ranges=((6, 12),))
    assert (here | there).hook_ranges == ((4, 12),)
    assert (here | TraceSelection(hooks=("sw",))).hook_ranges == ()
    assert (here | TraceSelection(counts=True)).hook_ranges == ((4, 8),)
    assert merged([(5, 5), (8, 9), (1, 3), (2, 4)]) == ((1, 4), (8, 9))


def test_words_are_in_the_facts(small: Path) -> None:
    with Machine(small, ["3"]) as machine:
        machine.run()
        rows = machine.facts.instructions
        for row in rows[:: len(rows) // 200]:
            size = int(row["length_bytes"])
            assert int(row["word"]) == machine.memory.read_int(int(row["pc"]), size)
    assert np.count_nonzero(rows["word"]) == len(rows)


def test_blocks_are_whole_where_the_guest_catches_its_faults() -> None:
    program = build_program([Path(__file__).parent / "guest" / "caught.c"], ["-O1"]).elf_path
    everything = TraceSelection(blocks=True, addresses=True)
    reference = run(program, everything, engine="oracle")
    assert reference[-1] == b"%d 32 8\n" % (24 * 11 + 8 * 4)
    for options in TIERS:
        assert run(program, everything, **options) == reference, options
