"""Reads the catalogue of programs that campaigns may name: this project's, and third-party ones fetched on demand.

`load_catalogue` reads and checks the YAML file; `ensure_sources` gives the C files of one program, after fetching
them if they come from a package registry (`measure.programs.source_archive`). The instrumenter's toolchain compiles
programs, targets run them.
"""

from __future__ import annotations

import functools
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from common.yaml_document import YamlDocument, problem_at
from measure.programs.source_archive import (
    Archive,
    Downloader,
    ProgramError,
    fetch_archive,
    unpack_archive,
    unpacked_directory,
)

__all__ = [
    "BuildSpec", "PackageSpec", "ProgramError", "ProgramSpec", "ensure_project", "ensure_sources", "load_catalogue",
]  # fmt: skip

DEFAULT_SIZE = "medium"

_Text = Annotated[str, Field(coerce_numbers_to_str=True)]
_Arguments = tuple[_Text, ...]


def _check_inside(paths: tuple[str, ...]) -> tuple[str, ...]:
    for path in paths:
        parts = PurePosixPath(path).parts
        if not path or path.startswith("/") or ".." in parts or "\\" in path:
            raise ValueError(f"got {path!r}, expected a path below the archive's top folder")
    return paths


class PackageSpec(BaseModel):
    """Source files in one pinned archive of a package registry; paths are below its top folder."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    registry: Literal["pypi", "npm"] = Field(description="Registry, reached by the user's own client.")
    name: str = Field(pattern=r"^(@[a-z0-9._-]+/)?[A-Za-z0-9._-]+$", description="Package name.")
    version: str = Field(pattern=r"^[A-Za-z0-9.+_-]+$", description="Exact version.")
    file: str = Field(pattern=r"^[A-Za-z0-9.+_-]+$", description="Name of the archive file.")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the archive file, in hex.")
    inner: str | None = Field(default=None, description="Archive in the archive that has the files.")
    extract: tuple[str, ...] = Field(
        min_length=1, description="Files to unpack; * and ? stay in a folder, a last /** is all below."
    )
    sources: tuple[str, ...] = Field(default=(), description="C and C++ files to compile; * and ? as above.")
    include_dirs: tuple[str, ...] = Field(default=(), description="Folders for #include.")

    _inside = field_validator("extract", "sources", "include_dirs")(_check_inside)

    @field_validator("inner")
    @classmethod
    def _inner_inside(cls, value: str | None) -> str | None:
        return _check_inside((value,))[0] if value is not None else None

    @property
    def archive(self) -> Archive:
        """The archive to fetch."""
        return Archive(self.registry, self.name, self.version, self.file, self.sha256, self.inner)

    @property
    def patterns(self) -> tuple[str, ...]:
        """Patterns of the files to unpack."""
        return tuple(dict.fromkeys((*self.extract, *self.sources)))

    @property
    def directory(self) -> Path:
        """Folder of the files, which exists after `ensure_sources`."""
        return unpacked_directory(self.archive, self.patterns)


class BuildSpec(BaseModel):
    """How a package's own build makes the program; paths are below its ``directory``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    command: str = Field(min_length=1, description="Shell command, run with CC=instrument-cc.")
    binary: str = Field(description="The program that it makes.")
    directory: str = Field(default=".", description="Where it runs, below the archive's top folder.")
    files: dict[str, str] = Field(
        default={}, description="Files of the package that the program may read: guest path to path."
    )

    @model_validator(mode="after")
    def _inside(self) -> BuildSpec:
        _check_inside((self.binary, self.directory, *self.files.values()))
        return self


