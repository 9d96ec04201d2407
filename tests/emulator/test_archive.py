"""Translations kept between processes: used for the same code only, and the record is what it was."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emulator.engine import archive as archive_module
from emulator.engine.archive import spans_of
from emulator.events import BLOCK_DTYPE, FULL_RECORD, BlockFacts
from emulator.machine import Machine
from emulator.spaces import Space
from instrumenter.build import build_program

GUEST = Path(__file__).parent / "guest"


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
    monkeypatch.setattr(
        Translator, "_compile", lambda self, tier, region: (names.append(region.name), compile_(self, tier, region))
    )  # fmt: skip
    return names


@pytest.mark.parametrize("traced", [False, True])
def test_the_second_process_optimises_nothing(
    mixture: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch, traced: bool
) -> None:
    first, second = Blocks(), Blocks()
    before = run(mixture, [first] if traced else [])
    assert len([path for path in empty_cache.rglob("*") if path.is_file()]) == 2
    names = compiled(monkeypatch)
    after = run(mixture, [second] if traced else [])
    assert not [name for name in names if name.startswith("o")]  # nor are templates
    assert after.files.output(1) == before.files.output(1)
    assert after.instructions == before.instructions
    assert second.words == first.words
    assert second.pcs == first.pcs
    assert np.array_equal(after.facts.blocks, before.facts.blocks)
    assert np.array_equal(after.facts.instructions, before.facts.instructions)


def test_what_was_hot_too_late_is_wanted_at_the_beginning_of_the_next(
    mixture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from emulator.engine.background import Background
    from emulator.engine.translator import WORTH_LOADING

    threshold = 2
    wanted: list[tuple[int, int, int]] = []  # pc, executions, instructions executed by then
    want = Background.want

    def process(compiles: bool) -> Machine:
        wanted.clear()
        with Machine(
            mixture, ["1"], keep_translations=True, optimise_executions=threshold
        ) as machine, monkeypatch.context() as patch:  # fmt: skip
            patch.setattr(
                Background, "want", lambda self, tier, pc: (
                    wanted.append((pc, int(self._executions([pc])[0]), machine.instructions)), want(self, tier, pc)
                )
            )  # fmt: skip
            if not compiles:
                patch.setattr(Background, "_hottest", lambda self: None)
            machine.run()
            translator = machine.translator
            deadline = time.monotonic() + 60
            while compiles and time.monotonic() < deadline and any(
                translator.code.executions(pc) >= WORTH_LOADING * threshold
                for pc in translator._background.unfinished(translator.tier)
            ):  # fmt: skip
                time.sleep(0.01)
            machine.save_translations()
            return machine

    output = process(compiles=False).files.output(1)
    counted = {pc: executions for pc, executions, _ in wanted}
    assert counted
    assert all(instructions for *_, instructions in wanted)
    assert process(compiles=True).files.output(1) == output
    at_once = {pc: executions for pc, executions, instructions in wanted if not instructions}
    assert at_once
    assert set(at_once) <= set(counted)
    assert all(executions >= WORTH_LOADING * threshold for executions in at_once.values())
    names = compiled(monkeypatch)
    assert process(compiles=True).files.output(1) == output
    assert not names  # what is left was not worth it
    assert not any(pc in at_once for pc, *_ in wanted)


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


def test_regions_with_other_numbers_of_blocks_are_not_taken(
    mixture: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = run(mixture, []).files.output(1)
    for path in empty_cache.rglob("*"):
        if path.is_file() and b"numbering" not in path.read_bytes():
            path.unlink()  # the blocks; other options lead to another order of discovery
    names = compiled(monkeypatch)
    monkeypatch.setattr(archive_module, "_numbering", lambda blocks: "others")
    assert run(mixture, []).files.output(1) == output
    assert [name for name in names if name.startswith("o")]


def test_each_selection_has_its_translations(
    mixture: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    monkeypatch.setattr(Space, "peek", lambda self, start, n_bytes: bytes(n_bytes))
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
    assert spans_of(blocks).tolist() == [[40, 64], [100, 120]]
    assert spans_of(blocks[:0]).tolist() == []
