"""Functions that are called in the middle of translations, against the oracle's own trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emulator.analyzers.analysis_session import Session
from emulator.analyzers.analyzer import Analyzer
from emulator.analyzers.batch import Batch
from emulator.analyzers.event_selection import CLASSES, FIELDS, SelectionError
from emulator.analyzers.inline_kernel import InlineError
from emulator.engine.instrument.inline_functions import AFTER
from emulator.errors import EmulatorError
from emulator.machine import Machine
from instrumenter.building.program_build import build_program
from tests.emulator.analyzers.inline_counter import Counter

ENGINES: dict[str, dict[str, Any]] = {
    "interpreter": {"templates": False, "optimise_executions": 1 << 30},
    "templates": {"background": False, "optimise_executions": 1 << 30},
    "optimised": {"background": False, "optimise_executions": 4},
    "oracle": {"engine": "oracle"},
}
BEFORE = tuple(name for name in FIELDS if name not in AFTER)


def note_all(state, pc, word, opcode, kind, address, value, taken, target, rs1, rs2, rs3, rd):  # type: ignore[no-untyped-def]
    n = state[0, 0] + 1
    state[0, 0] = n
    row = state[n]
    row[0], row[1], row[2], row[3], row[4], row[5] = pc, word, opcode, kind, address, value
    row[6], row[7], row[8], row[9], row[10], row[11] = taken, target, rs1, rs2, rs3, rd


def note_before(state, pc, word, opcode, kind, address, rs1, rs2, rs3):  # type: ignore[no-untyped-def]
    n = state[0, 0] + 1
    state[0, 0] = n
    row = state[n]
    row[0], row[1], row[2], row[3], row[4] = pc, word, opcode, kind, address
    row[5], row[6], row[7] = rs1, rs2, rs3


class Notes(Analyzer):
    """Every event as it comes, one row each; row 0 counts them."""

    def __init__(self, selection: str, after: bool) -> None:
        self.inline = f"{selection} fields={','.join(FIELDS)}".strip()
        self.state = np.zeros((60_000, 12), np.uint64)
        if after:
            self.inline_after = note_all
        else:
            self.inline_before = note_before

    @property
    def rows(self) -> np.ndarray[Any, Any]:
        return self.state[1 : int(self.state[0, 0]) + 1]


def watch(program: Path, analyzers: list[Analyzer], *arguments: str, **options: Any) -> Machine:
    with Machine(program, arguments, **options) as machine:
        session = Session(machine, analyzers)
        session.run()
        session.finish()
        return machine


def expected(steps: list[Any], fields: tuple[str, ...]) -> np.ndarray[Any, Any]:
    """The same rows from the oracle's trace. What ends the program has no afterwards."""
    rows = [[step.fields.get(name, 0) for name in fields] for step in steps]
    return np.array(rows[:-1] if "value" in fields else rows, np.uint64)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("after", [False, True])
