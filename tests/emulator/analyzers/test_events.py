"""Events are what the oracle does, for every field, class and place, whatever engine runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emulator.analyzers import analysis_session as session_module
from emulator.analyzers.analysis_session import Session
from emulator.analyzers.analyzer import Analyzer
from emulator.analyzers.batch import Batch
from emulator.analyzers.event_selection import CLASSES, FIELDS, Selection, SelectionError
from emulator.events import MAX_BLOCK_INSTRUCTIONS, OpClass
from emulator.execution import record
from emulator.machine import Machine

TIERS: tuple[dict[str, Any], ...] = (
    {"templates": False},
    {"background": False, "optimise_executions": 1 << 30},
    {"background": False, "optimise_executions": 4},
    {"engine": "oracle"},
)


class Keep(Analyzer):
    """Keeps all events."""

    def __init__(self, selection: str | Selection) -> None:
        self.selection = selection
        self.parts: list[dict[str, Any]] = []

    def consume(self, batch: Batch) -> None:
        assert all(len(column) == len(batch) for column in batch.columns.values())
        self.parts.append({name: column.copy() for name, column in batch.columns.items()})

    @property
    def columns(self) -> dict[str, list[int]]:
        return {name: np.concatenate([p[name] for p in self.parts]).tolist() for name in self.parts[0]}


def watch(program: Path, *analyzers: Analyzer, **options: Any) -> Machine:
    with Machine(program, ["3"], **options) as machine:
        session = Session(machine, analyzers)
        ending = session.run()
        session.finish()
        assert ending is not None
        assert ending.status == 0
        return machine


def expected(steps: list[Any], *fields: str) -> dict[str, list[int]]:
    return {name: [step.fields[name] % 2**64 for step in steps] for name in fields}


@pytest.mark.parametrize("options", TIERS)
def test_every_field_of_every_instruction(small: Path, steps: list[Any], options: dict[str, Any]) -> None:
    keep = Keep(f"fields={','.join(FIELDS)}")
    watch(small, keep, **options)
    truth = expected(steps, *FIELDS)
    for name in FIELDS:
        assert keep.columns[name] == truth[name], name


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_every_class(small: Path, steps: list[Any], name: str) -> None:
    wanted = [step for step in steps if step.op_class in CLASSES[name]]
    keep = Keep(f"class={name} fields=pc,class,address,value,taken,rd")
    watch(small, keep, **TIERS[0])
    if not wanted:
        assert keep.parts == []
        return
    for field, column in expected(wanted, "pc", "class", "address", "value", "taken", "rd").items():
        assert keep.columns[field] == column, field


def test_all_but_the_rarest_classes_happen(steps: list[Any]) -> None:
    assert set(OpClass) - {step.op_class for step in steps} <= {OpClass.JUMP, OpClass.INDIRECT_JUMP}


def test_mnemonics_symbols_sources_and_ranges(small: Path, steps: list[Any]) -> None:
    with Machine(small) as machine:
        image = machine.image
        walk = image.find_symbol("walk")
    assert walk is not None
    inside = range(walk.address, walk.address + walk.size_bytes)
    cases = {
        "mnemonic=ld,fmul.d fields=value": lambda s: s.mnemonic in ("ld", "fmul.d"),
        "mnemonic=jal class=store fields=target,value": lambda s: (
            s.mnemonic == "jal" or s.op_class in (OpClass.STORE, OpClass.FP_STORE)
        ),
        "symbol=walk fields=pc,rs1": lambda s: s.pc in inside,
        f"range={walk.address + 4:#x}-{walk.address + 8:#x} fields=rd": lambda s: s.pc in inside[4:8],
        "symbol=wal? class=load fields=address": lambda s: s.pc in inside and s.op_class == OpClass.LOAD,
        "source=small.c class=branch fields=pc,taken": lambda s: (
            s.op_class == OpClass.BRANCH and (image.source_line(s.pc) or ("", 0))[0].endswith("/small.c")
        ),
    }
    for text, takes in cases.items():
        wanted = [step for step in steps if takes(step)]
        assert wanted
        for options in TIERS[:1] if "mnemonic" in text or "range" in text else TIERS[:3:2]:
            keep = Keep(text)
            watch(small, keep, **options)
            fields = Selection.parse(text).fields
            assert keep.columns == expected(wanted, *fields), (text, options)


def test_several_analyzers_see_each_their_own(small: Path, steps: list[Any]) -> None:
    one, two = Keep("symbol=walk class=load fields=value"), Keep("class=branch fields=pc,taken,rs1")
    three = Keep("mnemonic=sd fields=address,rs2")
    watch(small, one, two, three, **TIERS[2])
    alone = Keep("symbol=walk class=load fields=value")
    watch(small, alone)
    assert one.columns == alone.columns
    branches = [step for step in steps if step.op_class == OpClass.BRANCH]
    assert two.columns == expected(branches, "pc", "taken", "rs1")
    assert three.columns == expected([s for s in steps if s.mnemonic == "sd"], "address", "rs2")


def test_batches_of_any_size(small: Path, steps: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    truth = expected(steps, "pc", "address", "rd")
    for most in (1, 7, 64):
        with monkeypatch.context() as patch:
            patch.setattr(session_module, "BATCH_EVENTS", most)
            keep = Keep("fields=pc,address,rd")
            watch(small, keep)
            assert keep.columns == truth
            assert max(len(part["pc"]) for part in keep.parts) == most
        with monkeypatch.context() as patch:
            patch.setattr(record, "BATCH_EVENTS", most)
            keep = Keep("fields=pc,address,rd")
            watch(small, keep, **TIERS[0])
            assert keep.columns == truth
            assert most <= max(len(part["pc"]) for part in keep.parts) < most + MAX_BLOCK_INSTRUCTIONS


def test_a_function_gets_the_columns(small: Path, steps: list[Any]) -> None:
    import numba

    @numba.njit
    def add_up(state: Any, pc: Any, address: Any) -> None:
        for n in range(len(pc)):
            state[0] += pc[n]
            state[1] += address[n]

    class Sums(Analyzer):
        selection = "fields=address,pc"
        function = staticmethod(add_up)

        def begin(self) -> None:
            self.state = np.zeros(2, np.int64)

    sums = Sums()
    watch(small, sums)
    truth = expected(steps, "pc", "address")
    assert sums.state.tolist() == [sum(truth["pc"]), sum(truth["address"])]


def test_selections_as_text() -> None:
    text = "class=load,store mnemonic=jal symbol=a,b* source=x.c range=0x10-0x20 fields=pc,value"
    assert str(Selection.parse(text)) == text
    assert Selection.parse("range=4-8,6-12").ranges == ((4, 12),)
    assert Selection.parse("fields=value,pc,value").fields == ("pc", "value")
    assert Selection.parse("") == Selection()
    default = Selection.parse("class=memory fields=address")
    assert Selection.parse("mnemonic=ld symbol=f", default) == Selection.parse("mnemonic=ld symbol=f fields=address")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("class=laod", "class 'laod' is unknown; did you mean load"),
        ("mnemonic=adi", "mnemonic 'adi' is unknown; did you mean "),
        ("fields=pc,adress", "field 'adress' is unknown; did you mean address?"),
        ("clas=load", "got 'clas=load', expected KEY=VALUE,VALUE with a key of class, mnemonic, symbol"),
        ("load", "got 'load', expected KEY=VALUE"),
        ("range=9-4", "range '9-4': expected LOW-HIGH with LOW below HIGH"),
        ("range=x", "range 'x': expected LOW-HIGH"),
    ],
)
def test_wrong_selections(text: str, message: str) -> None:
    with pytest.raises(SelectionError) as error:
        Selection.parse(text)
    assert message in str(error.value)


def test_what_a_program_has_not(small: Path) -> None:
    with Machine(small) as machine:
        with pytest.raises(SelectionError, match=r"it has no function 'wakl'; did you mean walk"):
            Session(machine, [Keep("symbol=wakl")])
        with pytest.raises(SelectionError, match=r"it has no code from source file 'smal\.c'; did you mean small\.c"):
            Session(machine, [Keep("source=smal.c")])
