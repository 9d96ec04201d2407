"""Keeps files between processes under the user's cache directory; none is trusted, none is necessary.

Translations are kept in two of its folders: ``translations`` has single objects, ``programs`` the translations and
block tables of whole programs. Together they take at most `limit_bytes` of disk: the least recently used file is
removed first. Any number of processes may use them at once. Other files in these folders are left alone.
`common.build_cache` and `common.compiler_cache` bound the rest of the directory.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import re
import struct
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from common import atomic_files
from common.atomic_files import is_leftover

DEFAULT_LIMIT_BYTES = 2 << 30
LIMIT_VARIABLE = "PERTURBATION_CACHE_LIMIT"
OBJECTS, PROGRAMS = "translations", "programs"
LEFT = 3 / 4  # fraction of a limit that stays in use after files have been removed

_MAGIC = b"RVKEPT1\n"
_HEAD = struct.Struct("<8sI")
_NAME = re.compile(r"[0-9a-f]{62}(\.[a-z]+)?")
_ABANDONED_SECONDS = 3600  # a temporary file so old belongs to a process that was killed
_LEDGER = "translations.size"  # bytes of both folders, under a lock
_LOCKS = "translations.lock"  # a process locks a byte of this file for each body that it makes
_PAUSE_SECONDS = 3600  # after nothing more could be removed
_DISK_BYTES = 4096
_FACTORS = {"k": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class KeptFile(NamedTuple):
    """A file of this cache. ``kind``: "object" or a kind of program file; ``used``: last use, seconds of the epoch."""

    path: Path
    kind: str
    n_bytes: int
    used: float


def cache_directory() -> Path:
    """The folder of everything compiled (``$XDG_CACHE_HOME/perturbation``)."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "perturbation"


def object_path(key: str) -> Path:
    """The file of the object that ``key`` identifies, for `read_checked` and `write_checked`."""
    name = hashlib.sha256(key.encode()).hexdigest()
    return cache_directory() / OBJECTS / name[:2] / name[2:]


def limit_bytes() -> int:
    """Limit of the translations, of the builds and of the compiler's own cache, each: ``$PERTURBATION_CACHE_LIMIT``.

    It is in bytes, or a text like 500M or 4G; 2 GiB by default.

    Raises `ValueError` for text that is no size.
    """
    text = os.environ.get(LIMIT_VARIABLE)
    if not text:
        return DEFAULT_LIMIT_BYTES
    digits, factor = (text[:-1], _FACTORS[text[-1]]) if text[-1] in _FACTORS else (text, 1)
    if not digits.isdecimal():
        raise ValueError(f"{LIMIT_VARIABLE} is {text!r}: expected bytes, or a number with k, M, G or T, such as 4G")
    return int(digits) * factor


def limit_or_default() -> int:
    """As `limit_bytes`, and the default for text that is no size, which `emulate --cache-stats` reports."""
    try:
        return limit_bytes()
    except ValueError:
        return DEFAULT_LIMIT_BYTES


def add_to_ledger(ledger: Path, n_bytes: int, bound: Callable[[int], int]) -> None:
    """Add written bytes to the file ``ledger``, under its lock, and call ``bound`` when they exceed the limit.

    ``bound`` takes the limit, counts the bytes, removes what is over the limit, and returns the bytes that are left. If
    that is still too much, it is called again after an hour at the earliest. Raises `OSError`.
    """
    limit, now = limit_or_default(), int(time.time())
    with ledger.open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        numbers = file.read().split()  # bytes, and the time before which nothing can be removed
        total = pause_until = 0
        if numbers and all(number.isdigit() for number in numbers):
            total, pause_until = int(numbers[0]) + n_bytes, int(numbers[-1]) if len(numbers) > 1 else 0
            is_due = total > limit and not now < pause_until <= now + _PAUSE_SECONDS
        else:  # the first file ever, or a damaged ledger
            is_due = True
        if is_due:
            total = bound(limit)
            pause_until = now + _PAUSE_SECONDS if total > limit else 0
        file.truncate(0)
        file.write(b"%d %d" % (total, pause_until) if pause_until else b"%d" % total)


def read_checked(path: Path) -> bytes | None:
    """The body that `write_checked` wrote; None for a missing or damaged file. Counts as a use of the file."""
    try:
        with path.open("rb", buffering=0) as file:
            head, body = file.read(_HEAD.size), file.read()
    except OSError:
        return None
    if len(head) < _HEAD.size:
        return None
    magic, checksum = _HEAD.unpack(head)
    if magic != _MAGIC or checksum != zlib.crc32(body):
        return None
    with contextlib.suppress(OSError):
        os.utime(path)
    return body


