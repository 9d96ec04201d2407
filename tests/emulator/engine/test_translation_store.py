"""Translations kept between processes: used for the same code only, and the record is what it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emulator.engine import translator as translator_module
from emulator.engine.decode.block_table import BlockTable
from emulator.engine.persist import translation_store as archive_module
from emulator.engine.persist.pending import block_spans
from emulator.engine.tiering import background as background_module
from emulator.engine.tiering.background import Background
from emulator.engine.tiering.tiers import Region, Tier
from emulator.events import BLOCK_DTYPE, FULL_RECORD, BlockFacts, TraceSelection
from emulator.execution import address_space as spaces
from emulator.execution.address_space import AddressSpace
from emulator.machine import Machine
from emulator.native_code.compiler import Compiler
from instrumenter.building.program_build import build_program

GUEST = Path(__file__).parents[1] / "guest"


@pytest.fixture(scope="module")
def mixture() -> Path:
    return build_program([GUEST / "mixture.c"], ["-O2"], libraries=["-lm"]).elf_path


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(archive_module, "cache_directory", lambda: tmp_path)
    return tmp_path / "programs"


class Blocks:
    """A consumer that remembers the record by block addresses and effective addresses."""

    selection = FULL_RECORD

    def __init__(self) -> None:
        self.pcs: list[int] = []
        self.words = 0

    def consume(self, facts: BlockFacts, stream: Any) -> None:
        n_accesses = facts.blocks["n_accesses"]
        position = 0
        while position < len(stream):
            number = stream[position]
            self.pcs.append(int(facts.blocks["pc"][number]))
            position += 1 + int(n_accesses[number])
        self.words += len(stream)


def run(program: Path | bytes, consumers: list[Any], save: bool = True, **options: Any) -> Machine:
    with Machine(
        program, ["1"], consumers=consumers, keep_translations=True, background=False,
        optimise_executions=4, **options,
    ) as machine:  # fmt: skip
        machine.run()
        if save:
            machine.save_translations()
        return machine


def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the regions that are translated from now on."""
    from emulator.engine.translator import Translator

    names: list[str] = []
    compile_ = Translator._compile

    def compile_and_list(self: Translator, tier: Tier, region: Region) -> None:
        names.append(region.name)
        compile_(self, tier, region)

    monkeypatch.setattr(Translator, "_compile", compile_and_list)
    return names


@pytest.mark.parametrize("traced", [False, True])
def test_the_second_process_optimises_nothing(
    mixture: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch, traced: bool
) -> None:
    first, second = Blocks(), Blocks()
    before = run(mixture, [first] if traced else [])
    assert len([path for path in empty_cache.rglob("*") if path.is_file()]) == 1
    names = compiled(monkeypatch)
    after = run(mixture, [second] if traced else [])
    assert not [name for name in names if name.startswith("o")]  # nor are templates
    assert after.files.output(1) == before.files.output(1)
    assert after.instructions == before.instructions
    assert second.words == first.words
    assert second.pcs == first.pcs  # under other numbers
    if traced:
        assert not np.array_equal(after.facts.blocks, before.facts.blocks)


def finish_all(background: Background, seconds: float) -> None:
    """For `Background.finish_one`: wait until everything that was ordered is built."""
    with background._condition:
        background.fair_share.guest_has_ended = True
        assert background._condition.wait_for(lambda: not background.has_orders, 60)


