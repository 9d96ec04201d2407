"""The regions saved for a program, passed from one process of a guest to the next, and to the translation store."""

from __future__ import annotations

from emulator.engine.persist.translation_store import NOTHING_SAVED, SavedRegions, TranslationStore
from emulator.events import TraceSelection


class ProgramTranslations:
    """The saved regions of one program, by selection. ``store``: None keeps nothing on disk."""

    def __init__(self, store: TranslationStore | None) -> None:
        self._store = store
        self._saved: dict[TraceSelection, SavedRegions] = {}
        self._changed: set[TraceSelection] = set()  # selections that differ from the store

    def regions(self, selection: TraceSelection) -> SavedRegions:
        """The saved regions for ``selection``, read from the store on first use."""
        found = self._saved.get(selection)
        if found is None:
            found = NOTHING_SAVED if self._store is None else self._store.load(selection)
            self._saved[selection] = found
        return found

    def update(self, selection: TraceSelection, found: SavedRegions) -> None:
        """Replace the saved regions of ``selection`` by those that a process ends with."""
        self._saved[selection] = found
        self._changed.add(selection)

    def write(self) -> None:
        """Write changed selections to the store."""
        if self._store is not None:
            for selection in self._changed:
                self._store.save(selection, self._saved[selection])
        self._changed.clear()