class ProgramSpec(BaseModel):
    """One program: what to compile, how, and its arguments and input. Host paths are absolute."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(default="", exclude=True, description="Key in the catalogue; not a key of the entry.")
    description: str = Field(description="What the program does, in a line.")
    sources: tuple[Path, ...] = Field(
        default=(), description="C and C++ files of this project, relative to the catalogue."
    )
    package: PackageSpec | None = Field(default=None, description="Third-party C and C++ files to fetch.")
    build: BuildSpec | None = Field(default=None, description="The package's own build, instead of sources.")
    defines: dict[str, _Text | None] = Field(default={}, description="Macros; empty for a bare -D.")
    flags: tuple[str, ...] = Field(default=(), description="Further compiler flags.")
    libraries: tuple[str, ...] = Field(default=(), description="Libraries to link, without -l.")
    arguments: dict[str, _Arguments] = Field(description="Program arguments by size; 'medium' is the default.")
    stdin: Path | None = Field(default=None, description="Standard input, relative to the catalogue.")
    instructions: dict[str, Annotated[int, Field(gt=0)]] = Field(
        default={}, description="RISC-V instructions executed by size, about (compiled with zig cc -O2)."
    )
    note: str = Field(default="", description="Licence, peculiarities.")

    @model_validator(mode="before")
    @classmethod
    def _no_name(cls, value: Any) -> Any:
        if isinstance(value, dict) and "name" in value:
            raise problem_at("got a name, expected none: a program's name is its key in the catalogue", "name")
        return value

    @field_validator("sources", "stdin", mode="after")
    @classmethod
    def _resolve(cls, value: Any, info: ValidationInfo) -> Any:
        folder = Path((info.context or {}).get("directory", "."))
        if value is None or isinstance(value, tuple):
            return tuple(_existing(folder, path) for path in value) if value else value
        return _existing(folder, value)

    @model_validator(mode="after")
    def _check_whole(self) -> ProgramSpec:
        if not self.sources and self.package is None:
            raise ValueError("got neither 'sources' nor 'package', expected at least one")
        if self.build is not None:
            self._check_build()
        elif self.package is not None and not self.package.sources and not (self.sources and self.package.include_dirs):
            raise ValueError(
                "package has neither 'sources' nor is there a 'build', expected one of them, or 'include_dirs' beside "
                "'sources' of this project for a library of headers"
            )
        if DEFAULT_SIZE not in self.arguments:
            raise ValueError(f"arguments has no size '{DEFAULT_SIZE}', which is the default")
        unknown = [size for size in self.instructions if size not in self.arguments]
        if unknown:
            raise ValueError(f"instructions has the size '{unknown[0]}', which arguments does not have")
        return self

    def _check_build(self) -> None:
        if self.package is None or self.package.sources or self.package.include_dirs:
            raise ValueError("'build' needs a 'package' without 'sources' and 'include_dirs': it compiles them")
        unused = [key for key in ("sources", "defines", "flags", "libraries") if getattr(self, key)]
        if unused:
            raise ValueError(f"'{unused[0]}' means nothing beside 'build': say it in the command")

    def arguments_for(self, size: str = DEFAULT_SIZE) -> tuple[str, ...]:
        """Arguments of a named size. Raises `ProgramError` for an unknown size."""
        if size not in self.arguments:
            raise ProgramError(f"{self.name}: got the size '{size}', expected one of: {', '.join(self.arguments)}")
        return self.arguments[size]

    def compiler_flags(self) -> list[str]:
        """``-I``, ``-D`` and further flags; include folders exist after `ensure_sources`."""
        folders = [self.package.directory / path for path in self.package.include_dirs] if self.package else []
        defines = [f"-D{key}" if value is None else f"-D{key}={value}" for key, value in self.defines.items()]
        return [*(f"-I{folder}" for folder in folders), *defines, *self.flags]

    def linker_flags(self) -> list[str]:
        """``-l`` flags, for after the source files."""
        return [f"-l{library}" for library in self.libraries]


def ensure_sources(spec: ProgramSpec, download: Downloader | None = None) -> list[Path]:
    """The C files of a program as absolute paths; a package is fetched and unpacked if necessary.

    ``download`` replaces the registry's client. Raises `ProgramError` without a client or network, on a hash
    mismatch, or when the archive lacks the files.
    """
    files = list(spec.sources)
    if spec.package is None:
        return files
    folder = _ensure_package(spec.package, download)
    for pattern in spec.package.sources:
        files += sorted(folder.glob(pattern))
    return files


def ensure_project(spec: ProgramSpec, download: Downloader | None = None) -> tuple[Path, dict[str, Path]]:
    """The directory of a program with its own build, and the package's files that it reads, by guest path.

    Fetches and raises as `ensure_sources`.
    """
    assert spec.package is not None
    assert spec.build is not None
    directory = _ensure_package(spec.package, download) / spec.build.directory
    files = {guest: directory / path for guest, path in spec.build.files.items()}
    missing = [path for path in (directory, *files.values()) if not path.exists()]
    if missing:
        raise ProgramError(f"{spec.name}: {spec.package.archive} has no {missing[0].name}; correct 'build'")
    return directory, files


def _ensure_package(package: PackageSpec, download: Downloader | None) -> Path:
    if package.directory.is_dir():
        return package.directory
    archive = package.archive
    return unpack_archive(archive, fetch_archive(archive, download), package.patterns)


class _Catalogue(BaseModel):
    """The catalogue's file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    programs: dict[_Text, ProgramSpec] = Field(description="Programs by name.")


def load_catalogue(path: Path | str) -> dict[str, ProgramSpec]:
    """Read the catalogue; programs by name, in the file's order.

    Raises `ProgramError` with one ``file:line: key: problem`` per line for all problems in it.
    """
    path = Path(path).absolute()
    try:
        about = path.stat()
    except OSError:
        return _read_catalogue(path)
    return dict(_known_catalogue(path, (about.st_mtime_ns, about.st_size, about.st_ino)))


@functools.lru_cache(maxsize=4)  # an explanation builds dozens of programs of one, and parsing it takes 80 ms
def _known_catalogue(path: Path, version: tuple[int, int, int]) -> dict[str, ProgramSpec]:
    """The catalogue in ``path`` as long as its file has this ``version``: time of its last change, size, inode."""
    return _read_catalogue(path)


def _read_catalogue(path: Path) -> dict[str, ProgramSpec]:
    document = YamlDocument.read(path, ProgramError)
    catalogue = document.validate(_Catalogue, {"directory": str(document.path.parent)})
    return {name: spec.model_copy(update={"name": name}) for name, spec in catalogue.programs.items()}


def _existing(folder: Path, path: Path) -> Path:
    resolved = (folder / path).resolve()
    if not resolved.is_file():
        raise ValueError(f"there is no file {resolved}")
    return resolved
