"""The files that the guest's processes have opened by a path, and where these files are now."""

from __future__ import annotations

from collections.abc import Hashable

from emulator.linux.vfs.open_files import OpenFile


class OpenedFiles:
    """Open files by the key of their file. Renames and removals are recorded in the open files themselves
    (`OpenFile.resolved_path`, `OpenFile.is_unlinked`)."""

    def __init__(self) -> None:
        self._keys: dict[OpenFile, Hashable] = {}
        self._counts: dict[Hashable, int] = {}

    def __bool__(self) -> bool:
        return bool(self._keys)

    def add(self, file: OpenFile, key: Hashable) -> None:
        """Record that ``file``, whose file has ``key``, was opened."""
        self.discard(file)
        self._keys[file] = key
        self._counts[key] = self._counts.get(key, 0) + 1

    def discard(self, file: OpenFile) -> Hashable:
        """Forget ``file``, which is closed; return its key, or None if it was not recorded."""
        key = self._keys.pop(file, None)
        if key is not None:
            self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key]
        return key

    def key(self, file: OpenFile) -> Hashable:
        """The key of an open file; None if it was not recorded."""
        return self._keys.get(file)

    def is_open(self, key: Hashable) -> bool:
        return key in self._counts

    def name_removed(self, path: str) -> None:
        """The name at the resolved ``path`` was removed."""
        for file in self._keys:
            if file.resolved_path == path:
                file.is_unlinked = True

    def name_moved(self, old: str, new: str, replaced: str | None) -> None:
        """The resolved path ``old`` was renamed to ``new``; ``replaced``: the resolved path of another file whose name
        this removed."""
        for file in self._keys:
            if file.resolved_path is None or file.is_unlinked:
                continue
            if file.resolved_path == replaced:
                file.is_unlinked = True
            elif file.resolved_path == old or file.resolved_path.startswith(old + "/"):
                file.resolved_path = new + file.resolved_path[len(old) :]
