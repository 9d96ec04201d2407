"""Tells ELF files, which programs and objects are, from other files."""

from __future__ import annotations

from pathlib import Path

ELF_MAGIC = b"\x7fELF"
ARCHIVE_MAGIC = b"!<arch>\n"


def is_elf(path: Path) -> bool:
    """Whether a file is an ELF file by its first bytes. Raises `OSError`."""
    with path.open("rb") as file:
        return file.read(4) == ELF_MAGIC
