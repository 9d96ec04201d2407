"""The files that a run needs on another machine: sent once, named by their content."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from common.atomic_files import filling
from instrumenter.building.relink import COMMAND_NAME, portable_link
from measure.run_types import RunSpec

PROGRAM = "program"
_CONTENT, _FOLDERS = "content", "folders"


@dataclass(frozen=True)
class Shipment:
    """The files of a run by their SHA-256 hashes.

    ``build``: files of the program's folder, relative name and hash; ``stdin``; ``files``: guest path and hash;
    ``second``: the program of a second run.
    """

    build: tuple[tuple[str, str], ...] = ()
    stdin: str | None = None
    files: tuple[tuple[str, str], ...] = ()
    second: str | None = None

    def hashes(self) -> set[str]:
        """The hashes of all files."""
        alone = {name for name in (self.stdin, self.second) if name is not None}
        return {name for _, name in (*self.build, *self.files)} | alone


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
        second = self._file(Path(spec.second_run.binary)) if spec.second_run is not None else None
        return Shipment(self._build(spec), stdin, files, second)

    def _build(self, spec: RunSpec) -> tuple[tuple[str, str], ...]:
        """The files of the spec's program: the program itself, or what the linker makes it of."""
        key = spec.binary, spec.layout_seed is not None
        if key not in self._builds:
            program = Path(spec.binary)
            if spec.layout_seed is None:
                self._builds[key] = ((PROGRAM, self._file(program)),)
            else:
                command, inputs = portable_link(program)
                named = [(name, self._file(path)) for name, path in sorted(inputs.items())]
                self._builds[key] = ((COMMAND_NAME, self._keep(command)), *named)
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
    binary = spec.binary
    if shipment.build:
        identity = "\0".join(f"{name} {of}" for name, of in shipment.build)
        build = folder / _FOLDERS / hashlib.sha256(identity.encode()).hexdigest()
        for name, of in shipment.build:
            path = build / name
            if not path.is_file():
                path.parent.mkdir(parents=True, exist_ok=True)
                with filling(path) as part:
                    shutil.copyfile(folder / _CONTENT / of, part)
        binary = str(build / PROGRAM)
    second = spec.second_run
    if second is not None and shipment.second is not None:
        second = replace(second, binary=str(folder / _CONTENT / shipment.second))
    return replace(
        spec,
        binary=binary,
        second_run=second,
        stdin=str(folder / _CONTENT / shipment.stdin) if shipment.stdin else None,
        files=tuple((guest, str(folder / _CONTENT / of)) for guest, of in shipment.files),
    )