def write_checked(path: Path, body: bytes | Sequence[bytes]) -> None:
    """Write atomically ``body`` or its parts; does nothing when the cache cannot be written."""
    parts = [body] if isinstance(body, bytes) else body
    checksum = functools.reduce(lambda sum_, part: zlib.crc32(part, sum_), parts, 0)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_files.write_bytes(path, _HEAD.pack(_MAGIC, checksum), *parts, durable=False)
        _note(path.parent.parent.parent, _HEAD.size + sum(map(len, parts)))
    except OSError:
        return


def checked_or_made(path: Path, make: Callable[[], bytes]) -> bytes:
    """The body that `write_checked` wrote; if there is none, what ``make`` returns, which is written.

    One process makes it; others that want the same wait, and read it then.
    """
    body = read_checked(path)
    if body is None:
        with _making(path):
            body = read_checked(path)
            if body is None:
                body = make()
                write_checked(path, body)
    return body


@contextlib.contextmanager
def _making(path: Path) -> Iterator[None]:
    """Keep other processes from making the file ``path`` meanwhile."""
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):  # without the lock it may be made twice
            directory = path.parent.parent.parent
            directory.mkdir(parents=True, exist_ok=True)
            file = held.enter_context((directory / _LOCKS).open("a+b"))
            fcntl.lockf(file, fcntl.LOCK_EX, 1, zlib.crc32(path.name.encode()))
        yield


def kept_files(directory: Path | None = None) -> Iterator[KeptFile]:
    """Every kept translation, in no order."""
    base = cache_directory() if directory is None else directory
    for folder in (OBJECTS, PROGRAMS):
        for entry in _entries(base / folder):
            if _NAME.fullmatch(entry.name):
                with contextlib.suppress(OSError):
                    about = entry.stat(follow_symlinks=False)
                    kind = Path(entry.name).suffix[1:] or "object"
                    yield KeptFile(Path(entry.path), kind, max(about.st_size, about.st_blocks * 512), about.st_mtime)


def trim(to_bytes: int, directory: Path | None = None) -> int:
    """Remove the least recently used translations until the others take at most ``to_bytes``; returns their size."""
    base = cache_directory() if directory is None else directory
    _remove_abandoned(base)
    files = sorted(kept_files(base), key=lambda file: file.used)
    total = sum(file.n_bytes for file in files)
    for file in files:
        if total <= to_bytes:
            break
        if _is_ours(file.path):
            with contextlib.suppress(OSError):
                file.path.unlink(missing_ok=True)
                total -= file.n_bytes
    return total


def clear() -> tuple[int, int]:
    """Remove all translations, and nothing else; returns the number of files and bytes. Running processes go on."""
    base = cache_directory()
    files = list(kept_files(base))
    trim(-1, base)
    for folder in (OBJECTS, PROGRAMS):
        for part in (base / folder).glob("??"):
            with contextlib.suppress(OSError):
                part.rmdir()  # only when nothing else is in it
    with contextlib.suppress(OSError):
        (base / _LEDGER).unlink()
    removed = [file for file in files if not file.path.exists()]
    return len(removed), sum(file.n_bytes for file in removed)


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Regular files in the subfolders of ``folder`` that are named by two hexadecimal digits."""
    try:
        with os.scandir(folder) as parts:
            inside = [p.path for p in parts if len(p.name) == 2 and p.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for path in inside:
        with contextlib.suppress(OSError), os.scandir(path) as entries:
            yield from (entry for entry in entries if entry.is_file(follow_symlinks=False))


def _is_ours(path: Path) -> bool:
    """Whether the file begins like the files of this cache, even if it is damaged or unfinished."""
    try:
        with path.open("rb") as file:
            return _MAGIC.startswith(file.read(len(_MAGIC)))
    except OSError:
        return False


def _remove_abandoned(base: Path) -> None:
    """Remove temporary files of processes that were killed while they wrote."""
    before = time.time() - _ABANDONED_SECONDS
    for folder in (OBJECTS, PROGRAMS):
        for entry in _entries(base / folder):
            if is_leftover(entry.name):
                with contextlib.suppress(OSError):
                    if entry.stat(follow_symlinks=False).st_mtime < before:
                        os.unlink(entry.path)


def _note(base: Path, n_bytes: int) -> None:
    """Add a written file to the ledger, and remove files when the limit is exceeded."""

    def bound(limit: int) -> int:
        total = sum(file.n_bytes for file in kept_files(base))
        return trim(int(limit * LEFT), base) if total > limit else total

    add_to_ledger(base / _LEDGER, -(-n_bytes // _DISK_BYTES) * _DISK_BYTES, bound)
