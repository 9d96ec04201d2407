"""Records limited to address ranges: the same from every tier, and what the oracle does."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from emulator.events import FULL_RECORD, BlockFacts, TraceSelection, merged
from emulator.machine import Machine
from instrumenter.build import build_program

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
        self.blocks: set[int] = set()

    def consume(self, facts: BlockFacts, stream: Any) -> None:
        self.hash.update(stream.tobytes())
        self.n_words += len(stream)
        if not self.selection.addresses:
            self.blocks.update(stream.tolist())


def run(program: Path, selection: TraceSelection, **options: Any) -> tuple[Any, ...]:
    digest = Digest(selection)
    with Machine(program, ["3"], consumers=[digest], **options) as machine:
        machine.run()
        return machine.instructions, digest.n_words, digest.hash.hexdigest(), machine.files.output(1)


def ranges_of(program: Path, *names: str) -> tuple[tuple[int, int], ...]:
    with Machine(program) as machine:
        found = [machine.image.find_symbol(name) for name in names]
    return merged([(s.address + 2, s.address + s.size_bytes - 4) for s in found if s is not None])


def test_ranges_in_every_tier(small: Path) -> None:
    # The ranges begin and end within blocks, and include system calls.
    ranges = ranges_of(
        small, "walk", "mix", "feclearexcept", "fetestexcept", "main", "write", "__stdio_write"
    )
    chosen = TraceSelection(blocks=True, addresses=True, ranges=ranges)
    reference = run(small, chosen, engine="oracle")
    assert reference[1] > 500
    whole = run(small, TraceSelection(blocks=True, addresses=True), **TIERS[0])
    assert reference[1] < whole[1]
    for options in TIERS:
        assert run(small, chosen, **options) == reference, options


def test_only_blocks_that_reach_into_the_ranges_are_recorded(small: Path) -> None:
    ranges = ranges_of(small, "walk")
    digest, everything = (
        Digest(TraceSelection(blocks=True, ranges=ranges)),
        Digest(TraceSelection(blocks=True)),
    )
    with Machine(small, ["3"], consumers=[digest]) as machine:
        machine.run()
        blocks = machine.facts.blocks[sorted(digest.blocks)]
        assert all(row["pc"] < ranges[0][1] and row["end_pc"] > ranges[0][0] for row in blocks)
        machine_blocks = set(map(int, blocks["pc"]))
    with Machine(small, ["3"], consumers=[everything]) as machine:
        machine.run()
        blocks = machine.facts.blocks[sorted(everything.blocks)]
        inside = (blocks["pc"] < ranges[0][1]) & (blocks["end_pc"] > ranges[0][0])
        assert machine_blocks == set(map(int, blocks["pc"][inside]))


def test_unions() -> None:
    here, there = (
        TraceSelection(blocks=True, ranges=((4, 8),)),
        TraceSelection(blocks=True, ranges=((6, 12),)),
    )
    assert (here | there).ranges == ((4, 12),)
    assert (here | FULL_RECORD).ranges == ()
    assert (here | TraceSelection(counts=True)).ranges == ((4, 8),)
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
