"""Columns against a naive twin: events worked out in Python from what the oracle does step by step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.analyzers.analysis_session import Session
from emulator.analyzers.analyzer import Analyzer
from emulator.analyzers.batch import Batch
from emulator.analyzers.event_selection import CLASSES, FIELDS, Selection
from emulator.engine.hart_state import Hart
from emulator.engine.instrument.columns import ROOM, ColumnMemory, append
from emulator.engine.persist import translation_store as archive_module
from emulator.engine.tiering.tiers import Region, Tier
from emulator.events import COLUMN_TYPES, BlockFacts, TraceSelection, merged
from emulator.execution import record as record_module
from emulator.execution.record import Record
from emulator.machine import Machine
from instrumenter.building.program_build import build_program
from tests.emulator.analyzers.inline_counter import Counter
from tests.emulator.analyzers.oracle_steps import Step, steps_of

GUEST = Path(__file__).parent / "guest"
ENGINES: dict[str, dict[str, Any]] = {
    "oracle": {"engine": "oracle"},
    "interpreter": {"templates": False, "optimise_executions": 1 << 30},
    "templates": {"background": False, "optimise_executions": 1 << 30},
    "optimised": {"background": False, "optimise_executions": 4},
    "in the background": {"optimise_executions": 50},
}


class Keep(Analyzer):
    """Keeps all events."""

    def __init__(self, selection: Selection | str) -> None:
        self.selection = selection
        self.parts: list[dict[str, Any]] = []

    def consume(self, batch: Batch) -> None:
        self.parts.append({name: column.copy() for name, column in batch.columns.items()})

    @property
    def columns(self) -> dict[str, list[int]]:
        selection = Selection.parse(str(self.selection))
        return {name: [int(one) for part in self.parts for one in part[name]] for name in selection.fields}


def watch(program: Path, *analyzers: Analyzer, **options: Any) -> Machine:
    with Machine(program, ["3"], **options) as machine:
        session = Session(machine, analyzers)
        session.run()
        session.finish()
        return machine


def twin(steps: list[Step], selection: Selection) -> dict[str, list[int]]:
    """What the columns of ``selection`` are to hold."""
    kinds = selection.kinds()
    taken = [
        step
        for step in steps
        if (step.op_class in kinds or step.mnemonic in selection.mnemonics)
        and (not selection.ranges or any(low <= step.pc < high for low, high in selection.ranges))
    ]
    sizes = {name: 8 * np.dtype(kind).itemsize for name, kind in COLUMN_TYPES.items()}
    return {name: [s.fields[name] % (1 << sizes[name]) for s in taken] for name in selection.fields}


@st.composite
def selections(draw: st.DrawFn, steps: list[Step]) -> Selection:
    """Of what the program does: any fields, classes and mnemonics, and ranges that begin and end within blocks."""
    pcs = sorted({step.pc for step in steps})
    ends = draw(st.lists(st.sampled_from(pcs), max_size=4, unique=True).filter(lambda one: len(one) % 2 == 0))
    ends.sort()
    mnemonics = sorted({step.mnemonic for step in steps})
    return Selection(
        classes=tuple(draw(st.lists(st.sampled_from(sorted(CLASSES)), max_size=2, unique=True))),
        mnemonics=tuple(draw(st.lists(st.sampled_from(mnemonics), max_size=3, unique=True))),
        ranges=tuple(zip(ends[::2], ends[1::2], strict=True)),
        fields=tuple(draw(st.lists(st.sampled_from(FIELDS), min_size=1, max_size=12, unique=True))),
    )


@pytest.mark.slow
@settings(max_examples=3, deadline=None)
@given(data=st.data())
def test_any_selections_on_every_engine(small: Path, steps: list[Step], data: st.DataObject) -> None:
    chosen = [data.draw(selections(steps)) for _ in range(2)]
    for name, options in ENGINES.items():
        keeps = [Keep(one) for one in chosen]
        watch(small, *keeps, **options)
        for keep, one in zip(keeps, chosen, strict=True):
            assert keep.columns == twin(steps, one), (name, str(one))


@pytest.mark.parametrize("engine", ENGINES)
def test_ranges_with_system_calls(small: Path, steps: list[Step], engine: str) -> None:
    names = ("walk", "mix", "feclearexcept", "fetestexcept", "main", "__stdio_write")
    with Machine(small) as machine:
        found = [machine.image.find_symbol(name) for name in names]
    assert all(found)
    ranges = merged([(one.address + 2, one.address + one.size_bytes - 2) for one in found if one is not None])
    chosen = Selection(mnemonics=("csrrs", "ecall", "fadd.d", "jalr", "lw", "sd"), ranges=ranges, fields=FIELDS)
    keep = Keep(chosen)
    watch(small, keep, **ENGINES[engine])
    expected = twin(steps, chosen)
    assert len(expected["pc"]) > 300
    assert keep.columns == expected


def catching(source: str) -> tuple[Path, list[Step]]:
    """A program with a handler for its faults, and its steps."""
    program = build_program([GUEST / source], ["-O1"]).elf_path
    return program, steps_of(program, "3")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_block_that_a_fault_cuts_short_is_told_to_there(engine: str) -> None:
    program, steps = catching("caught.c")
    everything, some = Keep(f"fields={','.join(FIELDS)}"), Keep("class=store,csr fields=pc,value,rd")
    watch(program, everything, some, **ENGINES[engine])
    for keep in (everything, some):
        assert keep.columns == twin(steps, Selection.parse(str(keep.selection)))


@pytest.mark.parametrize("engine", ENGINES)
def test_blocks_before_one_that_faults_are_told(engine: str) -> None:
    """With a function in line LLVM looks for stores that others overwrite; that of the events so far is to stay."""
    program, steps = catching("stores.c")
    keep = Keep("fields=pc,rs1")
    machine = watch(program, keep, Counter(), **ENGINES[engine])
    assert machine.files.output(1) == b"20\n"
    assert keep.columns == twin(steps, Selection.parse("fields=pc,rs1"))


def test_translations_with_columns_are_kept(
    small: Path, steps: list[Step], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are found by what is selected, wherever the columns lie, and no new ones are made."""
    from emulator.engine.translator import Translator

    monkeypatch.setattr(archive_module, "cache_directory", lambda: tmp_path)
    made: list[str] = []
    compile_ = Translator._compile

    def compile_and_list(self: Translator, tier: Tier, region: Region) -> None:
        made.append(region.name)
        compile_(self, tier, region)

    monkeypatch.setattr(Translator, "_compile", compile_and_list)
    text = "class=load,branch fields=pc,address,value,taken"
    first, second, other = Keep(text), Keep(text), Keep("class=load fields=pc,address,value,taken")
    others: list[ColumnMemory] = []
    for keep, finds in ((first, False), (second, True), (other, False)):
        others.append(ColumnMemory(("pc",)))  # what comes later lies elsewhere
        made.clear()
        with Machine(small, ["3"], keep_translations=True, background=False, optimise_executions=4) as machine:
            session = Session(machine, [keep])
            assert machine._translated is not None
            machine._translated.select()
            assert machine.translator is not None
            assert bool(machine.translator.tier.regions) == finds
            session.run()
            session.finish()
            machine.save_translations()
        assert bool(made) != finds
        assert keep.columns == twin(steps, Selection.parse(str(keep.selection)))


