"""What the processes of a guest leave to each other, and to others, of a program."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.engine.persist import translation_store as archive_module
from emulator.engine.persist.pending import PendingTranslations, merged_code
from emulator.engine.persist.program_translations import ProgramTranslations
from emulator.engine.persist.translation_store import (
    NOTHING_SAVED,
    SavedRegion,
    SavedRegions,
    TranslationStore,
)
from emulator.engine.tiering.region_states import RegionStates
from emulator.events import NOTHING, TraceSelection

COUNTED = TraceSelection(counts=True)


def region(name: str, *pcs: int) -> SavedRegion:
    return SavedRegion(name, pcs[:1], pcs, (), {pcs[0]: (pcs[-1],)}, name.encode())


class Source:
    """An address space of some stretches."""

    def __init__(self) -> None:
        self.memory: dict[int, bytes] = {}

    def peek(self, start: int, n_bytes: int) -> bytes | None:
        return self.memory.get(start)


def test_what_is_learned_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_module, "cache_directory", lambda: tmp_path)
    saved = SavedRegions((region("a", 8, 12), region("b", 40)), ((8, b"abcdefgh"), (40, b"ij")))

    def program() -> ProgramTranslations:
        return ProgramTranslations(TranslationStore("program", "host"))

    first = program()
    assert first.regions(NOTHING) == NOTHING_SAVED
    first.update(NOTHING, saved)
    assert first.regions(NOTHING) == saved
    assert program().regions(NOTHING) == NOTHING_SAVED
    first.write()
    assert program().regions(NOTHING) == saved
    assert program().regions(COUNTED) == NOTHING_SAVED


def test_without_an_archive_the_processes_of_one_guest_have_it() -> None:
    program = ProgramTranslations(None)
    saved = SavedRegions((region("a", 8),), ((8, b"ab"),))
    program.update(COUNTED, saved)
    program.write()
    assert program.regions(COUNTED) == saved


def test_regions_are_taken_when_all_their_code_is_there() -> None:
    source = Source()
    saved = SavedRegions(
        (region("a", 8), region("ab", 8, 102), region("bc", 100, 200), region("c", 204)),
        ((8, b"aaaa"), (100, b"bbbb"), (200, b"cccccccc")),
    )
    pending = PendingTranslations(saved, source, RegionStates())  # type: ignore[arg-type]
    assert pending.pending_entries == {8, 100, 204}
    assert pending.revalidate() == []
    source.memory[8] = b"aaaa"
    assert [one.name for _, one in pending.revalidate()] == ["a"]
    assert pending.revalidate() == []
    source.memory[200] = b"other..."
    assert pending.revalidate() == []
    assert pending.pending_entries == {8}
    assert pending.unmapped() == ([saved.regions[1]], [saved.code[0], saved.code[1]])
    source.memory[100] = b"bbbb"
    assert [one.name for _, one in pending.revalidate()] == ["ab"]
    assert pending.unmapped() == ([], [])


def test_code_that_changes_while_other_code_is_waited_for() -> None:
    source = Source()
    saved = SavedRegions((region("ab", 8, 100),), ((8, b"aaaa"), (100, b"bbbb")))
    pending = PendingTranslations(saved, source, RegionStates())  # type: ignore[arg-type]
    source.memory[8] = b"aaaa"
    assert pending.revalidate() == []
    source.memory.update({8: b"AAAA", 100: b"bbbb"})
    assert pending.revalidate() == []
    assert pending.pending_entries == set()


def test_stretches_that_touch_become_one() -> None:
    assert merged_code([(20, b"yz"), (4, b"abcd"), (6, b"cdef"), (10, b"gh")]) == [(4, b"abcdefgh"), (20, b"yz")]
