"""The catalogue of programs that campaigns may name: ours, and third-party ones fetched on demand.

`load_catalogue` reads and checks the YAML file; `ensure_sources` gives the C files of one program, after
fetching them when they come from a package registry (`measure.program_archive`). Compiling and running is
left to the instrumenter's toolchain and the runner.
"""

from __future__ import annotations

import difflib
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from measure.program_archive import (
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

_Key = tuple[str | int, ...]
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
    sources: tuple[str, ...] = Field(default=(), description="C files to compile; * and ? as above.")
    include_dirs: tuple[str, ...] = Field(default=(), description="Folders for #include.")

    _inside = field_validator("extract", "sources", "include_dirs")(_check_inside)

    @field_validator("inner")
    @classmethod
    def _inner_inside(cls, value: str | None) -> str | None:
        return _check_inside((value,))[0] if value is not None else None

    @property
    def archive(self) -> Archive:
        """What to fetch."""
        return Archive(self.registry, self.name, self.version, self.file, self.sha256, self.inner)

    @property
    def patterns(self) -> tuple[str, ...]:
        """What to unpack."""
        return tuple(dict.fromkeys((*self.extract, *self.sources)))

    @property
    def directory(self) -> Path:
        """Where the files are, once `ensure_sources` has put them there."""
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
    """One program: what to compile, how, and what to run it on. Host paths are absolute."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(description="Key in the catalogue.")
    description: str = Field(description="What the program does, in a line.")
    sources: tuple[Path, ...] = Field(default=(), description="C files of ours, relative to the catalogue.")
    package: PackageSpec | None = Field(default=None, description="Third-party C files to fetch.")
    build: BuildSpec | None = Field(default=None, description="The package's own build, instead of sources.")
    defines: dict[str, _Text | None] = Field(default={}, description="Macros; empty for a bare -D.")
    flags: tuple[str, ...] = Field(default=(), description="Further compiler flags.")
    libraries: tuple[str, ...] = Field(default=(), description="Libraries to link, without -l.")
    arguments: dict[str, _Arguments] = Field(
        description="Program arguments by size; 'medium' is the default."
    )
    stdin: Path | None = Field(default=None, description="Standard input, relative to the catalogue.")
    instructions: dict[str, Annotated[int, Field(gt=0)]] = Field(
        default={}, description="RISC-V instructions executed by size, about (compiled with zig cc -O2)."
    )
    note: str = Field(default="", description="Licence, peculiarities.")

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
        elif self.package is not None and not self.package.sources:
            raise ValueError("package has neither 'sources' nor is there a 'build', expected one of them")
        if DEFAULT_SIZE not in self.arguments:
            raise ValueError(f"arguments has no size '{DEFAULT_SIZE}', which is the default")
        unknown = [size for size in self.instructions if size not in self.arguments]
        if unknown:
            raise ValueError(f"instructions has the size '{unknown[0]}', which arguments does not have")
        return self

    def _check_build(self) -> None:
        if self.package is None or self.package.sources or self.package.include_dirs:
            raise ValueError(
                "'build' needs a 'package' without 'sources' and 'include_dirs': it compiles them"
            )
        unused = [key for key in ("sources", "defines", "flags", "libraries") if getattr(self, key)]
        if unused:
            raise ValueError(f"'{unused[0]}' means nothing beside 'build': say it in the command")

    def arguments_for(self, size: str = DEFAULT_SIZE) -> tuple[str, ...]:
        """Arguments of a named size. Raises `ProgramError` when there is no such size."""
        if size not in self.arguments:
            raise ProgramError(
                f"{self.name}: got the size '{size}', expected one of: {', '.join(self.arguments)}"
            )
        return self.arguments[size]

    def compiler_flags(self) -> list[str]:
        """``-I``, ``-D`` and further flags; include folders exist after `ensure_sources`."""
        folders = (
            [self.package.directory / path for path in self.package.include_dirs] if self.package else []
        )
        defines = [f"-D{key}" if value is None else f"-D{key}={value}" for key, value in self.defines.items()]
        return [*(f"-I{folder}" for folder in folders), *defines, *self.flags]

    def linker_flags(self) -> list[str]:
        """``-l`` flags, for after the source files."""
        return [f"-l{library}" for library in self.libraries]


def ensure_sources(spec: ProgramSpec, download: Downloader | None = None) -> list[Path]:
    """Return the C files of a program as absolute paths, fetching and unpacking a package's when needed.

    ``download`` replaces the registry's client. Raises `ProgramError` without a client or network, on a hash
    mismatch, or when the archive does not have the files.
    """
    files = list(spec.sources)
    if spec.package is None:
        return files
    folder = _ensure_package(spec.package, download)
    for pattern in spec.package.sources:
        files += sorted(folder.glob(pattern))
    return files


def ensure_project(spec: ProgramSpec, download: Downloader | None = None) -> tuple[Path, dict[str, Path]]:
    """Return the directory of a program with a build of its own, and the package's files that it reads by guest path.

    Fetches and fails as `ensure_sources` does.
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


def load_catalogue(path: Path | str) -> dict[str, ProgramSpec]:
    """Read the catalogue; programs by name, in the file's order.

    Raises `ProgramError` with one ``file:line: key: problem`` a line when anything in it is wrong.
    """
    path = Path(path).absolute()
    try:
        text = path.read_text(encoding="utf-8")
        node = yaml.compose(text, yaml.SafeLoader)
        data = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ProgramError(f"{path}: cannot read the catalogue: {reason}") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        raise ProgramError(f"{where}: not YAML: {getattr(error, 'problem', error)}") from error
    entries = data.get("programs") if isinstance(data, dict) else None
    if node is None or not isinstance(entries, dict) or len(data) != 1:
        raise ProgramError(f"{path}:1: expected one key, 'programs', with a mapping of programs by name")
    lines: dict[_Key, int] = {}
    problems = _read_lines(node, (), lines)
    catalogue: dict[str, ProgramSpec] = {}
    for name, entry in entries.items():
        key: _Key = ("programs", str(name))
        if not isinstance(entry, dict) or "name" in entry:
            found = "the key 'name'" if isinstance(entry, dict) else f"a {type(entry).__name__}"
            problems.append(
                (lines[key], f"{name}: got {found}, expected a program's keys; its name is '{name}'")
            )
            continue
        try:
            spec = ProgramSpec.model_validate(
                {**entry, "name": str(name)}, context={"directory": str(path.parent)}
            )
            catalogue[spec.name] = spec
        except ValidationError as error:
            problems += [_describe(details, key, lines) for details in error.errors()]
    if problems:
        raise ProgramError("\n".join(f"{path}:{line}: {problem}" for line, problem in sorted(set(problems))))
    return catalogue


def _existing(folder: Path, path: Path) -> Path:
    resolved = (folder / path).resolve()
    if not resolved.is_file():
        raise ValueError(f"there is no file {resolved}")
    return resolved


def _read_lines(node: yaml.Node, key: _Key, lines: dict[_Key, int]) -> list[tuple[int, str]]:
    """Note the line of every key and item; returns the keys that are given twice."""
    problems: list[tuple[int, str]] = []
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            child = (*key, str(name.value))
            line = name.start_mark.line + 1
            if child in lines:
                problems.append((line, f"{_dotted(child)}: given twice, first in line {lines[child]}"))
            lines.setdefault(child, line)
            problems += _read_lines(value, child, lines)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            lines[(*key, index)] = item.start_mark.line + 1
            problems += _read_lines(item, (*key, index), lines)
    return problems


def _dotted(key: _Key) -> str:
    return ".".join(map(str, key[1:]))


def _describe(details: Any, program: _Key, lines: dict[_Key, int]) -> tuple[int, str]:
    """Line and message of one pydantic error."""
    key: _Key = (*program, *details["loc"])
    known = key
    while known not in lines:
        known = known[:-1]
    kind, got = details["type"], details["input"]
    if kind == "extra_forbidden":
        model: type[BaseModel] = ProgramSpec
        if len(key) > len(program) + 1:
            models: dict[str, type[BaseModel]] = {"package": PackageSpec, "build": BuildSpec}
            model = models[str(key[len(program)])]
        choices = [field for field in model.model_fields if field != "name" or model is PackageSpec]
        close = difflib.get_close_matches(str(key[-1]), choices, 1)
        hint = f"did you mean '{close[0]}'?" if close else f"expected one of: {', '.join(choices)}"
        problem = f"unknown key; {hint}"
    elif kind == "missing":
        problem = "missing; it has no default"
    elif kind == "value_error":
        problem = str(details["ctx"]["error"])
    else:
        problem = f"got {got!r}, {details['msg'].replace('Input should be', 'expected')}"
    return lines[known], f"{_dotted(key)}: {problem}"