def test_every_field_of_every_instruction(small: Path, steps: list[Any], engine: str, after: bool) -> None:
    notes = Notes("", after)
    watch(small, [notes], "3", **ENGINES[engine])
    fields = FIELDS if after else BEFORE
    np.testing.assert_array_equal(notes.rows[:, : len(fields)], expected(steps, fields))


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_selected(small: Path, steps: list[Any], engine: str) -> None:
    """Classes that depend on registers or on the instruction before, mnemonics, and places within blocks."""
    places = sorted({step.pc for step in steps})
    low, high = places[len(places) // 3] + 2, places[2 * len(places) // 3]
    calls, adds = Notes("class=call,return", True), Notes(f"mnemonic=addi,add range={low:#x}-{high:#x}", True)
    watch(small, [calls, adds], "3", **ENGINES[engine])
    kinds = {int(kind) for name in ("call", "return") for kind in CLASSES[name]}
    wanted = [step for step in steps if int(step.op_class) in kinds]
    assert calls.rows[:, 0].tolist() == [step.pc for step in wanted]
    wanted = [step for step in steps if step.mnemonic in ("addi", "add") and low <= step.pc < high]
    assert adds.rows[:, 0].tolist() == [step.pc for step in wanted]
    assert len(wanted) > 100


class Rewriter(Analyzer):
    """Makes every ``addi rd, rs, 7`` of ``seven`` an ``addi rd, rs, 8`` by changing its source register, reads memory,
    and leaves its mark in x0, which stays 0."""

    inline = "symbol=seven mnemonic=addi fields=word,registers,memory"

    def __init__(self) -> None:
        self.state = np.zeros(2, np.uint64)

    @staticmethod
    def inline_before(state, word, registers, memory):  # type: ignore[no-untyped-def]
        if word >> 20 == 7:
            registers[(word >> 15) & 31] += 1
            state[0] += 1
            state[1] += memory[registers[2]]
            registers[0] = 99


@pytest.fixture(scope="module")
def seven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("seven") / "seven.c"
    source.write_text(
        "#include <stdio.h>\n"
        "__attribute__((noinline)) long seven(long x) {\n"
        '  __asm__ volatile(".option push\\n.option norvc\\naddi %0, %0, 7\\n.option pop" : "+r"(x));\n'
        "  return x;\n}\n"
        'int main(void) { long s = 0; for (int i = 0; i < 500; i++) s = seven(s); printf("%ld\\n", s); }\n'
    )
    return build_program([source], ["-O2"]).elf_path


@pytest.mark.parametrize("engine", ENGINES)
def test_registers_and_memory(seven: Path, engine: str) -> None:
    rewriter = Rewriter()
    machine = watch(seven, [rewriter], **ENGINES[engine])
    assert machine.files.output(1) == b"4000\n"
    assert rewriter.state[0] == 500


class Events(Analyzer):
    """The sources and results of what ``Rewriter`` changes."""

    selection = "symbol=seven mnemonic=addi fields=word,rs1,rd"

    def __init__(self) -> None:
        self.rows: list[list[int]] = []

    def consume(self, batch: Batch) -> None:
        self.rows += np.column_stack([batch.word, batch.rs1, batch.rd])[batch.word >> 20 == 7].tolist()


@pytest.mark.parametrize("engine", ENGINES)
def test_events_beside_functions_that_change_registers(seven: Path, engine: str) -> None:
    """Events have what the instruction gets and what it makes of it, whichever analyzer comes first."""
    for first in (True, False):
        events, rewriter = Events(), Rewriter()
        watch(seven, [events, rewriter] if first else [rewriter, events], **ENGINES[engine])
        assert [row[1:] for row in events.rows] == [[8 * n + 1, 8 * n + 8] for n in range(500)]


class Averages(Analyzer):
    """Floating point of its own: must not be seen in the guest's flags, nor rounded as the guest says."""

    inline = "fields=pc"

    def __init__(self) -> None:
        self.state = np.zeros(2)

    @staticmethod
    def inline_after(state, pc):  # type: ignore[no-untyped-def]
        state[0] += 1.0 / 3.0 / float(pc)
        state[1] += 1.0


@pytest.mark.parametrize("engine", ["interpreter", "templates", "optimised"])
def test_floating_point_of_a_function_is_not_the_guests(mixture: Path, engine: str) -> None:
    with Machine(mixture, ["1"]) as machine:
        machine.run()
        alone = machine.files.output(1), machine.instructions
    averages = Averages()
    machine = watch(mixture, [averages], "1", **ENGINES[engine])
    assert (machine.files.output(1), machine.instructions) == alone
    assert averages.state[1] == machine.instructions - 1
    other = Averages()
    watch(mixture, [other], "1")
    assert averages.state.tolist() == other.state.tolist()


@pytest.fixture(scope="module")
def mixture() -> Path:
    return build_program([Path(__file__).parent.parent / "guest" / "mixture.c"], ["-O2"], libraries=["-lm"]).elf_path


def test_translations_with_functions_in_them_are_kept(
    mixture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the state is the one of the analyzer that watches, whatever process they were made in."""
    import emulator.engine.persist.translation_store as archive_module

    monkeypatch.setattr(archive_module, "cache_directory", lambda: tmp_path)
    for again in (False, True, True):
        counter = Counter()
        with Machine(mixture, ["3"], keep_translations=True, background=False) as machine:
            session = Session(machine, [counter])
            assert machine._translated is not None
            machine._translated.select()
            assert machine.translator is not None
            kept = len(machine.translator.tier.regions)
            session.run()
            session.finish()
            assert counter.state[0] == machine.instructions
            assert bool(kept) == again
            machine.save_translations()


def test_two_of_a_kind_and_a_selection_that_changes(mixture: Path) -> None:
    """Analyzers with the same function have each their own state; one that pauses misses what the other sees."""
    first, second = Counter(), Counter()
    with Machine(mixture, ["3"]) as machine:
        session = Session(machine, [first, second])
        session.run(2_000_000)
        paused_at = machine.instructions
        second.inline = ""
        session.changed()
        session.run()
        session.finish()
        assert (first.state[0], second.state[0]) == (machine.instructions, paused_at)


def test_guests_that_catch_faults(tmp_path: Path) -> None:
    program = build_program([Path(__file__).parent.parent / "guest" / "catcher.c"], ["-O2"]).elf_path
    found = []
    for options in ENGINES.values():
        notes = Notes("class=store", False)
        watch(program, [notes], "100", **options)
        found.append(notes.rows.tolist())
    assert all(rows == found[0] for rows in found)


class Raises(Analyzer):
    inline = "fields=pc"
    state = np.zeros(1)

    @staticmethod
    def inline_after(state, pc):  # type: ignore[no-untyped-def]
        if pc > 0:
            raise ValueError("no")


class Allocates(Analyzer):
    inline = "fields=pc"
    state = np.zeros(1)

    @staticmethod
    def inline_after(state, pc):  # type: ignore[no-untyped-def]
        state[0] += np.zeros(3).sum()


def test_functions_that_cannot_be(small: Path) -> None:
    with pytest.raises(EmulatorError, match="inline function of an analyzer has raised an exception"):
        watch(small, [Raises()], "3")
    with pytest.raises(InlineError, match=r"test_inline.py:\d+: inline_after cannot be called from translations"):
        watch(small, [Allocates()], "3")
    wrong = Counter()
    wrong.state = [0]
    with pytest.raises(EmulatorError, match=r"Counter.state is list, expected a contiguous numpy array"):
        watch(small, [wrong], "3")
    with pytest.raises(
        EmulatorError, match="17 inline functions and selections of events at once, expected at most 16"
    ):
        watch(small, [Counter() for _ in range(17)], "3")
    events = Counter()
    events.inline, events.selection = "", "fields=registers"
    with pytest.raises(SelectionError, match="for inline functions only"):
        watch(small, [events], "3")
