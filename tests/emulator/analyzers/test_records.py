"""The record beside what the oracle makes of it, in every tier."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from emulator.events import BlockFacts, TraceSelection, merged
from emulator.isa.table import TABLE
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


def test_what_a_guest_did_before_a_fault_that_it_catches() -> None:
    """In every tier the record has these instructions and accesses, and so have counts and the clock."""
    program = build_program([Path(__file__).parent / "guest" / "caught.c"], ["-O1"]).elf_path
    everything = TraceSelection(blocks=True, addresses=True)
    reference = run(program, everything, engine="oracle")
    assert reference[-1] == b"%d 32 8\n" % (24 * 11 + 8 * 4)
    for options in TIERS:
        assert run(program, everything, **options) == reference, options
    assert reference[0] == retired(program) + 8  # of system instructions those count, too, that are illegal
    for options in ({"engine": "oracle"}, *TIERS):
        assert counted(program, **options) == (reference[0], reference[0]), options


class Retired:
    """Hooks that count instructions that have not faulted."""

    def __init__(self) -> None:
        self.n = 0

    def enter(self, block: Any) -> None: ...

    def before(self, pc: int, instruction: Any) -> None: ...

    def after(self, pc: int, instruction: Any) -> None:
        self.n += 1


def retired(program: Path) -> int:
    """Instructions that the oracle has executed, with the last, which ends the program and does not return."""
    hooks = Retired()
    with Machine(program, ["3"], engine="oracle") as machine:
        machine.call_hooks(hooks, TraceSelection(hooks=tuple(sorted({row.mnemonic for row in TABLE}))))
        machine.run()
    return hooks.n + 1


def counted(program: Path, **options: Any) -> tuple[int, int]:
    """Instructions by the clock, and by executions of blocks in intervals."""
    with Machine(program, ["3"], **options) as machine:
        machine.observe(TraceSelection(counts=True))
        total, end = 0, 0
        while machine.ending is None:
            ran = machine.run_intervals(500, 8)
            blocks = machine.facts.blocks["n_instructions"].astype(np.int64)
            total += int((blocks[ran.blocks] * ran.executions).sum())
            if len(ran):
                end = int(ran.ends[-1])
        assert end == machine.instructions
        return machine.instructions, total
