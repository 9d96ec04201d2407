"""The files that a run needs on another machine: sent once, named by their content."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from common.atomic_files import filling
from instrumenter.building.relink import COMMAND_NAME, can_relink, portable_link
from measure.run_types import RunSpec

PROGRAM = "program"
_CONTENT, _FOLDERS = "content", "folders"


@dataclass(frozen=True)
class Shipment:
    """The files of a run by their SHA-256 hashes.

    ``build``: files of the program's folder, relative name and hash; ``stdin``; ``files``: guest path and hash;
    ``second``: as ``build``, of the program of a second run.
    """

    build: tuple[tuple[str, str], ...] = ()
    stdin: str | None = None
    files: tuple[tuple[str, str], ...] = ()
    second: tuple[tuple[str, str], ...] = ()

    def hashes(self) -> set[str]:
        """The hashes of all files."""
        alone = {self.stdin} if self.stdin is not None else set()
        return {name for _, name in (*self.build, *self.files, *self.second)} | alone


class Packer:
    """Finds the files of runs, and reads each once. ``contents``: by hash."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self._hash_of: dict[str, str] = {}  # by path
        self._builds: dict[tuple[str, bool], tuple[tuple[str, str], ...]] = {}

    def shipment(self, spec: RunSpec) -> Shipment:
        """What ``spec`` needs. Raises OSError for an unreadable file, `SourceError` for a build that is gone."""
        if spec.target == "fake":  # reads no file
            return Shipment()
        stdin = self._file(Path(spec.stdin)) if spec.stdin else None
        files = tuple((guest, self._file(Path(host))) for guest, host in spec.files)
        second: tuple[tuple[str, str], ...] = ()
        if spec.second_run is not None:
            second = self._build(spec.second_run.binary, can_relink(Path(spec.second_run.binary)), whole=True)
        return Shipment(self._build(spec.binary, spec.layout_seed is not None), stdin, files, second)

    def _build(self, binary: str, relinks: bool, whole: bool = False) -> tuple[tuple[str, str], ...]:
        """The files of a program: the program itself, or what the linker makes it of, or both (``whole``)."""
        key = binary, relinks
        if key not in self._builds:
            program = Path(binary)
            if not relinks:
                self._builds[key] = ((PROGRAM, self._file(program)),)
            else:
                command, inputs = portable_link(program)
                named = [(name, self._file(path)) for name, path in sorted(inputs.items())]
                own = [(PROGRAM, self._file(program))] if whole else []
                self._builds[key] = (*own, (COMMAND_NAME, self._keep(command)), *named)
        return self._builds[key]

    def _file(self, path: Path) -> str:
        name = self._hash_of.get(str(path))
        if name is None:
            name = self._hash_of[str(path)] = self._keep(path.read_bytes())
        return name

    def _keep(self, content: bytes) -> str:
        name = hashlib.sha256(content).hexdigest()
        self.contents[name] = content
        return name


def missing(folder: Path, hashes: Iterable[str]) -> list[str]:
    """Those of ``hashes`` whose files are not in ``folder``."""
    return [name for name in hashes if not (folder / _CONTENT / name).is_file()]


def unpack(folder: Path, contents: dict[str, bytes]) -> None:
    """Store the files ``contents``, by hash, in ``folder``."""
    (folder / _CONTENT).mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        with filling(folder / _CONTENT / name) as part:
            part.write_bytes(content)


def unpacked_spec(spec: RunSpec, shipment: Shipment, folder: Path) -> RunSpec:
    """``spec`` with the paths of its files in ``folder``. Raises OSError when one is missing there."""
    binary = _unpacked_build(shipment.build, folder) if shipment.build else spec.binary
    second = spec.second_run
    if second is not None and shipment.second:
        second = replace(second, binary=_unpacked_build(shipment.second, folder))
    return replace(
        spec,
        binary=binary,
        second_run=second,
        stdin=str(folder / _CONTENT / shipment.stdin) if shipment.stdin else None,
        files=tuple((guest, str(folder / _CONTENT / of)) for guest, of in shipment.files),
    )


def _unpacked_build(files: Sequence[tuple[str, str]], folder: Path) -> str:
    """The path of a program whose ``files``, by name and hash, are put beside one another in ``folder``."""
    identity = "\0".join(f"{name} {of}" for name, of in files)
    build = folder / _FOLDERS / hashlib.sha256(identity.encode()).hexdigest()
    for name, of in files:
        path = build / name
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            with filling(path) as part:
                shutil.copyfile(folder / _CONTENT / of, part)
    return str(build / PROGRAM)
