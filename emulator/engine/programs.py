"""What was translated of the programs that a guest executes, from one of its processes to the next.

With an archive, the first process begins with what is on disk.
"""

from __future__ import annotations

from emulator.engine.archive import NOTHING_SAVED, Archive, SavedRegions
from emulator.events import TraceSelection


class Program:
    """One program. ``archive``: None keeps nothing on disk."""

    def __init__(self, archive: Archive | None) -> None:
        self._archive = archive
        self._saved: dict[TraceSelection, SavedRegions] = {}
        self._changed: set[TraceSelection] = set()  # what is not as it is in the archive

    def regions(self, selection: TraceSelection) -> SavedRegions:
        """What a process that executes it may take for ``selection``."""
        found = self._saved.get(selection)
        if found is None:
            found = NOTHING_SAVED if self._archive is None else self._archive.load(selection)
            self._saved[selection] = found
        return found

    def learn(self, selection: TraceSelection, found: SavedRegions) -> None:
        """What a process has in the end."""
        self._saved[selection] = found
        self._changed.add(selection)

    def write(self) -> None:
        """Bring the archive up to date."""
        if self._archive is not None:
            for selection in self._changed:
                self._archive.save(selection, self._saved[selection])
        self._changed.clear()