def load_llvm_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the compiling thread start, even if this process has not loaded LLVM and runs for a short time."""
    for name in ("LOADING_AGAIN_FACTOR", "LOADING_ALONE_FACTOR"):
        monkeypatch.setattr(background_module, name, 1)


def test_what_was_hot_too_late_is_translated_at_the_beginning_of_the_next(
    mixture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_llvm_soon(monkeypatch)
    names = compiled(monkeypatch)
    ordered: list[tuple[str, int]] = []  # with the instructions executed by then

    def process(compiles: bool) -> bytes:
        names.clear()
        ordered.clear()
        with Machine(
            mixture, ["1"], keep_translations=True, optimise_executions=2
        ) as machine, monkeypatch.context() as patch:  # fmt: skip
            order = Background.order

            def order_and_list(self: Background, tier: Tier, region: Region) -> None:
                ordered.append((region.name, machine.instructions))
                order(self, tier, region)

            patch.setattr(Background, "order", order_and_list)
            patch.setattr(Background, "_hottest", lambda self: None)
            patch.setattr(translator_module, "MAX_PLANNED", 1 << 20)  # all in one process
            if compiles:
                patch.setattr(Background, "finish_one", finish_all)
            else:
                patch.setattr(Background, "_work", lambda self: None)
                patch.setattr(spaces, "MAX_WAIT_SECONDS", 0)
            machine.run()
            machine.save_translations()
            return machine.files.output(1)

    output = process(compiles=False)
    assert not names
    assert not ordered
    assert process(compiles=True) == output
    assert names
    assert sorted(names) == sorted(name for name, _ in ordered)
    assert all(instructions == 0 for _, instructions in ordered)
    for _ in range(2):  # on a processor that others keep busy, a region may be left to one more process
        assert process(compiles=True) == output
        if not names:
            break
    assert not names
    assert not ordered


def test_what_is_not_finished_in_time_stays_for_the_next(mixture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_llvm_soon(monkeypatch)
    names = compiled(monkeypatch)

    def process(works: bool, waits_for_all: bool = False) -> None:
        names.clear()
        monkeypatch.setattr(spaces, "MAX_WAIT_SECONDS", 60 if works else 0)
        with Machine(
            mixture, ["1"], keep_translations=True, optimise_executions=2
        ) as machine, monkeypatch.context() as patch:  # fmt: skip
            patch.setattr(Background, "_hottest", lambda self: None)
            if not works:
                patch.setattr(Background, "_work", lambda self: None)
            if waits_for_all:
                patch.setattr(Background, "finish_one", finish_all)
            machine.run()
            machine.save_translations()

    process(works=False)
    process(works=False)
    process(works=True)
    assert names  # however short it was
    process(works=True, waits_for_all=True)
    assert names
    process(works=True)
    assert not names


@pytest.mark.parametrize("processors", [1, 2])
def test_a_short_process_leaves_planned_regions_to_others(
    mixture: Path, monkeypatch: pytest.MonkeyPatch, processors: int
) -> None:
    """It does not load LLVM for them, nor wait for them at its end; they stay planned."""
    monkeypatch.setattr(background_module.os, "sched_getaffinity", lambda pid: set(range(processors)))
    names = compiled(monkeypatch)

    def process(**factors: int) -> tuple[bool, bool]:
        """Whether the compiling thread was started, and whether regions wait for it."""
        with monkeypatch.context() as patch:
            for name, value in factors.items():
                patch.setattr(background_module, name, value)
            patch.setattr(Compiler, "has_llvm", False)  # as in a process that has compiled nothing
            patch.setattr(Background, "_work", lambda self: None)
            patch.setattr(spaces, "MAX_WAIT_SECONDS", 0)
            with Machine(mixture, ["1"], keep_translations=True, optimise_executions=2) as machine:
                machine.run()
                machine.save_translations()
                assert machine.translator is not None
                background = machine.translator._background
                return background._thread is not None, background.has_orders

    assert process() == (True, False)  # plans regions
    for _ in range(2):
        assert process(LOADING_AGAIN_FACTOR=1 << 20, LOADING_ALONE_FACTOR=1 << 20) == (False, True)
    wanted = {"LOADING_ALONE_FACTOR" if processors == 1 else "LOADING_AGAIN_FACTOR": 1}
    other = {"LOADING_AGAIN_FACTOR" if processors == 1 else "LOADING_ALONE_FACTOR": 1 << 20}
    assert process(**wanted, **other) == (True, True)
    assert not names


def test_damaged_files_are_ignored(mixture: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = run(mixture, []).files.output(1)
    paths = [path for path in empty_cache.rglob("*") if path.is_file()]
    for path in paths:
        raw = bytearray(path.read_bytes())
        raw[len(raw) // 2] ^= 1
        path.write_bytes(raw)
        names = compiled(monkeypatch)
        assert run(mixture, []).files.output(1) == output
        assert path.read_bytes() != bytes(raw)
    assert names


def test_regions_have_the_numbers_of_the_process_that_takes_them(
    mixture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks are discovered in another order, and are counted and recorded under their own numbers."""
    counted = TraceSelection(counts=True)

    def process(backwards: bool, **options: Any) -> dict[int, int]:
        with (
            Machine(mixture, ["1"], keep_translations=True, **options) as machine,
            monkeypatch.context() as patch,
        ):
            if backwards:
                discover_all = BlockTable.discover_all
                patch.setattr(
                    BlockTable,
                    "discover_all",
                    lambda self, pcs, *others: discover_all(self, sorted(pcs, reverse=True), *others),
                )
            machine.observe(counted)
            machine.run()
            machine.save_translations()
            return dict(zip(machine.facts.blocks["pc"].tolist(), machine.block_counts.tolist(), strict=True))

    def ran(counts: dict[int, int]) -> dict[int, int]:
        return {pc: count for pc, count in counts.items() if count}

    expected = process(False, background=False, optimise_executions=4)
    names = compiled(monkeypatch)
    again = process(True, background=False, optimise_executions=4)
    assert not names
    assert list(again) != list(expected)
    assert ran(again) == ran(expected) == ran(process(False, engine="oracle"))


