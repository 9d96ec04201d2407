"""What is known of the code of the programs that a guest executes.

The processes of a guest have one numbering of blocks. What a process found out of a program is kept when it ends, and
the next one that executes the same program begins with it, under the same numbers: a script that starts a program a
thousand times discovers its code once. With an archive, the first one begins with what is on disk.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from emulator.engine.archive import Archive, SavedCode, SavedRegions
from emulator.engine.state import MAX_BLOCKS
from emulator.events import BlockFacts, TraceSelection


class NumberedCode(NamedTuple):
    """``saved``: what was known of the code; ``numbers``: of its blocks in the guest's facts, ascending, int64."""

    saved: SavedCode
    numbers: NDArray[np.int64]

    @property
    def is_alone(self) -> bool:
        """Whether blocks have the numbers that they will have in a guest that executes nothing else before."""
        return not len(self.numbers) or int(self.numbers[-1]) == len(self.numbers) - 1


class Knowledge:
    """Of a program, at some moment. ``regions``: as far as they are in memory; others may be in ``archive``."""

    def __init__(
        self, code: NumberedCode, regions: dict[TraceSelection, SavedRegions], archive: Archive | None = None
    ) -> None:
        self.code = code
        self._regions = regions
        self._archive = archive

    def regions(self, selection: TraceSelection) -> SavedRegions:
        """What was translated for ``selection``, and how often the code's blocks ran outside of that."""
        found = self._regions.get(selection)
        if found is None:
            blocks = self.code.saved.blocks
            found = SavedRegions((), np.zeros(len(blocks), np.uint32))
            if self._archive is not None and (self.code.is_alone or not emits_numbers(selection)):
                found = self._archive.load_regions(selection, blocks)
            self._regions[selection] = found
        return found

    def after(self, code: NumberedCode, regions: dict[TraceSelection, SavedRegions]) -> Knowledge:
        """The same with more code, and other ``regions`` for their selections."""
        kept = dict(regions)
        for selection, before in self._regions.items():
            if selection not in regions:
                executions = aligned(self.code.numbers, before.executions, code.numbers)
                kept[selection] = before._replace(executions=executions.astype(np.uint32))
        return Knowledge(code, kept, self._archive)


class Program:
    """One program: the contents of its file, and what decides where its libraries come to lie. ``archive``: None
    keeps nothing on disk."""

    def __init__(self, contents: bytes, layout: str, archive: Archive | None) -> None:
        self.contents, self.layout = contents, layout
        self._archive = archive
        self._knowledge: Knowledge | None = None
        self._has_more_code = False  # than the archive has
        self._changed: set[TraceSelection] = set()  # whose regions are others than in the archive

    def knowledge(self, facts: BlockFacts) -> Knowledge | None:
        """What a process that executes it begins with; its blocks are in ``facts``. None when nothing is known."""
        if self._knowledge is None and self._archive is not None:
            saved = self._archive.load_code()
            if saved is not None and facts.n_blocks + len(saved.blocks) < MAX_BLOCKS:
                first = facts.extend(saved.blocks, saved.instructions)
                code = NumberedCode(saved, first + np.arange(len(saved.blocks)))
                self._knowledge = Knowledge(code, {}, self._archive)
        return self._knowledge

    def learn(self, code: NumberedCode, regions: dict[TraceSelection, SavedRegions]) -> None:
        """What a process knows in the end: of several at a time, the one that knows most of the code counts."""
        before = self._knowledge
        if before is None:
            self._knowledge = Knowledge(code, dict(regions), self._archive)
        elif len(code.numbers) < len(before.code.numbers):
            return
        else:
            self._knowledge = before.after(code, regions)
        self._has_more_code |= before is None or code.saved is not before.code.saved
        self._changed.update(regions)

    def write(self) -> None:
        """Bring the archive up to date."""
        knowledge, archive = self._knowledge, self._archive
        if knowledge is None or archive is None:
            return
        code = knowledge.code
        if self._has_more_code:
            archive.save_code(code.saved)
        for selection in self._changed:
            if code.is_alone or not emits_numbers(selection):
                archive.save_regions(selection, code.saved.blocks, knowledge.regions(selection))
        self._has_more_code, self._changed = False, set()


def aligned(
    numbers: NDArray[np.int64], values: NDArray[np.uint32], wanted: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The values of ``wanted`` blocks, int64, where ``numbers`` (ascending) have ``values``; 0 for others."""
    found = np.zeros(len(wanted), np.int64)
    if len(numbers):
        places = np.minimum(np.searchsorted(numbers, wanted), len(numbers) - 1)
        has = numbers[places] == wanted
        found[has] = values[places[has]]
    return found


def emits_numbers(selection: TraceSelection) -> bool:
    """Whether translations for it contain the numbers of blocks."""
    return selection.blocks or selection.counts