def test_going_back(small: Path, steps: list[Step]) -> None:
    """What was executed twice is told twice."""
    keep = Keep("fields=pc,rd")
    with Machine(small, ["3"]) as machine:
        session = Session(machine, [keep])
        session.run(2000)
        begin, saved = machine.instructions, machine.snapshot()
        session.run(6000)
        end = machine.instructions
        machine.restore(saved)
        session.run()
        session.finish()
    assert begin < end < len(steps)
    assert keep.columns == twin([*steps[:end], *steps[begin:]], Selection.parse("fields=pc,rd"))


def test_what_selects_little_waits_for_more_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_module, "BATCH_EVENTS", 256)
    hart, fields = Hart(), ("pc", "rd")
    record, memory = Record(hart), ColumnMemory(fields)
    columns = Selection.parse("fields=pc,rd").columns((), 0)
    selection = TraceSelection(inline=(replace(columns, state=memory.address),))

    class Reader:
        def __init__(self) -> None:
            self.selection, self.taken = selection, 0

        def consume(self, facts: BlockFacts, stream: Any) -> None:
            raise AssertionError("nobody selected blocks")

        def consume_columns(self) -> None:
            self.taken = memory.take()

    reader = Reader()
    record.select(selection)
    assert record.limit == 256
    for events, instructions, limit in (
        (300, 300, 256),
        (300, 1200, 1024),
        (1, 900, 1024),  # too few to tell
        (1, 100_000, ROOM),
        (0, ROOM, ROOM),
    ):
        record.begin_events()
        for n in range(events):
            append(selection.columns[0], {"pc": n, "rd": 2**64 - n})
        record.commit_events()
        append(selection.columns[0], {"pc": 99})  # of a block that does not end
        record.begin_events()
        record.instructions = instructions
        record.pass_on(BlockFacts(), [reader])
        assert record.limit == limit
        assert (reader.taken if events else 0, record.instructions) == (events, 0)
    assert memory.columns["pc"][:4].tolist() == [99, 99, 2, 3]  # what is behind the last event is nobody's
    assert memory.columns["rd"][:4].tolist() == [0, 0, 2**64 - 2, 2**64 - 3]


def told_place(message: str | None) -> list[str]:
    """What a message about a fault says of the fault, without its callers."""
    assert message is not None
    return message.splitlines()[:2]


@pytest.mark.parametrize("engine", ["interpreter", "templates", "optimised"])
def test_faults_that_end_the_program(engine: str) -> None:
    """All that ran before the block that faulted has been told, and the fault is where it is without columns."""
    program = build_program([GUEST.parent.parent / "guest" / "faults.c"], ["-O1"]).elf_path
    with Machine(program, ["hot"]) as machine:
        message = machine.run().message
    keep = Keep("mnemonic=sw fields=pc,address,value")
    with Machine(program, ["hot"], **ENGINES[engine]) as machine:
        session = Session(machine, [keep])
        ending = session.run()
        session.finish()
    assert ending is not None
    # Callers are told after the place, where registers are known, as in no translation of a hot path.
    assert told_place(ending.message) == told_place(message)
    addresses, values = (np.concatenate([part[name] for part in keep.parts]) for name in ("address", "value"))
    rounds = 300_000 - 9  # table[i % 512] += i, until its address is wrong
    stored = addresses[-rounds:]
    assert np.array_equal(stored - stored[0], np.arange(rounds) % 512 * 4)
    sums = np.add.reduce(np.arange(rounds // 512 * 512).reshape(-1, 512)[:, 5]) % 2**32
    assert values[-rounds:][5::512][rounds // 512 - 1] == sums