def test_each_selection_has_its_translations(mixture: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(mixture, [])
    run(mixture, [Blocks()])
    names = compiled(monkeypatch)
    run(mixture, [])
    run(mixture, [Blocks()])
    assert not [name for name in names if name.startswith("o")]


def test_code_that_is_not_what_it_was_is_not_taken(
    mixture: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(mixture, [])
    names = compiled(monkeypatch)
    monkeypatch.setattr(AddressSpace, "peek", lambda self, start, n_bytes: bytes(n_bytes))
    run(mixture, [], save=False)
    assert names


def test_blocks_of_code_that_was_there_before_are_not_taken(empty_cache: Path) -> None:
    """What is at an address now says nothing of a block that began there when something else was."""
    program = build_program([GUEST / "remaker.c"], ["-O1"]).elf_path

    def output(*arguments: str, **options: Any) -> bytes:
        with Machine(program, arguments, keep_translations=True, **options) as machine:
            machine.run()
            machine.save_translations()
            return machine.files.output(1)

    for _ in range(2):
        assert output("1", "2") == b"106\n"
        assert output("2", "+", "1", "+") == b"207\n" == output("2", "+", "1", "+", engine="oracle")


def test_faults_in_kept_translations_are_precise(empty_cache: Path) -> None:
    program = build_program([GUEST / "faults.c"], ["-O1"]).elf_path

    def fault() -> str:
        with Machine(
            program, ["hot"], keep_translations=True, background=False,
            optimise_executions=4,
        ) as machine:  # fmt: skip
            ending = machine.run()
            machine.save_translations()
        assert ending.message is not None
        return ending.message

    first = fault()
    assert list(empty_cache.rglob("*"))
    assert fault() == first


def test_spans_cover_overlapping_blocks() -> None:
    blocks = np.zeros(4, BLOCK_DTYPE)
    blocks["pc"] = [100, 40, 104, 60]
    blocks["end_pc"] = [120, 60, 112, 64]
    assert block_spans(blocks).tolist() == [[40, 64], [100, 120]]
    assert block_spans(blocks[:0]).tolist() == []
