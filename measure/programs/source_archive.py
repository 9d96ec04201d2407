"""Fetches a third-party source archive by package, version and SHA-256, and unpacks selected files.

Archives come through the package client that the user has configured (pip or npm), so proxies, mirrors,
certificates and credentials are the user's, and no registry is named here. Neither a package's setup.py nor its
install scripts are run. `measure.programs.catalogue` selects the files of a program.
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from common.atomic_files import move_directory, move_file, workspace
from common.file_cache import cache_directory

DOWNLOAD_LIMIT_SECONDS = 600
FILE_LIMIT_BYTES = 64 * 1024 * 1024

# pip asks a source distribution's build backend for its metadata, and setuptools would run the package's setup.py
# to answer. This backend takes the place of setuptools and answers from the file PKG-INFO instead. (A package with a
# backend of its own is still asked, but only after pip has checked its SHA-256.)
_METADATA_BACKEND = """\
import email
import pathlib
import sys


def get_requires_for_build_wheel(config_settings=None):
    return []


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    metadata = pathlib.Path("PKG-INFO").read_bytes()
    about = email.message_from_bytes(metadata)
    # Some versions of pip take the name from the folder, others from its contents.
    stem = about["Name"].replace("-", "_") + "-" + about["Version"]
    folder = pathlib.Path(metadata_directory, stem + ".dist-info")
    folder.mkdir()
    (folder / "METADATA").write_bytes(metadata)
    return folder.name


__legacy__ = sys.modules[__name__]
"""


class ProgramError(Exception):
    """A program of the catalogue cannot be described, fetched or unpacked; the message is for the user."""


@dataclass(frozen=True)
class Archive:
    """One file of one release in a package registry: ``registry`` is ``pypi`` or ``npm``.

    ``inner``: an archive in that file (a path below its top folder), whose files are used instead.
    """

    registry: str
    package: str
    version: str
    file: str
    sha256: str
    inner: str | None = None

    def __str__(self) -> str:
        return f"{self.package} {self.version} ({self.registry})"


Downloader = Callable[[Archive, Path], None]
"""Puts ``archive.file`` into a folder, or raises `ProgramError`."""


def sources_directory() -> Path:
    """Folder of the user's cache for archives and unpacked sources."""
    return cache_directory() / "programs"


def fetch_archive(archive: Archive, download: Downloader | None = None) -> Path:
    """The path of the verified archive in the cache; it is downloaded if necessary.

    Raises `ProgramError` without a client or network, or when the content has another SHA-256.
    """
    folder = sources_directory() / "archives"
    path = folder / f"{archive.sha256[:16]}-{archive.file}"
    if path.is_file() and _sha256(path) == archive.sha256:
        return path
    folder.mkdir(parents=True, exist_ok=True)
    with workspace(folder) as temporary:
        try:
            (download or _DOWNLOADERS[archive.registry])(archive, temporary)
        except ProgramError as error:
            raise ProgramError(f"{error}\nWithout a network, put {archive.file} there as {path}") from error
        fetched = temporary / archive.file
        if not fetched.is_file():
            got = ", ".join(sorted(entry.name for entry in temporary.iterdir())) or "nothing"
            raise ProgramError(f"{archive}: got {got} from the registry, expected {archive.file}")
        found = _sha256(fetched)
        if found != archive.sha256:
            raise ProgramError(
                f"{archive}: {archive.file} has SHA-256 {found}, expected {archive.sha256}; "
                "it was deleted. Correct the catalogue only if you know why the file changed"
            )
        move_file(fetched, path)
    return path


def unpack_archive(archive: Archive, path: Path, patterns: Sequence[str]) -> Path:
    """The folder with the archive's files that match ``patterns``; they are unpacked if necessary.

    A pattern is a path below the archive's top folder, where ``*`` and ``?`` stay within one folder name, and a
    last part ``**`` stands for all files below. Files keep their times and executable bits.
    Raises `ProgramError` for an unreadable or unsafe archive, or when a pattern matches nothing.
    """
    target = unpacked_directory(archive, patterns)
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with workspace(target.parent) as temporary:
        _extract(archive, path, patterns, temporary)
        move_directory(temporary, target)
    return target


def unpacked_directory(archive: Archive, patterns: Sequence[str]) -> Path:
    """Target folder of `unpack_archive`; the name depends on the archive's content and the patterns."""
    inner = [f"in {archive.inner}"] if archive.inner else []
    key = hashlib.sha256("\n".join([archive.sha256, *inner, *sorted(patterns)]).encode()).hexdigest()
    return sources_directory() / "sources" / f"{archive.package.replace('/', '-')}-{archive.version}-{key[:12]}"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _extract(archive: Archive, path: Path, patterns: Sequence[str], target: Path) -> None:
    """Write the archive's files that match ``patterns`` below ``target``. Raises `ProgramError`."""
    matched: set[str] = set()
    try:
        with tarfile.open(path, "r:*") as tar, _inner_of(archive, tar) as wanted_tar:
            for member in wanted_tar:
                parts = _safe_parts(archive, member.name)
                wanted = [pattern for pattern in patterns if _matches(parts[1:], pattern)]
                if not wanted or member.isdir():
                    continue
                _write(archive, wanted_tar, member, target.joinpath(*parts[1:]))
                matched.update(wanted)
    except (tarfile.TarError, EOFError) as error:
        raise ProgramError(f"{archive}: {archive.file} is not a readable tar archive: {error}") from error
    missing = [pattern for pattern in patterns if pattern not in matched]
    if missing:
        raise ProgramError(f"{archive}: {archive.file} has no file {missing[0]}; correct 'extract'")


@contextlib.contextmanager
def _inner_of(archive: Archive, tar: tarfile.TarFile) -> Iterator[tarfile.TarFile]:
    """The archive inside the archive, if there is an ``inner`` one; else the archive itself."""
    if archive.inner is None:
        yield tar
        return
    for member in tar:
        if _safe_parts(archive, member.name)[1:] == PurePosixPath(archive.inner).parts and member.isreg():
            with tarfile.open(fileobj=tar.extractfile(member), mode="r:*") as inside:
                yield inside
            return
    raise ProgramError(f"{archive}: {archive.file} has no file {archive.inner}; correct 'inner'")


def _write(archive: Archive, tar: tarfile.TarFile, member: tarfile.TarInfo, destination: Path) -> None:
    content = tar.extractfile(member) if member.isreg() else None
    if content is None or member.size > FILE_LIMIT_BYTES:
        problem = "it is no regular file" if content is None else f"it has {member.size} bytes"
        raise ProgramError(f"{archive}: {archive.file} is refused: {member.name}: {problem}")
    destination.parent.mkdir(parents=True, exist_ok=True)
    with content, destination.open("wb") as out:
        shutil.copyfileobj(content, out)
    destination.chmod(0o755 if member.mode & 0o100 else 0o644)
    os.utime(destination, (member.mtime, member.mtime))  # make decides by file times


def _safe_parts(archive: Archive, name: str) -> tuple[str, ...]:
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or "\\" in name or "\0" in name:
        raise ProgramError(f"{archive}: {archive.file} is refused: it has a file outside itself: {name!r}")
    return parts


def _matches(parts: Sequence[str], pattern: str) -> bool:
    wanted = PurePosixPath(pattern).parts
    if wanted[-1] == "**":
        wanted = wanted[:-1]
        return len(parts) > len(wanted) and all(map(fnmatch.fnmatchcase, parts, wanted))
    return len(parts) == len(wanted) and all(map(fnmatch.fnmatchcase, parts, wanted))


def _download_with_pip(archive: Archive, folder: Path) -> None:
    """Download a source distribution by pip; the setup.py of the package is not run."""
    if importlib.util.find_spec("pip") is None:
        raise ProgramError(f"{archive}: pip is not installed for {sys.executable}; run 'python -m ensurepip'")
    with tempfile.TemporaryDirectory(prefix="backend-") as temporary:
        backend = Path(temporary) / "setuptools"
        backend.mkdir()
        (backend / "__init__.py").write_text("")
        (backend / "build_meta.py").write_text(_METADATA_BACKEND)
        requirements = Path(temporary) / "requirements.txt"
        requirements.write_text(f"{archive.package}=={archive.version} --hash=sha256:{archive.sha256}\n")
        arguments = [
            *(sys.executable, "-m", "pip", "download", "--no-deps", "--no-build-isolation", "--use-pep517"),
            *("--no-binary", archive.package, "--no-input", "--disable-pip-version-check"),
            *("--progress-bar", "off", "--dest", str(folder), "--requirement", str(requirements)),
        ]
        _run_client(archive, arguments, {"PYTHONPATH": temporary})


def _download_with_npm(archive: Archive, folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise ProgramError(f"{archive}: the npm command was not found; install Node.js with npm")
    arguments = [npm, "pack", f"{archive.package}@{archive.version}", "--ignore-scripts", "--silent"]
    _run_client(archive, [*arguments, "--pack-destination", str(folder)], {})


_DOWNLOADERS: Mapping[str, Downloader] = {"pypi": _download_with_pip, "npm": _download_with_npm}


def _run_client(archive: Archive, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    """Run a registry's client. Raises `ProgramError` with its last lines if it fails."""
    try:
        done = subprocess.run(
            arguments,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=DOWNLOAD_LIMIT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        limit = f"no answer in {DOWNLOAD_LIMIT_SECONDS} s"
        raise ProgramError(f"{archive}: {archive.file} could not be fetched: {limit}") from error
    if done.returncode != 0:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        reason = "\n  ".join(lines[-6:]) or f"exit status {done.returncode}"
        raise ProgramError(f"{archive}: {archive.file} could not be fetched:\n  {reason}")
